/* Conversions of a tile between float and float16 with F16C, for AVX2 and AVX-512. */
static inline void f16_store_tile(uint16_t p[TILE], const float f[TILE]) {
    for (int i = 0; i < TILE; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(p + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
}
static inline void f16_load_tile(float f[TILE], const uint16_t p[TILE]) {
    for (int i = 0; i < TILE; i += 8)
        _mm256_storeu_ps(f + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + i))));
}
