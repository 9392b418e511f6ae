/* FLASH blocks: each rank has blocks with guard cells whose cells hold all variables; the file has one variable after the
 * other, without guard cells. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define BLOCKS 3
#define VARIABLES 5
#define INTERIOR 4
#define GUARD 2
#define EDGE (INTERIOR + 2 * GUARD)
#define WAS (-1.0)
#use_io

static double unk[BLOCKS][EDGE][EDGE][EDGE][VARIABLES];

static double value(int v, int block, int blocks, int z, int y, int x)
{
    return (double)(((((long)v * blocks + block) * INTERIOR + z) * INTERIOR + y) * INTERIOR + x) + 0.5;
}

int main(int argc, char **argv)
{
    int rank, ranks, bad = 0;
    if (argc != 2) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *all = &unk[0][0][0][0][0];
    for (size_t k = 0; k < sizeof unk / sizeof *all; k++) all[k] = WAS;
#ifndef READ
    for (int v = 0; v < VARIABLES; v++)
        for (int b = 0; b < BLOCKS; b++)
            for (int z = 0; z < INTERIOR; z++)
                for (int y = 0; y < INTERIOR; y++)
                    for (int x = 0; x < INTERIOR; x++)
                        unk[b][z + GUARD][y + GUARD][x + GUARD][v] = value(v, rank * BLOCKS + b, ranks * BLOCKS, z, y, x);
#endif
    #begin_file
    out: argv[1], @MODE@;
    #end_file
    #begin_dimensions
    variable: VARIABLES;
    block: BLOCKS * ranks;
    z: INTERIOR;
    y: INTERIOR;
    x: INTERIOR;
    #end_dimensions
    #begin_variables
    unk: double, 5, variable, block, z, y, x;
    #end_variables
    #begin_access
    unk: @WAY@, start(0, rank * BLOCKS, 0, 0, 0), count(VARIABLES, BLOCKS, INTERIOR, INTERIOR, INTERIOR),
        memory(all, block: BLOCKS, z: EDGE guard GUARD, y: EDGE guard GUARD, x: EDGE guard GUARD, variable: VARIABLES);
    #end_access
    #close_file out;
#ifdef READ
    for (int v = 0; v < VARIABLES; v++)
        for (int b = 0; b < BLOCKS; b++)
            for (int z = 0; z < INTERIOR; z++)
                for (int y = 0; y < INTERIOR; y++)
                    for (int x = 0; x < INTERIOR; x++) {
                        double *cell = &unk[b][z + GUARD][y + GUARD][x + GUARD][v];
                        bad += *cell != value(v, rank * BLOCKS + b, ranks * BLOCKS, z, y, x);
                        *cell = WAS;
                    }
    for (size_t k = 0; k < sizeof unk / sizeof *all; k++) bad += all[k] != WAS;
#endif
    if (bad) fprintf(stderr, "rank %d: %d values are wrong\n", rank, bad);
    MPI_Finalize();
    return bad != 0;
}
