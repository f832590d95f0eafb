/* The types and constants of gasnet_fwd.h: their sizes, agreement with GASNet's values, distinct
 * bits, and numbers that #if can evaluate. */
#include <gasnet_fwd.h>

#if GEX_FLAG_IMMEDIATE == 0 || GASNET_OK != 0 || GEX_AM_INDEX_BASE > 128 || GASNET_MAXNODES < 65535
  #error "a constant differs from GASNet's"
#endif
#if GEX_EC_GET == GEX_EC_PUT || GEX_DT_I32 == GEX_DT_U32 || GEX_OP_ADD == GEX_OP_SUB || GEX_TI_SRCRANK == GEX_TI_EP
  #error "two constants are equal"
#endif
#if SIZEOF_GEX_RMA_VALUE_T != 8 || GASNET_MAXEPS < 1 || GASNET_HIDDEN_AM_CONCURRENCY_LEVEL != 0
  #error "a constant is not this library's"
#endif
#if GASNET_SUPPORTS_AM_CANCEL != 20240418L || GASNET_SUPPORTS_AM_COMMIT_V2 != 20240906L
  #error "an extension has the wrong version"
#endif
#if !GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM || !GASNET_NATIVE_NP_ALLOC_REP_MEDIUM || !GASNET_NATIVE_NP_ALLOC_REQ_LONG || \
    !GASNET_NATIVE_NP_ALLOC_REP_LONG
  #error "negotiated payload must be written in place"
#endif

#include <gasnetex.h>

#if GASNET_RELEASE_VERSION_MAJOR < 2025 || GASNET_RELEASE_VERSION_MINOR < 1 || GASNET_RELEASE_VERSION_PATCH < 0
  #error "the release is older than 2025.1.0"
#endif
#if GEX_SPEC_VERSION_MAJOR != 0 || GEX_SPEC_VERSION_MINOR < 19
  #error "GASNet-EX's specification is older than 0.19"
#endif
#if GASNET_SPEC_VERSION_MAJOR != 1 || GASNET_SPEC_VERSION_MINOR < 8
  #error "GASNet-1's specification is older than 1.8"
#endif
#if !_INCLUDED_GASNETEX_H || !GASNET_SEGMENT_FAST || !GASNET_PSHM || GASNET_ALIGNED_SEGMENTS
  #error "a property of segments is wrong"
#endif
#if GASNETI_EX_SPEC_VERSION_MAJOR != GEX_SPEC_VERSION_MAJOR || GASNETI_EX_SPEC_VERSION_MINOR != GEX_SPEC_VERSION_MINOR || \
    GASNETI_SPEC_VERSION_MAJOR != GASNET_SPEC_VERSION_MAJOR || GASNETI_SPEC_VERSION_MINOR != GASNET_SPEC_VERSION_MINOR || \
    GASNETI_TOOLS_SPEC_VERSION_MAJOR != GASNETT_SPEC_VERSION_MAJOR || \
    GASNETI_TOOLS_SPEC_VERSION_MINOR != GASNETT_SPEC_VERSION_MINOR
  #error "a specification has two versions"
#endif
#if GASNET_HAVE_MK_CLASS_HOST != 1 || defined(GASNET_HAVE_MK_CLASS_CUDA_UVA) || defined(GASNET_HAVE_MK_CLASS_HIP) || \
    defined(GASNET_HAVE_MK_CLASS_ZE) || defined(GASNET_HAVE_MK_CLASS_MULTIPLE)
  #error "only the host's memory kind may be supported"
#endif
#if defined(GASNET_SEQ) && GASNETI_MAX_THREADS != 1 || !defined(GASNET_SEQ) && GASNETI_MAX_THREADS < 256
  #error "the maximum number of threads is wrong"
#endif
#if defined(GASNET_SEQ) + defined(GASNET_PAR) + defined(GASNET_PARSYNC) != 1
  #error "exactly one threading mode must be defined"
#endif
#if defined(GASNET_SEQ) && !GASNET_SEQ
  #error "GASNET_SEQ must be 1"
#endif
#if defined(GASNET_PAR) && !GASNET_PAR
  #error "GASNET_PAR must be 1"
