/* Compiler hints about functions, branches and reachability.
 *
 * The GASNETT_USE_... macros select the compiler features used; a client may set any of them to
 * 0 before including the header. GCC and Clang support all of them. */
#ifndef CONDUIT_TOOLS_ANNOTATIONS_H
#define CONDUIT_TOOLS_ANNOTATIONS_H

#include "basics.h"

#ifndef GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE
#define GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_NOINLINE
#define GASNETT_USE_GCC_ATTRIBUTE_NOINLINE 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_MALLOC
#define GASNETT_USE_GCC_ATTRIBUTE_MALLOC 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT
#define GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_USED
#define GASNETT_USE_GCC_ATTRIBUTE_USED 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS
#define GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_NORETURN
#define GASNETT_USE_GCC_ATTRIBUTE_NORETURN 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_PURE
#define GASNETT_USE_GCC_ATTRIBUTE_PURE 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_CONST
#define GASNETT_USE_GCC_ATTRIBUTE_CONST 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_HOT
#define GASNETT_USE_GCC_ATTRIBUTE_HOT 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_COLD
#define GASNETT_USE_GCC_ATTRIBUTE_COLD 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED
#define GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FALLTHROUGH
#if defined(PLATFORM_COMPILER_CLANG) || (defined(PLATFORM_COMPILER_GNU) && PLATFORM_COMPILER_VERSION_GE(7, 0, 0))
#define GASNETT_USE_GCC_ATTRIBUTE_FALLTHROUGH 1
#else
#define GASNETT_USE_GCC_ATTRIBUTE_FALLTHROUGH 0
#endif
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FORMAT
#define GASNETT_USE_GCC_ATTRIBUTE_FORMAT 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR
#define GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR 1
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR_ARG
#define GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR_ARG 1
#endif
#ifndef GASNETT_USE_BUILTIN_CONSTANT_P
#define GASNETT_USE_BUILTIN_CONSTANT_P 1
#endif
#ifndef GASNETT_USE_BUILTIN_PREFETCH
#define GASNETT_USE_BUILTIN_PREFETCH 1
#endif
#ifndef GASNETT_USE_BUILTIN_EXPECT
#define GASNETT_USE_BUILTIN_EXPECT 1
#endif
#ifndef GASNETT_USE_BUILTIN_UNREACHABLE
#define GASNETT_USE_BUILTIN_UNREACHABLE 1
#endif
#ifndef GASNETT_USE_BUILTIN_ASSUME
#if defined(PLATFORM_COMPILER_CLANG)
#define GASNETT_USE_BUILTIN_ASSUME 1
#else
#define GASNETT_USE_BUILTIN_ASSUME 0
#endif
#endif
#ifndef GASNETT_USE_ASSUME
#define GASNETT_USE_ASSUME 0
#endif
#ifndef GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH
#if defined(__cplusplus) && __cplusplus >= 201703L
#define GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH 1
#else
#define GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH 0
#endif
#endif
#ifndef GASNETT_USE_CXX11_ATTRIBUTE_CLANG__FALLTHROUGH
#if defined(__cplusplus) && defined(PLATFORM_COMPILER_CLANG)
#define GASNETT_USE_CXX11_ATTRIBUTE_CLANG__FALLTHROUGH 1
#else
#define GASNETT_USE_CXX11_ATTRIBUTE_CLANG__FALLTHROUGH 0
#endif
#endif
#ifndef GASNETT_USE_RESTRICT
#define GASNETT_USE_RESTRICT __restrict__
#endif
#ifndef GASNETT_USE_RESTRICT_ON_TYPEDEFS
#define GASNETT_USE_RESTRICT_ON_TYPEDEFS 1
#endif
#ifndef GASNETT_USE_PRAGMA_GCC_DIAGNOSTIC
#define GASNETT_USE_PRAGMA_GCC_DIAGNOSTIC 1
#endif
/* Wrappers of <ctype.h> are for systems whose functions warn about char arguments. This system's
 * functions do not warn. */
#ifndef GASNETT_USE_CTYPE_WRAPPERS
#define GASNETT_USE_CTYPE_WRAPPERS 0
#endif

/* ---- Functions ---- */
#if GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE
#define GASNETT_INLINE(fnname) static __inline__ __attribute__((__always_inline__))
#else
#define GASNETT_INLINE(fnname) static __inline__
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_NOINLINE
#define GASNETT_NEVER_INLINE(fnname, declarator) __attribute__((__noinline__)) declarator
#else
#define GASNETT_NEVER_INLINE(fnname, declarator) declarator
#endif
#define GASNETT_RESTRICT GASNETT_USE_RESTRICT
#if GASNETT_USE_GCC_ATTRIBUTE_FORMAT
#define GASNETT_FORMAT_PRINTF(fnname, fmtarg, firstvararg, declarator) \
    __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#else
#define GASNETT_FORMAT_PRINTF(fnname, fmtarg, firstvararg, declarator) declarator
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR
#define GASNETT_FORMAT_PRINTF_FUNCPTR(fnname, fmtarg, firstvararg, declarator) \
    __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#else
#define GASNETT_FORMAT_PRINTF_FUNCPTR(fnname, fmtarg, firstvararg, declarator) declarator
#endif
/* The macros ending in P serve compilers that need a function's name in a pragma; GCC's
 * attributes do not need it. */
