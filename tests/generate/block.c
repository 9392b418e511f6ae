/* A contiguous block: rank r has rows 3 r to 3 r + 2 of an array, whole. WAY and MODE are filled in by the test. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define ROWS 3
#define NX 7
#use_io

static double value(long at) { return (double)at + 0.5; }

int main(int argc, char **argv)
{
    int rank, ranks, bad = 0;
    static double u[ROWS][NX];
    if (argc != 2) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#ifndef READ
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < NX; x++) u[y][x] = value((long)(rank * ROWS + y) * NX + x);
#endif
    #begin_file
    out: argv[1], @MODE@, hint("striping_factor", "2");
    #end_file
    #begin_dimensions
    y: ROWS * ranks;
    x: NX;
    #end_dimensions
    #begin_variables
    u: double, 2, y, x;
    #end_variables
    #begin_access
    u: @WAY@, start(rank * ROWS, 0), count(ROWS, NX), memory(&u[0][0]);
    #end_access
    #close_file out;
#ifdef READ
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < NX; x++) bad += u[y][x] != value((long)(rank * ROWS + y) * NX + x);
#endif
    if (bad) fprintf(stderr, "rank %d: %d values are wrong\n", rank, bad);
    MPI_Finalize();
    return bad != 0;
}
