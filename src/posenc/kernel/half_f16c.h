/* Conversions of float16 arrays with F16C, which every processor with AVX2 has. */
static inline void h_store(uint16_t *p, const float *f, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(p + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) p[i] = half_of_float(f[i]);
}
static inline void h_load(float *f, const uint16_t *p, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(f + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + i))));
    for (; i < n; i++) f[i] = float_of_half(p[i]);
}
