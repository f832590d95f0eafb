/* Registers handlers, and checks the information that their tokens give. */
#include "start.h"

static volatile int answers;
static int cdata;
/* The entries that handlers expect in their tokens. Registration writes the indices. */
static gex_AM_Entry_t table[6];
enum { PING_SHORT, PING_MEDIUM, PING_LONG, PONG_SHORT, PONG_MEDIUM, PONG_LONG };

static void check_token(gex_Token_t token, int entry, int is_request, int is_long) {
  gex_Token_Info_t info;
  const gex_TI_t got = gex_Token_Info(token, &info, GEX_TI_ALL);
  CHECK_EQ(got, GEX_TI_ALL);
  CHECK_EQ(info.gex_srcrank, is_request ? neighbour(size - 1) : neighbour(1));
  CHECK(info.gex_ep == ep);
  CHECK_EQ(info.gex_is_req != 0, is_request);
  CHECK_EQ(info.gex_is_long != 0, is_long);
  CHECK_EQ(info.gex_entry->gex_index, table[entry].gex_index);
  CHECK(info.gex_entry->gex_fnptr == table[entry].gex_fnptr);
  CHECK_EQ(info.gex_entry->gex_flags, table[entry].gex_flags);
  CHECK_EQ(info.gex_entry->gex_nargs, table[entry].gex_nargs);
  CHECK(info.gex_entry->gex_cdata == table[entry].gex_cdata);
  CHECK(!strcmp(info.gex_entry->gex_name, table[entry].gex_name));
  /* The call must provide the requested information, and may provide more. */
  CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK | GEX_TI_EP) & (GEX_TI_SRCRANK | GEX_TI_EP));
}

static void check_limits(gex_Token_t token) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  CHECK_EQ(gex_Token_MaxReplyMedium(token, GEX_EVENT_NOW, 0, 1),
           gex_AM_MaxReplyMedium(team, info.gex_srcrank, GEX_EVENT_NOW, 0, 1));
  CHECK_EQ(gex_Token_MaxReplyLong(token, GEX_EVENT_NOW, 0, 1),
           gex_AM_MaxReplyLong(team, info.gex_srcrank, GEX_EVENT_NOW, 0, 1));
}

static void ping_short(gex_Token_t token, gex_AM_Arg_t number) {
  check_token(token, PING_SHORT, 1, 0);
  check_limits(token);
  gex_AM_ReplyShort1(token, table[PONG_SHORT].gex_index, 0, number + 1);
}

static void ping_medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t number) {
  check_token(token, PING_MEDIUM, 1, 0);
  gex_AM_ReplyMedium1(token, table[PONG_MEDIUM].gex_index, at, bytes, GEX_EVENT_NOW, 0, number + 1);
}

static void ping_long(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t number) {
  check_token(token, PING_LONG, 1, 1);
  gex_AM_ReplyLong1(token, table[PONG_LONG].gex_index, at, bytes, base[neighbour(size - 1)] + 64, GEX_EVENT_NOW, 0,
                    number + 1);
}

static void pong_short(gex_Token_t token, gex_AM_Arg_t number) {
  check_token(token, PONG_SHORT, 0, 0);
  CHECK_EQ(number, 8);
  answers++;
}

static void pong_medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t number) {
  check_token(token, PONG_MEDIUM, 0, 0);
  CHECK_EQ(bytes, 6);
  CHECK(!memcmp(at, "medium", 6));
  CHECK_EQ(number, 8);
  answers++;
}

static void pong_long(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t number) {
  check_token(token, PONG_LONG, 0, 1);
  CHECK_EQ(bytes, 4);
  CHECK(at == base[me] + 64);
  CHECK(!memcmp(at, "long", 4));
  CHECK_EQ(number, 8);
  answers++;
}

static void entry(int place, int index, gex_AM_Fn_t function, gex_Flags_t flags, const char *name) {
  table[place].gex_index = (gex_AM_Index_t)index;
  table[place].gex_fnptr = function;
  table[place].gex_flags = flags;
  table[place].gex_nargs = 1;
  table[place].gex_cdata = place % 2 ? NULL : &cdata;
  table[place].gex_name = name;
}

