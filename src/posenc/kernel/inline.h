/* Compilers' words for what the kernels ask of them. */
#ifndef POSENC_INLINE_H
#define POSENC_INLINE_H

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
/* Not worth its size: compiled to be small. */
#define COLD static __attribute__((noinline, cold))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ALIGNED __attribute__((aligned(64)))
#define PREFETCH(p) __builtin_prefetch((p), 0, 2)
/* What was computed from x must be computed anew. */
#define FORGET(x) __asm__ volatile("" : "+r"(x))
#else
#define INLINE static inline
#define NOINLINE static
#define COLD static
#define UNLIKELY(x) (x)
#define ALIGNED __declspec(align(64))
#define PREFETCH(p) ((void)(p))
#define FORGET(x) ((void)(x))
#endif

#endif
