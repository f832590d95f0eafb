/* Atomic operations: gasnett_atomic_*, gasnett_atomic32_*, gasnett_atomic64_*, and the strong
 * form of each.
 *
 * An operation is the compiler's relaxed builtin between the fences selected by its flags.
 * Constant flags, which are the usual case, leave no trace in the code. The weak forms are
 * atomic between threads; in a single-threaded program they are ordinary arithmetic. The strong
 * forms (gasnett_strongatomic...) are always atomic, so that signal handlers may use them as
 * well.
 *
 * gasnett_atomic_t has 32 bits on every platform, so that its largest value also fits in a
 * gasnett_atomic32_t. */
#ifndef CONDUIT_TOOLS_ATOMICS_H
#define CONDUIT_TOOLS_ATOMICS_H

#include "annotations.h"
#include "fences.h"

/* ---- Flags: fences before (PRE) and after (POST) the operation, combined with | ---- */
#define GASNETT_ATOMIC_NONE 0x00
#define GASNETT_ATOMIC_RMB_PRE 0x01
#define GASNETT_ATOMIC_WMB_PRE 0x02
#define GASNETT_ATOMIC_MB_PRE 0x07
#define GASNETT_ATOMIC_RMB_POST 0x10
#define GASNETT_ATOMIC_WMB_POST 0x20
#define GASNETT_ATOMIC_MB_POST 0x70
/* Fences after compare-and-swap and decrement-and-test, depending on the result. */
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE 0x100
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE 0x200
#define GASNETT_ATOMIC_REL GASNETT_ATOMIC_WMB_PRE
#define GASNETT_ATOMIC_ACQ GASNETT_ATOMIC_RMB_POST
#define GASNETT_ATOMIC_ACQ_IF_TRUE GASNETT_ATOMIC_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_ACQ_IF_FALSE GASNETT_ATOMIC_RMB_POST_IF_FALSE

/* The bit that distinguishes a full fence from a read and a write fence combined. */
#define CONDUIT_ATOMIC_FULL_PRE 0x04
#define CONDUIT_ATOMIC_FULL_POST 0x40

/* ---- Types ----
 * The types are structures, so that plain accesses do not compile. They have the attribute
 * may_alias, because they overlay integers and floating point numbers of the same size. */
typedef struct {
    volatile uint32_t conduit_value;
} CONDUIT_MAY_ALIAS gasnett_atomic32_t;
typedef struct {
    volatile uint64_t conduit_value;
} CONDUIT_MAY_ALIAS gasnett_atomic64_t;
typedef gasnett_atomic32_t gasnett_atomic_t;
typedef uint32_t gasnett_atomic_val_t;
typedef int32_t gasnett_atomic_sval_t;

#define GASNETT_ATOMIC_MAX 0xFFFFFFFFU
#define GASNETT_ATOMIC_SIGNED_MIN (-0x7FFFFFFF - 1)
#define GASNETT_ATOMIC_SIGNED_MAX 0x7FFFFFFF
#define gasnett_atomic_signed(v) ((gasnett_atomic_sval_t)(v))

typedef gasnett_atomic_t gasnett_strongatomic_t;
typedef gasnett_atomic_val_t gasnett_strongatomic_val_t;
typedef gasnett_atomic_sval_t gasnett_strongatomic_sval_t;
typedef gasnett_atomic32_t gasnett_strongatomic32_t;
typedef gasnett_atomic64_t gasnett_strongatomic64_t;
#define GASNETT_STRONGATOMIC_MAX GASNETT_ATOMIC_MAX
#define GASNETT_STRONGATOMIC_SIGNED_MIN GASNETT_ATOMIC_SIGNED_MIN
#define GASNETT_STRONGATOMIC_SIGNED_MAX GASNETT_ATOMIC_SIGNED_MAX
#define gasnett_strongatomic_signed(v) gasnett_atomic_signed(v)

/* Every operation exists in every width. The GASNETT_STRONGATOMIC..._NOT_SIGNALSAFE macros are
 * not defined, because every operation is safe in signal handlers. */
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1
#define GASNETT_HAVE_STRONGATOMIC_CAS 1

