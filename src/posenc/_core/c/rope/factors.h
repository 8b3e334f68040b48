/* Computes the factors of a rotation: the cosines and sines of positions.
 *
 * A row of factors has a block for every FACTOR_PAIRS pairs: their cosines c, then their sines s (-s for the inverse rotation).
 * For the 16-bit types, each factor is split into two floats, and a block has the order c, c_low, s, s_low, where c and s have
 * 13 significant bits.  factor_index gives the order of the pairs.  This layout does not depend on the instruction set. */
#ifndef POSENC_FACTORS_H
#define POSENC_FACTORS_H

#include "rope/pairs.h"

/* Evaluates the cosines and sines of a row directly, in double. */
NOINLINE void direct_row(const spec_t *spec, const position_t *position, double *row) {
    const vf64 scale = f64_set(spec->scale);
    for (ptrdiff_t column = 0; column < spec->d_model; column += 2 * LANES) {
        ALIGNED double pairs[2 * LANES];
        vf64 s, c, low, high;
        direct_double(spec, position, column, PAIRS, &s, &c);
        f64_interleave(f64_mul(c, scale), f64_mul(s, scale), &low, &high);
        f64_store(pairs, low);
        f64_store(pairs + LANES, high);
        memcpy(row + column, pairs, (size_t)minimum(spec->d_model - column, 2 * LANES) * sizeof *row);
    }
}

/* Writes the interleaved cosines and sines of `count` rows, and 1 and 1/2 for the unused pairs of the last block. */
static void fill_table(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, double *table, double *part) {
    const ptrdiff_t pitch = factor_pitch(r->pairs);
    tally_t tally = {0};                        /* discarded: the counters do not include cosines and sines */
    for (const rotary_axis_t *t = r->axis; t < r->axis + r->position_axes; t++) {
        /* evaluates in double if there is a fast path but no offset table, and the positions are integers; real positions may
         * have too many limbs */
        const int is_direct = t->table.offsets == NULL && t->table.reals == NULL && r->has_fast_path;
        job_t job = t->table;
        double *const to = t->pair ? part : table;
        job.out = (char *)to;
        job.row_stride = pitch * (ptrdiff_t)sizeof(double);
        if (job.integers) job.integers += row;
        else if (job.reals) job.reals += row;
        else job.start += (uint64_t)row * job.step;
        for (ptrdiff_t i = 0; i < count && is_direct; i++) {
            const position_t position = position_of(t->spec, &job, i);
            direct_row(t->spec, &position, to + i * pitch);
        }
        if (!is_direct) rows(t->spec, &job, 0, count, NULL, &tally);
        for (ptrdiff_t i = 0; t->pair && i < count; i++)
            for (ptrdiff_t j = 0; 2 * j < t->spec->d_model; j++)
                memcpy(table + i * pitch + 2 * t->pair[j], part + i * pitch + 2 * j, 2 * sizeof(double));
    }
    for (ptrdiff_t i = 0; i < count; i++)
        for (ptrdiff_t j = 2 * r->pairs; j < pitch; j += 2) table[i * pitch + j] = 1, table[i * pitch + j + 1] = 0.5;
}

INLINE double upper_bits(double x) {
    return double_of_bits((bits_of_double(x) + ((uint64_t)1 << 39)) & ~(((uint64_t)1 << 40) - 1));
}

INLINE void split_number(float *upper, float *lower, double number) {
    const double top = upper_bits(number);
    *upper = (float)top;
    *lower = (float)(number - top);
}

/* Replaces a row of interleaved cosines and sines by its factors. */
static void spread(const rotation_t *r, double *row) {
    /* without a fast path, the factors are NaN, which makes every value uncertain */
    const double unit = r->has_fast_path ? 1 : double_of_bits(0x7ff8000000000000u), sign = r->inverse ? -unit : unit;
    const double *const end = row + factor_pitch(r->pairs);
    for (; row < end; row += 2 * FACTOR_PAIRS) {
        ALIGNED double c[FACTOR_PAIRS], s[FACTOR_PAIRS];
        for (int i = 0; i < FACTOR_PAIRS; i++) c[i] = unit * row[2 * i], s[i] = sign * row[2 * i + 1];
        if (r->dtype != FLOAT32) {
            for (int i = 0; i < FACTOR_PAIRS; i++) {
                float *const to = (float *)(void *)row + factor_index(i, 4, is_split(r));
                split_number(to, to + FACTOR_PAIRS, c[i]);
                split_number(to + 2 * FACTOR_PAIRS, to + 3 * FACTOR_PAIRS, s[i]);
            }
        } else {
            memcpy(row, c, sizeof c);
            memcpy(row + FACTOR_PAIRS, s, sizeof s);
        }
    }
}

/* Returns the number of doubles of memory that factors_of needs for `count` rows. */
static ptrdiff_t factors_memory(const rotation_t *r, ptrdiff_t count) {
    return r->position_axes && r->axis->pair ? factor_pitch(r->pairs) * count : 0;
}

NOINLINE void factors_of(const rotation_t *r, ptrdiff_t position, ptrdiff_t count, double *factors, char *memory) {
    fill_table(r, position, count, factors, (double *)(void *)memory);
    for (ptrdiff_t i = 0; i < count; i++) spread(r, factors + i * factor_pitch(r->pairs));
}

#endif
