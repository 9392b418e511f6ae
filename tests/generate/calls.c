/* Preloaded into a program: writes down its MPI-IO calls with arguments and hints, one file a rank ($CALLS.RANK).
 *
 * A datatype is written down as the places of its bytes: a checksum over them in their order. However it was built, equal
 * places make equal lines. A view's displacement belongs to its places; those of memory count from the first byte.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *lines(void)
{
    static FILE *file;
    if (!file) {
        int rank;
        char name[4096];
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        snprintf(name, sizeof name, "%s.%d", getenv("CALLS"), rank);
        file = fopen(name, "w");
        if (!file) abort();
        setvbuf(file, NULL, _IOLBF, 0);
    }
    return file;
}

static void print_type(MPI_Datatype type, int count, int view, MPI_Offset at)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int size, position = 0;
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    MPI_Type_size(type, &size);
    size_t span = (size_t)(true_extent + (count > 1 ? (count - 1) * extent : 0));
    uint64_t first = view ? (uint64_t)(at + true_lb) : 0;
    unsigned char *places = malloc(span + 1), *packed = malloc((size_t)size * (size_t)count + 1);
    if (!places || !packed) abort();
    /* Each byte is a checksum of its place. */
    for (size_t k = 0; k < span; k++) places[k] = (unsigned char)(((first + k) * 0x9E3779B97F4A7C15u) >> 56);
    if (count > 0 && size > 0) MPI_Pack(places - true_lb, count, type, packed, size * count, &position, MPI_COMM_SELF);
    uint64_t sum = 14695981039346656037u;
    for (int k = 0; k < position; k++) sum = (sum ^ packed[k]) * 1099511628211u;
    fprintf(lines(), " %lld bytes at places %016llx", (long long)size * count, (unsigned long long)sum);
    free(places);
    free(packed);
}

int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *file)
{
    int keys = 0, some;
    if (info != MPI_INFO_NULL) MPI_Info_get_nkeys(info, &keys);
    const char *base = strrchr(name, '/');
    /* Whether a file is opened for writing alone or for both is left to the program. */
    fprintf(lines(), "MPI_File_open %s %s%s", base ? base + 1 : name, amode & MPI_MODE_CREATE ? "create" : "",
            amode & MPI_MODE_RDONLY ? "read" : "");
    for (int k = 0; k < keys; k++) {
        char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
        MPI_Info_get_nthkey(info, k, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &some);
        fprintf(lines(), " %s=%s", key, value);
    }
    fprintf(lines(), "\n");
    return PMPI_File_open(comm, name, amode, info, file);
}

int MPI_File_set_view(MPI_File file, MPI_Offset at, MPI_Datatype etype, MPI_Datatype type, const char *rep, MPI_Info info)
{
    int size;
    MPI_Type_size(etype, &size);
    fprintf(lines(), "MPI_File_set_view of %d bytes %s:", size, rep);
    print_type(type, 1, 1, at);
    fprintf(lines(), "\n");
    return PMPI_File_set_view(file, at, etype, type, rep, info);
}

#define ACCESS(name, constant)                                                                                          \
    int MPI_File_##name(MPI_File file, MPI_Offset at, constant void *buffer, int count, MPI_Datatype type, MPI_Status *status) \
    {                                                                                                                   \
        fprintf(lines(), "MPI_File_" #name " at %lld:", (long long)at);                                                 \
        print_type(type, count, 0, 0);                                                                                     \
        fprintf(lines(), "\n");                                                                                         \
        return PMPI_File_##name(file, at, buffer, count, type, status);                                                 \
    }
ACCESS(write_at, const)
ACCESS(write_at_all, const)
ACCESS(read_at, )
ACCESS(read_at_all, )

int MPI_File_sync(MPI_File file)
{
    fprintf(lines(), "MPI_File_sync\n");
    return PMPI_File_sync(file);
}

int MPI_File_close(MPI_File *file)
{
    fprintf(lines(), "MPI_File_close\n");
    return PMPI_File_close(file);
}