/* Initialisers for static and other variables. */
#define gasnett_atomic32_init(v) { (uint32_t)(v) }
#define gasnett_atomic64_init(v) { (uint64_t)(v) }
#define gasnett_atomic_init(v) gasnett_atomic32_init(v)
#define gasnett_strongatomic32_init(v) gasnett_atomic32_init(v)
#define gasnett_strongatomic64_init(v) gasnett_atomic64_init(v)
#define gasnett_strongatomic_init(v) gasnett_atomic32_init(v)

/* ---- Fences of the flags ----
 * A locked x86 instruction is itself a full fence, so a read-modify-write only needs compiler
 * fences around it. */
#if defined(PLATFORM_ARCH_X86_64) || defined(PLATFORM_ARCH_X86)
#define CONDUIT_ATOMIC_RMW_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define CONDUIT_ATOMIC_RMW_FENCE() gasnett_local_mb()
#endif

CONDUIT_INLINE void conduit_atomic_pre(int flags, int rmw) {
    if (flags & CONDUIT_ATOMIC_FULL_PRE) {
        if (rmw) CONDUIT_ATOMIC_RMW_FENCE();
        else gasnett_local_mb();
    } else {
        if (flags & GASNETT_ATOMIC_WMB_PRE) gasnett_local_wmb();
        if (flags & GASNETT_ATOMIC_RMB_PRE) gasnett_local_rmb();
    }
}

CONDUIT_INLINE void conduit_atomic_post(int flags, int rmw) {
    if (flags & CONDUIT_ATOMIC_FULL_POST) {
        if (rmw) CONDUIT_ATOMIC_RMW_FENCE();
        else gasnett_local_mb();
    } else {
        if (flags & GASNETT_ATOMIC_WMB_POST) gasnett_local_wmb();
        if (flags & GASNETT_ATOMIC_RMB_POST) gasnett_local_rmb();
    }
}

CONDUIT_INLINE void conduit_atomic_post_if(int flags, int result) {
    conduit_atomic_post(flags, 1);
    if (result) {
        if (flags & GASNETT_ATOMIC_RMB_POST_IF_TRUE) gasnett_local_rmb();
    } else {
        if (flags & GASNETT_ATOMIC_RMB_POST_IF_FALSE) gasnett_local_rmb();
    }
}

/* ---- The operations, for a name prefix, its type and the type of its value ---- */
#define CONDUIT_ATOMICS(prefix, type, value) \
    CONDUIT_INLINE value prefix##_read(type const *p, int flags) { \
        value result; \
        conduit_atomic_pre(flags, 0); \
        result = __atomic_load_n(&p->conduit_value, __ATOMIC_RELAXED); \
        conduit_atomic_post(flags, 0); \
        return result; \
    } \
    CONDUIT_INLINE void prefix##_set(type *p, value v, int flags) { \
        conduit_atomic_pre(flags, 0); \
        __atomic_store_n(&p->conduit_value, v, __ATOMIC_RELAXED); \
        conduit_atomic_post(flags, 0); \
    } \
    CONDUIT_INLINE value prefix##_add(type *p, value op, int flags) { \
        value result; \
        conduit_atomic_pre(flags, 1); \
        result = __atomic_add_fetch(&p->conduit_value, op, __ATOMIC_RELAXED); \
        conduit_atomic_post(flags, 1); \
        return result; \
    } \
    CONDUIT_INLINE value prefix##_subtract(type *p, value op, int flags) { \
        value result; \
        conduit_atomic_pre(flags, 1); \
        result = __atomic_sub_fetch(&p->conduit_value, op, __ATOMIC_RELAXED); \
        conduit_atomic_post(flags, 1); \
        return result; \
    } \
    CONDUIT_INLINE void prefix##_increment(type *p, int flags) { \
        (void)prefix##_add(p, 1, flags); \
    } \
    CONDUIT_INLINE void prefix##_decrement(type *p, int flags) { \
        (void)prefix##_subtract(p, 1, flags); \
    } \
    CONDUIT_INLINE int prefix##_decrement_and_test(type *p, int flags) { \
        int result; \
        conduit_atomic_pre(flags, 1); \
        result = __atomic_sub_fetch(&p->conduit_value, 1, __ATOMIC_RELAXED) == 0; \
        conduit_atomic_post_if(flags, result); \
        return result; \
    } \
    CONDUIT_INLINE int prefix##_compare_and_swap(type *p, value oldval, value newval, int flags) { \
        int result; \
        conduit_atomic_pre(flags, 1); \
        result = __atomic_compare_exchange_n(&p->conduit_value, &oldval, newval, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        conduit_atomic_post_if(flags, result); \
        return result; \
    } \
    CONDUIT_INLINE value prefix##_swap(type *p, value newval, int flags) { \
        value result; \
        conduit_atomic_pre(flags, 1); \
        result = __atomic_exchange_n(&p->conduit_value, newval, __ATOMIC_RELAXED); \
        conduit_atomic_post(flags, 1); \
        return result; \
    }

