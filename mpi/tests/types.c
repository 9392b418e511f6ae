/* Datatypes of every constructor, nested at random. What is written through them must be what MPI_Pack makes
 * of them, and what is read what MPI_Unpack does. */
#include "check.h"

static unsigned long long state;

static unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 11) % n);
}

static MPI_Datatype basic(void) {
    static MPI_Datatype types[16];
    static int n;
    if (!n) {
        types[n++] = MPI_BYTE;
        types[n++] = MPI_CHAR;
        types[n++] = MPI_SHORT;
        types[n++] = MPI_INT;
        types[n++] = MPI_LONG_LONG_INT;
        types[n++] = MPI_DOUBLE;
        types[n++] = MPI_FLOAT_INT;
        types[n++] = MPI_DOUBLE_INT;
        types[n++] = MPI_SHORT_INT;
        types[n++] = MPI_2INT;
        types[n++] = MPI_C_DOUBLE_COMPLEX;
        types[n++] = MPI_UINT16_T;
        /* Not long double: MPI_Pack may leave out its padding. */
    }
    return types[below((unsigned)n)];
}

static MPI_Aint extent_of(MPI_Datatype type, MPI_Aint *lb) {
    MPI_Aint low, extent;
    MPI_Type_get_extent(type, &low, &extent);
    if (lb)
        *lb = low;
    return extent;
}

