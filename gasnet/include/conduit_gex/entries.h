/* Library functions that the headers call. They are not for clients: names and signatures may
 * change.
 *
 * Each function is documented where it is defined, in the library's sources. */
#ifndef CONDUIT_GEX_ENTRIES_H
#define CONDUIT_GEX_ENTRIES_H

#include <gasnet_fwd.h>

#include <conduit_gex/mode.h>

#if defined(__GNUC__)
  #define CONDUIT_GEX_USED __attribute__((__used__))
  #define CONDUIT_GEX_NORETURN __attribute__((__noreturn__))
  #define CONDUIT_GEX_LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
  #define CONDUIT_GEX_USED
  #define CONDUIT_GEX_NORETURN
  #define CONDUIT_GEX_LIKELY(condition) (condition)
#endif

/* The qualifiers of functions that the headers define. Clients need not use all of them. */
#define CONDUIT_GEX_INLINE static inline

#define CONDUIT_GEX_GLUE2(a, b) a##_##b
#define CONDUIT_GEX_GLUE(a, b) CONDUIT_GEX_GLUE2(a, b)
#define CONDUIT_GEX_LIBRARY CONDUIT_GEX_GLUE(conduit_gex_library, CONDUIT_GEX_GLUE(CONDUIT_GEX_MODE, CONDUIT_GEX_BUILD))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the library ---- */

/* Only the library of this threading mode and build defines this variable, so that linking any
 * other fails. */
extern const int CONDUIT_GEX_LIBRARY;
static const int *const conduit_gex_library CONDUIT_GEX_USED = &CONDUIT_GEX_LIBRARY;

/* Launchers look for this string in the executable. */
static const char conduit_gex_ident[] CONDUIT_GEX_USED = CONDUIT_GEX_IDENT;

typedef struct {
  size_t bytes;
  const char *conduit;
  const char *segment;
} conduit_gex_config_t;

static const conduit_gex_config_t conduit_gex_config CONDUIT_GEX_USED = {
  sizeof(conduit_gex_config_t), GASNET_CONDUIT_NAME_STR, CONDUIT_GEX_SEGMENT_STR
};

/* ---- the job ---- */

/* A rank's segment as mapped here. All fields are 0 before attach, and if the segment is not
 * mapped. The fields are the number of places in the segment where a word of 8 bytes can begin,
 * the segment's address at its owner, the number to add to an owner's address to get the address
 * here, and the segment's length in bytes. */
typedef struct {
  uint64_t words;
  uint64_t address;
  uint64_t delta;
  uint64_t length;
} conduit_gex_segment_t;

/* The segments of the first CONDUIT_GEX_NEAR_RANKS ranks. Puts and gets to other ranks call the
 * library.
 *
 * The table is constant to clients. Each entry changes once, from zeros, which leave the access
 * to the library. A value read before the change is therefore harmless. In a child (fork) the
 * entry changes back. A function that has read an entry before the fork still uses the old
 * value. If it then accesses another rank's segment, the child ends (SIGSEGV). The child may
 * still put to its own rank's segment, which it shares with its parent. */
#define CONDUIT_GEX_NEAR_RANKS 4096U
extern const conduit_gex_segment_t conduit_gex_segments[CONDUIT_GEX_NEAR_RANKS];

typedef struct {
  uint32_t all_mapped;
  const void *team;
} conduit_gex_job_t;

/* These fields are constant to clients, like the table of segments. */
extern const conduit_gex_job_t conduit_gex_job;

int conduit_gex_client_init(gex_Client_t *client, gex_EP_t *ep, gex_TM_t *tm, const char *name, int *argc,
                            char ***argv, gex_Flags_t flags, const conduit_gex_config_t *config);
int conduit_gasnet_init(int *argc, char ***argv, const conduit_gex_config_t *config);
void conduit_gex_wait_step(void *state);
gex_Rank_t conduit_gex_rank_of(const char *call, gex_TM_t team, gex_Rank_t rank);

/* The team of GASNet-1's calls, which have no team parameter. */
#define CONDUIT_GEX_TEAM ((gex_TM_t)(uintptr_t)conduit_gex_job.team)

/* Translates a team's rank to the rank in the job. In the job's team the two are the same. */
CONDUIT_GEX_INLINE gex_Rank_t conduit_gex_rank(const char *call_, gex_TM_t team_, gex_Rank_t rank_) {
  return CONDUIT_GEX_LIKELY((const void *)team_ == conduit_gex_job.team) ? rank_ : conduit_gex_rank_of(call_, team_, rank_);
}

/* ---- active messages ---- */

int conduit_gex_request_short(gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                              uint32_t count, const gex_AM_Arg_t *words);
int conduit_gex_request_medium(gex_Rank_t rank, gex_AM_Index_t handler, const void *source,
                               size_t bytes, gex_Event_t *local, gex_Flags_t flags, uint32_t count,
                               const gex_AM_Arg_t *words);
int conduit_gex_request_long(gex_Rank_t rank, gex_AM_Index_t handler, const void *source,
                             size_t bytes, void *destination, gex_Event_t *local, gex_Flags_t flags,
                             uint32_t count, const gex_AM_Arg_t *words);
int conduit_gex_reply_short(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, uint32_t count,
                            const gex_AM_Arg_t *words);
