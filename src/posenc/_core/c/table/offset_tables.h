/* Computes offset tables (offsets_t in kernel.h). */
#ifndef POSENC_OFFSET_TABLES_H
#define POSENC_OFFSET_TABLES_H

#include "table/direct.h"
#include "float_environment.h"
#include "table/output.h"

/* Returns the spec of rows shifted by `first` columns: a shifted row has columns first .. d_model - 1 of a row and the first
 * columns of the next row.  Rows that bypass the caches (STREAM) are shifted if they are contiguous, begin inside a cache line,
 * and are a whole number of cache lines long.  Column `first` is then at the start of a line, so every tile stores whole
 * lines. */
INLINE spec_t spec_from(const spec_t *spec, ptrdiff_t first) {
    spec_t shifted = *spec;
    if (first == 0) return shifted;
    shifted.first = first;
    shifted.turns += first;
    shifted.sign += first;
    shifted.quarter += first;
    shifted.order = UNPAIRED;
    return shifted;
}

INLINE double *offsets_at(double *table, ptrdiff_t tile, int rows, int row) { return table + (tile * rows + row) * 2 * TILE; }

/* Not inline, so that the compiler does not move the arithmetic past environment_enter or environment_leave. */
COLD void tabulate_rows(const spec_t *spec, uint64_t first, uint64_t spacing, double *high, double *low, ptrdiff_t tile,
                        int rows) {
    for (int r = 0; r < rows; r++) {
        const position_t position = position_from_halves(first + 2 * (uint64_t)r * spacing);
        double *const to = offsets_at(high, tile, rows, r), *const to_low = offsets_at(low, tile, rows, r);
        for (int i = 0; i < TILE; i += LANES) {
            vdd s, c;
            direct_dd(spec, &position, tile * TILE + i, ANGLES, &s, &c);
            dd_store(to + i, to_low + i, c);
            dd_store(to + TILE + i, to_low + TILE + i, s);
        }
    }
}

static void tabulate(const spec_t *spec, const offsets_t *offsets, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const environment_t host = environment_enter();
    const spec_t shifted = spec_from(spec, offsets->first);
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) {
        tabulate_rows(&shifted, offsets->step, offsets->step, offsets->fine, offsets->fine_low, tile, HALF);
        tabulate_rows(&shifted, offsets->step * (FINE - 1), offsets->step * FINE, offsets->coarse, offsets->coarse_low, tile,
                      COARSE);
        for (ptrdiff_t column = tile * TILE; column < (tile + 1) * TILE; column++) {
            double reach = 0;
            uint32_t turns = 0;
            const double *sine = offsets_at(offsets->fine, tile, HALF, 0) + TILE + column % TILE;
            for (int r = 0; r < HALF; r++, sine += 2 * TILE)
                if (*sine > reach || -*sine > reach) reach = *sine < 0 ? -*sine : *sine;
            for (int i = 0; i < spec->integer_limbs + spec->fraction_limbs; i++)
                turns |= shifted.turns[i * spec->pitch + column];
            /* advance.h multiplies a sum that includes `reach` by DOUBLE_ERROR; because of 2**-36, this product also covers the
             * absolute errors of direct evaluation: see docs/numerics.md, section 5 */
            offsets->reach[column] = turns ? reach + 0x1p-36 : 0;
            offsets->nonzero[column] = turns || shifted.quarter[column] ? 1 : 0;
        }
    }
    environment_leave(host);
}

#endif
