/* Writes groups of rows that are products of digits (digits.h), several narrow rows at a time, or tile by
 * tile. */
#ifndef POSENC_DIGIT_ROWS_H
#define POSENC_DIGIT_ROWS_H

#include "table/digits.h"
#include "table/direct_rows.h"

enum {
    GROUP_ROWS = 256,
    GROUP_TILES = 4 /* tiles of a row that are written together: their lines are adjacent, and their levels stay in L2 */
};

typedef struct {
    digit_row_t row[GROUP_ROWS];
    int count;
} digit_group_t;

/* Sets the angles of a tile for rows of `width` angles. */
static void set_angles(const spec_t *spec, const job_t *job, ptrdiff_t tile, int width, angles_t *angles) {
    const int count = angles_of_tile(spec);
    for (int i = 0; i < count; i++) {
        angles->radians[i] = job->digits->radians[tile * count + i % width];
        angles->quarter[i] = spec->quarter[tile * TILE + i % width];
    }
}

/* Evaluates a tile of a row directly, because a value of the product is uncertain. */
COLD void write_uncertain_tile(const spec_t *spec, const job_t *job, ptrdiff_t column, ptrdiff_t row, tally_t *tally) {
    const position_t position = position_of(spec, job, row);
    tally->uncertain++;
    direct_columns(spec, job, &position, row, column, column + minimum(spec->d_model - column, TILE),
                   job->out + row * job->row_stride + column * size_of(job->dtype), tally);
}

/* Sets the limits of the digits of a product, unless they are set. */
INLINE void set_limits(const spec_t *spec, const job_t *job, const product_t *p, unsigned *known) {
    if (*known >> p->digits & 1) return;
    for (int t = 0; t < p->tiles; t++) limit_of(spec, job, &p->angles[t], p->digits, &p->limits[t][p->digits]);
    *known |= 1u << p->digits;
}

/* Writes the tiles from `first` to `last` of a group of rows. */
static void write_wide_rows(const spec_t *spec, const job_t *job, const digit_group_t *group, ptrdiff_t first, ptrdiff_t last,
                            tally_t *tally) {
    const ptrdiff_t size = size_of(job->dtype), column = first * TILE;
    const int count = angles_of_tile(spec), tiles = (int)(last - first), lowest = lowest_level(spec, job);
    const int entry = count * (job->dtype == FLOAT64 ? 4 : 2), columns = minimum(spec->d_model - column, tiles * TILE);
    const int is_direct = job->output != ADD && columns == tiles * TILE;
    const double unit = power_of_two(6 * (lowest - WHOLE));
    ALIGNED char staged[GROUP_TILES * TILE * sizeof(double)];
    ALIGNED double rest[TILE], factor[GROUP_TILES][2 * TILE];
    ALIGNED uint64_t signs[2][TILE];
    limit_t limits[GROUP_TILES][LEVELS + 1];
    angles_t angles[GROUP_TILES];
    unsigned known = 0;
    const char *written = NULL; /* the row before this one */
    product_t p = {.stride = RADIX * entry,
                   .rest_stride = 2 * TILE,
                   .tiles = tiles,
                   .order = spec->order,
                   .angles = angles,
                   .limits = limits,
                   .rest = lowest < WHOLE ? factor[0] : NULL};
    for (int t = 0; t < tiles; t++) set_angles(spec, job, first + t, count, &angles[t]);
    for (int i = 0; i < TILE; i++) signs[0][i] = 0, signs[1][i] = (uint64_t)1 << 63;
    for (const digit_row_t *row = group->row; row < group->row + group->count; row++) {
        char *const out = job->out + row->row * job->row_stride + column * size, *const to = is_direct ? out : staged;
        if (row->same && written) {
            write_staged(job, out, written, columns, job->dtype, job->output, job->batch);
            continue;
        }
        p.sign = signs[row->sign != 0];
        p.digits = row->digits;
        p.factors = levels_of_digits(lowest, row->digits);
        for (int k = 0; k < p.factors; k++)
            p.factor[k] = job->digits->level[lowest + k] + (first * RADIX + (ptrdiff_t)((row->n >> 6 * k) % RADIX)) * entry;
        for (int i = 0; p.rest && i < count; i++) rest[i] = row->rest;
        for (int t = 0; p.rest && t < tiles; t++) multiply_rest(angles[t].radians, rest, unit, count, factor[t]);
        set_limits(spec, job, &p, &known);
        const unsigned uncertain = ROUND[job->dtype](&p, to);
        written = uncertain ? NULL : to;
        if (!UNLIKELY(uncertain)) {
            if (!is_direct) write_staged(job, out, staged, columns, job->dtype, job->output, job->batch);
            continue;
        }
        for (int t = 0; t < tiles; t++) {
            const ptrdiff_t at = t * TILE * size;
            if (uncertain >> t & 1) write_uncertain_tile(spec, job, column + t * TILE, row->row, tally);
            else if (!is_direct)
                write_staged(job, out + at, staged + at, minimum(columns - t * TILE, TILE), job->dtype, job->output,
                             job->batch);
        }
    }
}