/* A handler that accepts any category, as a request and as a reply. Further handlers are registered
 * later. */
static int any_count;
static void any(gex_Token_t token) {
  (void)token;
  any_count++;
}

static void registration(void) {
  gex_AM_Entry_t before[6], more[3];
  int i;
  entry(PING_SHORT, 0, (gex_AM_Fn_t)ping_short, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "ping short");
  entry(PING_MEDIUM, 0, (gex_AM_Fn_t)ping_medium, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "ping medium");
  entry(PING_LONG, GEX_AM_INDEX_BASE, (gex_AM_Fn_t)ping_long, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQREP, "ping long");
  entry(PONG_SHORT, 254, (gex_AM_Fn_t)pong_short, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, "pong short");
  entry(PONG_MEDIUM, 0, (gex_AM_Fn_t)pong_medium, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REPLY, "pong medium");
  entry(PONG_LONG, 0, (gex_AM_Fn_t)pong_long, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQREP, "pong long");
  memcpy(before, table, sizeof(table));
  CHECK_EQ(gex_EP_RegisterHandlers(ep, table, 6), GASNET_OK);
  /* Entries with any index get indices from 255 downwards, in the order of the table. The indices
   * that the table fixes are skipped. */
  CHECK_EQ(table[PING_SHORT].gex_index, 255);
  CHECK_EQ(table[PING_MEDIUM].gex_index, 253);
  CHECK_EQ(table[PING_LONG].gex_index, GEX_AM_INDEX_BASE);
  CHECK_EQ(table[PONG_SHORT].gex_index, 254);
  CHECK_EQ(table[PONG_MEDIUM].gex_index, 252);
  CHECK_EQ(table[PONG_LONG].gex_index, 251);
  /* Registration writes only the index of an entry. */
  for (i = 0; i < 6; ++i) {
    CHECK(before[i].gex_fnptr == table[i].gex_fnptr && before[i].gex_cdata == table[i].gex_cdata);
    CHECK(before[i].gex_flags == table[i].gex_flags && before[i].gex_nargs == table[i].gex_nargs);
    CHECK(before[i].gex_name == table[i].gex_name);
  }
  /* Registers further handlers. This table is on the stack and has no names. */
  memset(more, 0, sizeof(more));
  for (i = 0; i < 3; ++i) {
    more[i].gex_fnptr = (gex_AM_Fn_t)any;
    more[i].gex_flags = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  }
  more[1].gex_index = 200;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, more, 3), GASNET_OK);
  CHECK_EQ(more[0].gex_index, 250);
  CHECK_EQ(more[1].gex_index, 200);
  CHECK_EQ(more[2].gex_index, 249);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, NULL, 0), GASNET_OK);
  /* An index that is in use can't be registered again. */
  gex_System_SetVerboseErrors(0);
  CHECK(gex_EP_RegisterHandlers(ep, more + 1, 1) != GASNET_OK);
  gex_System_SetVerboseErrors(1);
  gex_AM_RequestShort0(team, me, 200, 0);
  GASNET_BLOCKUNTIL(any_count == 1);
}

int main(int argc, char **argv) {
  char text[8];
  start(&argc, &argv, NULL, 0, GASNET_PAGESIZE);
  registration();
  barrier();
  gex_AM_RequestShort1(team, neighbour(1), table[PING_SHORT].gex_index, 0, 7);
  memcpy(text, "medium", 6);
  gex_AM_RequestMedium1(team, neighbour(1), table[PING_MEDIUM].gex_index, text, 6, GEX_EVENT_NOW, 0, 7);
  memcpy(text, "long", 4);
  gex_AM_RequestLong1(team, neighbour(1), table[PING_LONG].gex_index, text, 4, base[neighbour(1)], GEX_EVENT_NOW, 0, 7);
  GASNET_BLOCKUNTIL(answers == 3);
  finish();
  return 0;
}
