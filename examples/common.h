/* What the four examples share: options, contents that can be checked byte by byte, timing, one JSON line.
 *
 * The examples are ordinary MPI programs. They know nothing of Penstock, and run on any file system.
 */
#ifndef PENSTOCK_EXAMPLES_COMMON_H
#define PENSTOCK_EXAMPLES_COMMON_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPETITIONS 1000

struct options {
    const char *path;
    double scale;      /* size of the problem; 1 is the published one */
    int repetitions;
    int verify;
    int write, read;   /* phases to run */
    int sync;          /* write time includes MPI_File_sync */
    int independent;   /* independent instead of collective accesses */
    int per_call;      /* "hard" only: records in one call, 0 = all */
    MPI_Info info;
};

/* What one run measured: seconds of the slowest rank, one entry a repetition. */
struct times {
    double write[MAX_REPETITIONS];
    double read[MAX_REPETITIONS];
};

static int world_rank, world_size;

/* Ends the program with a message; every rank stops. */
static void fail(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &len);
    }
    fprintf(stderr, "rank %d: %s%s%.*s\n", world_rank, what, len ? ": " : "", len, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

#define CHECK(call)                                  \
    do {                                             \
        int code_ = (call);                          \
        if (code_ != MPI_SUCCESS) fail(#call, code_); \
    } while (0)

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "rank %d: no memory for %zu bytes; try a smaller --scale\n", world_rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
    return memory;
}

static void usage(const char *program, const char *scale)
{
    if (world_rank == 0) {
        fprintf(stderr,
                "usage: mpiexec -n RANKS %s FILE [options]\n"
                "  --scale X         %s (default 1)\n"
                "  --repetitions N   write and read N times (default 1)\n"
                "  --verify          check every byte that was read\n"
                "  --write-only      leave out the reading\n"
                "  --read-only       leave out the writing: the file is there from an earlier run with the same options\n"
                "  --sync            the time of writing includes MPI_File_sync\n"
                "  --independent     independent accesses instead of collective ones\n"
                "  --per-call N      (hard) N records in one call; default all\n"
                "  --hint KEY=VALUE  passed on in MPI_Info; may be repeated\n",
                program, scale);
    }
    MPI_Finalize();
    exit(2);
}

static struct options parse(int argc, char **argv, const char *scale)
{
    struct options o;
    memset(&o, 0, sizeof o);
    o.scale = 1;
    o.repetitions = 1;
    o.write = o.read = 1;
    MPI_Info_create(&o.info);
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--verify")) o.verify = 1;
        else if (!strcmp(a, "--write-only")) o.read = 0;
        else if (!strcmp(a, "--read-only")) o.write = 0;
        else if (!strcmp(a, "--sync")) o.sync = 1;
        else if (!strcmp(a, "--independent")) o.independent = 1;
        else if (!strcmp(a, "--scale") && value) o.scale = atof(argv[++i]);
        else if (!strcmp(a, "--repetitions") && value) o.repetitions = atoi(argv[++i]);
        else if (!strcmp(a, "--per-call") && value) o.per_call = atoi(argv[++i]);
        else if (!strcmp(a, "--hint") && value && strchr(value, '=')) {
            char key[MPI_MAX_INFO_KEY + 1];
            size_t len = (size_t)(strchr(value, '=') - value);
            if (len == 0 || len >= sizeof key) usage(argv[0], scale);
            memcpy(key, value, len);
            key[len] = 0;
            MPI_Info_set(o.info, key, value + len + 1);
            i++;
        } else if (a[0] != '-' && !o.path) o.path = a;
        else usage(argv[0], scale);
    }
    if (!o.path || !(o.scale > 0) || o.repetitions < 1 || o.repetitions > MAX_REPETITIONS || o.per_call < 0 ||
        !(o.write || o.read))
        usage(argv[0], scale);
    return o;
}

/* A count of the published problem, scaled, at least `least`. */
static int scaled(int published, double scale, int least)
{
    double n = published * scale + 0.5;
    return n < least ? least : (int)n;
}