#endif
#if defined(GASNET_DEBUG) == defined(GASNET_NDEBUG)
  #error "exactly one of GASNET_DEBUG and GASNET_NDEBUG must be defined"
#endif
#if defined(GASNET_DEBUG) && !GASNET_DEBUG
  #error "GASNET_DEBUG must be 1"
#endif
#if !GASNET_CONDUIT_SMP || !GASNET_SMP_CONDUIT
  #error "the conduit must be smp"
#endif

#include "check.h"

/* Checks that no two entries of the list share a bit. */
#define CHECK_DISTINCT(list) check_distinct(__LINE__, list, sizeof(list) / sizeof((list)[0]))

static void check_distinct(int line, const uint32_t *list, size_t count) {
  uint32_t seen = 0;
  size_t i;
  for (i = 0; i < count; ++i) {
    if (list[i] == 0 || (seen & list[i])) fprintf(stderr, "entry %lu of the list of line %d\n", (unsigned long)i, line);
    CHECK(list[i] != 0 && !(seen & list[i]));
    seen |= list[i];
  }
}

static void flags(void) {
  const uint32_t calls[] = {GEX_FLAG_IMMEDIATE,         GEX_FLAG_LC_COPY_YES,      GEX_FLAG_LC_COPY_NO,
                            GEX_FLAG_PEER_NEVER_SELF,   GEX_FLAG_PEER_NEVER_NBRHD, GEX_FLAG_SELF_SEG_UNKNOWN,
                            GEX_FLAG_SELF_SEG_SOME,     GEX_FLAG_SELF_SEG_BOUND,   GEX_FLAG_SELF_SEG_OFFSET,
                            GEX_FLAG_PEER_SEG_UNKNOWN,  GEX_FLAG_PEER_SEG_SOME,    GEX_FLAG_PEER_SEG_BOUND,
                            GEX_FLAG_PEER_SEG_OFFSET,   GEX_FLAG_AM_PREPARE_LEAST_CLIENT,
                            GEX_FLAG_AM_PREPARE_LEAST_ALLOC, GEX_FLAG_RANK_IS_JOBRANK, GEX_FLAG_SCRATCH_SEG_OFFSET,
                            GEX_FLAG_ENABLE_LEAF_LC};
  const uint32_t init[] = {GEX_FLAG_USES_GASNET1, GEX_FLAG_DEFER_THREADS};
  const uint32_t handlers[] = {GEX_FLAG_AM_SHORT, GEX_FLAG_AM_MEDIUM, GEX_FLAG_AM_LONG, GEX_FLAG_AM_REQUEST,
                               GEX_FLAG_AM_REPLY};
  CHECK_DISTINCT(calls);
  CHECK_DISTINCT(init);
  CHECK_DISTINCT(handlers);
  CHECK_EQ(GEX_FLAG_AM_MEDLONG, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_LONG);
  CHECK_EQ(GEX_FLAG_AM_REQREP, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_REPLY);
}

static void masks(void) {
  const uint32_t fields[] = {GEX_TI_SRCRANK, GEX_TI_EP, GEX_TI_ENTRY, GEX_TI_IS_REQ, GEX_TI_IS_LONG};
  const uint32_t categories[] = {GEX_EC_GET, GEX_EC_PUT, GEX_EC_AM, GEX_EC_LC, GEX_EC_RMW};
  CHECK_DISTINCT(fields);
  CHECK_DISTINCT(categories);
  CHECK_EQ(GEX_TI_ALL, GEX_TI_SRCRANK | GEX_TI_EP | GEX_TI_ENTRY | GEX_TI_IS_REQ | GEX_TI_IS_LONG);
  CHECK_EQ(GEX_EC_ALL, GEX_EC_GET | GEX_EC_PUT | GEX_EC_AM | GEX_EC_LC | GEX_EC_RMW);
  CHECK(GASNET_SUPPORTS_TI_SRCRANK && GASNET_SUPPORTS_TI_EP && GASNET_SUPPORTS_TI_ENTRY && GASNET_SUPPORTS_TI_IS_REQ &&
        GASNET_SUPPORTS_TI_IS_LONG);
}