/* The same for a single thread, which needs neither atomicity nor fences. */
#define CONDUIT_SINGLE_ATOMICS(prefix, type, value) \
    CONDUIT_INLINE value prefix##_read(type const *p, int flags) { \
        (void)flags; \
        return p->conduit_value; \
    } \
    CONDUIT_INLINE void prefix##_set(type *p, value v, int flags) { \
        (void)flags; \
        p->conduit_value = v; \
    } \
    CONDUIT_INLINE value prefix##_add(type *p, value op, int flags) { \
        value result = (value)(p->conduit_value + op); \
        (void)flags; \
        p->conduit_value = result; \
        return result; \
    } \
    CONDUIT_INLINE value prefix##_subtract(type *p, value op, int flags) { \
        value result = (value)(p->conduit_value - op); \
        (void)flags; \
        p->conduit_value = result; \
        return result; \
    } \
    CONDUIT_INLINE void prefix##_increment(type *p, int flags) { \
        (void)prefix##_add(p, 1, flags); \
    } \
    CONDUIT_INLINE void prefix##_decrement(type *p, int flags) { \
        (void)prefix##_subtract(p, 1, flags); \
    } \
    CONDUIT_INLINE int prefix##_decrement_and_test(type *p, int flags) { \
        return prefix##_subtract(p, 1, flags) == 0; \
    } \
    CONDUIT_INLINE int prefix##_compare_and_swap(type *p, value oldval, value newval, int flags) { \
        (void)flags; \
        if (p->conduit_value != oldval) return 0; \
        p->conduit_value = newval; \
        return 1; \
    } \
    CONDUIT_INLINE value prefix##_swap(type *p, value newval, int flags) { \
        value result = p->conduit_value; \
        (void)flags; \
        p->conduit_value = newval; \
        return result; \
    }

CONDUIT_ATOMICS(gasnett_strongatomic, gasnett_strongatomic_t, gasnett_strongatomic_val_t)
CONDUIT_ATOMICS(gasnett_strongatomic32, gasnett_strongatomic32_t, uint32_t)
CONDUIT_ATOMICS(gasnett_strongatomic64, gasnett_strongatomic64_t, uint64_t)
#if defined(GASNETT_THREAD_SAFE)
CONDUIT_ATOMICS(gasnett_atomic, gasnett_atomic_t, gasnett_atomic_val_t)
CONDUIT_ATOMICS(gasnett_atomic32, gasnett_atomic32_t, uint32_t)
CONDUIT_ATOMICS(gasnett_atomic64, gasnett_atomic64_t, uint64_t)
#else
CONDUIT_SINGLE_ATOMICS(gasnett_atomic, gasnett_atomic_t, gasnett_atomic_val_t)
CONDUIT_SINGLE_ATOMICS(gasnett_atomic32, gasnett_atomic32_t, uint32_t)
CONDUIT_SINGLE_ATOMICS(gasnett_atomic64, gasnett_atomic64_t, uint64_t)
#endif

#endif
