/* Strided: rank r has every `ranks`-th element, from element r. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define MINE 11
#use_io

static double value(long at) { return (double)at + 0.5; }

int main(int argc, char **argv)
{
    int rank, ranks, bad = 0;
    static double u[MINE];
    if (argc != 2) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#ifndef READ
    for (int x = 0; x < MINE; x++) u[x] = value((long)x * ranks + rank);
#endif
    #begin_file
    out: argv[1], @MODE@;
    #end_file
    #begin_dimensions
    x: MINE * ranks;
    #end_dimensions
    #begin_variables
    u: double, 1, x;
    #end_variables
    #begin_access
    u: @WAY@, start(rank), count(MINE), stride(ranks), memory(u);
    #end_access
    #close_file out;
#ifdef READ
    for (int x = 0; x < MINE; x++) bad += u[x] != value((long)x * ranks + rank);
#endif
    if (bad) fprintf(stderr, "rank %d: %d values are wrong\n", rank, bad);
    MPI_Finalize();
    return bad != 0;
}
