/* FLASH checkpoint as a template for `penstock generate`: what examples/flash.c writes, with annotations for its I/O.
 *
 *     penstock generate --level mpi-io examples/generate/flash.c -o flash_io.c
 *     mpicc -Iexamples -o flash_io flash_io.c && mpiexec -n 4 ./flash_io FILE --write-only
 */
#include "common.h"
#use_io

enum { BLOCKS = 80, VARIABLES = 24, INTERIOR = 8, GUARD = 4, EDGE = INTERIOR + 2 * GUARD };

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
    double *unk = allocate(doubles * sizeof(double));

    #begin_file
    checkpoint: o.path, create;
    #end_file
    #begin_dimensions
    variable: VARIABLES;
    block: (MPI_Offset)blocks * world_size;
    z: INTERIOR;
    y: INTERIOR;
    x: INTERIOR;
    #end_dimensions
    #begin_variables
    unk: double, 5, variable, block, z, y, x;
    #end_variables

    uint64_t at_block = (uint64_t)INTERIOR * INTERIOR * INTERIOR * sizeof(double);
    memset(unk, 0xAA, doubles * sizeof(double));
    for (int r = 0; r < o.repetitions; r++) {
        for (int v = 0; v < VARIABLES; v++) {
            uint64_t at = ((uint64_t)v * (uint64_t)world_size + (uint64_t)world_rank) * (uint64_t)blocks * at_block;
            for (int b = 0; b < blocks; b++)
                for (int z = 0; z < INTERIOR; z++)
                    for (int y = 0; y < INTERIOR; y++)
                        for (int x = 0; x < INTERIOR; x++, at += sizeof(double))
                            fill(&unk[cell(b, z, y, x, v)], at, sizeof(double), (uint64_t)r);
        }
        double start = start_clock();
        #begin_access
        unk: write, start(0, world_rank * blocks, 0, 0, 0), count(VARIABLES, blocks, INTERIOR, INTERIOR, INTERIOR),
            memory(unk, block: blocks, z: EDGE guard GUARD, y: EDGE guard GUARD, x: EDGE guard GUARD, variable: VARIABLES),
            collective;
        #end_access
        t.write[r] = stop_clock(start);
    }
    #close_file checkpoint;

    uint64_t bytes = (uint64_t)blocks * VARIABLES * at_block;
    o.read = 0;
    int code = report("flash", &o, bytes, 0, (uint64_t)blocks * VARIABLES, &t, 0);
    free(unk);
    MPI_Info_free(&o.info);
    MPI_Finalize();
    return code;
}
