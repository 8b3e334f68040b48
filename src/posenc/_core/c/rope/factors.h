/* Computes the cosines and sines of rows, the factors of a rotation. */
#ifndef POSENC_FACTORS_H
#define POSENC_FACTORS_H

#include "rope/pairs.h"

static ptrdiff_t pitch_of(const rotation_t *r) { return 2 * ((r->pairs + BUNCH - 1) / BUNCH * BUNCH); }

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

/* Returns whether cosines and sines are evaluated directly in double: if there is a fast path but no offset table, and positions
 * are integers.  Real positions may have too many limbs. */
static int is_direct(const rotation_t *r, const rotary_axis_t *t) {
    return t->table.offsets == NULL && t->table.reals == NULL && r->has_fast_path;
}

/* Writes the interleaved cosines and sines of `count` rows to `table`, and 1 and 1/2 for the unused pairs of the last bunch. */
NOINLINE void fill_table(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, double *table, double *part, tally_t *tally) {
    const ptrdiff_t pitch = pitch_of(r);
    for (const rotary_axis_t *t = r->axis; t < r->axis + r->position_axes; t++) {
        job_t job = t->table;
        double *const to = t->pair ? part : table;
        job.out = (char *)to;
        job.row_stride = pitch * (ptrdiff_t)sizeof(double);
        if (job.integers) job.integers += row;
        else if (job.reals) job.reals += row;
        else job.start += (uint64_t)row * job.step;
        for (ptrdiff_t i = 0; i < count && is_direct(r, t); i++) {
            const position_t position = position_of(t->spec, &job, i);
            direct_row(t->spec, &position, to + i * pitch);
        }
        if (!is_direct(r, t)) rows(t->spec, &job, 0, count, NULL, tally);
        for (ptrdiff_t i = 0; t->pair && i < count; i++)
            for (ptrdiff_t j = 0; 2 * j < t->spec->d_model; j++)
                memcpy(table + i * pitch + 2 * t->pair[j], part + i * pitch + 2 * j, 2 * sizeof(double));
    }
    for (ptrdiff_t i = 0; i < count; i++)
        for (ptrdiff_t j = 2 * r->pairs; j < pitch; j += 2) table[i * pitch + j] = 1, table[i * pitch + j + 1] = 0.5;
}

INLINE double upper_bits(double x) {
    return double_of_bits((bits_of_double(x) + ((uint64_t)1 << 36)) & ~(((uint64_t)1 << 37) - 1));
}

/* Converts a row of the table to factors: for every BUNCH pairs, first their cosines c, then their sines s.  For bfloat16, each
 * is split into two floats, in the order c, c_low, s, s_low, where c and s have 16 significant bits. */
NOINLINE void spread(const rotation_t *r, const double *table, double *factors) {
    /* without a fast path, the factors are NaN, which makes every value uncertain */
    const double unit = r->has_fast_path ? 1 : double_of_bits(0x7ff8000000000000u), sign = r->inverse ? -unit : unit;
    const ptrdiff_t end = pitch_of(r);
    for (ptrdiff_t at = 0; at < end; at += 2 * BUNCH, table += 2 * BUNCH, factors += 2 * BUNCH) {
        if (r->dtype != BFLOAT16) {
            for (int i = 0; i < BUNCH; i++) factors[i] = unit * table[2 * i], factors[BUNCH + i] = sign * table[2 * i + 1];
            continue;
        }
        float *const split = (float *)(void *)factors;
        for (int i = 0; i < BUNCH; i++) {
            const double c = unit * table[2 * i], s = sign * table[2 * i + 1], c_upper = upper_bits(c), s_upper = upper_bits(s);
            split[i] = (float)c_upper;
            split[BUNCH + i] = (float)(c - c_upper);
            split[2 * BUNCH + i] = (float)s_upper;
            split[3 * BUNCH + i] = (float)(s - s_upper);
        }
    }
}

#endif
