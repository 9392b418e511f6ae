/* One access pattern of a cross-product whose cases are known: what detection of patterns and choice of algorithms are tried on.
 *
 *   pattern FILE write|read shared|own contiguous|strided|random BYTES CALLS BARRIER [FLAG [PART]]
 *
 * CALLS accesses of BYTES by each rank, to one file or to a file per rank (FILE.0, FILE.1, ..). Contiguous accesses
 * lie in a part of the file of the rank's own. Strided ones take turns with the other ranks, or have three gaps in
 * a file of the rank's own. Random ones lie at any multiple of BYTES in a file of SPREAD times as many bytes as the
 * accesses have. With BARRIER 1 the ranks wait for each other before each access. Rank 0 prints when the first
 * began and the last ended, in seconds of CLOCK_MONOTONIC.
 *
 * FLAG is a file of at least one byte. With it all go on, beginning again after CALLS accesses, until its first byte
 * is no longer '0' (or for an hour). Rank 0 prints "begun" when all have opened their files. PART is how far apart
 * the parts of the ranks of a shared file lie (CALLS x BYTES), if that is more than they use.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { GAP = 4, SPREAD = 4, NAME = 4096, LONGEST = 3600 };

static void try(const char *what, int code)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "pattern: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Any number below the limit; every rank has numbers of its own (xorshift). */
static MPI_Offset below(unsigned long long *state, MPI_Offset limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (MPI_Offset)((*state >> 11) % (unsigned long long)limit);
}

/* The flag that ends a program without a number of calls. */
static const volatile char *flag_of(const char *path)
{
    int fd = open(path, O_RDONLY);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    close(fd);
    return at;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 8 || argc > 10) {
        if (rank == 0)
            fprintf(stderr, "usage: pattern FILE write|read shared|own contiguous|strided|random BYTES CALLS BARRIER [FLAG [PART]]\n");
        MPI_Finalize();
        return 2;
    }
    int write = !strcmp(argv[2], "write"), own = !strcmp(argv[3], "own"), contiguous = !strcmp(argv[4], "contiguous");
    int bytes = atoi(argv[5]), calls = atoi(argv[6]), barrier = atoi(argv[7]);
    const volatile char *flag = argc > 8 ? flag_of(argv[8]) : NULL;
    MPI_Offset each = (MPI_Offset)bytes * calls, first, step = bytes, length = each * ranks;
    if (contiguous) {
        MPI_Offset part = argc > 9 ? atoll(argv[9]) : each;
        first = own ? 0 : rank * part;
        length = part * (ranks - 1) + each;
    } else {
        first = own ? 0 : (MPI_Offset)rank * bytes;
        step *= own ? GAP : ranks;
    }
    if (own)
        length = contiguous ? each : each * GAP;
    int anywhere = !strcmp(argv[4], "random");
    MPI_Offset places = (MPI_Offset)calls * SPREAD * (own ? 1 : ranks);
    unsigned long long state = 88172645463325252ull + 7919ull * (unsigned)rank;
    if (anywhere)
        length = places * bytes;
    char name[NAME];
    snprintf(name, sizeof name, own ? "%s.%d" : "%s", argv[1], rank);
    char *buffer = malloc((size_t)bytes);
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(buffer, 'a' + rank % 26, (size_t)bytes);
    MPI_File f;
    MPI_Comm who = own ? MPI_COMM_SELF : MPI_COMM_WORLD;
    try("open", MPI_File_open(who, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f));
    if (!write)
        try("set_size", MPI_File_set_size(f, length));
    if (flag && rank == 0) {
        /* A file begins on the disk where its first byte does, whoever comes first later. */
        if (write)
            try("write", MPI_File_write_at(f, 0, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE));
        else
            try("read", MPI_File_read_at(f, 0, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double times[2] = {-now(), 0}, all[2];
    if (flag && rank == 0) {
        printf("begun\n");
        fflush(stdout);
    }
    for (int call = 0; flag ? *flag == '0' && now() < LONGEST - times[0] : call < calls; call++) {
        MPI_Offset at = anywhere ? below(&state, places) * bytes : first + call % calls * step;
        if (barrier)
            MPI_Barrier(MPI_COMM_WORLD);
        if (write)
            try("write", MPI_File_write_at(f, at, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        else
            try("read", MPI_File_read_at(f, at, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    times[1] = now();
    MPI_Reduce(times, all, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.6f %.6f\n", -all[0], all[1]);
    try("close", MPI_File_close(&f));
    free(buffer);
    MPI_Finalize();
    return 0;
}
