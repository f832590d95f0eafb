/* Memory: whole pages, and a heap that debug builds check.
 *
 * In debug builds the gasnett_debug_ functions keep guards around each block and record its
 * source location. They support GASNET_MALLOC_INIT, _CLOBBER, _LEAKALL, _SCANFREED, _EXTRACHECK
 * and GASNET_MALLOCFILE as described in GASNet's README. In other builds they are malloc and
 * related functions. Only gasnett_debug_free may free a block. */
#ifndef CONDUIT_TOOLS_MEMORY_H
#define CONDUIT_TOOLS_MEMORY_H

#include "basics.h"

GASNETT_BEGIN_EXTERNC

/* Maps zeroed memory in whole pages. Failure is a fatal error. */
extern void *gasnett_mmap(uintptr_t segsize);

/* Statistics of the checked heap. All are 0 if the heap is not used. */
typedef struct {
    uint64_t allocated_bytes;
    uint64_t freed_bytes;
    uint64_t live_bytes;
    uint64_t live_bytes_max;
    uint64_t allocated_objects;
    uint64_t freed_objects;
    uint64_t live_objects;
    uint64_t live_objects_max;
    /* The bytes that guards take for the live blocks. */
    uint64_t overhead_bytes;
} gasnett_heapstats_t;
extern void gasnett_getheapstats(gasnett_heapstats_t *stats);

/* The functions of the checked heap. `place` is the caller's source location. */
extern void *conduit_tools_heap_malloc(size_t size, const char *place);
extern void *conduit_tools_heap_calloc(size_t count, size_t size, const char *place);
extern void *conduit_tools_heap_realloc(void *block, size_t size, const char *place);
extern void conduit_tools_heap_free(void *block, const char *place);
extern char *conduit_tools_heap_strdup(const char *text, const char *place);
extern char *conduit_tools_heap_strndup(const char *text, size_t most, const char *place);
extern void conduit_tools_heap_check(const void *block, const char *place);
extern void conduit_tools_heap_check_one(const char *place);
extern void conduit_tools_heap_check_all(const char *place);
/* strdup and strndup for strict C99, in which <string.h> hides them. */
extern char *conduit_tools_strdup(const char *text);
extern char *conduit_tools_strndup(const char *text, size_t most);

GASNETT_END_EXTERNC

#if CONDUIT_TOOLS_DEBUG
#ifndef GASNET_DEBUGMALLOC
#define GASNET_DEBUGMALLOC 1
#endif
#define CONDUIT_PLACE_TEXT (__FILE__ ":" _STRINGIFY(__LINE__))
#define gasnett_debug_malloc(size) conduit_tools_heap_malloc((size), CONDUIT_PLACE_TEXT)
#define gasnett_debug_calloc(count, size) conduit_tools_heap_calloc((count), (size), CONDUIT_PLACE_TEXT)
#define gasnett_debug_realloc(block, size) conduit_tools_heap_realloc((block), (size), CONDUIT_PLACE_TEXT)
#define gasnett_debug_free(block) conduit_tools_heap_free((block), CONDUIT_PLACE_TEXT)
#define gasnett_debug_strdup(text) conduit_tools_heap_strdup((text), CONDUIT_PLACE_TEXT)
#define gasnett_debug_strndup(text, most) conduit_tools_heap_strndup((text), (most), CONDUIT_PLACE_TEXT)
#define gasnett_debug_memcheck(block) conduit_tools_heap_check((block), CONDUIT_PLACE_TEXT)
#define gasnett_debug_memcheck_one() conduit_tools_heap_check_one(CONDUIT_PLACE_TEXT)
#define gasnett_debug_memcheck_all() conduit_tools_heap_check_all(CONDUIT_PLACE_TEXT)
#else
#define gasnett_debug_malloc(size) malloc(size)
#define gasnett_debug_calloc(count, size) calloc((count), (size))
#define gasnett_debug_realloc(block, size) realloc((block), (size))
#define gasnett_debug_free(block) free(block)
#define gasnett_debug_strdup(text) conduit_tools_strdup(text)
#define gasnett_debug_strndup(text, most) conduit_tools_strndup((text), (most))
#define gasnett_debug_memcheck(block) ((void)(block))
#define gasnett_debug_memcheck_one() ((void)0)
#define gasnett_debug_memcheck_all() ((void)0)
#endif

#endif
