/* Memory in pages, and the heap that debug builds check. If the argument names a fault that the
 * heap detects, the program commits that fault. */
#include <gasnet_tools.h>

#include "programs.h"

#if GASNET_DEBUGMALLOC
static int commit_fault(const char *fault) {
    char *block = (char *)gasnett_debug_malloc(10);
    char *const other = (char *)gasnett_debug_malloc(10);
#define FAULT(name) (strcmp(fault, #name) == 0)
    /* The pointer is volatile, so that the compiler doesn't see the fault. */
    char *volatile hidden = block;
    if (FAULT(write_behind)) hidden[10] = 1, gasnett_debug_free(hidden);
    if (FAULT(write_before)) hidden[-1] = 1, gasnett_debug_memcheck(hidden);
    if (FAULT(check_all)) hidden[10] = 1, gasnett_debug_memcheck_all();
    if (FAULT(check_one)) hidden[10] = 1, gasnett_debug_memcheck_one(), gasnett_debug_memcheck_one();
    if (FAULT(free_twice)) gasnett_debug_free(block), gasnett_debug_free(hidden);
    if (FAULT(free_inside)) gasnett_debug_free(hidden + 1);
    if (FAULT(write_after)) gasnett_debug_free(block), hidden[3] = 1, gasnett_debug_memcheck_all();
    (void)other;
    return 3;
}
#endif

#ifndef HAVE_MMAP
#error "GASNet's programs require this macro"
#endif

int test_memory(int argc, char **argv) {
    gasnett_heapstats_t before, after;
    char *block, *copy;
    unsigned char *pages;
#if GASNET_DEBUGMALLOC
    if (argc > 1 && strcmp(argv[1], "leak") != 0) return commit_fault(argv[1]);
#endif
    (void)argv;

    pages = (unsigned char *)gasnett_mmap(3 * GASNETT_PAGESIZE);
    CHECK((uintptr_t)pages % GASNETT_PAGESIZE == 0);
    CHECK(gasnett_count0s(pages, 3 * GASNETT_PAGESIZE) == 3 * GASNETT_PAGESIZE);
    pages[3 * GASNETT_PAGESIZE - 1] = 1;

    gasnett_getheapstats(&before);
    block = (char *)gasnett_debug_malloc(10);
    CHECK(block != NULL && (uintptr_t)block % sizeof(void *) == 0);
    gasnett_debug_memcheck(block);
    strcpy(block, "nine char");
    block = (char *)gasnett_debug_realloc(block, 1000);
    CHECK(strcmp(block, "nine char") == 0);
    copy = gasnett_debug_strdup(block);
    CHECK(copy != block && strcmp(copy, "nine char") == 0);
    gasnett_debug_free(copy);
    copy = gasnett_debug_strndup(block, 4);
    CHECK(strcmp(copy, "nine") == 0);
    gasnett_debug_memcheck_one();
    gasnett_debug_memcheck_all();
    gasnett_debug_free(copy);
    gasnett_debug_free(block);
    block = (char *)gasnett_debug_calloc(10, 20);
    CHECK(gasnett_count0s(block, 200) == 200);
    if (argc == 1) gasnett_debug_free(block);
    gasnett_debug_free(NULL);
    gasnett_getheapstats(&after);
#if GASNET_DEBUGMALLOC
    CHECK(after.allocated_objects - before.allocated_objects == 5);
    CHECK(after.allocated_bytes - before.allocated_bytes == 10 + 1000 + 10 + 5 + 200);
    CHECK(argc > 1 || (after.live_bytes == before.live_bytes && after.live_objects == before.live_objects));
    CHECK(after.freed_objects >= 4 && after.freed_bytes >= 1025);
    CHECK(after.live_bytes_max >= 1010 && after.live_objects_max >= 2);
    CHECK((after.overhead_bytes > 0) == (after.live_objects > 0));
#else
    CHECK(memcmp(&before, &after, sizeof(before)) == 0 && after.allocated_objects == 0);
#endif
    return 0;
}