static void drop(MPI_Datatype *type) {
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(*type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(type);
}

enum { KINDS = 13 };

/* One constructor around a child (which it frees). Forward: offsets only grow, as a filetype's must; otherwise they
 * may fall and be negative. Blocks never overlap: what MPI_Unpack then does is not defined. */
static MPI_Datatype wrap(unsigned kind, MPI_Datatype child, int forward) {
    MPI_Datatype out;
    int lengths[4], places[4], lb_places = forward ? 0 : -(int)below(9);
    MPI_Aint bytes[4], extent = extent_of(child, NULL), at = forward ? 0 : -(MPI_Aint)below(50);
    int n = 1 + (int)below(4), place = lb_places, backward = !forward && below(2);
    int fixed = 1 + (int)below(3), even = kind == 5 || kind == 6;
    for (int k = 0; k < n; k++) {
        int i = backward ? n - 1 - k : k;
        lengths[i] = even ? fixed : 1 + (int)below(3);
        place += (int)below(3);
        places[i] = place;
        place += lengths[i];
        bytes[i] = at + (MPI_Aint)below(5);
        at = bytes[i] + lengths[i] * extent;
    }
    /* Open MPI 4.1 takes a stride of -1 for 1. */
    int stride = backward ? -(fixed + 1 + (int)below(3)) : fixed + (int)below(3);
    MPI_Aint byte_stride = (fixed * extent + (MPI_Aint)below(9)) * (backward ? -1 : 1);
    switch (kind) {
    case 0:
        MPI_Type_contiguous(n, child, &out);
        break;
    case 1:
        MPI_Type_vector(n, fixed, stride, child, &out);
        break;
    case 2:
        MPI_Type_create_hvector(n, fixed, byte_stride, child, &out);
        break;
    case 3:
        MPI_Type_indexed(n, lengths, places, child, &out);
        break;
    case 4:
        MPI_Type_create_hindexed(n, lengths, bytes, child, &out);
        break;
    case 5:
        MPI_Type_create_indexed_block(n, fixed, places, child, &out);
        break;
    case 6:
        MPI_Type_create_hindexed_block(n, fixed, bytes, child, &out);
        break;
    case 7: {
        MPI_Datatype children[4];
        MPI_Aint end = 0;
        for (int i = 0; i < n; i++) {
            children[i] = i % 2 ? basic() : child;
            MPI_Aint lb, width = extent_of(children[i], &lb);
            bytes[i] = end + (MPI_Aint)below(9);
            end = bytes[i] + lb + lengths[i] * width;
        }
        MPI_Type_create_struct(n, lengths, bytes, children, &out);
        break;
    }
    case 8:
    case 9: {
        int sizes[3], sub[3], starts[3], order = kind == 8 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        for (int i = 0; i < 3; i++) {
            sizes[i] = 2 + (int)below(4);
            sub[i] = 1 + (int)below((unsigned)sizes[i]);
            starts[i] = (int)below((unsigned)(sizes[i] - sub[i] + 1));
        }
        MPI_Type_create_subarray(3, sizes, sub, starts, order, child, &out);
        break;
    }
    case 10: {
        int sizes[2], kinds[2], arguments[2], grid[2] = {2, 3};
        for (int i = 0; i < 2; i++) {
            sizes[i] = 6 + (int)below(6);
            kinds[i] = below(2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
            arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
            if (kinds[i] == MPI_DISTRIBUTE_CYCLIC && below(2))
                arguments[i] = 1 + (int)below(3);
        }
        if (below(3) == 0) {
            kinds[0] = MPI_DISTRIBUTE_NONE;
            grid[0] = 1;
        }
        MPI_Type_create_darray(grid[0] * grid[1], (int)below((unsigned)(grid[0] * grid[1])), 2, sizes, kinds,
                               arguments, grid, below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, child, &out);
        break;
    }
    case 11: {
        MPI_Aint lb;
        extent_of(child, &lb);
        if (forward)
            MPI_Type_create_resized(child, lb, extent + (MPI_Aint)below(9), &out);
        else
            MPI_Type_create_resized(child, lb - 5, extent + (MPI_Aint)below(40), &out);
        break;
    }
    default:
        MPI_Type_dup(child, &out);
    }
    drop(&child);
    /* Bounds set inside stay bounds of the whole in MPI: a filetype must reach beyond its bytes again. */
    MPI_Aint lb, low, width;
    extent = extent_of(out, &lb);
    MPI_Type_get_true_extent(out, &low, &width);
    if (forward && width > 0 && (low < lb || low + width > lb + extent)) {
        MPI_Datatype covering;
        MPI_Type_create_resized(out, low, width, &covering);
        MPI_Type_free(&out);
        return covering;
    }
    return out;
}

static MPI_Datatype random_type(unsigned first, int forward) {
    MPI_Datatype type = basic();
    unsigned depth = below(3);
    for (unsigned i = 0; i < depth; i++)
        type = wrap(below(KINDS), type, forward);
    type = wrap(first, type, forward);
    int bytes;
    MPI_Type_size(type, &bytes);
    if (!bytes) {
        /* A part of a distributed array may be empty; that is tested elsewhere. */
        drop(&type);
        return random_type(first, forward);
    }
    MPI_Type_commit(&type);
    return type;
}

/* A buffer for `count` instances, with where the type's origin lies in it. */
static char *buffer_for(MPI_Datatype type, int count, char **origin, size_t *bytes) {
    MPI_Aint lb, extent = extent_of(type, &lb), low, width;
    MPI_Type_get_true_extent(type, &low, &width);
    MPI_Aint first = low, last = low + width;
    if (extent > 0)
        last += extent * (count - 1);
    else
        first += extent * (count - 1);
    *bytes = (size_t)(last - first) + 64;
    char *buffer = malloc(*bytes);
    *origin = buffer - first;
    return buffer;
}

static void in_memory(MPI_File file, unsigned kind) {
    MPI_Datatype type = random_type(kind, 0);
    int count = 1 + (int)below(3), size_of_type, packed, at = 0;
    MPI_Type_size(type, &size_of_type);
    int total = size_of_type * count;
    char *origin, *origin2, *origin3;
    size_t bytes;
    char *memory = buffer_for(type, count, &origin, &bytes);
    char *read = buffer_for(type, count, &origin2, &bytes);
    char *expected = buffer_for(type, count, &origin3, &bytes);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (char)mark(rank, i);
    MPI_Pack_size(count, type, MPI_COMM_SELF, &packed);
    char *stream = malloc((size_t)packed + 1), *raw = malloc((size_t)total + 1);
    MPI_Pack(origin, count, type, stream, packed, &at, MPI_COMM_SELF);
    CHECK(at == total);
    MPI_Status status;
    OK(MPI_File_write_at(file, 0, origin, count, type, &status));
    COUNTS(total, status, MPI_BYTE);
    OK(MPI_File_read_at(file, 0, raw, total, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(raw, stream, (size_t)total) == 0);

    memset(read, 99, bytes);
    memset(expected, 99, bytes);
    at = 0;
    MPI_Unpack(stream, total, &at, origin3, count, type, MPI_COMM_SELF);
    OK(MPI_File_read_at(file, 0, origin2, count, type, &status));
    COUNTS(count, status, type);
    CHECK(memcmp(read, expected, bytes) == 0);
    free(memory);
    free(read);
    free(expected);
    free(stream);
    free(raw);
    MPI_Type_free(&type);
}

static void in_file(MPI_File file, unsigned kind) {
    MPI_Datatype type = random_type(kind, 1);
    int count = 1 + (int)below(3), size_of_type, at = 0;
    MPI_Type_size(type, &size_of_type);
    int total = size_of_type * count;
    char *origin;
    size_t bytes;
    char *image = buffer_for(type, count, &origin, &bytes);
    MPI_Aint low, width;
    MPI_Type_get_true_extent(type, &low, &width);
    CHECK(low >= 0);
    char *stream = malloc((size_t)total + 1), *read = malloc((size_t)total + 1);
    for (int i = 0; i < total; i++)
        stream[i] = (char)mark(rank, (size_t)i);
    memset(image, 0, bytes);
    MPI_Unpack(stream, total, &at, origin, count, type, MPI_COMM_SELF);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 11, MPI_BYTE, type, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, 0, stream, total, MPI_BYTE, MPI_STATUS_IGNORE));
    /* From the middle on, too. */
    OK(MPI_File_read_at(file, total / 3, read, total - total / 3, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(read, stream + total / 3, (size_t)(total - total / 3)) == 0);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    char *whole = calloc(bytes, 1);
    MPI_Offset length;
    OK(MPI_File_get_size(file, &length));
    CHECK((size_t)length <= 11 + (size_t)low + bytes - 64);
    OK(MPI_File_read_at(file, 11 + low, whole, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(whole, image, bytes) == 0);
    free(whole);
    free(image);
    free(stream);
    free(read);
    MPI_Type_free(&type);
}

/* Handles are used again by MPI libraries: a new type under an old handle must not be taken for the old one. */
static void reused_handles(MPI_File file) {
    for (int i = 1; i < 50; i++) {
        MPI_Datatype type;
        MPI_Type_vector(2, 1, i, MPI_CHAR, &type);
        MPI_Type_commit(&type);
        char two[64] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij", in[2];
        OK(MPI_File_write_at(file, 0, two, 1, type, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, in, 2, MPI_CHAR, MPI_STATUS_IGNORE));
        CHECK(in[0] == 'a' && in[1] == two[i]);
        MPI_Type_free(&type);
    }
}

static void fortran_types(MPI_File file) {
    MPI_Datatype real, complex, integer;
    MPI_Type_create_f90_real(12, MPI_UNDEFINED, &real);
    MPI_Type_create_f90_complex(6, MPI_UNDEFINED, &complex);
    MPI_Type_create_f90_integer(9, &integer);
    double a[2] = {1.5, -2.5}, b[2];
    OK(MPI_File_write_at(file, 0, a, 2, real, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, 0, b, 2, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(a[0] == b[0] && a[1] == b[1]);
    MPI_Status status;
    OK(MPI_File_read_at(file, 0, b, 1, complex, &status));
    COUNTS(8, status, MPI_BYTE);
    OK(MPI_File_read_at(file, 0, b, 1, integer, &status));
    COUNTS(4, status, MPI_BYTE);
}

void test_types(void) {
    MPI_File file;
    char name[1024];
    snprintf(name, sizeof name, "%s-%d", new_name("types"), rank);
    OK(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    state = 88172645463325252ull + (unsigned)rank * 977;
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (int turn = 0; turn < 6; turn++)
            in_memory(file, kind);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (int turn = 0; turn < 6; turn++)
            in_file(file, kind);
    reused_handles(file);
    fortran_types(file);
    OK(MPI_File_close(&file));
}
