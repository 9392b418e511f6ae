/* Views: what a filetype lets through, positions in etypes, get_view. */
#include "check.h"

static void interleaved(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "interleaved");
    enum { BLOCKS = 50, PIECE = 3 };
    MPI_Datatype filetype, resized;
    MPI_Type_vector(BLOCKS, PIECE, PIECE * size, MPI_INT, &filetype);
    MPI_Type_create_resized(filetype, 0, (MPI_Aint)BLOCKS * PIECE * size * 4, &resized);
    MPI_Type_commit(&resized);
    MPI_Offset disp = 16 + (MPI_Offset)rank * PIECE * 4;
    OK(MPI_File_set_view(file, disp, MPI_INT, resized, "native", MPI_INFO_NULL));
    int out[2 * BLOCKS * PIECE], in[2 * BLOCKS * PIECE];
    for (int i = 0; i < 2 * BLOCKS * PIECE; i++)
        out[i] = 1000 * rank + i;
    OK(MPI_File_write_all(file, out, BLOCKS * PIECE, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_write(file, out + BLOCKS * PIECE, BLOCKS * PIECE, MPI_INT, MPI_STATUS_IGNORE));
    MPI_Offset at, byte;
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 2 * BLOCKS * PIECE);
    OK(MPI_File_get_byte_offset(file, PIECE + 1, &byte));
    CHECK(byte == disp + 4 * ((MPI_Offset)PIECE * size + 1));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_read_at_all(file, 5, in, 2 * BLOCKS * PIECE - 5, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(in, out + 5, sizeof in - 20) == 0);

    MPI_Datatype etype, filetype_now;
    char name[MPI_MAX_DATAREP_STRING];
    OK(MPI_File_get_view(file, &at, &etype, &filetype_now, name));
    CHECK(at == disp && etype == MPI_INT && strcmp(name, "native") == 0);
    MPI_Aint lb, extent;
    MPI_Type_get_extent(filetype_now, &lb, &extent);
    CHECK(lb == 0 && extent == (MPI_Aint)BLOCKS * PIECE * size * 4);
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(filetype_now, &integers, &addresses, &types, &combiner);
    CHECK(combiner != MPI_COMBINER_NAMED);
    MPI_Type_free(&filetype_now);
    MPI_Type_free(&filetype);
    MPI_Type_free(&resized);

    /* The whole, as the default view shows it. */
    OK(MPI_File_set_view(file, 16, MPI_INT, MPI_INT, "internal", MPI_INFO_NULL));
    OK(MPI_File_get_view(file, &at, &etype, &filetype_now, name));
    CHECK(at == 16 && filetype_now == MPI_INT && strcmp(name, "internal") == 0);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 2 * BLOCKS * PIECE; i += 17) {
            int value;
            OK(MPI_File_read_at(file, (MPI_Offset)(i / PIECE * size + r) * PIECE + i % PIECE, &value, 1, MPI_INT,
                                MPI_STATUS_IGNORE));
            CHECK(value == 1000 * r + i);
        }
    OK(MPI_File_close(&file));
}

/* Noncontiguous in memory and in the file at once, etype of several bytes with a hole. */
static void both_sides(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "both");
    MPI_Datatype etype, filetype, memory;
    MPI_Type_vector(2, 1, 2, MPI_SHORT, &etype);
    MPI_Type_create_resized(etype, 0, 8, &etype);
    MPI_Type_contiguous(3, etype, &filetype);
    MPI_Type_create_resized(filetype, 0, 24 * size, &filetype);
    MPI_Type_vector(12, 2, 3, MPI_SHORT, &memory);
    MPI_Type_commit(&etype);
    MPI_Type_commit(&filetype);
    MPI_Type_commit(&memory);
    OK(MPI_File_set_view(file, 24 * rank, etype, filetype, "native", MPI_INFO_NULL));
    short out[36], in[36];
    for (int i = 0; i < 36; i++)
        out[i] = (short)(100 * rank + i);
    MPI_Status status;
    OK(MPI_File_write_at_all(file, 0, out, 1, memory, &status));
    COUNTS(1, status, memory);
    COUNTS(12, status, etype);
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    memset(in, 0, sizeof in);
    OK(MPI_File_read_at_all(file, 3, in, 18, MPI_SHORT, &status));
    /* Etypes 3 on: shorts 6 on, of which 12 - 3 etypes are there. */
    COUNTS(18, status, MPI_SHORT);
    for (int i = 0; i < 18; i++)
        CHECK(in[i] == out[(i + 6) / 2 * 3 + (i + 6) % 2]);
    MPI_Type_free(&memory);
    MPI_Type_free(&filetype);
    MPI_Type_free(&etype);
    OK(MPI_File_close(&file));
}

/* A view of 64 Mi blocks costs as little as any other. */
static void huge(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "huge");
    MPI_Datatype blocks, filetype;
    MPI_Type_vector(1 << 26, 1, size, MPI_CHAR, &blocks);
    MPI_Type_create_resized(blocks, 0, (MPI_Aint)size << 26, &filetype);
    MPI_Type_free(&blocks);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, rank, MPI_CHAR, filetype, "native", MPI_INFO_NULL));
    char out[100], in[100];
    memset(out, 'a' + rank, sizeof out);
    OK(MPI_File_write_at_all(file, (1 << 26) - 50, out, 100, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, (1 << 26) - 50, in, 100, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(memcmp(in, out, sizeof in) == 0);
    MPI_Type_free(&filetype);
    OK(MPI_File_close(&file));
}

/* Instances of the filetype lie between each other's blocks; one of them alone is in order. */
static void interwoven(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "interwoven");
    MPI_Datatype every, filetype;
    MPI_Type_vector(4, 1, 2 * size, MPI_INT, &every);
    MPI_Type_create_resized(every, 0, 4, &filetype);
    MPI_Type_free(&every);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 8 * rank, MPI_INT, filetype, "native", MPI_INFO_NULL));
    int out[8], in[8];
    for (int i = 0; i < 8; i++)
        out[i] = 10 * rank + i;
    OK(MPI_File_write_at_all(file, 0, out, 4, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_write_at_all(file, 2, out + 2, rank == 0 ? 6 : 2, MPI_INT, MPI_STATUS_IGNORE));
    if (rank)
        OK(MPI_File_write_at(file, 1, out + 1, 7, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, 0, in, 8, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int i = 0; i < 8; i++) {
        MPI_Offset at = (MPI_Offset)(i % 4) * 2 * size + 2 * rank + i / 4;
        OK(MPI_File_read_at(file, at, in, 1, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(in[0] == out[i]);
    }
    MPI_Type_free(&filetype);
    OK(MPI_File_close(&file));
}

void test_views(void) {
    interleaved();
    both_sides();
    const char *expected = getenv("PENSTOCK_EXPECTED");
    if (expected && *expected == '1') {
        huge();
        interwoven();
    }
}
