/* FLASH checkpoint: blocks with guard cells in memory, one variable after the other in the file.
 *
 * Each rank holds 80 blocks of 8 x 8 x 8 cells with 4 guard cells on every side. A cell is 24 doubles, one of each
 * variable. The file holds variable 0 of all blocks of all ranks, then variable 1, and so on, without guard
 * cells. The whole checkpoint is one collective access. The memory datatype walks variable by variable over the
 * interior cells (983,040 pieces of 8 bytes a rank). The view skips the other ranks' blocks (pieces of at least
 * 4 KiB). n = 7.5 MiB a rank.
 *
 * Source: B. Fryxell and others, FLASH (2000); A. Ching and others, Evaluating Structured I/O Methods for Parallel
 * File Systems, section V.D.
 */
#include "common.h"

enum { BLOCKS = 80, VARIABLES = 24, INTERIOR = 8, GUARD = 4, EDGE = INTERIOR + 2 * GUARD };
#define CELLS (INTERIOR * INTERIOR * INTERIOR)

/* Index of variable v of interior cell (z, y, x) of a block. */
static size_t cell(int block, int z, int y, int x, int v)
{
    size_t edge = EDGE;
    return ((((size_t)block * edge + (size_t)(z + GUARD)) * edge + (size_t)(y + GUARD)) * edge + (size_t)(x + GUARD)) *
               VARIABLES +
           (size_t)v;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct options o = parse(argc, argv, "multiplies the number of blocks");
    static struct times t;

    int blocks = scaled(BLOCKS, o.scale, 1);
    size_t doubles = (size_t)blocks * EDGE * EDGE * EDGE * VARIABLES;
    size_t bytes = (size_t)blocks * CELLS * VARIABLES * sizeof(double);
    double *memory = allocate(doubles * sizeof(double));
    uint64_t variable = (uint64_t)blocks * CELLS * sizeof(double); /* one variable of one rank in the file */
    uint64_t first = variable * (uint64_t)world_rank;

    /* Memory: interior cells of all blocks for one variable, then the next variable 8 bytes further on. */
    MPI_Datatype one, interior, all_blocks, per_variable, memory_type;
    int sizes[3] = {EDGE, EDGE, EDGE}, sub[3] = {INTERIOR, INTERIOR, INTERIOR}, starts[3] = {GUARD, GUARD, GUARD};
    CHECK(MPI_Type_create_resized(MPI_DOUBLE, 0, VARIABLES * (MPI_Aint)sizeof(double), &one));
    CHECK(MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_C, one, &interior));
    CHECK(MPI_Type_contiguous(blocks, interior, &all_blocks));
    CHECK(MPI_Type_create_resized(all_blocks, 0, sizeof(double), &per_variable));
    CHECK(MPI_Type_contiguous(VARIABLES, per_variable, &memory_type));
    CHECK(MPI_Type_commit(&memory_type));

    /* File: this rank's blocks of each variable. */
    MPI_Datatype view;
    int per_rank = blocks * CELLS;
    CHECK(MPI_Type_create_hvector(VARIABLES, per_rank, (MPI_Aint)(variable * (uint64_t)world_size), MPI_DOUBLE, &view));
    CHECK(MPI_Type_commit(&view));

/* Runs `act` for each interior value: `value` in memory, `at` its file offset. */
#define EACH_VALUE(act)                                                                              \
    for (int v = 0; v < VARIABLES; v++) {                                                            \
        uint64_t at = first + (uint64_t)v * variable * (uint64_t)world_size;                         \
        for (int b = 0; b < blocks; b++)                                                             \
            for (int z = 0; z < INTERIOR; z++)                                                       \
                for (int y = 0; y < INTERIOR; y++)                                                   \
                    for (int x = 0; x < INTERIOR; x++, at += sizeof(double)) {                       \
                        double *value = &memory[cell(b, z, y, x, v)];                                \
                        act;                                                                         \
                    }                                                                                \
    }

    /* Guard cells hold a byte of their own: they must neither reach the file nor be touched by a read. */
    if (o.write) {
        MPI_File file = open_file(&o, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        CHECK(MPI_File_set_view(file, (MPI_Offset)first, MPI_DOUBLE, view, "native", o.info));
        memset(memory, 0xAA, doubles * sizeof(double));
        for (int r = 0; r < o.repetitions; r++) {
            MPI_Status status;
            EACH_VALUE(fill(value, at, sizeof(double), (uint64_t)r));
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_write_at(file, 0, memory, 1, memory_type, &status));
            else CHECK(MPI_File_write_at_all(file, 0, memory, 1, memory_type, &status));
            if (o.sync) CHECK(MPI_File_sync(file));
            t.write[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)bytes);
        }
        CHECK(MPI_File_close(&file));
    }

    uint64_t bad = 0;
    if (o.read) {
        MPI_File file = open_file(&o, MPI_MODE_RDONLY);
        CHECK(MPI_File_set_view(file, (MPI_Offset)first, MPI_DOUBLE, view, "native", o.info));
        for (int r = 0; r < o.repetitions; r++) {
            MPI_Status status;
            memset(memory, 0xEE, doubles * sizeof(double));
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_read_at(file, 0, memory, 1, memory_type, &status));
            else CHECK(MPI_File_read_at_all(file, 0, memory, 1, memory_type, &status));
            t.read[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)bytes);
        }
        CHECK(MPI_File_close(&file));
        if (o.verify) {
            EACH_VALUE(bad += wrong(value, at, sizeof(double), (uint64_t)o.repetitions - 1);
                       memset(value, 0xEE, sizeof(double)));
            const unsigned char *byte = (const unsigned char *)memory;
            for (size_t i = 0; i < doubles * sizeof(double); i++) bad += byte[i] != 0xEE;
        }
    }

    int code = report("flash", &o, bytes, bytes, (uint64_t)blocks * CELLS * VARIABLES, &t, bad);
    MPI_Type_free(&view);
    MPI_Type_free(&memory_type);
    MPI_Type_free(&per_variable);
    MPI_Type_free(&all_blocks);
    MPI_Type_free(&interior);
    MPI_Type_free(&one);
    free(memory);
    MPI_Info_free(&o.info);
    MPI_Finalize();
    return code;
}
