/* A 3-D block with guard cells: ranks stand in a grid of (ranks / 2) x 2; memory has two guard cells on each side. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define NZ 3
#define NY 4
#define NX 5
#define G 2
#define WAS (-1.0)
#use_io

static double value(long at) { return (double)at + 0.5; }

int main(int argc, char **argv)
{
    int rank, ranks, bad = 0;
    static double u[NZ + 2 * G][NY + 2 * G][NX + 2 * G];
    if (argc != 2) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int first_z = rank / 2 * NZ, first_y = rank % 2 * NY;
    for (int z = 0; z < NZ + 2 * G; z++)
        for (int y = 0; y < NY + 2 * G; y++)
            for (int x = 0; x < NX + 2 * G; x++) u[z][y][x] = WAS;
#ifndef READ
    for (int z = 0; z < NZ; z++)
        for (int y = 0; y < NY; y++)
            for (int x = 0; x < NX; x++) u[z + G][y + G][x + G] = value(((long)(first_z + z) * 2 * NY + first_y + y) * NX + x);
#endif
    #begin_file
    out: argv[1], @MODE@;
    #end_file
    #begin_dimensions
    z: NZ * (ranks / 2);
    y: NY * 2;
    x: NX;
    #end_dimensions
    #begin_variables
    u: double, 3, z, y, x;
    #end_variables
    #begin_access
    u: @WAY@, start(first_z, first_y, 0), count(NZ, NY, NX),
        memory(&u[0][0][0], NZ + 2 * G guard G, NY + 2 * G guard G, NX + 2 * G guard G), collective;
    #end_access
    #close_file out;
#ifdef READ
    for (int z = 0; z < NZ; z++)
        for (int y = 0; y < NY; y++)
            for (int x = 0; x < NX; x++) {
                double *cell = &u[z + G][y + G][x + G];
                bad += *cell != value(((long)(first_z + z) * 2 * NY + first_y + y) * NX + x);
                *cell = WAS;
            }
    for (int z = 0; z < NZ + 2 * G; z++)
        for (int y = 0; y < NY + 2 * G; y++)
            for (int x = 0; x < NX + 2 * G; x++) bad += u[z][y][x] != WAS;
#endif
    if (bad) fprintf(stderr, "rank %d: %d values are wrong\n", rank, bad);
    MPI_Finalize();
    return bad != 0;
}