static void data_types_and_operations(void) {
  const gex_DT_t types[] = {GEX_DT_I32, GEX_DT_U32, GEX_DT_I64, GEX_DT_U64, GEX_DT_FLT, GEX_DT_DBL, GEX_DT_USER};
  const gex_OP_t operations[] = {GEX_OP_ADD,  GEX_OP_SUB,  GEX_OP_MULT,  GEX_OP_MIN,  GEX_OP_MAX,  GEX_OP_INC,
                                 GEX_OP_DEC,  GEX_OP_AND,  GEX_OP_OR,    GEX_OP_XOR,  GEX_OP_SET,  GEX_OP_CAS,
                                 GEX_OP_FADD, GEX_OP_FSUB, GEX_OP_FMULT, GEX_OP_FMIN, GEX_OP_FMAX, GEX_OP_FINC,
                                 GEX_OP_FDEC, GEX_OP_FAND, GEX_OP_FOR,   GEX_OP_FXOR, GEX_OP_SWAP, GEX_OP_FCAS,
                                 GEX_OP_GET,  GEX_OP_USER, GEX_OP_USER_NC};
  CHECK_DISTINCT(types);
  CHECK_DISTINCT(operations);
  CHECK_EQ(GEX_OP_CSWAP, GEX_OP_FCAS);
#define CHECK_PAIR(plain, fetching)                   \
  CHECK_EQ(GEX_OP_TO_FETCHING(plain), fetching);      \
  CHECK_EQ(GEX_OP_TO_NONFETCHING(fetching), plain)
  CHECK_PAIR(GEX_OP_ADD, GEX_OP_FADD);
  CHECK_PAIR(GEX_OP_SUB, GEX_OP_FSUB);
  CHECK_PAIR(GEX_OP_MULT, GEX_OP_FMULT);
  CHECK_PAIR(GEX_OP_MIN, GEX_OP_FMIN);
  CHECK_PAIR(GEX_OP_MAX, GEX_OP_FMAX);
  CHECK_PAIR(GEX_OP_INC, GEX_OP_FINC);
  CHECK_PAIR(GEX_OP_DEC, GEX_OP_FDEC);
  CHECK_PAIR(GEX_OP_AND, GEX_OP_FAND);
  CHECK_PAIR(GEX_OP_OR, GEX_OP_FOR);
  CHECK_PAIR(GEX_OP_XOR, GEX_OP_FXOR);
  CHECK_PAIR(GEX_OP_SET, GEX_OP_SWAP);
  CHECK_PAIR(GEX_OP_CAS, GEX_OP_FCAS);
}

static void invalid_values(void) {
  const gex_Client_t client = GEX_CLIENT_INVALID;
  const gex_EP_t ep = GEX_EP_INVALID;
  const gex_TM_t team = GEX_TM_INVALID;
  const gex_Segment_t segment = GEX_SEGMENT_INVALID;
  const gex_Event_t event = GEX_EVENT_INVALID, none = GEX_EVENT_NO_OP;
  const gex_AM_SrcDesc_t descriptor = GEX_AM_SRCDESC_NO_OP;
  gex_Event_t *const now = GEX_EVENT_NOW, *const defer = GEX_EVENT_DEFER, *const group = GEX_EVENT_GROUP;
  CHECK(!client && !ep && !team && !segment && !event && !descriptor);
  CHECK(none != event);
  CHECK(now && defer && group && now != defer && now != group && defer != group);
  CHECK(GEX_RANK_INVALID > (gex_Rank_t)GASNET_MAXNODES);
}

static void errors(void) {
  const int codes[] = {GASNET_OK,
                       GASNET_ERR_NOT_INIT,
                       GASNET_ERR_RESOURCE,
                       GASNET_ERR_BAD_ARG,
                       GASNET_ERR_NOT_READY,
                       GASNET_ERR_BARRIER_MISMATCH};
  const char *const names[] = {"GASNET_OK",           "GASNET_ERR_NOT_INIT",  "GASNET_ERR_RESOURCE",
                               "GASNET_ERR_BAD_ARG", "GASNET_ERR_NOT_READY", "GASNET_ERR_BARRIER_MISMATCH"};
  size_t i, j;
  for (i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i) {
    CHECK(strstr(gasnet_ErrorName(codes[i]), names[i]) != NULL);
    CHECK(*gasnet_ErrorDesc(codes[i]) != 0);
    for (j = 0; j < i; ++j) CHECK(codes[i] != codes[j]);
  }
  CHECK(gasnet_ErrorName(-1) != NULL && gasnet_ErrorDesc(123456) != NULL);
}

