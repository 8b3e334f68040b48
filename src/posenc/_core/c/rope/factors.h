/* Computes the factors of a rotation: the cosines and sines of positions.
 *
 * A row of factors has a block for every FACTOR_PAIRS pairs: their cosines c, then their sines s (-s for the
 * inverse rotation).  For the 16-bit dtypes, each factor is split into two floats, and a block has the order c,
 * c_low, s, s_low, where c and s have 13 significant bits.  factor_index gives the order of the pairs.  This
 * layout does not depend on the instruction set. */
#ifndef POSENC_FACTORS_H
#define POSENC_FACTORS_H

#include "rope/pairs.h"

/* Evaluates the cosines and sines of a row with short phases. */
NOINLINE void direct_row(const spec_t *shared, const position_t *shared_position, double *row) {
    /* copies, so that the compiler need not load the members again after each store */
    spec_t spec = *shared;
    const position_t position = *shared_position;
    turns_t turns;
    if (!position.finite) spec.scale = double_of_bits(0x7ff8000000000000u);
    set_turns(&spec, &position, &turns);
    for (ptrdiff_t pair = 0; 2 * pair < spec.d_model; pair += FACTOR_PAIRS)
        store_short(&spec, &position, &turns, 2 * pair, PAIRS, FACTOR_PAIRS, row + factor_index(pair, 2, 0), NULL);
}

/* Replaces the interleaved cosines and sines of a row by blocks of cosines and of sines. */
static void separate(double *row, ptrdiff_t columns) {
    for (const double *const end = row + columns; row < end; row += 2 * FACTOR_PAIRS) {
        ALIGNED uint64_t pairs[2 * FACTOR_PAIRS + 1];
        pairs[2 * FACTOR_PAIRS] = 0;                            /* u64_load_even may read it */
        for (int i = 0; i < 2 * FACTOR_PAIRS; i += LANES) u64_store(pairs + i, bits_of_f64(f64_load(row + i)), 0);
        for (int i = 0; i < FACTOR_PAIRS; i += LANES) {
            f64_store(row + i, f64_of_bits(u64_load_even(pairs + 2 * i)));
            f64_store(row + FACTOR_PAIRS + i, f64_of_bits(u64_load_even(pairs + 2 * i + 1)));
        }
    }
}

INLINE void set_pair(double *row, ptrdiff_t pair, double c, double s) {
    double *const to = row + factor_index(pair, 2, 0);
    to[0] = c;
    to[FACTOR_PAIRS] = s;
}

/* Writes the cosines and sines of `count` rows, and 1 and 1/2 for the unused pairs of the last block. */
static void fill_table(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, double *table, double *part) {
    const ptrdiff_t pitch = factor_pitch(r->pairs);
    tally_t tally = {.is_approximate = 1}; /* the counters do not include cosines and sines */
    for (const rotary_axis_t *t = r->axis; t < r->axis + r->position_axes; t++) {
        const int is_direct = t->table.offsets == NULL && r->has_fast_path;
        job_t job = t->table;
        double *const to = t->pair ? part : table;
        job.out = (char *)to;
        job.row_stride = pitch * (ptrdiff_t)sizeof(double);
        if (job.integers) job.integers += row;
        else if (job.reals) job.reals += row;
        else job.start += (uint64_t)row * job.step;
        if (!is_direct) write_rows(t->spec, &job, 0, count, NULL, &tally);
        for (ptrdiff_t i = 0; i < count; i++) {
            double *const at = to + i * pitch;
            if (is_direct && i && job.integers && job.integers[i] == job.integers[i - 1]) {
                memcpy(at, at - pitch, (size_t)pitch * sizeof *at); /* as in a batch of sequences of the same length */
            } else if (is_direct) {
                const position_t position = position_of(t->spec, &job, i);
                direct_row(t->spec, &position, at);
            } else {
                separate(at, t->spec->d_model);
            }
            for (ptrdiff_t j = 0; t->pair && 2 * j < t->spec->d_model; j++) {
                const double *const from = at + factor_index(j, 2, 0);
                set_pair(table + i * pitch, t->pair[j], from[0], from[FACTOR_PAIRS]);
            }
        }
    }
    for (ptrdiff_t i = 0; i < count; i++)
        for (ptrdiff_t j = r->pairs; 2 * j < pitch; j++) set_pair(table + i * pitch, j, 1, 0.5);
}

INLINE vf64 upper_bits(vf64 x) {
    const vu64 rounded = u64_add(bits_of_f64(x), u64_set((uint64_t)1 << 39));
    return f64_of_bits(u64_and(rounded, u64_set(~(((uint64_t)1 << 40) - 1))));
}

/* Stores two vectors of floats.  If `split`, the floats with an odd index are stored FACTOR_PAIRS / 2 floats after
 * those with an even index. */
INLINE void store_two(float *to, vf32 first, vf32 second, int split) {
    if (split) f32_deinterleave(first, second, &first, &second);
    u64_store(to, bits_of_f32(first), 0);
    u64_store(to + (split ? FACTOR_PAIRS / 2 : 2 * LANES), bits_of_f32(second), 0);
}

/* Splits each number of a block into an upper and a lower float. */
INLINE void split_block(float *to, const double numbers[FACTOR_PAIRS], int split) {
    for (int i = 0; i < FACTOR_PAIRS; i += 4 * LANES, to += split ? 2 * LANES : 4 * LANES) {
        vf32 upper[2], lower[2];
        for (int g = 0; g < 2; g++) {
            const double *const from = numbers + i + 2 * g * LANES;
            const vf64 number[2] = {f64_load(from), f64_load(from + LANES)};
            const vf64 top[2] = {upper_bits(number[0]), upper_bits(number[1])};
            upper[g] = f32_of_f64(top[0], top[1]);
            lower[g] = f32_of_f64(f64_sub(number[0], top[0]), f64_sub(number[1], top[1]));
        }
        store_two(to, upper[0], upper[1], split);
        store_two(to + FACTOR_PAIRS, lower[0], lower[1], split);
    }
}

/* Replaces the cosines and sines of a row by its factors. */
static void finish_row(const rotation_t *r, double *row) {
    /* without a fast path, the factors are NaN, so every value is uncertain */
    const double unit = r->has_fast_path ? 1 : double_of_bits(0x7ff8000000000000u), sign = r->inverse ? -unit : unit;
    const double *const end = row + factor_pitch(r->pairs);
    if (r->dtype == FLOAT32 && sign == 1) return;
    for (int is_sine = 0; row < end; row += FACTOR_PAIRS, is_sine = !is_sine) {
        ALIGNED double numbers[FACTOR_PAIRS];
        for (int i = 0; i < FACTOR_PAIRS; i++) numbers[i] = (is_sine ? sign : unit) * row[i];
        if (r->dtype == FLOAT32) memcpy(row, numbers, sizeof numbers);
        else split_block((float *)(void *)row, numbers, is_split(r));
    }
}

/* Returns the size of the memory that factors_of needs for `count` rows, in doubles. */
static ptrdiff_t factors_memory(const rotation_t *r, ptrdiff_t count) {
    return r->position_axes && r->axis->pair ? factor_pitch(r->pairs) * count : 0;
}

COLD void factors_of(const rotation_t *r, ptrdiff_t position, ptrdiff_t count, double *factors, char *memory) {
    fill_table(r, position, count, factors, (double *)(void *)memory);
    for (ptrdiff_t i = 0; i < count; i++) finish_row(r, factors + i * factor_pitch(r->pairs));
}

#endif
