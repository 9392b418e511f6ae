/* One access pattern, timed from inside the program; MPI calls only, so that the same binary measures
 * every MPI-IO library. Prints one JSON line on rank 0.
 *
 *   io CASE OP FILE [key=value ...]
 *   CASE  tile | block | flash | noncontig | contig | hard | shared | view | memcpy
 *   OP    write | read
 *   keys  coll=0|1  piece=BYTES (noncontig, contig, shared)  total=BYTES (noncontig, contig, hard, shared: file size)
 *         n=N (block: N^3 ints)  blocks=N (flash)  sync=0|1  min=SECONDS (timed time)  reps=N (timed repetitions,
 *         in place of a time)  hint:NAME=VALUE
 *
 * A repetition is one whole access by all ranks, from the first start after a barrier to the last end. The first
 * two repetitions warm caches and are not counted.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 2 }; /* repetitions that are not counted */

static int rank, ranks;

static void fail(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "io: rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define TRY(call)                           \
    do {                                    \
        int code_ = (call);                 \
        if (code_ != MPI_SUCCESS)           \
            fail(#call, code_);             \
    } while (0)

/* One clock for all ranks of a host. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* How often this rank has given up its processor, or was made to. */
static double switches_so_far(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_nvcsw + u.ru_nivcsw);
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%ld %ld", &pages, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What one repetition moves: `calls` accesses of `count` x `mem`, the k-th at file offset k * step etypes. */
struct work {
    MPI_Offset disp;
    MPI_Datatype filetype, mem;
    int count, calls;
    MPI_Offset step;   /* in bytes of the view, between two calls */
    char *buf;
    size_t buf_bytes;
    double bytes;      /* of this rank, per repetition */
    MPI_Offset file_bytes;
};

static void subarray3(int n, struct work *w)
{
    int dims[3] = {0, 0, 0}, sizes[3], sub[3], start[3], at[3], r = rank;
    MPI_Dims_create(ranks, 3, dims);
    for (int d = 2; d >= 0; d--) {
        at[d] = r % dims[d];
        r /= dims[d];
    }
    w->bytes = 4;
    for (int d = 0; d < 3; d++) {
        sizes[d] = n;
        sub[d] = n / dims[d];
        start[d] = at[d] * sub[d];
        w->bytes *= sub[d];
    }
    TRY(MPI_Type_create_subarray(3, sizes, sub, start, MPI_ORDER_C, MPI_INT, &w->filetype));
    w->mem = MPI_INT;
    w->count = sub[0] * sub[1] * sub[2];
    w->file_bytes = (MPI_Offset)n * n * n * 4;
}

static void tile(struct work *w)
{
    enum { NX = 3, NY = 2, SX = 1024, SY = 768, OX = 270, OY = 128, E = 3 };
    int sizes[2] = {NY * SY - (NY - 1) * OY, (NX * SX - (NX - 1) * OX) * E};
    int sub[2] = {SY, SX * E};
    int start[2] = {(rank / NX) % NY * (SY - OY), rank % NX * (SX - OX) * E};
    TRY(MPI_Type_create_subarray(2, sizes, sub, start, MPI_ORDER_C, MPI_BYTE, &w->filetype));
    w->mem = MPI_BYTE;
    w->count = sub[0] * sub[1];
    w->bytes = w->count;
    w->file_bytes = (MPI_Offset)sizes[0] * sizes[1];
}

static void flash(int blocks, struct work *w)
{
    enum { CELLS = 8, GUARD = 4, VARS = 24 };
    int full = CELLS + 2 * GUARD;
    int sizes[3] = {full, full, full}, sub[3] = {CELLS, CELLS, CELLS}, start[3] = {GUARD, GUARD, GUARD};
    MPI_Datatype cell, block, all_blocks, vars;
    /* one variable of every interior cell of every block, then the next variable */
    TRY(MPI_Type_create_resized(MPI_DOUBLE, 0, VARS * sizeof(double), &cell));
    TRY(MPI_Type_create_subarray(3, sizes, sub, start, MPI_ORDER_C, cell, &block));
    TRY(MPI_Type_contiguous(blocks, block, &all_blocks));
    TRY(MPI_Type_create_hvector(VARS, 1, sizeof(double), all_blocks, &vars));
    MPI_Aint run = (MPI_Aint)blocks * CELLS * CELLS * CELLS * (MPI_Aint)sizeof(double);
    TRY(MPI_Type_create_hvector(VARS, (int)run, run * ranks, MPI_BYTE, &w->filetype));
    w->disp = run * rank;
    w->mem = vars;
    TRY(MPI_Type_commit(&w->mem));
    w->count = 1;
    w->bytes = (double)run * VARS;
    w->buf_bytes = (size_t)blocks * (size_t)(full * full * full) * VARS * sizeof(double);
    w->file_bytes = run * VARS * ranks;
    MPI_Type_free(&cell);
    MPI_Type_free(&block);
    MPI_Type_free(&all_blocks);
}

/* `pieces` pieces of `piece` bytes, dealt to the ranks in turn, in one access. */
static void interleaved(MPI_Offset piece, MPI_Offset total, struct work *w)
{
    MPI_Offset pieces = total / piece / ranks;
    TRY(MPI_Type_create_hvector((int)pieces, (int)piece, piece * ranks, MPI_BYTE, &w->filetype));
    w->disp = rank * piece;
    w->mem = MPI_BYTE;
    w->count = (int)(pieces * piece);
    w->bytes = (double)w->count;
    w->file_bytes = pieces * piece * ranks;
}

int main(int argc, char **argv)
{
    TRY(MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    if (argc < 4) {
        if (rank == 0)
            fprintf(stderr, "usage: io CASE write|read FILE [key=value ...]\n");
        MPI_Finalize();
        return 2;
    }
    const char *which = argv[1], *path = argv[3];
    int is_write = strcmp(argv[2], "write") == 0;
    int coll = 1, n = 300, blocks = 80, sync_each = 0, wanted_reps = 0;
    MPI_Offset piece = 4096, total = 64 << 20;
    double want = 0.4;
    MPI_Info info;
    MPI_Info_create(&info);
    for (int i = 4; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (!eq) {
            fprintf(stderr, "io: '%s' is not key=value\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
            return 2;
        }
        *eq++ = '\0';
        if (!strncmp(argv[i], "hint:", 5)) MPI_Info_set(info, argv[i] + 5, eq);
        else if (!strcmp(argv[i], "coll")) coll = atoi(eq);
        else if (!strcmp(argv[i], "piece")) piece = atoll(eq);
        else if (!strcmp(argv[i], "total")) total = atoll(eq);
        else if (!strcmp(argv[i], "n")) n = atoi(eq);
        else if (!strcmp(argv[i], "blocks")) blocks = atoi(eq);
        else if (!strcmp(argv[i], "sync")) sync_each = atoi(eq);
        else if (!strcmp(argv[i], "min")) want = atof(eq);
        else if (!strcmp(argv[i], "reps")) wanted_reps = atoi(eq);
        else {
            fprintf(stderr, "io: unknown key '%s'\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
            return 2;
        }
    }

    struct work w = {.filetype = MPI_BYTE, .mem = MPI_BYTE, .count = 0, .calls = 1};
    int has_view = 1, is_memcpy = strcmp(which, "memcpy") == 0, is_shared = strcmp(which, "shared") == 0;
    if (!strcmp(which, "tile")) tile(&w);
    else if (!strcmp(which, "block")) subarray3(n, &w);
    else if (!strcmp(which, "flash")) flash(blocks, &w);
    else if (!strcmp(which, "noncontig")) interleaved(piece, total, &w);
    else if (!strcmp(which, "hard")) {
        /* IO500 hard: one record a call, records of all ranks interleaved */
        w.calls = (int)(total / 47008 / ranks);
        w.count = 47008;
        w.step = (MPI_Offset)47008 * ranks;
        w.disp = 0;
        w.bytes = 47008.0 * w.calls;
        w.file_bytes = w.step * w.calls;
        has_view = 0;
    } else if (!strcmp(which, "contig") || is_shared || is_memcpy) {
        /* segments as in IOR: call k of rank r at (k * ranks + r) * piece; where the shared pointer is otherwise */
        w.calls = (int)(total / piece / ranks);
        w.count = (int)piece;
        w.step = piece * ranks;
        w.bytes = (double)piece * w.calls;
        w.file_bytes = total;
        has_view = 0;
    } else if (!strcmp(which, "view")) {
        /* a view of 64 M blocks: how long does set_view take, what does it hold on to */
        MPI_Type_vector(64 << 20, 1, 2, MPI_DOUBLE, &w.filetype);
        w.bytes = 0;
    } else {
        fprintf(stderr, "io: unknown case '%s'\n", which);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    if (has_view)
        TRY(MPI_Type_commit(&w.filetype));
    if (!w.buf_bytes)
        w.buf_bytes = (size_t)w.count * (w.mem == MPI_INT ? 4 : 1);
    if (w.buf_bytes == 0)
        w.buf_bytes = 1;
    w.buf = malloc(w.buf_bytes);
    if (!w.buf)
        fail("malloc", MPI_ERR_NO_MEM);
    memset(w.buf, 'a' + rank % 26, w.buf_bytes);
    char *source = NULL;
    if (is_memcpy) {
        source = malloc((size_t)w.bytes);
        if (!source)
            fail("malloc", MPI_ERR_NO_MEM);
        memset(source, 1, (size_t)w.bytes);
    }

    MPI_File fh;
    if (!is_memcpy) {
        TRY(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &fh));
        if (!is_write && w.file_bytes) {
            /* something to read: each rank fills a contiguous share */
            MPI_Offset size = 0;
            TRY(MPI_File_get_size(fh, &size));
            /* agreed before anyone writes, or a late rank would find the file full and leave the others waiting */
            MPI_Allreduce(MPI_IN_PLACE, &size, 1, MPI_OFFSET, MPI_MIN, MPI_COMM_WORLD);
            if (size < w.file_bytes) {
                MPI_Offset chunk = 1 << 20;
                char *fill = malloc((size_t)chunk);
                if (!fill)
                    fail("malloc", MPI_ERR_NO_MEM);
                memset(fill, 7, (size_t)chunk);
                for (MPI_Offset at = chunk * rank; at < w.file_bytes; at += chunk * ranks) {
                    MPI_Offset len = w.file_bytes - at < chunk ? w.file_bytes - at : chunk;
                    TRY(MPI_File_write_at(fh, at, fill, (int)len, MPI_BYTE, MPI_STATUS_IGNORE));
                }
                free(fill);
                TRY(MPI_File_sync(fh));
                MPI_Barrier(MPI_COMM_WORLD);
            }
        }
    }

    double view_seconds = 0;
    long view_kib = 0;
    if (has_view) {
        long before = resident_kib();
        double t = MPI_Wtime();
        TRY(MPI_File_set_view(fh, w.disp, strcmp(which, "view") ? MPI_BYTE : MPI_DOUBLE, w.filetype, "native", info));
        view_seconds = MPI_Wtime() - t;
        view_kib = resident_kib() - before;
    }

    double seconds = 0, cpu = 0, switches = 0;
    int reps = 0;
    /* the sum of times is the same everywhere, so all ranks stop together */
    while (w.bytes > 0 && (reps <= WARM || (wanted_reps ? reps < WARM + wanted_reps : seconds < want))) {
        if (is_shared)
            TRY(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
        MPI_Barrier(MPI_COMM_WORLD);
        double c0 = cpu_seconds(), s0 = switches_so_far(), t0 = now();
        for (int k = 0; k < w.calls; k++) {
            MPI_Offset at = has_view ? k * w.step : (MPI_Offset)w.count * rank + k * w.step;
            if (is_memcpy)
                memcpy(w.buf, source + (size_t)k * (size_t)w.count, (size_t)w.count);
            else if (is_shared && is_write)
                TRY(MPI_File_write_shared(fh, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
            else if (is_shared)
                TRY(MPI_File_read_shared(fh, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
            else if (is_write && coll)
                TRY(MPI_File_write_at_all(fh, at, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
            else if (is_write)
                TRY(MPI_File_write_at(fh, at, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
            else if (coll)
                TRY(MPI_File_read_at_all(fh, at, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
            else
                TRY(MPI_File_read_at(fh, at, w.buf, w.count, w.mem, MPI_STATUS_IGNORE));
        }
        if (is_write && sync_each)
            TRY(MPI_File_sync(fh));
        /* From the first rank's start to the last one's end. With fewer cores than ranks they take turns, and what
         * a rank measures of itself leaves out the others' turns. */
        double ends[2] = {-t0, now()}, outer[2];
        double c = cpu_seconds() - c0, given_up = switches_so_far() - s0;
        MPI_Allreduce(ends, outer, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (reps >= WARM) {
            seconds += outer[0] + outer[1];
            cpu += c;
            switches += given_up;
        }
        reps++;
    }
    double bytes_all = 0, cpu_all = 0, cpu_life = 0, switches_all = 0, mine_life = cpu_seconds();
    MPI_Allreduce(&w.bytes, &bytes_all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&cpu, &cpu_all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&switches, &switches_all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine_life, &cpu_life, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    char method[MPI_MAX_INFO_VAL] = "";
    if (!is_memcpy) {
        MPI_Info used;
        int flag = 0;
        TRY(MPI_File_get_info(fh, &used));
        MPI_Info_get(used, "penstock_method_chosen", MPI_MAX_INFO_VAL - 1, method, &flag);
        MPI_Info_free(&used);
        TRY(MPI_File_close(&fh));
    }
    if (rank == 0)
        printf("{\"case\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"reps\": %d, \"bytes\": %.0f, \"seconds\": %.6f, "
               "\"cpu_seconds\": %.6f, \"requests\": %d, \"switches\": %.0f, \"cpu_life\": %.6f, \"view_seconds\": %.9f, \"view_kib\": %ld, \"method\": \"%s\"}\n",
               which, argv[2], ranks, reps - WARM, bytes_all * (reps > WARM ? reps - WARM : 0), seconds, cpu_all,
               reps > WARM ? (reps - WARM) * w.calls * ranks : 0, switches_all, cpu_life, view_seconds, view_kib, method);
    free(w.buf);
    free(source);
    MPI_Info_free(&info);
    MPI_Finalize();
    return 0;
}