static void types(void) {
  const gex_Rank_t rank = ~(gex_Rank_t)0;
  const gex_AM_Arg_t argument = INT32_MIN;
  const gex_AM_Index_t handler = 255;
  const gex_EP_Index_t index = (gex_EP_Index_t)-1;
  const gex_Flags_t flags = 1;
  const gex_EC_t category = GEX_EC_ALL;
  const gex_TI_t fields = GEX_TI_ALL;
  gex_Token_t token = NULL;
  gex_Memvec_t part;
  gex_RankInfo_t member;
  gasnet_threadinfo_t thread = GASNET_GET_THREADINFO();
  GASNET_BEGIN_FUNCTION();
  GASNET_POST_THREADINFO(thread);
  part.gex_addr = &part;
  part.gex_len = sizeof(part);
  member.gex_jobrank = rank;
  CHECK(rank > 0 && index > 0);
  CHECK_EQ(sizeof(argument), 4);
  CHECK(argument < 0);
  CHECK_EQ(handler, 255);
  CHECK_EQ(sizeof(gex_RMA_Value_t), SIZEOF_GEX_RMA_VALUE_T);
  CHECK_EQ(sizeof(int), SIZEOF_INT);
  CHECK_EQ(sizeof(gex_Token_t), sizeof(void *));
  CHECK_EQ(sizeof(gex_Event_t), sizeof(void *));
  CHECK(flags && category && fields && !token);
  CHECK(part.gex_addr == &part && part.gex_len == sizeof(part) && member.gex_jobrank == rank);
  CHECK_EQ(GASNET_PAGESIZE & (GASNET_PAGESIZE - 1), 0);
}

static void texts(void) {
  char release[32];
  /* The string must be a literal, so that it can be concatenated. */
  const char *const config = "(" GASNET_CONFIG_STRING ")";
  CHECK(strstr(config, "CONDUIT=smp") != NULL);
  CHECK(strstr(config, "SEGMENT=FAST") != NULL);
#if defined(GASNET_SEQ)
  CHECK(strstr(config, "THREADMODEL=SEQ") != NULL);
#elif defined(GASNET_PAR)
  CHECK(strstr(config, "THREADMODEL=PAR") != NULL);
#else
  CHECK(strstr(config, "THREADMODEL=PARSYNC") != NULL);
#endif
  CHECK(!strcmp(GASNET_CONDUIT_NAME_STR, "smp"));
  CHECK(!strcmp(GASNET_CORE_NAME_STR, "smp"));
  CHECK(!strcmp(GASNET_EXTENDED_NAME_STR, "smp"));
  CHECK(*GASNET_CORE_VERSION_STR && *GASNET_EXTENDED_VERSION_STR);
  CHECK(GASNET_CORE_VERSION > 0 && GASNET_EXTENDED_VERSION > 0);
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
  CHECK(!strcmp(TEXT(GASNET_CONDUIT_NAME), "smp"));
  CHECK(!strcmp(TEXT(GASNET_CORE_NAME), "smp"));
  CHECK(!strcmp(TEXT(GASNET_EXTENDED_NAME), "smp"));
  sprintf(release, "%d.%d.%d", GASNET_RELEASE_VERSION_MAJOR, GASNET_RELEASE_VERSION_MINOR, GASNET_RELEASE_VERSION_PATCH);
  CHECK(!strcmp(TEXT(GASNETI_RELEASE_VERSION), release));
  CHECK(*"" GASNETI_BUILD_ID != 0);
  /* The function must agree with the constant that the compiler sees. */
  CHECK_EQ(GASNETI_MAX_THREADS, gex_System_QueryMaxThreads());
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "CONSTANTS", &argc, &argv, 0), GASNET_OK);
  flags();
  masks();
  data_types_and_operations();
  invalid_values();
  errors();
  types();
  texts();
  gasnet_exit(0);
  return 0;
}
