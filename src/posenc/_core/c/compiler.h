/* Attributes and built-in functions of compilers. */
#ifndef POSENC_COMPILER_H
#define POSENC_COMPILER_H

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define NOINLINE static __attribute__((noinline, unused))
#else
#define NOINLINE static __attribute__((noinline, noclone, unused)) /* without noclone, GCC copies for constant arguments */
#endif
/* A function compiled for size: it is rarely called, or most of its time is spent in others. */
#define COLD static __attribute__((noinline, cold))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ALIGNED __attribute__((aligned(64)))
#define PREFETCH(p) __builtin_prefetch((p), 0, 2)
#define UNREACHABLE __builtin_unreachable()
/* Hides x from the compiler, which then cannot reuse values that were computed from x before. */
#define OPAQUE(x) __asm__ volatile("" : "+r"(x))
#else
#define INLINE static inline
#define NOINLINE static __declspec(noinline)
#define COLD NOINLINE
#define UNLIKELY(x) (x)
#define ALIGNED __declspec(align(64))
#define PREFETCH(p) ((void)(p))
#define UNREACHABLE __assume(0)
#define OPAQUE(x) ((void)(x))
#endif

#endif