#if GASNETT_USE_GCC_ATTRIBUTE_NORETURN
#define GASNETT_NORETURN __attribute__((__noreturn__))
#else
#define GASNETT_NORETURN
#endif
#define GASNETT_NORETURNP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_MALLOC
#define GASNETT_MALLOC __attribute__((__malloc__))
#else
#define GASNETT_MALLOC
#endif
#define GASNETT_MALLOCP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_PURE
#define GASNETT_PURE __attribute__((__pure__))
#else
#define GASNETT_PURE
#endif
#define GASNETT_PUREP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_CONST
#define GASNETT_CONST __attribute__((__const__))
#else
#define GASNETT_CONST
#endif
#define GASNETT_CONSTP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_HOT
#define GASNETT_HOT __attribute__((__hot__))
#else
#define GASNETT_HOT
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_COLD
#define GASNETT_COLD __attribute__((__cold__))
#else
#define GASNETT_COLD
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#else
#define GASNETT_DEPRECATED
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#else
#define GASNETT_WARN_UNUSED_RESULT
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_USED
#define GASNETT_USED __attribute__((__used__))
#else
#define GASNETT_USED
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS
#define CONDUIT_MAY_ALIAS __attribute__((__may_alias__))
#else
#define CONDUIT_MAY_ALIAS
#endif

/* ---- Flow of control ---- */
/* Marks a deliberate fall-through from one case into the next; includes its own semicolon. */
#if defined(__cplusplus) && GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH
#define GASNETT_FALLTHROUGH [[fallthrough]];
#elif defined(__cplusplus) && GASNETT_USE_CXX11_ATTRIBUTE_CLANG__FALLTHROUGH
#define GASNETT_FALLTHROUGH [[clang::fallthrough]];
#elif GASNETT_USE_GCC_ATTRIBUTE_FALLTHROUGH
#define GASNETT_FALLTHROUGH __attribute__((__fallthrough__));
#else
#define GASNETT_FALLTHROUGH
#endif

#if GASNETT_USE_BUILTIN_EXPECT
#define GASNETT_PREDICT_TRUE(expr) __builtin_expect(!!(expr), 1)
#define GASNETT_PREDICT_FALSE(expr) __builtin_expect(!!(expr), 0)
#else
#define GASNETT_PREDICT_TRUE(expr) (expr)
#define GASNETT_PREDICT_FALSE(expr) (expr)
#endif
#ifndef if_pf
#define if_pf(cond) if (GASNETT_PREDICT_FALSE(cond))
#endif
#ifndef if_pt
#define if_pt(cond) if (GASNETT_PREDICT_TRUE(cond))
#endif

#if GASNETT_USE_BUILTIN_CONSTANT_P
#define gasnett_constant_p(expr) __builtin_constant_p(expr)
#else
#define gasnett_constant_p(expr) (0)
#endif

#if GASNETT_USE_BUILTIN_PREFETCH
#define CONDUIT_PREFETCH_READ(address) __builtin_prefetch((address), 0)
#define CONDUIT_PREFETCH_WRITE(address) __builtin_prefetch((address), 1)
#else
#define CONDUIT_PREFETCH_READ(address) ((void)(address))
#define CONDUIT_PREFETCH_WRITE(address) ((void)(address))
#endif

/* gasnett_unreachable and gasnett_assume are checked in debug builds (see failures.h). In other
 * builds they are hints to the compiler. */
#if !CONDUIT_TOOLS_DEBUG
#if GASNETT_USE_BUILTIN_UNREACHABLE
#define gasnett_unreachable() __builtin_unreachable()
#else
#define gasnett_unreachable() abort()
#endif
#if GASNETT_USE_BUILTIN_ASSUME
#define gasnett_assume(cond) __builtin_assume(!!(cond))
#elif GASNETT_USE_ASSUME
#define gasnett_assume(cond) __assume(cond)
#elif GASNETT_USE_BUILTIN_UNREACHABLE
#define gasnett_assume(cond) ((cond) ? (void)0 : __builtin_unreachable())
#else
#define gasnett_assume(cond) ((void)0)
#endif
#endif

/* ---- Macro arguments ----
 * Evaluates each argument once, for its effects, in any order. */
#define GASNETT_UNUSED_ARGS1(a1) ((void)(a1))
#define GASNETT_UNUSED_ARGS2(a1, a2) ((void)(a1), (void)(a2))
#define GASNETT_UNUSED_ARGS3(a1, a2, a3) (GASNETT_UNUSED_ARGS2(a1, a2), (void)(a3))
#define GASNETT_UNUSED_ARGS4(a1, a2, a3, a4) (GASNETT_UNUSED_ARGS3(a1, a2, a3), (void)(a4))
#define GASNETT_UNUSED_ARGS5(a1, a2, a3, a4, a5) (GASNETT_UNUSED_ARGS4(a1, a2, a3, a4), (void)(a5))
#define GASNETT_UNUSED_ARGS6(a1, a2, a3, a4, a5, a6) (GASNETT_UNUSED_ARGS5(a1, a2, a3, a4, a5), (void)(a6))
#define GASNETT_UNUSED_ARGS7(a1, a2, a3, a4, a5, a6, a7) (GASNETT_UNUSED_ARGS6(a1, a2, a3, a4, a5, a6), (void)(a7))
#define GASNETT_UNUSED_ARGS8(a1, a2, a3, a4, a5, a6, a7, a8) \
    (GASNETT_UNUSED_ARGS7(a1, a2, a3, a4, a5, a6, a7), (void)(a8))

/* ---- Text in the executable ----
 * Keeps `text` in the object file under the name `name`, even if the program does not use it.
 * The macro must stand at file scope and be followed by a semicolon. */
#if GASNETT_USE_GCC_ATTRIBUTE_USED
#define GASNETT_IDENT(name, text) static const char GASNETT_USED name[] = text
#else
#define GASNETT_IDENT(name, text) char name[] = text
#endif

#endif