/* The products of narrow rows, one row after another: {cos, sin, cos_low, sin_low}.  A vector may be stored
 * past the end. */
typedef struct {
    ALIGNED double part[4][TILE + LANES], rest[TILE + LANES];
    ALIGNED uint64_t sign[TILE + LANES];
} narrow_t;

/* Computes the products of narrow rows of `width` angles, of at most `levels` levels from `lowest` on. */
INLINE void multiply_narrow(const digits_t *digits, int lowest, int levels, const digit_row_t *row, int rows, int width,
                            int angles, dtype_t dtype, narrow_t *narrow) {
    enum { TOGETHER = 4 }; /* rows whose chains of products overlap */
    const int entry = angles * (dtype == FLOAT64 ? 4 : 2), together = width <= LANES ? TOGETHER : 1;
    for (int j = 0; j < rows; j += together) {
        for (int at = 0; at < width; at += LANES) {
            vdd c[TOGETHER], s[TOGETHER];
            for (int k = 0; k < levels; k++) {
                for (int r = 0; r < TOGETHER && (r == 0 || together == TOGETHER); r++) {
                    const uint64_t n = row[j + r < rows ? j + r : rows - 1].n;
                    const double *const from = digits->level[lowest + k] + (n >> 6 * k) % RADIX * (unsigned)entry + at;
                    if (k == 0) {
                        c[r] = (vdd){f64_load(from), dtype == FLOAT64 ? f64_load(from + 2 * angles) : f64_set(0)};
                        s[r] = (vdd){f64_load(from + angles), dtype == FLOAT64 ? f64_load(from + 3 * angles) : f64_set(0)};
                    } else if (dtype == FLOAT64) {
                        multiply_by_dd(from, angles, &c[r], &s[r]);
                    } else {
                        multiply_by(from, angles, &c[r].high, &s[r].high);
                    }
                }
            }
            for (int r = 0; r < together && j + r < rows; r++) {
                const int to = (j + r) * width + at;
                f64_store(narrow->part[0] + to, c[r].high);
                f64_store(narrow->part[1] + to, s[r].high);
                if (dtype == FLOAT64) dd_store(narrow->part[2] + to, narrow->part[3] + to, (vdd){c[r].low, s[r].low});
                f64_store(narrow->rest + to, f64_set(row[j + r].rest));
                u64_flush(narrow->sign + to, u64_set(row[j + r].sign), 0);
            }
        }
    }
}

/* Writes a group of rows of at most half the angles of a tile; as many rows as fit in a tile are rounded
 * together. */
