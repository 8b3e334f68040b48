/* The memory of strided arrays.  Strides are in bytes, except those of positions. */
#ifndef POSENC_STRIDES_H
#define POSENC_STRIDES_H

#include <string.h>

#include "kernel.h"

typedef struct {
    int axes;
    const ptrdiff_t *shape, *strides;
} layout_t;

/* Returns whether the rows of an array do not overlap, that is, whether each stride spans all rows of the axes with
 * smaller strides. */
static inline int rows_are_apart(layout_t rows, ptrdiff_t row_bytes) {
    uint64_t used = 0;
    for (;;) {
        ptrdiff_t stride = 0;
        int chosen = -1;
        for (int i = 0; i < rows.axes; i++) {
            const ptrdiff_t size = rows.strides[i] < 0 ? -rows.strides[i] : rows.strides[i];
            if (rows.shape[i] > 1 && !(used >> i & 1) && (chosen < 0 || size < stride)) chosen = i, stride = size;
        }
        if (chosen < 0) return 1;
        if (stride < row_bytes) return 0;
        used |= (uint64_t)1 << chosen;
        row_bytes += stride * (rows.shape[chosen] - 1);
    }
}

typedef struct {
    uintptr_t first, beyond;
} memory_range_t;

/* Returns the addresses of the first byte of an array and of the byte after the last one. */
static inline memory_range_t memory_range_of(const void *memory, layout_t array, ptrdiff_t itemsize) {
    ptrdiff_t below = 0, above = itemsize;
    for (int i = 0; i < array.axes; i++) {
        if (array.shape[i] == 0) return (memory_range_t){0};
        *(array.strides[i] < 0 ? &below : &above) += (array.shape[i] - 1) * array.strides[i];
    }
    return (memory_range_t){(uintptr_t)memory + (uintptr_t)below, (uintptr_t)memory + (uintptr_t)above};
}

/* Returns whether the memory ranges of two arrays overlap, so that the arrays may share memory. */
static inline int ranges_overlap(memory_range_t a, memory_range_t b) { return a.first < b.beyond && b.first < a.beyond; }

/* Appends an axis, or merges it with the last axis if a single stride describes both in x, in `out` and in
 * the positions. */
static inline void append_axis(extent_t *extent, ptrdiff_t length, ptrdiff_t x_stride, ptrdiff_t out_stride,
                               ptrdiff_t position_stride) {
    int last = extent->axes - 1;
    if (length == 1) return;
    if (last >= 0 && extent->x_strides[last] == length * x_stride && extent->out_strides[last] == length * out_stride &&
        extent->position_strides[last] == length * position_stride) {
        extent->shape[last] *= length;
    } else {
        last = extent->axes++;
        extent->shape[last] = length;
    }
    extent->x_strides[last] = x_stride;
    extent->out_strides[last] = out_stride;
    extent->position_strides[last] = position_stride;
}

static inline int has_shape(layout_t array, int axes, const ptrdiff_t *shape) {
    return array.axes == axes && memcmp(array.shape, shape, (size_t)axes * sizeof *shape) == 0;
}

/* Divides the axes of x into axes along which the position changes (rows) and axes along which it does not
 * (heads).  Positions without strides are evenly spaced along a single axis, the last one of x.  If `several`, the
 * first axis of `positions` selects the axis of each pair.  Returns whether the positions fit; check_broadcast in
 * checks.py states the rule. */
static inline int divide_axes(rotation_t *r, layout_t x, const ptrdiff_t *out_strides, layout_t positions, int several) {
    const int axes = positions.axes - several;
    int fit = axes == x.axes || (axes < 2 && axes < x.axes);
    /* a single position is not broadcast to several rows */
    if (positions.strides && axes < 2 && x.axes && x.shape[x.axes - 1] > 1)
        fit = axes == 1 && positions.shape[several] == x.shape[x.axes - 1];
    r->rows.axes = r->heads.axes = 0;
    for (int i = 0; i < x.axes; i++) {
        const int at = i - (x.axes - positions.axes);
        if (at < several || positions.shape[at] == 1) {
            append_axis(&r->heads, x.shape[i], x.strides[i], out_strides[i], 0);
        } else {
            const ptrdiff_t stride = positions.strides ? positions.strides[at] / (ptrdiff_t)sizeof(int64_t) : 1;
            append_axis(&r->rows, x.shape[i], x.strides[i], out_strides[i], stride);
            fit = fit && positions.shape[at] == x.shape[i];
        }
    }
    return fit;
}

static inline ptrdiff_t elements_of(const extent_t *extent) {
    ptrdiff_t size = 1;
    for (int i = 0; i < extent->axes; i++) size *= extent->shape[i];
    return size;
}

#endif
