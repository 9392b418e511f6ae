/* Random datatypes over one basic type, and what they mean. The meaning is, for each byte of their stream, its
 * displacement in memory, found by packing images of known bytes. Part of random_accesses.c. */
#ifndef RANDOM_TYPES_H
#define RANDOM_TYPES_H

#include <mpi.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Generators: one for what ranks agree on, one for each rank's own choices. Any rank can follow another's. */
typedef struct {
    uint64_t state;
} Random;

static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline Random seeded(uint64_t seed, uint64_t step, uint64_t who) {
    return (Random){mix(seed * 0x9e3779b97f4a7c15u + mix(step * 1000003u + mix(who + 77)))};
}

static inline int below(Random *r, int n) {
    r->state += 0x9e3779b97f4a7c15u;
    return (int)(mix(r->state) % (uint64_t)n);
}

/* One of `n` chances. */
static inline int once_in(Random *r, int n) { return below(r, n) == 0; }

enum { MAX_BYTES = 3000, MAX_EXTENT = 20000, NAME = 900 };

typedef struct {
    MPI_Datatype type;
    /* Bytes of the stream, and where each lies. */
    int n;
    int *at;
    MPI_Aint lb, extent, low, high;
    char name[NAME];
} Type;

static inline void type_measure(Type *t) {
    MPI_Aint width;
    MPI_Type_size(t->type, &t->n);
    MPI_Type_get_extent(t->type, &t->lb, &t->extent);
    MPI_Type_get_true_extent(t->type, &t->low, &width);
    if (t->n == 0)
        t->low = width = 0;
    t->high = t->low + width;
}

/* Fills in `at` and commits. */
static inline void type_finish(Type *t) {
    type_measure(t);
    MPI_Type_commit(&t->type);
    t->at = calloc((size_t)t->n + 1, sizeof *t->at);
    int width = (int)(t->high - t->low), packed_size = 0;
    MPI_Pack_size(1, t->type, MPI_COMM_SELF, &packed_size);
    unsigned char *image = malloc((size_t)width + 1), *packed = malloc((size_t)packed_size + 1);
    for (int digit = 0; digit < 3 && t->n; digit++) {
        for (int i = 0; i < width; i++)
            image[i] = (unsigned char)(i >> (8 * digit));
        int end = 0;
        MPI_Pack(image - t->low, 1, t->type, packed, packed_size + 1, &end, MPI_COMM_SELF);
        for (int i = 0; i < t->n; i++)
            t->at[i] |= packed[i] << (8 * digit);
    }
    for (int i = 0; i < t->n; i++)
        t->at[i] += (int)t->low;
    free(image);
    free(packed);
}

static inline int type_is_named(MPI_Datatype type) {
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    return combiner == MPI_COMBINER_NAMED;
}

static inline void type_free(Type *t) {
    if (t->type == MPI_DATATYPE_NULL)
        return;
    if (!type_is_named(t->type))
        MPI_Type_free(&t->type);
    t->type = MPI_DATATYPE_NULL;
    free(t->at);
    t->at = NULL;
}

/* Whether no byte is in it twice, over as many instances. */
static inline int type_is_disjoint(const Type *t, int count) {
    MPI_Aint low = t->low + (t->extent < 0 ? (count - 1) * t->extent : 0);
    MPI_Aint high = t->high + (t->extent > 0 ? (count - 1) * t->extent : 0);
    if (count == 0 || t->n == 0)
        return 1;
    unsigned char *seen = calloc((size_t)(high - low) + 1, 1);
    int good = 1;
    for (int c = 0; c < count && good; c++)
        for (int i = 0; i < t->n && good; i++)
            good = !seen[t->at[i] + c * t->extent - low]++;
    free(seen);
    return good;
}

static inline void type_say(Type *t, const char *format, ...) {
    char inner[NAME], head[100];
    va_list words;
    va_start(words, format);
    vsnprintf(head, sizeof head, format, words);
    va_end(words);
    snprintf(inner, sizeof inner, "%s", t->name);
    snprintf(t->name, NAME, "%s(%.*s)", head, NAME - 110, inner);
}