static void write_narrow_rows(const spec_t *spec, const job_t *job, const digit_group_t *group, int width, tally_t *tally) {
    const ptrdiff_t size = size_of(job->dtype);
    const int count = angles_of_tile(spec), per = count / width, lowest = lowest_level(spec, job);
    const int parts = job->dtype == FLOAT64 ? 4 : 2, pitch = width * (TILE / count), columns = (int)spec->d_model;
    ALIGNED char staged[TILE * sizeof(double)];
    ALIGNED double factor[4 * TILE], rest[2 * TILE];
    limit_t limits[1][LEVELS + 1];
    angles_t angles;
    narrow_t n;
    unsigned known = 0;
    memset(&n, 0, sizeof n);
    set_angles(spec, job, 0, width, &angles);
    product_t p = {.factor = {factor},
                   .factors = 1,
                   .tiles = 1,
                   .order = spec->order,
                   .sign = n.sign,
                   .rest = lowest < WHOLE ? rest : NULL,
                   .angles = &angles,
                   .limits = limits};
    for (int i = 0; i < group->count; i += per) {
        const digit_row_t *const row = group->row + i;
        const int rows = minimum(group->count - i, per);
        p.digits = 0;
        for (int j = 0; j < rows; j++) p.digits = row[j].digits > p.digits ? row[j].digits : p.digits;
        const int levels = levels_of_digits(lowest, p.digits);
        if (job->dtype == FLOAT64) multiply_narrow(job->digits, lowest, levels, row, rows, width, count, FLOAT64, &n);
        else if (count == TILE) multiply_narrow(job->digits, lowest, levels, row, rows, width, TILE, FLOAT32, &n);
        else multiply_narrow(job->digits, lowest, levels, row, rows, width, TILE / 2, FLOAT32, &n);
        for (int at = 0; at < count; at += LANES)
            for (int part = 0; part < parts; part++) f64_store(factor + part * count + at, f64_load(n.part[part] + at));
        if (p.rest) multiply_rest(angles.radians, n.rest, power_of_two(6 * (lowest - WHOLE)), count, rest);
        set_limits(spec, job, &p, &known);
        if (UNLIKELY(ROUND[job->dtype](&p, staged))) {
            for (int j = 0; j < rows; j++) write_uncertain_tile(spec, job, 0, row[j].row, tally);
        } else if (job->output != ADD && columns * size == job->row_stride && pitch == columns &&
                   row[rows - 1].row - row->row == rows - 1) {
            memcpy(job->out + row->row * job->row_stride, staged, (size_t)(rows * columns * size));
        } else {
            for (int j = 0; j < rows; j++)
                write_staged(job, job->out + row[j].row * job->row_stride, staged + j * pitch * size, columns, job->dtype,
                             job->output, job->batch);
        }
    }
}

NOINLINE void write_digit_rows(const spec_t *spec, const job_t *job, digit_group_t *group, tally_t *tally) {
    const int count = angles_of_tile(spec), width = minimum((spec->d_model * count + TILE - 1) / TILE, count);
    const ptrdiff_t tiles = spec->columns / TILE;
    if (2 * width <= count) write_narrow_rows(spec, job, group, width, tally);
    else
        for (ptrdiff_t tile = 0; tile < tiles; tile += GROUP_TILES)
            write_wide_rows(spec, job, group, tile, minimum(tile + GROUP_TILES, tiles), tally);
    group->count = 0;
}

/* Adds a row to a group, which is written when it is full.  Returns 0 if the row cannot be computed from
 * digits. */
static int add_digit_row(const spec_t *spec, const job_t *job, ptrdiff_t row, digit_group_t *group, tally_t *tally) {
    digit_row_t *const to = group->row + group->count, *const before = to - 1;
    if (!read_digits(spec, job, row, to)) return 0;
    to->same = group->count && before->n == to->n && before->sign == to->sign && before->rest == to->rest;
    if (++group->count == GROUP_ROWS) write_digit_rows(spec, job, group, tally);
    return 1;
}

#endif
