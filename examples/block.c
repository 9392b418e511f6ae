/* Three-dimensional block decomposition: an array of 600 x 600 x 600 four-byte elements in one file, cut into one
 * block a rank. Each rank writes and reads its block through a subarray view, from contiguous memory, all at once.
 *
 * With 8 ranks a block has 300 x 300 rows of 1200 bytes. With 27 it has 200 x 200 rows of 800 bytes, and with 64
 * 150 x 150 rows of 600 bytes.
 *
 * Source: coll_perf of the ROMIO test suite; A. Ching and others, Evaluating Structured I/O Methods for Parallel
 * File Systems, section V.C.
 */
#include "common.h"

enum { EDGE = 600, ELEMENT = 4 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct options o = parse(argc, argv, "multiplies the edge of the array");
    static struct times t;

    int grid[3] = {0, 0, 0}; /* blocks in z, y, x */
    MPI_Dims_create(world_size, 3, grid);
    int edge = scaled(EDGE, o.scale, 1);
    int place[3] = {world_rank / (grid[1] * grid[2]), world_rank / grid[2] % grid[1], world_rank % grid[2]};
    int sizes[3], sub[3], starts[3];
    for (int d = 0; d < 3; d++) {
        if (edge < grid[d]) fail("the array is smaller than the grid of ranks; use a larger --scale", MPI_SUCCESS);
        sizes[d] = edge;
        starts[d] = (int)((long long)edge * place[d] / grid[d]);
        sub[d] = (int)((long long)edge * (place[d] + 1) / grid[d]) - starts[d];
    }
    size_t elements = (size_t)sub[0] * (size_t)sub[1] * (size_t)sub[2], line = (size_t)sub[2] * ELEMENT;
    if (elements > INT32_MAX) fail("more than 2^31-1 elements a rank; use a smaller --scale", MPI_SUCCESS);
    unsigned char *block = allocate(elements * ELEMENT);

    MPI_Datatype view;
    CHECK(MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_C, MPI_INT, &view));
    CHECK(MPI_Type_commit(&view));

/* Runs `act` for each row of the block: `row` in memory, `at` its file offset. */
#define EACH_ROW(act)                                                                              \
    for (int z = 0; z < sub[0]; z++)                                                               \
        for (int y = 0; y < sub[1]; y++) {                                                         \
            unsigned char *row = block + ((size_t)z * (size_t)sub[1] + (size_t)y) * line;          \
            uint64_t at = (((uint64_t)(starts[0] + z) * (uint64_t)edge + (uint64_t)(starts[1] + y)) \
                               * (uint64_t)edge +                                                  \
                           (uint64_t)starts[2]) *                                                  \
                          ELEMENT;                                                                 \
            act;                                                                                   \
        }

    if (o.write) {
        MPI_File file = open_file(&o, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        CHECK(MPI_File_set_view(file, 0, MPI_INT, view, "native", o.info));
        for (int r = 0; r < o.repetitions; r++) {
            MPI_Status status;
            EACH_ROW(fill(row, at, line, (uint64_t)r));
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_write_at(file, 0, block, (int)elements, MPI_INT, &status));
            else CHECK(MPI_File_write_at_all(file, 0, block, (int)elements, MPI_INT, &status));
            if (o.sync) CHECK(MPI_File_sync(file));
            t.write[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)(elements * ELEMENT));
        }
        CHECK(MPI_File_close(&file));
    }

    uint64_t bad = 0;
    if (o.read) {
        MPI_File file = open_file(&o, MPI_MODE_RDONLY);
        CHECK(MPI_File_set_view(file, 0, MPI_INT, view, "native", o.info));
        for (int r = 0; r < o.repetitions; r++) {
            MPI_Status status;
            memset(block, 0xEE, elements * ELEMENT);
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_read_at(file, 0, block, (int)elements, MPI_INT, &status));
            else CHECK(MPI_File_read_at_all(file, 0, block, (int)elements, MPI_INT, &status));
            t.read[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)(elements * ELEMENT));
        }
        CHECK(MPI_File_close(&file));
        if (o.verify) EACH_ROW(bad += wrong(row, at, line, (uint64_t)o.repetitions - 1));
    }

    int code = report("block", &o, elements * ELEMENT, elements * ELEMENT, (uint64_t)sub[0] * (uint64_t)sub[1], &t,
                      bad);
    MPI_Type_free(&view);
    free(block);
    MPI_Info_free(&o.info);
    MPI_Finalize();
    return code;
}