/* Replaces the type by a new one around it. */
static inline void type_become(Type *t, MPI_Datatype made) {
    if (!type_is_named(t->type))
        MPI_Type_free(&t->type);
    t->type = made;
    type_measure(t);
}

/* To begin with. */
static inline Type type_of(MPI_Datatype from, const char *name) {
    Type t = {.type = from};
    if (!type_is_named(from))
        MPI_Type_dup(from, &t.type);
    snprintf(t.name, NAME, "%s", name);
    type_measure(&t);
    return t;
}

static inline void type_resize(Type *t, MPI_Aint lb, MPI_Aint extent) {
    MPI_Datatype out;
    MPI_Type_create_resized(t->type, lb, extent, &out);
    type_become(t, out);
    type_say(t, "resized %ld %ld", (long)lb, (long)extent);
}

/* Order of displacements. ANY: they may fall, be negative and, now and then, meet. FORWARD: growing as in a filetype.
 * GENTLE: growing, without a lower bound that is not the first byte. */
enum { ANY, FORWARD, GENTLE };

/* One constructor around the type. */
static inline void type_wrap(Type *t, Random *r, int forward) {
    MPI_Datatype out = MPI_DATATYPE_NULL;
    int n = 1 + below(r, 4), lengths[4], places[4], fixed = 1 + below(r, 3), kind = below(r, 13);
    int back = !forward && once_in(r, 2), even = kind == 5 || kind == 6;
    MPI_Aint bytes[4], at = forward ? 0 : -below(r, 60), extent = t->extent;
    int place = forward ? below(r, 3) : -below(r, 9);
    for (int k = 0; k < n; k++) {
        int i = back ? n - 1 - k : k;
        lengths[i] = even ? fixed : below(r, 4);
        place += below(r, 3);
        places[i] = place;
        place += lengths[i];
        bytes[i] = at + below(r, 3) * below(r, 5);
        at = bytes[i] + lengths[i] * extent;
    }
    int stride = back ? -(fixed + 1 + below(r, 3)) : fixed + below(r, 3);
    MPI_Aint byte_stride = (fixed * extent + below(r, 9)) * (back ? -1 : 1);
    if (!forward && once_in(r, 6)) {
        stride = below(r, 5) - 2;
        byte_stride = below(r, 40) - 20;
    }
#ifdef OPEN_MPI /* It takes a stride of -1 for 1, in bytes too. */
    stride = stride == -1 ? -2 : stride;
    byte_stride = byte_stride == -1 ? -2 : byte_stride;
#endif
    switch (kind) {
    case 0:
        MPI_Type_contiguous(n, t->type, &out);
        type_become(t, out);
        type_say(t, "contiguous %d", n);
        break;
    case 1:
        MPI_Type_vector(n, fixed, stride, t->type, &out);
        type_become(t, out);
        type_say(t, "vector %d %d %d", n, fixed, stride);
        break;
    case 2:
        MPI_Type_create_hvector(n, fixed, byte_stride, t->type, &out);
        type_become(t, out);
        type_say(t, "hvector %d %d %ld", n, fixed, (long)byte_stride);
        break;
    case 3:
        MPI_Type_indexed(n, lengths, places, t->type, &out);
        type_become(t, out);
        type_say(t, "indexed %d: %dx%d..%dx%d", n, lengths[0], places[0], lengths[n - 1], places[n - 1]);
        break;
    case 4:
        MPI_Type_create_hindexed(n, lengths, bytes, t->type, &out);
        type_become(t, out);
        type_say(t, "hindexed %d: %dx%ld..%dx%ld", n, lengths[0], (long)bytes[0], lengths[n - 1], (long)bytes[n - 1]);
        break;
    case 5:
        MPI_Type_create_indexed_block(n, fixed, places, t->type, &out);
        type_become(t, out);
        type_say(t, "indexed_block %d of %d: %d..%d", n, fixed, places[0], places[n - 1]);
        break;
    case 6:
        MPI_Type_create_hindexed_block(n, fixed, bytes, t->type, &out);
        type_become(t, out);
        type_say(t, "hindexed_block %d of %d: %ld..%ld", n, fixed, (long)bytes[0], (long)bytes[n - 1]);
        break;
    case 7: {
        /* Fields of the type itself and of two of it. */
        MPI_Datatype pair, fields[4];
        MPI_Type_contiguous(2, t->type, &pair);
        at = 0;
        for (int i = 0; i < n; i++) {
            fields[i] = i % 2 ? pair : t->type;
            bytes[i] = at + below(r, 9);
            at = bytes[i] + lengths[i] * (1 + i % 2) * extent;
        }
        MPI_Type_create_struct(n, lengths, bytes, fields, &out);
        MPI_Type_free(&pair);
        type_become(t, out);
        type_say(t, "struct %d: %dx%ld..%dx%ld", n, lengths[0], (long)bytes[0], lengths[n - 1], (long)bytes[n - 1]);
        break;
    }
    case 8:
    case 9: {
        int sizes[3], sub[3], starts[3], dimensions = 1 + below(r, 3);
        for (int i = 0; i < dimensions; i++) {
            sizes[i] = 1 + below(r, 4);
            sub[i] = 1 + below(r, sizes[i]);
            starts[i] = below(r, sizes[i] - sub[i] + 1);
        }
        MPI_Type_create_subarray(dimensions, sizes, sub, starts, kind == 8 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, t->type,
                                 &out);
        type_become(t, out);
        type_say(t, "subarray %d %s", dimensions, kind == 8 ? "C" : "Fortran");
        break;
    }
    case 10: {
        int sizes[2], kinds[2], arguments[2], grid[2] = {1 + below(r, 2), 1 + below(r, 3)};
        for (int i = 0; i < 2; i++) {
            sizes[i] = grid[i] * (1 + below(r, 3)) + below(r, 2);
            kinds[i] = once_in(r, 2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
            arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
            if (kinds[i] == MPI_DISTRIBUTE_CYCLIC && once_in(r, 2))
                arguments[i] = 1 + below(r, 2);
        }
        if (once_in(r, 3)) {
            kinds[0] = MPI_DISTRIBUTE_NONE;
            grid[0] = 1;
        }
        int all = grid[0] * grid[1], one = below(r, all), order = once_in(r, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        MPI_Type_create_darray(all, one, 2, sizes, kinds, arguments, grid, order, t->type, &out);
        type_become(t, out);
        type_say(t, "darray %d of %dx%d: %dx%d", one, grid[0], grid[1], sizes[0], sizes[1]);
        break;
    }
    case 11:
        type_resize(t, forward == ANY ? t->lb - 5 : t->low - (forward == GENTLE ? 0 : below(r, 3) * 4),
                    t->high - t->low + below(r, 12));
        break;
    default:
        MPI_Type_dup(t->type, &out);
        type_become(t, out);
        type_say(t, "dup");
    }
}

/* A type of this basic one: neither empty nor large. */
static inline Type type_random(Random *r, MPI_Datatype basic, const char *name, int depth, int forward) {
    for (;;) {
        Type t = type_of(basic, name);
        int levels = below(r, depth + 1), good = 1;
        for (int i = 0; i < levels && good; i++) {
            type_wrap(&t, r, forward);
            /* Instances of a filetype do not lie between each other's bytes; those of its parts neither. */
            if (forward && t.n && (t.low < t.lb || t.high > t.lb + t.extent || t.low < 0))
                type_resize(&t, t.low, t.high - t.low);
            good = t.n > 0 && t.n <= MAX_BYTES && t.extent <= MAX_EXTENT && t.extent >= -MAX_EXTENT &&
                   t.high - t.low <= MAX_EXTENT;
        }
        if (good)
            return t;
        type_free(&t);
    }
}

#endif