int conduit_gex_reply_medium(gex_Token_t token, gex_AM_Index_t handler, const void *source, size_t bytes,
                             gex_Event_t *local, gex_Flags_t flags, uint32_t count, const gex_AM_Arg_t *words);
int conduit_gex_reply_long(gex_Token_t token, gex_AM_Index_t handler, const void *source, size_t bytes,
                           void *destination, gex_Event_t *local, gex_Flags_t flags, uint32_t count,
                           const gex_AM_Arg_t *words);

/* The kinds of prepared messages. */
#define CONDUIT_GEX_REQUEST_MEDIUM 0U
#define CONDUIT_GEX_REQUEST_LONG 1U
#define CONDUIT_GEX_REPLY_MEDIUM 2U
#define CONDUIT_GEX_REPLY_LONG 3U

gex_AM_SrcDesc_t conduit_gex_prepare_request(unsigned int kind, gex_Rank_t rank, void *client, size_t least,
                                             size_t most, void *destination, gex_Event_t *local, gex_Flags_t flags);
gex_AM_SrcDesc_t conduit_gex_prepare_reply(unsigned int kind, gex_Token_t token, void *client, size_t least,
                                           size_t most, void *destination, gex_Event_t *local, gex_Flags_t flags);
int conduit_gex_commit(unsigned int kind, gex_AM_SrcDesc_t descriptor, gex_AM_Index_t handler, size_t bytes,
                       void *destination, gex_Flags_t flags, uint32_t count, const gex_AM_Arg_t *words);
int conduit_gex_cancel(unsigned int kind, gex_AM_SrcDesc_t descriptor);

/* Flag: the caller is a GASNet-1 call, which returns error codes. */
#define CONDUIT_GEX_RETURN_ERRORS 0x80000000U
/* In a handler's entry, stands for any argument count. */
#define CONDUIT_GEX_ANY_NARGS UINT_MAX

/* ---- puts and gets ---- */

/* Copies for a get of more than CONDUIT_GEX_LOAD_HERE bytes from a rank that is mapped here. */
void conduit_gex_load(void *to, const void *from, size_t bytes);
/* Copies for a put of more than CONDUIT_GEX_STORE_HERE bytes to such a rank. */
void conduit_gex_store(void *to, const void *from, size_t bytes);
/* The following functions take the arguments of GASNet-EX's calls and perform the whole
 * operation, for any team and rank. */
int conduit_gex_put(gex_TM_t tm, gex_Rank_t rank, void *remote, const void *source, size_t bytes, gex_Flags_t flags);
int conduit_gex_get(gex_TM_t tm, void *local, gex_Rank_t rank, const void *remote, size_t bytes, gex_Flags_t flags);
gex_Event_t conduit_gex_put_nb(gex_TM_t tm, gex_Rank_t rank, void *remote, const void *source, size_t bytes,
                               gex_Event_t *option, gex_Flags_t flags);
gex_Event_t conduit_gex_get_nb(gex_TM_t tm, void *local, gex_Rank_t rank, const void *remote, size_t bytes,
                               gex_Flags_t flags);
int conduit_gex_put_nbi(gex_TM_t tm, gex_Rank_t rank, void *remote, const void *source, size_t bytes,
                        gex_Event_t *option, gex_Flags_t flags);
int conduit_gex_get_nbi(gex_TM_t tm, void *local, gex_Rank_t rank, const void *remote, size_t bytes,
                        gex_Flags_t flags);
int conduit_gex_put_value(gex_TM_t tm, gex_Rank_t rank, void *remote, uint64_t value, size_t bytes,
                          gex_Flags_t flags);
gex_Event_t conduit_gex_put_value_nb(gex_TM_t tm, gex_Rank_t rank, void *remote, uint64_t value, size_t bytes,
                                     gex_Flags_t flags);
int conduit_gex_put_value_nbi(gex_TM_t tm, gex_Rank_t rank, void *remote, uint64_t value, size_t bytes,
                              gex_Flags_t flags);
uint64_t conduit_gex_get_value(gex_TM_t tm, gex_Rank_t rank, const void *remote, size_t bytes, gex_Flags_t flags);
gex_Event_t conduit_gex_memset_nb(gex_Rank_t rank, void *remote, int byte, size_t bytes);

/* ---- events ---- */

int conduit_gex_event_test(gex_Event_t event);
void conduit_gex_event_wait(gex_Event_t event);
int conduit_gex_event_test_some(gex_Event_t *events, size_t count);
int conduit_gex_event_test_all(gex_Event_t *events, size_t count);
void conduit_gex_event_wait_some(gex_Event_t *events, size_t count);
void conduit_gex_event_wait_all(gex_Event_t *events, size_t count);
gex_Event_t conduit_gex_event_leaf(gex_Event_t root);
int conduit_gex_nbi_test(gex_EC_t categories, gex_Flags_t flags);
void conduit_gex_nbi_wait(gex_EC_t categories, gex_Flags_t flags);
gex_Event_t conduit_gex_nbi_end_region(gex_Flags_t flags);

/* ---- other functions ---- */

gex_Event_t conduit_gex_barrier(gex_TM_t tm, gex_Flags_t flags);
gex_Event_t conduit_gex_query_bound_nb(gex_TM_t tm, gex_Rank_t rank, void **owner, void **local, uintptr_t *size,
                                       gex_Flags_t flags);

#ifdef __cplusplus
}
#endif

#endif
