/* The memory of strided arrays.  Strides are in bytes, except those of positions. */
#ifndef POSENC_STRIDES_H
#define POSENC_STRIDES_H

#include "kernel.h"

/* Returns whether no rows of an array overlap, that is, each stride spans all rows of the axes with smaller strides. */
static inline int rows_are_apart(int axes, const ptrdiff_t *shape, const ptrdiff_t *strides, ptrdiff_t row_bytes) {
    uint64_t used = 0;
    for (;;) {
        ptrdiff_t stride = 0;
        int chosen = -1;
        for (int i = 0; i < axes; i++) {
            const ptrdiff_t size = strides[i] < 0 ? -strides[i] : strides[i];
            if (shape[i] > 1 && !(used >> i & 1) && (chosen < 0 || size < stride)) chosen = i, stride = size;
        }
        if (chosen < 0) return 1;
        if (stride < row_bytes) return 0;
        used |= (uint64_t)1 << chosen;
        row_bytes += stride * (shape[chosen] - 1);
    }
}

typedef struct {
    uintptr_t first, beyond;
} span_t;

/* Returns the addresses of the first byte of an array and of the byte after its last one. */
static inline span_t span_of(const void *memory, int axes, const ptrdiff_t *shape, const ptrdiff_t *strides, ptrdiff_t itemsize) {
    ptrdiff_t below = 0, above = itemsize;
    for (int i = 0; i < axes; i++) {
        if (shape[i] == 0) return (span_t){0};
        *(strides[i] < 0 ? &below : &above) += (shape[i] - 1) * strides[i];
    }
    return (span_t){(uintptr_t)memory + (uintptr_t)below, (uintptr_t)memory + (uintptr_t)above};
}

/* Returns whether the spans of two arrays overlap, so that the arrays may share memory. */
static inline int spans_overlap(span_t a, span_t b) { return a.first < b.beyond && b.first < a.beyond; }

/* Appends an axis, or merges it with the last axis if a single stride describes both in x, in `out` and in the positions. */
static inline void append_axis(
    extent_t *extent, ptrdiff_t length, ptrdiff_t x_stride, ptrdiff_t out_stride, ptrdiff_t position_stride
) {
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

/* Returns the offset in bytes of element `index` of `out`, without the last axis. */
static inline ptrdiff_t out_offset(const extent_t *extent, ptrdiff_t index) {
    ptrdiff_t offset = 0;
    for (int axis = extent->axes - 2; axis >= 0; axis--) {
        offset += index % extent->shape[axis] * extent->out_strides[axis];
        index /= extent->shape[axis];
    }
    return offset;
}

#endif
