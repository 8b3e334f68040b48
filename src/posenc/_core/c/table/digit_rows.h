/* Writes groups of rows that are products of digits (digits.h).
 *
 * The rows of a group are sorted by the upper bits of their positions.  The product of all digits but the lowest is
 * computed only if it differs from that of the previous row. */
#ifndef POSENC_DIGIT_ROWS_H
#define POSENC_DIGIT_ROWS_H

#include "table/digits.h"
#include "table/direct_rows.h"

enum {
    GROUP_TILES = 16, /* most tiles of a row that are written together; their lowest level stays in L2 */
    BUCKET_BITS = 12
};

/* The rows of a group, in memory of the caller: see GROUP_BYTES in kernel.h. */
typedef struct {
    limit_t limits[GROUP_TILES];
    ALIGNED double upper[GROUP_TILES * FACTOR]; /* the product of all digits but the lowest ones */
    uint32_t first[1 + (1 << BUCKET_BITS)];
    ptrdiff_t count;
    uint64_t known; /* the digits whose product is `upper` */
    int levels, is_sorted;
    digit_row_t row[]; /* followed by a uint32_t for each row: the rows in sorted order */
} digit_group_t;

_Static_assert(sizeof(digit_group_t) <= GROUP_BYTES && sizeof(digit_row_t) + sizeof(uint32_t) <= GROUP_ROW_BYTES,
               "digit_group_t");

/* Sorts the rows of a group by their upper bits, if sorted rows are likely to share upper digits. */
static const uint32_t *sort_rows(digit_group_t *group, ptrdiff_t tiles) {
    uint32_t *const order = (uint32_t *)(void *)(group->row + group->count), *const first = group->first;
    uint64_t all = 0;
    for (ptrdiff_t i = 0; i < group->count; i++) all |= group->row[i].n;
    const int bits = bits_of_integer(all), shift = bits > BUCKET_BITS ? bits - BUCKET_BITS : 0;
    const int is_sorted = group->is_sorted =
        tiles * TILE >= SORTED_COLUMNS && bits <= bits_of_integer((uint64_t)group->count) + 6;
    if (is_sorted) memset(first, 0, sizeof group->first);
    for (ptrdiff_t i = 0; is_sorted && i < group->count; i++) first[1 + (group->row[i].n >> shift)]++;
    for (int i = 0; is_sorted && i < 1 << BUCKET_BITS; i++) first[i + 1] += first[i];
    for (ptrdiff_t i = 0; i < group->count; i++)
        order[is_sorted ? first[group->row[i].n >> shift]++ : (uint32_t)i] = (uint32_t)i;
    return order;
}

/* Sets the factors of a row: the entries of the lowest digit, or of the two lowest digits if rows are not sorted, and
 * the product of the entries of all other digits. */
static void choose_factors(const job_t *job, digit_group_t *group, uint64_t n, const double *const *level, ptrdiff_t pitch,
                           product_t *p) {
    const double *entry[LEVELS]; /* from the highest level on */
    const int levels = group->levels, lower = min_int(levels - 1, group->is_sorted ? 1 : 2), upper = levels - lower;
    for (int k = 0; k < levels; k++)
        entry[k] = level[levels - 1 - k] + (ptrdiff_t)(n >> 6 * (levels - 1 - k) & (RADIX - 1)) * pitch;
    p->factor[0] = entry[0];
    for (int k = 0; k < 2; k++) p->factor[k + 1] = k < lower ? entry[upper + k] : NULL;
    if (upper == 1) return;
    if (n >> 6 * lower != group->known)
        multiply_factors(entry, upper, p->tiles, angles_of_product(p), job->dtype == FLOAT64, group->upper);
    group->known = n >> 6 * lower;
    p->factor[0] = group->upper;
}

/* Writes columns that are in `from`; if `half_bytes` is not 0, also those in the second half of the row. */
static void write_halves(const spec_t *spec, const job_t *job, char *out, const char *from, int columns, ptrdiff_t half_bytes) {
    write_staged(job, out, from, columns, job->output);
    if (half_bytes) write_staged(job, out + spec->half * size_of(job->dtype), from + half_bytes, columns, job->output);
}

