/* The reference for test_exhaustive.py: compute one column of encodings with MPFR.
 *
 * exhaustive FREQUENCY FUNCTION FIRST COUNT writes 8 + 4 + 2 + 2 bytes for each position: the bits of the
 * correctly rounded float64, float32, float16 and bfloat16 values.  FREQUENCY is a decimal number with 95
 * correct digits.
 */
#include <mpfr.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Round to nearest, ties to even, with gradual underflow.  Return 0 if a relative error of 2**-100 could
 * change the result. */
static int rounded(double *result, mpfr_t value, mpfr_prec_t precision, int min_exponent) {
    if (mpfr_zero_p(value)) {
        *result = 0;
        return 1;
    }
    const mpfr_prec_t below = min_exponent - (mpfr_get_exp(value) - 1);
    const mpfr_prec_t kept = below > 0 ? precision - below : precision;
    if (kept < 1) return 0;
    mpfr_t x;
    mpfr_init2(x, kept);
    mpfr_set(x, value, MPFR_RNDN);
    *result = mpfr_get_d(x, MPFR_RNDN);
    mpfr_clear(x);
    return mpfr_can_round(value, 100, MPFR_RNDN, MPFR_RNDZ, kept + 1);
}

int main(int argc, char **argv) {
    (void)argc;
    mpfr_t frequency, angle, value;
    mpfr_inits2(192, angle, value, (mpfr_ptr)0);
    mpfr_init2(frequency, 320);
    mpfr_set_str(frequency, argv[1], 10, MPFR_RNDN);
    const long first = atol(argv[3]), count = atol(argv[4]);
    for (long p = first; p < first + count; p++) {
        mpfr_mul_si(angle, frequency, p, MPFR_RNDN);
        if (argv[2][0] == 's') mpfr_sin(value, angle, MPFR_RNDN);
        else mpfr_cos(value, angle, MPFR_RNDN);
        double d, f, h, b;
        const int sure = rounded(&d, value, 53, -1022) & rounded(&f, value, 24, -126) & rounded(&h, value, 11, -14) &
                         rounded(&b, value, 8, -126);
        if (!sure && p != 0) {
            fprintf(stderr, "position %ld needs more precision\n", p);
            return 1;
        }
        const float single = (float)f;
        uint32_t bits, half, brain;
        memcpy(&bits, &single, 4);
        const float top = (float)b;
        memcpy(&brain, &top, 4);
        brain >>= 16;
        uint64_t u;
        memcpy(&u, &h, 8);
        const double magnitude = h < 0 ? -h : h;
        if (magnitude < 0x1p-14) half = (uint32_t)(magnitude * 0x1p24);
        else half = (uint32_t)((u >> 42 & 0x1ffff) - (1008 << 10));
        half |= (uint32_t)(u >> 63) << 15;
        const uint16_t h16 = (uint16_t)half, b16 = (uint16_t)brain;
        fwrite(&d, 8, 1, stdout);
        fwrite(&bits, 4, 1, stdout);
        fwrite(&h16, 2, 1, stdout);
        fwrite(&b16, 2, 1, stdout);
    }
    return fflush(stdout) != 0;
}
