/* MPI_Pack and MPI_Unpack of eight shapes: the peer of crates/datatype/examples/pack.rs, which
 * has the same shapes, sizes and output.
 *
 *   pack [-s MIB] [-t SECONDS] [SHAPE]
 *
 * MIB: packed megabytes of the regular shapes (16). SECONDS: least time per measurement (0.3).
 * One JSON object per line: name, bytes packed per repetition, seconds and CPU seconds per
 * repetition, repetitions. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double least = 0.3;

/* Same numbers in both programs. */
static uint64_t state = 1;
static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void *memory(size_t bytes) {
    void *at = NULL;
    if (posix_memalign(&at, 4096, bytes)) {
        fprintf(stderr, "pack: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(at, 1, bytes);
    return at;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* `variables` > 1: each repetition takes the data one double further on. */
static void measure(const char *name, MPI_Datatype type, int count, int variables, size_t span) {
    MPI_Type_commit(&type);
    int size;
    MPI_Type_size(type, &size);
    size_t bytes = (size_t)size * count;
    char *user = memory(span), *packed = memory(bytes);
    for (int unpack = 0; unpack < 2; unpack++) {
        double start = 0, seconds = 0, cpu = 0;
        long repetitions = -1; /* the first one warms up */
        while (repetitions < 1 || seconds < least) {
            if (repetitions == 0) start = MPI_Wtime(), cpu = cpu_seconds();
            char *at = user + 8 * ((repetitions + 1) % variables);
            int position = 0;
            if (unpack)
                MPI_Unpack(packed, bytes, &position, at, count, type, MPI_COMM_SELF);
            else
                MPI_Pack(at, count, type, packed, bytes, &position, MPI_COMM_SELF);
            repetitions++;
            if (repetitions > 0) seconds = MPI_Wtime() - start;
        }
        cpu = cpu_seconds() - cpu;
        printf("{\"name\":\"%s/%s\",\"bytes\":%zu,\"seconds\":%.9f,\"cpu_seconds\":%.9f,"
               "\"repetitions\":%ld}\n",
               unpack ? "unpack" : "pack", name, bytes, seconds / repetitions, cpu / repetitions,
               repetitions);
        fflush(stdout);
    }
    free(user);
    free(packed);
    MPI_Type_free(&type);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    size_t mib = 16;
    int option;
    while ((option = getopt(argc, argv, "s:t:")) != -1) {
        if (option == 's') mib = strtoul(optarg, NULL, 10);
        else if (option == 't') least = strtod(optarg, NULL);
        else return 2;
    }
    const char *only = optind < argc ? argv[optind] : NULL;
#define WANTED(name) (!only || !strcmp(only, name))
    size_t bytes = mib << 20;
    MPI_Datatype type;

    if (WANTED("contig")) {
        MPI_Type_contiguous(1, MPI_DOUBLE, &type);
        measure("contig", type, bytes / 8, 1, bytes);
    }
    struct { const char *name; int doubles; } vectors[] = {
        {"vector-8B", 1}, {"vector-64B", 8}, {"vector-4KiB", 512}};
    for (int i = 0; i < 3; i++) {
        if (!WANTED(vectors[i].name)) continue;
        int n = vectors[i].doubles;
        MPI_Type_vector(bytes / 8 / n, n, 2 * n, MPI_DOUBLE, &type);
        measure(vectors[i].name, type, 1, 1, 2 * bytes);
    }
    if (WANTED("subarray-3d")) {
        /* Half of an array of doubles in each dimension; 128 MiB hold 16 MiB. */
        int edge = 1;
        while ((size_t)(2 * edge) * (2 * edge) * (2 * edge) * 8 <= bytes) edge *= 2;
        int sizes[3] = {2 * edge, 2 * edge, 2 * edge}, part[3] = {edge, edge, edge};
        int starts[3] = {edge / 2, edge / 2, edge / 2};
        MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
        measure("subarray-3d", type, 1, 1, (size_t)64 * edge * edge * edge);
    }
    if (WANTED("indexed")) {
        /* Blocks of 1 to 16 doubles, 1 to 16 doubles apart. */
        int blocks = bytes / 68;
        int *lengths = malloc(blocks * sizeof *lengths), *places = malloc(blocks * sizeof *places);
        int at = 0;
        for (int i = 0; i < blocks; i++) {
            lengths[i] = 1 + draw(16);
            places[i] = at;
            at += lengths[i] + 1 + draw(16);
        }
        MPI_Type_indexed(blocks, lengths, places, MPI_DOUBLE, &type);
        measure("indexed", type, 1, 1, (size_t)at * 8);
        free(lengths);
        free(places);
    }
    if (WANTED("struct")) {
        /* struct { int id; double x[3]; char tag; float weight; } */
        int lengths[4] = {1, 3, 1, 1};
        MPI_Aint places[4] = {0, 8, 32, 36};
        MPI_Datatype types[4] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_FLOAT}, fields;
        MPI_Type_create_struct(4, lengths, places, types, &fields);
        MPI_Type_create_resized(fields, 0, 40, &type);
        measure("struct", type, bytes / 40, 1, bytes);
        MPI_Type_free(&fields);
    }
    if (WANTED("flash")) {
        /* One of 24 doubles of each of 8^3 cells inside 16^3, 80 blocks. */
        MPI_Datatype cell;
        MPI_Type_create_resized(MPI_DOUBLE, 0, 24 * 8, &cell);
        int sizes[3] = {16, 16, 16}, part[3] = {8, 8, 8}, starts[3] = {4, 4, 4};
        MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, cell, &type);
        measure("flash", type, 80, 24, (size_t)80 * 16 * 16 * 16 * 24 * 8 + 24 * 8);
        MPI_Type_free(&cell);
    }
    MPI_Finalize();
    return 0;
}
