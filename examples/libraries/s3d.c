/* S3D-IO: the checkpoint of a combustion code, by PnetCDF or by MPI-IO.
 *
 * Doubles on a grid of points, which lies block by block in three directions on the ranks:
 *
 *   yspecies  11 x z x y x x    mass fractions
 *   u          3 x z x y x x    velocity
 *   pressure       z x y x x
 *   temp           z x y x x
 *
 * Each checkpoint is a new file: FILE.0, FILE.1. With `pnetcdf` a blocking collective call writes each variable, or a
 * nonblocking one, and one wait_all ends them. With `mpiio` the variables stand one after another, without a header. Each is
 * written through a view of its own.
 *
 *   mpiexec -n RANKS s3d FILE [--interface pnetcdf|pnetcdf-nonblocking|mpiio] [--points N] [--checkpoints N] [--keep]
 *
 * N points in each direction of a rank (default 50), written and read back. Files are removed unless --keep.
 * `MPI_Pcontrol(k)` marks checkpoint k (from 1), `MPI_Pcontrol(0)` the reading.
 *
 * Source: J. H. Chen and others, Terascale direct numerical simulations of turbulent combustion using S3D (2009). The variables
 * are those of the benchmark S3D-IO.
 *
 *   mpicc.openmpi s3d.c -lpnetcdf
 */
#include "check.h"

#include <pnetcdf.h>

enum { VARIABLES = 4 };
static const char *const names[VARIABLES] = {"yspecies", "u", "pressure", "temp"};
/* Components of each variable; 1: it has three dimensions only. */
static const int components[VARIABLES] = {11, 3, 1, 1};

/* Points of a rank and of all, and where a rank's begin: z, y, x. */
static MPI_Offset mine[3], all[3], first[3];
static double *memory[VARIABLES];

