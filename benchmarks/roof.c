/* The roofline: fill memory with memset or with non-temporal stores of whole cache lines, without computation. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { LINE = 64 };

void fill_memset(char *out, ptrdiff_t bytes, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        const ptrdiff_t first = bytes * t / threads, last = bytes * (t + 1) / threads;
        memset(out + first, 1, (size_t)(last - first));
    }
}

void fill_stream(char *out, ptrdiff_t bytes, int threads) {
#if defined(__SSE2__)
    const ptrdiff_t skipped = (ptrdiff_t)(-(uintptr_t)out % LINE), lines = (bytes - skipped) / LINE;
#pragma omp parallel num_threads(threads)
    {
        const __m128i ones = _mm_set1_epi32(0x3f800000);
#pragma omp for schedule(static)
        for (ptrdiff_t i = 0; i < lines; i++)
            for (int k = 0; k < LINE; k += 16) _mm_stream_si128((__m128i *)(void *)(out + skipped + i * LINE + k), ones);
        _mm_sfence();
    }
#else
    fill_memset(out, bytes, threads);
#endif
}
