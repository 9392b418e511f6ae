/* What the library examples share: contents that can be checked, the count of wrong values, one JSON line.
 *
 * The examples are ordinary programs of their library. They know nothing of Penstock, and run on any file system.
 */
#ifndef PENSTOCK_EXAMPLES_CHECK_H
#define PENSTOCK_EXAMPLES_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;
static long wrong_values, checked_values;

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", world_rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The value of element `index` of variable `variable`. Neighbours differ, and so do variables. */
static double value_of(int variable, long long index)
{
    unsigned long long x = (unsigned long long)index * 2654435761u + (unsigned long long)variable * 40503u;
    return (double)(x >> 3 & 0xfffff);
}

/* Compares a value that was read. */
static void expect(double found, double wanted)
{
    checked_values++;
    wrong_values += found != wanted;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) give_up("allocate", "no memory");
    return memory;
}

struct run {
    const char *path;
    const char *format; /* netcdf only */
    int write, read;
    int leave_open; /* hdf5 only */
};

static inline struct run parse(int argc, char **argv)
{
    struct run run = {NULL, "netcdf4", 1, 1, 0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--write-only")) run.read = 0;
        else if (!strcmp(argv[i], "--read-only")) run.write = 0;
        else if (!strcmp(argv[i], "--leave-open")) run.leave_open = 1, run.read = 0;
        else if (!strcmp(argv[i], "--format") && i + 1 < argc) run.format = argv[++i];
        else if (argv[i][0] != '-' && !run.path) run.path = argv[i];
        else run.path = NULL, i = argc;
    }
    if (!run.path) {
        if (world_rank == 0)
            fprintf(stderr, "usage: mpiexec -n RANKS %s FILE [--write-only | --read-only]\n", argv[0]);
        MPI_Finalize();
        exit(2);
    }
    return run;
}

/* Prints the JSON line on rank 0 and returns the exit code of the program. */
static inline int report(const char *name, const char *version)
{
    long mine[2] = {wrong_values, checked_values}, all[2];
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("{\"case\":\"%s\",\"library\":\"%s\",\"ranks\":%d,\"values_checked\":%ld,\"values_wrong\":%ld}\n", name,
               version, world_size, all[1], all[0]);
    return all[0] != 0;
}

#endif