#define M(call)                                                  \
    do {                                                         \
        if ((call) != MPI_SUCCESS) give_up(#call, "MPI error"); \
    } while (0)
#define N(call)                                                       \
    do {                                                              \
        int code_ = (call);                                           \
        if (code_ != NC_NOERR) give_up(#call, ncmpi_strerror(code_)); \
    } while (0)

static size_t points(void) { return (size_t)(mine[0] * mine[1] * mine[2]); }

static size_t values(int v) { return points() * (size_t)components[v]; }

/* Ranks in each direction, as even as they go. */
static void lay_out(int points_each_way)
{
    int grid[3] = {0, 0, 0};
    M(MPI_Dims_create(world_size, 3, grid));
    int at[3] = {world_rank / (grid[1] * grid[2]), world_rank / grid[2] % grid[1], world_rank % grid[2]};
    for (int d = 0; d < 3; d++) {
        mine[d] = points_each_way;
        all[d] = mine[d] * grid[d];
        first[d] = mine[d] * at[d];
    }
    for (int v = 0; v < VARIABLES; v++) memory[v] = allocate(values(v), sizeof(double));
}

/* The value of a component at a point of this rank. */
static double value_at(int v, int checkpoint, size_t i)
{
    size_t x = i % (size_t)mine[2], y = i / (size_t)mine[2] % (size_t)mine[1];
    size_t z = i / (size_t)(mine[2] * mine[1]) % (size_t)mine[0];
    size_t component = i / points();
    long long place = (((long long)component * all[0] + first[0] + (long long)z) * all[1] + first[1] + (long long)y) * all[2] +
                      first[2] + (long long)x;
    return value_of(v, place + 1000003LL * checkpoint);
}

static void fill(int checkpoint)
{
    for (int v = 0; v < VARIABLES; v++)
        for (size_t i = 0; i < values(v); i++) memory[v][i] = value_at(v, checkpoint, i);
}

static void check(int checkpoint)
{
    for (int v = 0; v < VARIABLES; v++)
        for (size_t i = 0; i < values(v); i++) expect(memory[v][i], value_at(v, checkpoint, i));
}

static void forget(void)
{
    for (int v = 0; v < VARIABLES; v++) memset(memory[v], 0xEE, values(v) * sizeof(double));
}

/* Corner and extent of this rank's part of a variable; returns its dimensions. */
static int section(int v, MPI_Offset *start, MPI_Offset *count)
{
    int n = 0;
    if (components[v] > 1) {
        start[n] = 0;
        count[n++] = components[v];
    }
    for (int d = 0; d < 3; d++, n++) {
        start[n] = first[d];
        count[n] = mine[d];
    }
    return n;
}

static void pnetcdf_write(const char *path, int nonblocking)
{
    int file, dims[3], ids[VARIABLES], requests[VARIABLES], states[VARIABLES];
    static const char *const axes[3] = {"z", "y", "x"};
    N(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    for (int d = 0; d < 3; d++) N(ncmpi_def_dim(file, axes[d], all[d], &dims[d]));
    for (int v = 0; v < VARIABLES; v++) {
        int of[4] = {0, dims[0], dims[1], dims[2]}, fourth = components[v] > 1;
        if (fourth) N(ncmpi_def_dim(file, v == 0 ? "species" : "direction", components[v], &of[0]));
        N(ncmpi_def_var(file, names[v], NC_DOUBLE, 3 + fourth, fourth ? of : of + 1, &ids[v]));
    }
    N(ncmpi_enddef(file));
    for (int v = 0; v < VARIABLES; v++) {
        MPI_Offset start[4], count[4];
        section(v, start, count);
        if (nonblocking) N(ncmpi_iput_vara_double(file, ids[v], start, count, memory[v], &requests[v]));
        else N(ncmpi_put_vara_double_all(file, ids[v], start, count, memory[v]));
    }
    if (nonblocking) {
        N(ncmpi_wait_all(file, VARIABLES, requests, states));
        for (int v = 0; v < VARIABLES; v++) N(states[v]);
    }
    N(ncmpi_close(file));
}

static void pnetcdf_read(const char *path)
{
    int file;
    N(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    for (int v = 0; v < VARIABLES; v++) {
        int id;
        MPI_Offset start[4], count[4];
        section(v, start, count);
        N(ncmpi_inq_varid(file, names[v], &id));
        N(ncmpi_get_vara_double_all(file, id, start, count, memory[v]));
    }
    N(ncmpi_close(file));
}

/* The variables one after another, each through a view of this rank's block. */
static void mpiio_move(const char *path, int write)
{
    MPI_File file;
    M(MPI_File_open(MPI_COMM_WORLD, path, write ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    MPI_Offset begin = 0;
    for (int v = 0; v < VARIABLES; v++) {
        MPI_Offset start[4], count[4];
        int n = section(v, start, count), sizes[4], sub[4], starts[4];
        for (int d = 0; d < n; d++) {
            sizes[d] = (int)(n - d > 3 ? components[v] : all[d - (n - 3)]);
            sub[d] = (int)count[d];
            starts[d] = (int)start[d];
        }
        MPI_Datatype view;
        M(MPI_Type_create_subarray(n, sizes, sub, starts, MPI_ORDER_C, MPI_DOUBLE, &view));
        M(MPI_Type_commit(&view));
        M(MPI_File_set_view(file, begin, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
        if (write) M(MPI_File_write_at_all(file, 0, memory[v], (int)values(v), MPI_DOUBLE, MPI_STATUS_IGNORE));
        else M(MPI_File_read_at_all(file, 0, memory[v], (int)values(v), MPI_DOUBLE, MPI_STATUS_IGNORE));
        M(MPI_Type_free(&view));
        begin += all[0] * all[1] * all[2] * components[v] * (MPI_Offset)sizeof(double);
    }
    M(MPI_File_close(&file));
}

static void usage(const char *program)
{
    if (world_rank == 0)
        fprintf(stderr,
                "usage: mpiexec -n RANKS %s FILE [--interface pnetcdf|pnetcdf-nonblocking|mpiio] [--points N] "
                "[--checkpoints N] [--keep]\n",
                program);
    MPI_Finalize();
    exit(2);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    const char *path = NULL, *interface = "pnetcdf";
    int points_each_way = 50, checkpoints = 1, keep = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--interface") && value) interface = argv[++i];
        else if (!strcmp(argv[i], "--points") && value) points_each_way = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--checkpoints") && value) checkpoints = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--keep")) keep = 1;
        else if (argv[i][0] != '-' && !path) path = argv[i];
        else usage(argv[0]);
    }
    int mpiio = !strcmp(interface, "mpiio"), nonblocking = !strcmp(interface, "pnetcdf-nonblocking");
    if (!path || points_each_way < 1 || points_each_way > 500 || checkpoints < 1 || checkpoints > 1000 || strlen(path) > 4000 ||
        (!mpiio && !nonblocking && strcmp(interface, "pnetcdf") != 0))
        usage(argv[0]);
    lay_out(points_each_way);

    double seconds = 0;
    for (int k = 0; k < checkpoints; k++) {
        char file[4096];
        snprintf(file, sizeof file, "%s.%d", path, k);
        fill(k);
        M(MPI_Barrier(MPI_COMM_WORLD));
        MPI_Pcontrol(k + 1);
        double start = MPI_Wtime();
        if (mpiio) mpiio_move(file, 1);
        else pnetcdf_write(file, nonblocking);
        double took = MPI_Wtime() - start, slowest = 0;
        M(MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
        seconds += slowest;
    }
    MPI_Pcontrol(0);
    for (int k = 0; k < checkpoints; k++) {
        char file[4096];
        snprintf(file, sizeof file, "%s.%d", path, k);
        forget();
        if (mpiio) mpiio_move(file, 0);
        else pnetcdf_read(file);
        check(k);
        M(MPI_Barrier(MPI_COMM_WORLD));
        if (!keep && world_rank == 0) MPI_File_delete(file, MPI_INFO_NULL);
    }
    long counts[2] = {wrong_values, checked_values}, sums[2];
    M(MPI_Allreduce(counts, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    if (world_rank == 0)
        printf("{\"case\":\"s3d\",\"interface\":\"%s\",\"ranks\":%d,\"points\":%d,\"checkpoints\":%d,\"write_seconds\":%.6f,"
               "\"values_checked\":%ld,\"values_wrong\":%ld}\n",
               interface, world_size, points_each_way, checkpoints, seconds, sums[1], sums[0]);
    for (int v = 0; v < VARIABLES; v++) free(memory[v]);
    MPI_Finalize();
    return sums[0] != 0;
}
