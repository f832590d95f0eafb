/* Atomic operations of each width, plain and strong. Tests their results one by one and with
 * threads. */
#include "threads.h"

#include "programs.h"

#define ROUNDS 20000
#define GUARDED 1000

/* Tests every operation, and then every operation with each combination of fences. The parameters
 * are a prefix of names, the type of the variable, and the type of its value. */
#define TEST_OPERATIONS(prefix, type, value) \
    static type prefix##_variable = prefix##_init(10); \
    static void prefix##_operations(void) { \
        type *p = &prefix##_variable; \
        const value most = (value)-1; \
        const int flags[] = { \
            GASNETT_ATOMIC_NONE,     GASNETT_ATOMIC_RMB_PRE,  GASNETT_ATOMIC_WMB_PRE, \
            GASNETT_ATOMIC_MB_PRE,   GASNETT_ATOMIC_RMB_POST, GASNETT_ATOMIC_WMB_POST, \
            GASNETT_ATOMIC_MB_POST,  GASNETT_ATOMIC_REL,      GASNETT_ATOMIC_ACQ, \
            GASNETT_ATOMIC_REL | GASNETT_ATOMIC_ACQ, GASNETT_ATOMIC_MB_PRE | GASNETT_ATOMIC_MB_POST, \
            GASNETT_ATOMIC_RMB_POST_IF_TRUE, GASNETT_ATOMIC_RMB_POST_IF_FALSE, \
            GASNETT_ATOMIC_ACQ_IF_TRUE | GASNETT_ATOMIC_ACQ_IF_FALSE, \
        }; \
        size_t i; \
        CHECK(sizeof(type) == sizeof(value)); \
        CHECK(prefix##_read(p, 0) == 10); \
        for (i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) { \
            const int f = flags[i]; \
            prefix##_set(p, 5, f); \
            CHECK(prefix##_read(p, f) == 5); \
            prefix##_increment(p, f); \
            CHECK(prefix##_read(p, f) == 6); \
            prefix##_decrement(p, f); \
            CHECK(prefix##_read(p, f) == 5); \
            CHECK(prefix##_add(p, 3, f) == 8); \
            CHECK(prefix##_subtract(p, 7, f) == 1); \
            CHECK(prefix##_decrement_and_test(p, f)); \
            CHECK(prefix##_read(p, f) == 0); \
            CHECK(!prefix##_decrement_and_test(p, f)); \
            CHECK(prefix##_read(p, f) == most); \
            CHECK(prefix##_add(p, 1, f) == 0); \
            CHECK(prefix##_subtract(p, 1, f) == most); \
            CHECK(!prefix##_compare_and_swap(p, 0, 1, f)); \
            CHECK(prefix##_read(p, f) == most); \
            CHECK(prefix##_compare_and_swap(p, most, 4, f)); \
            CHECK(prefix##_swap(p, 9, f) == 4); \
            CHECK(prefix##_read(p, f) == 9); \
        } \
    }

static gasnett_strongatomic32_t arrived = gasnett_strongatomic32_init(0);

/* Waits until all threads have called this function `times` times. */
static void meet(uint32_t times) {
    gasnett_strongatomic32_increment(&arrived, GASNETT_ATOMIC_REL);
    while (gasnett_strongatomic32_read(&arrived, GASNETT_ATOMIC_ACQ) < times * THREADS) gasnett_sched_yield();
}

/* All threads use one variable. No update may be lost, and each value must be taken once. */
#define TEST_THREADS(prefix, type, value) \
    static type prefix##_sum = prefix##_init(0), prefix##_down = prefix##_init(0), prefix##_won = prefix##_init(0); \
    static type prefix##_lock = prefix##_init(0), prefix##_held = prefix##_init(0); \
    static type prefix##_put = prefix##_init(0), prefix##_taken = prefix##_init(0); \
    static value prefix##_guarded = 0; \
    GASNETT_BEGIN_EXTERNC \
    static void *prefix##_pound(void *number) { \
        value put = 0, taken = 0; \
        int i; \
        /* Each kind of operation runs alone, and all threads begin it at once. */ \
        meet(1); \
        for (i = 0; i < ROUNDS; ++i) prefix##_increment(&prefix##_sum, 0); \
        meet(2); \
        for (i = 0; i < ROUNDS; ++i) prefix##_add(&prefix##_sum, 3, 0); \
        meet(3); \
        for (i = 0; i < ROUNDS; ++i) prefix##_subtract(&prefix##_sum, 2, 0); \
        meet(4); \
        for (i = 0; i < ROUNDS; ++i) { \
            value seen; \
            do { \
                seen = prefix##_read(&prefix##_sum, 0); \
            } while (!prefix##_compare_and_swap(&prefix##_sum, seen, (value)(seen + 2), 0)); \
        } \
        meet(5); \
        for (i = 0; i < ROUNDS; ++i) prefix##_decrement(&prefix##_sum, 0); \
        meet(6); \
        for (i = 0; i < ROUNDS; ++i) { \
            if (prefix##_decrement_and_test(&prefix##_down, 0)) prefix##_increment(&prefix##_won, 0); \
        } \
        meet(7); \
        /* Each value that is stored must be taken out once, by one thread. */ \
        for (i = 0; i < ROUNDS; ++i) { \
            const value mine = (value)(i * THREADS + (int)(intptr_t)number + 1); \
            put += mine; \
            taken += prefix##_swap(&prefix##_held, mine, 0); \
        } \
        prefix##_add(&prefix##_put, put, 0); \
        prefix##_add(&prefix##_taken, taken, 0); \
        meet(8); \
        for (i = 0; i < GUARDED; ++i) { \
            /* Takes a lock, by compare-and-swap and by swap alternately. */ \
            if (i % 2) { \
                while (!prefix##_compare_and_swap(&prefix##_lock, 0, 1, GASNETT_ATOMIC_ACQ_IF_TRUE)) gasnett_sched_yield(); \
            } else { \
                while (prefix##_swap(&prefix##_lock, 1, GASNETT_ATOMIC_ACQ) != 0) gasnett_sched_yield(); \
            } \
            prefix##_guarded += 1; \
            prefix##_set(&prefix##_lock, 0, GASNETT_ATOMIC_REL); \
        } \
        return NULL; \
    } \
    GASNETT_END_EXTERNC \
    static void prefix##_threads(void) { \
        prefix##_set(&prefix##_down, ROUNDS * THREADS, 0); \
        gasnett_strongatomic32_set(&arrived, 0, 0); \
        run_threads(&prefix##_pound); \
        CHECK(prefix##_read(&prefix##_sum, 0) == 3 * ROUNDS * THREADS); \
        CHECK(prefix##_read(&prefix##_down, 0) == 0); \
        CHECK(prefix##_read(&prefix##_won, 0) == 1); \
        CHECK(prefix##_add(&prefix##_taken, prefix##_read(&prefix##_held, 0), 0) == prefix##_read(&prefix##_put, 0)); \
        CHECK(prefix##_guarded == GUARDED * THREADS); \
    }

TEST_OPERATIONS(gasnett_atomic, gasnett_atomic_t, gasnett_atomic_val_t)
TEST_OPERATIONS(gasnett_atomic32, gasnett_atomic32_t, uint32_t)
TEST_OPERATIONS(gasnett_atomic64, gasnett_atomic64_t, uint64_t)
TEST_OPERATIONS(gasnett_strongatomic, gasnett_strongatomic_t, gasnett_strongatomic_val_t)
TEST_OPERATIONS(gasnett_strongatomic32, gasnett_strongatomic32_t, uint32_t)
TEST_OPERATIONS(gasnett_strongatomic64, gasnett_strongatomic64_t, uint64_t)
TEST_THREADS(gasnett_atomic, gasnett_atomic_t, gasnett_atomic_val_t)
TEST_THREADS(gasnett_atomic32, gasnett_atomic32_t, uint32_t)
TEST_THREADS(gasnett_atomic64, gasnett_atomic64_t, uint64_t)
TEST_THREADS(gasnett_strongatomic, gasnett_strongatomic_t, gasnett_strongatomic_val_t)
TEST_THREADS(gasnett_strongatomic32, gasnett_strongatomic32_t, uint32_t)
TEST_THREADS(gasnett_strongatomic64, gasnett_strongatomic64_t, uint64_t)

/* Tests the limits of the native type, and its values as signed numbers. */
static void test_range(void) {
    gasnett_atomic_t a = gasnett_atomic_init((gasnett_atomic_val_t)-1);
    gasnett_strongatomic_t s = gasnett_strongatomic_init((gasnett_strongatomic_val_t)-1);
    gasnett_atomic_sval_t least = GASNETT_ATOMIC_SIGNED_MIN;
    gasnett_strongatomic_sval_t largest = GASNETT_STRONGATOMIC_SIGNED_MAX;
    CHECK(gasnett_atomic_signed(gasnett_atomic_read(&a, 0)) == -1);
    CHECK(gasnett_strongatomic_signed(gasnett_strongatomic_read(&s, 0)) == -1);
    CHECK(gasnett_atomic_read(&a, 0) == GASNETT_ATOMIC_MAX && gasnett_strongatomic_read(&s, 0) == GASNETT_STRONGATOMIC_MAX);
    CHECK(GASNETT_ATOMIC_SIGNED_MAX == largest && GASNETT_STRONGATOMIC_SIGNED_MIN == least);
    gasnett_atomic_set(&a, (gasnett_atomic_val_t)largest, 0);
    gasnett_atomic_increment(&a, 0);
    CHECK(gasnett_atomic_signed(gasnett_atomic_read(&a, 0)) == least);
#if GASNETT_ATOMIC_MAX < 0xFFFFFF
#error "atomics must have at least 24 bits"
#endif
}

/* An atomic of a fixed width may overlay any number of the same size. */
static void test_overlay(void) {
    double number = 1.5;
    float small = 2.5f;
    int64_t integer = -7;
    struct {
        char first;
        gasnett_atomic64_t second;
    } apart = { 'x', gasnett_atomic64_init(UINT64_C(1) << 40) };
    static gasnett_atomic32_t plain = gasnett_atomic32_init(1);
    static gasnett_strongatomic32_t strong = gasnett_strongatomic32_init(2);
    static gasnett_strongatomic64_t wide = gasnett_strongatomic64_init(3);
    gasnett_atomic64_t *p = (gasnett_atomic64_t *)(void *)&number;
    gasnett_strongatomic32_t *q = (gasnett_strongatomic32_t *)(void *)&small;
    uint64_t bits = gasnett_atomic64_read(p, 0);
    CHECK(gasnett_atomic64_compare_and_swap(p, bits, UINT64_C(0x4000000000000000), 0));
    CHECK(number == 2.0);
    CHECK(gasnett_strongatomic32_swap(q, 0x3F800000, 0) == 0x40200000);
    CHECK(small == 1.0f);
    CHECK(gasnett_atomic64_add((gasnett_atomic64_t *)(void *)&integer, 8, 0) == 1);
    CHECK(integer == 1);
    CHECK(gasnett_atomic32_read(&plain, 0) + gasnett_strongatomic32_read(&strong, 0) == 3);
    CHECK(gasnett_strongatomic64_read(&wide, 0) == 3);
    CHECK(gasnett_atomic64_read(&apart.second, 0) == UINT64_C(1) << 40 && apart.first == 'x');
}

#if !GASNETT_HAVE_ATOMIC_ADD_SUB || !GASNETT_HAVE_ATOMIC_CAS || !GASNETT_HAVE_STRONGATOMIC_ADD_SUB || \
    !GASNETT_HAVE_STRONGATOMIC_CAS
#error "an operation is missing"
#endif
#if defined(GASNETT_STRONGATOMIC_NOT_SIGNALSAFE) || defined(GASNETT_STRONGATOMIC32_NOT_SIGNALSAFE) || \
    defined(GASNETT_STRONGATOMIC64_NOT_SIGNALSAFE) || defined(GASNETT_USING_GENERIC_ATOMICOPS)
#error "an operation is not the processor's own"
#endif

int test_atomics(int argc, char **argv) {
    (void)argc, (void)argv;
    gasnett_atomic_operations();
    gasnett_atomic32_operations();
    gasnett_atomic64_operations();
    gasnett_strongatomic_operations();
    gasnett_strongatomic32_operations();
    gasnett_strongatomic64_operations();
    test_range();
    test_overlay();
    gasnett_atomic_threads();
    gasnett_atomic32_threads();
    gasnett_atomic64_threads();
    gasnett_strongatomic_threads();
    gasnett_strongatomic32_threads();
    gasnett_strongatomic64_threads();
    return 0;
}
