/* Data representations: external32 in every form of access, and representations of the program's own. */
#include "check.h"

#include <stdint.h>

static void bytes_are(MPI_File file, MPI_Offset at, const unsigned char *expected, int n) {
    unsigned char raw[64];
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, at, raw, n, MPI_BYTE, MPI_STATUS_IGNORE));
    for (int i = 0; i < n; i++)
        CHECK(raw[i] == expected[i]);
}

static void external32(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "external32");
    static const unsigned char one_two[8] = {0, 0, 0, 1, 0, 0, 0, 2};
    for (int way = 0; way < 5; way++) {
        int values[2] = {1, 2}, got[2] = {0, 0};
        MPI_Offset at = 2 * (MPI_Offset)(rank + size * way);
        MPI_Status status;
        MPI_Request request;
        OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
        switch (way) {
        case 0:
            OK(MPI_File_write_at(file, at, values, 2, MPI_INT, &status));
            OK(MPI_File_read_at(file, at, got, 2, MPI_INT, &status));
            break;
        case 1:
            OK(MPI_File_write_at_all(file, at, values, 2, MPI_INT, &status));
            OK(MPI_File_read_at_all(file, at, got, 2, MPI_INT, &status));
            break;
        case 2:
            OK(MPI_File_iwrite_at(file, at, values, 2, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_File_iread_at(file, at, got, 2, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 3:
            OK(MPI_File_iwrite_at_all(file, at, values, 2, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_File_iread_at_all(file, at, got, 2, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 4:
            OK(MPI_File_write_at_all_begin(file, at, values, 2, MPI_INT));
            OK(MPI_File_write_at_all_end(file, values, &status));
            OK(MPI_File_read_at_all_begin(file, at, got, 2, MPI_INT));
            OK(MPI_File_read_at_all_end(file, got, &status));
            break;
        }
        COUNTS(2, status, MPI_INT);
        CHECK(values[0] == 1 && values[1] == 2);
        CHECK(got[0] == 1 && got[1] == 2);
        bytes_are(file, 4 * at, one_two, 8);
    }
    OK(MPI_File_close(&file));
}

/* Elements that are wider in memory than in the file. */
static void widths(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "widths");
    MPI_Aint extent;
    OK(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, MPI_LONG, &extent));
    CHECK(extent == 4);
    OK(MPI_File_get_type_extent(file, MPI_DOUBLE, &extent));
    CHECK(extent == 8);
#if LARGE
    MPI_Count large;
    OK(MPI_File_get_type_extent_c(file, MPI_LONG, &large));
    CHECK(large == 4);
#endif
    long out[3] = {-2, 70000, 2147483647}, in[3] = {0, 0, 0};
    MPI_Status status;
    OK(MPI_File_write_at(file, 3 * rank, out, 3, MPI_LONG, &status));
    COUNTS(3, status, MPI_LONG);
    OK(MPI_File_read_at(file, 3 * rank, in, 3, MPI_LONG, &status));
    COUNTS(3, status, MPI_LONG);
    CHECK(memcmp(in, out, sizeof in) == 0);
    static const unsigned char expected[12] = {255, 255, 255, 254, 0, 1, 17, 112, 127, 255, 255, 255};
    bytes_are(file, 12 * rank, expected, 12);
    /* A filetype with holes, in units of the file. */
    MPI_Datatype every;
    MPI_Type_vector(2, 1, 2, MPI_LONG, &every);
    MPI_Type_commit(&every);
    OK(MPI_File_set_view(file, 12 * rank, MPI_LONG, every, "external32", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, in, 2, MPI_LONG, &status));
    CHECK(in[0] == -2 && in[1] == 2147483647);
    MPI_Type_free(&every);
    /* A value that has no place in the file is an error, not another value. */
    long wide[1] = {(long)1 << 40};
    FAILS(MPI_ERR_CONVERSION, MPI_File_write_at(file, 0, wide, 1, MPI_LONG, MPI_STATUS_IGNORE));
    double d = -1.5, back = 0;
    OK(MPI_File_set_view(file, 1000 + 8 * rank, MPI_DOUBLE, MPI_DOUBLE, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, 0, &d, 1, MPI_DOUBLE, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, 0, &back, 1, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(back == d);
    static const unsigned char minus[8] = {0xbf, 0xf8, 0, 0, 0, 0, 0, 0};
    bytes_are(file, 1000 + 8 * rank, minus, 8);
    OK(MPI_File_close(&file));
}

/* A representation of the program: each int in three bytes, most significant first. */
static int three_extent(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    (void)extra;
    *extent = type == MPI_INT ? 3 : 1;
    return MPI_SUCCESS;
}

static int calls[2];

static int three_write(void *user, MPI_Datatype type, int count, void *stored, MPI_Offset position, void *extra) {
    int gap = 1, combiner, a, b, c;
    MPI_Type_get_envelope(type, &a, &b, &c, &combiner);
    CHECK(*(int *)extra == 42);
    /* The test uses MPI_INT and a vector of every second int. */
    if (combiner != MPI_COMBINER_NAMED && !(combiner == MPI_COMBINER_DUP && *(int *)user < 0))
        gap = 2;
    if (*(int *)user < 1000)
        gap = 1;
    const int *from = user;
    unsigned char *to = stored;
    for (int i = 0; i < count; i++) {
        unsigned value = (unsigned)from[(position + i) * gap];
        to[3 * i] = (unsigned char)(value >> 16);
        to[3 * i + 1] = (unsigned char)(value >> 8);
        to[3 * i + 2] = (unsigned char)value;
    }
    calls[1]++;
    return MPI_SUCCESS;
}

static int three_read(void *user, MPI_Datatype type, int count, void *stored, MPI_Offset position, void *extra) {
    (void)type;
    CHECK(*(int *)extra == 42);
    int *to = user;
    const unsigned char *from = stored;
    for (int i = 0; i < count; i++)
        to[position + i] = from[3 * i] << 16 | from[3 * i + 1] << 8 | from[3 * i + 2];
    calls[0]++;
    return MPI_SUCCESS;
}

#if LARGE
static int reverse(void *user, MPI_Datatype type, MPI_Count count, void *stored, MPI_Offset position, void *extra) {
    (void)type, (void)position, (void)extra;
    for (MPI_Count i = 0; i < 4 * count; i++)
        ((char *)stored)[i] = ((char *)user)[4 * count - 1 - i];
    return MPI_SUCCESS;
}
static int four(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    (void)type, (void)extra;
    *extent = 4;
    return MPI_SUCCESS;
}
#endif

static void own(void) {
    static int extra = 42;
    OK(MPI_Register_datarep("three", three_read, three_write, three_extent, &extra));
    FAILS(MPI_ERR_DUP_DATAREP, MPI_Register_datarep("three", three_read, three_write, three_extent, &extra));
    FAILS(MPI_ERR_DUP_DATAREP, MPI_Register_datarep("native", three_read, three_write, three_extent, &extra));
    MPI_File file = open_new(MPI_COMM_WORLD, "own");
    MPI_Datatype pairs;
    /* This rank's: two ints of every 2 * size. */
    MPI_Type_vector(100, 2, 2 * size, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    OK(MPI_File_set_view(file, 6 * rank, MPI_INT, pairs, "three", MPI_INFO_NULL));
    MPI_Aint extent;
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    CHECK(extent == 3);
    int out[20], in[20];
    for (int i = 0; i < 20; i++)
        out[i] = 100 * rank + i;
    memset(in, 0, sizeof in);
    MPI_Status status;
    OK(MPI_File_write_at_all(file, 0, out, 20, MPI_INT, &status));
    COUNTS(20, status, MPI_INT);
    OK(MPI_File_read_at_all(file, 0, in, 20, MPI_INT, &status));
    COUNTS(20, status, MPI_INT);
    CHECK(memcmp(in, out, sizeof in) == 0);
    MPI_Request request;
    memset(in, 0, sizeof in);
    OK(MPI_File_iread_at(file, 2, in, 18, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    COUNTS(18, status, MPI_INT);
    CHECK(memcmp(in, out + 2, 18 * sizeof(int)) == 0);
    OK(MPI_File_iwrite_at(file, 0, out, 20, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    COUNTS(20, status, MPI_INT);
    OK(MPI_File_read_all_begin(file, in, 20, MPI_INT));
    OK(MPI_File_read_all_end(file, in, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(calls[0] == 3 && calls[1] == 2);
    /* Past the end: what is there, converted. */
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "three", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 20 * size - 3, in, 20, MPI_INT, &status));
    COUNTS(3, status, MPI_INT);
    CHECK(in[2] == 100 * (size - 1) + 19);
    char name[MPI_MAX_DATAREP_STRING];
    MPI_Datatype a, b;
    MPI_Offset at;
    OK(MPI_File_get_view(file, &at, &a, &b, name));
    CHECK(strcmp(name, "three") == 0);
    unsigned char expected[6] = {0, 0, 0, 0, 0, 1};
    bytes_are(file, 0, expected, 6);
    FAILS(MPI_ERR_UNSUPPORTED_DATAREP,
          MPI_File_set_view(file, 0, MPI_INT, MPI_INT, rank == 0 ? "nobody's" : "native", MPI_INFO_NULL) ==
                  MPI_ERR_UNSUPPORTED_DATAREP || rank
              ? MPI_ERR_UNSUPPORTED_DATAREP
              : MPI_SUCCESS);
#if LARGE
    OK(MPI_Register_datarep_c("backwards", MPI_CONVERSION_FN_NULL_C, reverse, four, NULL));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "backwards", MPI_INFO_NULL));
    int two[2] = {0x01020304, 0x05060708}, seen[2];
    OK(MPI_File_write_at(file, 2 * rank, two, 2, MPI_INT, MPI_STATUS_IGNORE));
    /* No function to read with: as it is. */
    OK(MPI_File_read_at(file, 2 * rank, seen, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(seen[0] == 0x08070605 && seen[1] == 0x04030201);
#endif
    MPI_Type_free(&pairs);
    OK(MPI_File_close(&file));
}

void test_representations(void) {
    external32();
    widths();
    own();
}