/* Writes the tiles from `first` to `last` of the rows of a group. */
NOINLINE void write_tiles(const spec_t *spec, const job_t *job, digit_group_t *group, const uint32_t *order, ptrdiff_t first,
                          ptrdiff_t last, tally_t *tally) {
    const ptrdiff_t size = size_of(job->dtype), column = first * TILE;
    const int count = angles_of_tile(spec), tiles = (int)(last - first), lowest = lowest_level(spec, job);
    const int columns = min_int(spec->d_model - column, tiles * TILE);
    const int writes_out = job->output != ADD && columns == tiles * TILE;
    const int has_lines = ((uintptr_t)job->out | (uintptr_t)job->row_stride) % LINE == 0;
    const double unit = power_of_two(6 * (lowest - WHOLE));
    uint64_t above = 0; /* the limits are those of positions below `above` units */
    ALIGNED char staged[GROUP_TILES * TILE * sizeof(double)];
    const char *written = NULL; /* the values of the previous row, if none was uncertain */
    const digit_row_t *before = NULL;
    product_t p = {.stride = count * (job->dtype == FLOAT64 ? 4 : 2),
                   .tiles = tiles,
                   .streamed = writes_out && job->output == STREAM && has_lines,
                   .order = spec->half ? spec->quarter[0] ? COS_FIRST : SIN_FIRST : spec->order,
                   .half_bytes = writes_out   ? spec->half * size
                                 : spec->half ? columns * size
                                              : 0,
                   .quarter = spec->quarter + column,
                   .limits = group->limits};
    const double *level[LEVELS];
    for (int k = lowest; k < job->digits->levels; k++) level[k - lowest] = job->digits->level[k] + first * p.stride;
    const ptrdiff_t pitch = angle_tiles(spec) * p.stride;
    group->known = UINT64_MAX;
    for (ptrdiff_t i = 0; i < group->count; i++) {
        const digit_row_t *const row = group->row + order[i];
        char *const out = job->out + row->row * job->row_stride + column * size, *const to = writes_out ? out : staged;
        if (before && written && before->n == row->n && before->sign == row->sign && before->rest == row->rest) {
            write_halves(spec, job, out, written, columns, p.half_bytes);
            continue;
        }
        before = row;
        if (row->n >= above) {
            const int digits = digit_count(row->n);
            above = digits < 11 ? (uint64_t)1 << 6 * digits : UINT64_MAX;
            group->levels = levels_of_digits(lowest, digits);
            for (int t = 0; t < tiles; t++) limit_of(spec, job, first + t, digits, &group->limits[t]);
        }
        choose_factors(job, group, row->n, level, pitch, &p);
        if (lowest < WHOLE) p.radians = job->digits->radians + first * count;
        p.radians_low = job->digits->radians_low + first * count;
        p.sign = row->sign;
        p.rest = row->rest * unit;
        const unsigned uncertain = ROUND[job->dtype](&p, to);
        written = uncertain ? NULL : to;
        if (!uncertain && !writes_out) write_halves(spec, job, out, staged, columns, p.half_bytes);
        for (int t = 0; t < tiles && UNLIKELY(uncertain); t++) {
            const ptrdiff_t at = t * TILE * size;
            const tile_t tile = {.row = &row->row,
                                 .column = column + t * TILE,
                                 .rows = 1,
                                 .width = min_int(columns - t * TILE, TILE),
                                 .output = job->output,
                                 .out = out + at};
            if (uncertain >> t & 1) settle_product(&p, t, spec, job, &tile, tally);
            else if (!writes_out) write_halves(spec, job, tile.out, staged + at, tile.width, p.half_bytes);
        }
    }
}

static void write_digit_rows(const spec_t *spec, const job_t *job, digit_group_t *group, tally_t *tally) {
    const ptrdiff_t tiles = angle_tiles(spec), most = job->dtype == FLOAT64 ? GROUP_TILES / 2 : GROUP_TILES;
    const uint32_t *const order = sort_rows(group, tiles);
    for (ptrdiff_t tile = 0; tile < tiles; tile += most)
        write_tiles(spec, job, group, order, tile, min_int(tile + most, tiles), tally);
    group->count = 0;
}

/* Adds a row to a group, which is written when full.  Returns 0 if the row cannot be computed from digits. */
static int add_digit_row(const spec_t *spec, const job_t *job, ptrdiff_t row, digit_group_t *group, tally_t *tally) {
    if (!read_digits(spec, job, row, group->row + group->count)) return 0;
    if (++group->count == job->group_rows) write_digit_rows(spec, job, group, tally);
    return 1;
}

#endif