/* The eight bytes that belong at file offset 8 * word. Every word differs from its neighbours and from the
 * same word of another repetition, so that a byte from the wrong place is seen. */
static inline uint64_t word_at(uint64_t word, uint64_t seed)
{
    uint64_t x = (word + seed * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
}

/* Fills `len` bytes with what belongs at file offset `at`. */
static void fill(void *to, uint64_t at, size_t len, uint64_t seed)
{
    unsigned char *p = to;
    while (len > 0) {
        uint64_t word = word_at(at / 8, seed);
        size_t skip = at % 8;
        size_t n = 8 - skip < len ? 8 - skip : len;
        memcpy(p, (unsigned char *)&word + skip, n);
        p += n;
        at += n;
        len -= n;
    }
}

/* Counts the bytes that are not what belongs at file offset `at`. */
static inline uint64_t wrong(const void *from, uint64_t at, size_t len, uint64_t seed)
{
    const unsigned char *p = from;
    uint64_t bad = 0;
    while (len > 0) {
        uint64_t word = word_at(at / 8, seed);
        size_t skip = at % 8;
        size_t n = 8 - skip < len ? 8 - skip : len;
        if (memcmp(p, (unsigned char *)&word + skip, n) != 0) {
            for (size_t i = 0; i < n; i++) bad += p[i] != ((unsigned char *)&word)[skip + i];
        }
        p += n;
        at += n;
        len -= n;
    }
    return bad;
}

/* Fails unless the access moved `expected` bytes. */
static inline void expect_bytes(MPI_Status *status, MPI_Count expected)
{
    MPI_Count elements = 0;
    CHECK(MPI_Get_elements_x(status, MPI_BYTE, &elements));
    if (elements != expected) {
        fprintf(stderr, "rank %d: the access moved %lld bytes, not %lld\n", world_rank, (long long)elements,
                (long long)expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
}

static double start_clock(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime();
}

/* Seconds since `start` on the slowest rank. */
static double stop_clock(double start)
{
    double mine = MPI_Wtime() - start, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static inline MPI_File open_file(const struct options *o, int amode)
{
    MPI_File file;
    int code = MPI_File_open(MPI_COMM_WORLD, o->path, amode, o->info, &file);
    if (code != MPI_SUCCESS) fail(o->path, code);
    return file;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_phase(const char *name, const double *seconds, int n, double bytes)
{
    double sorted[MAX_REPETITIONS];
    memcpy(sorted, seconds, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    double median = sorted[n / 2];
    printf(",\"%s_seconds\":[", name);
    for (int i = 0; i < n; i++) printf("%s%.6f", i ? "," : "", seconds[i]);
    printf("],\"%s_mb_per_s\":%.1f", name, median > 0 ? bytes / median / 1e6 : 0);
}

/* Prints the JSON line on rank 0. MB is 10^6 bytes; rates are those of the median repetition, all ranks together.
 * Returns the exit code of the program: 1 when a byte was wrong. */
static int report(const char *name, const struct options *o, uint64_t write_bytes, uint64_t read_bytes,
                  uint64_t regions, const struct times *t, uint64_t bad)
{
    uint64_t mine[3] = {write_bytes, read_bytes, bad}, all[3];
    MPI_Allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0) {
        printf("{\"case\":\"%s\",\"ranks\":%d,\"scale\":%g,\"repetitions\":%d,\"bytes_per_client\":%llu,"
               "\"regions_per_client\":%llu",
               name, world_size, o->scale, o->repetitions,
               (unsigned long long)(read_bytes ? read_bytes : write_bytes), (unsigned long long)regions);
        if (o->write) print_phase("write", t->write, o->repetitions, (double)all[0]);
        if (o->read) print_phase("read", t->read, o->repetitions, (double)all[1]);
        if (o->verify && o->read)
            printf(",\"verified\":%s,\"wrong_bytes\":%llu", all[2] ? "false" : "true", (unsigned long long)all[2]);
        else
            printf(",\"verified\":null");
        printf("}\n");
        fflush(stdout);
    }
    return all[2] != 0;
}

#endif
