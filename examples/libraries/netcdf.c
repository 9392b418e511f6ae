/* netCDF in parallel: one program for both of its kinds of files.
 *
 *   --format netcdf4   HDF5 inside: chunks, compression, any number of unlimited dimensions      (the default)
 *   --format cdf5      the classic kind, which netCDF leaves to PnetCDF
 *
 *   coordinate  fixed size (x): rank 0 alone, independent
 *   field       fixed size (y, x): each rank a block of columns, collective
 *   strided     fixed size (y, x): every ranks-th column, independent
 *   level       record variable (time, y, x): one record after another, collective; compressed in netCDF-4
 *
 * with attributes. What was written is read back with another distribution, collective and independent.
 *
 *   mpicc.openmpi -I$L/netcdf/pnetcdf/include netcdf.c -L$L/netcdf/pnetcdf -lnetcdf    (L=/usr/lib/x86_64-linux-gnu)
 */
#include "check.h"

#include <netcdf.h>
#include <netcdf_par.h>

enum { ROWS = 33, COLUMNS = 21, RECORDS = 5 };
enum { V_COORDINATE, V_FIELD, V_STRIDED, V_LEVEL };
static const char *const names[] = {"coordinate", "field", "strided", "level"};

#define N(call)                                                    \
    do {                                                           \
        int code_ = (call);                                        \
        if (code_ != NC_NOERR) give_up(#call, nc_strerror(code_)); \
    } while (0)

static void write_file(const char *path, int classic)
{
    int file, time, y, x, v[4];
    size_t rank = (size_t)world_rank, ranks = (size_t)world_size, width = COLUMNS * ranks;
    N(nc_create_par(path, NC_CLOBBER | (classic ? NC_64BIT_DATA : NC_NETCDF4), MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    N(nc_def_dim(file, "time", NC_UNLIMITED, &time));
    N(nc_def_dim(file, "y", ROWS, &y));
    N(nc_def_dim(file, "x", width, &x));
    int yx[2] = {y, x}, tyx[3] = {time, y, x};
    N(nc_def_var(file, names[V_COORDINATE], NC_DOUBLE, 1, &x, &v[V_COORDINATE]));
    N(nc_def_var(file, names[V_FIELD], NC_FLOAT, 2, yx, &v[V_FIELD]));
    N(nc_def_var(file, names[V_STRIDED], NC_INT, 2, yx, &v[V_STRIDED]));
    N(nc_def_var(file, names[V_LEVEL], NC_DOUBLE, 3, tyx, &v[V_LEVEL]));
    if (!classic) {
        size_t chunk[3] = {1, 10, 13};
        N(nc_def_var_chunking(file, v[V_LEVEL], NC_CHUNKED, chunk));
        N(nc_def_var_deflate(file, v[V_LEVEL], 1, 1, 3));
    }
    N(nc_put_att_text(file, NC_GLOBAL, "title", 7, "example"));
    N(nc_put_att_int(file, v[V_FIELD], "ranks", NC_INT, 1, &world_size));
    N(nc_enddef(file));

    double *data = allocate(ROWS * width, sizeof *data);
    if (world_rank == 0) {
        size_t start = 0, count = width;
        for (size_t i = 0; i < width; i++) data[i] = value_of(V_COORDINATE, (long long)i);
        /* Variables are independent until they are told otherwise. */
        N(nc_put_vara_double(file, v[V_COORDINATE], &start, &count, data));
    }
    {
        size_t start[2] = {0, COLUMNS * rank}, count[2] = {ROWS, COLUMNS};
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            data[i] = value_of(V_FIELD, (long long)(i / COLUMNS * width + start[1] + i % COLUMNS));
        N(nc_var_par_access(file, v[V_FIELD], NC_COLLECTIVE));
        N(nc_put_vara_double(file, v[V_FIELD], start, count, data));
    }
    {
        size_t start[2] = {0, rank}, count[2] = {ROWS, COLUMNS};
        ptrdiff_t stride[2] = {1, world_size};
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            data[i] = value_of(V_STRIDED, (long long)(i / COLUMNS * width + rank + i % COLUMNS * ranks));
        N(nc_var_par_access(file, v[V_STRIDED], NC_INDEPENDENT));
        N(nc_put_vars_double(file, v[V_STRIDED], start, count, stride, data));
    }
    N(nc_var_par_access(file, v[V_LEVEL], NC_COLLECTIVE));
    for (size_t record = 0; record < RECORDS; record++) {
        size_t start[3] = {record, 0, COLUMNS * rank}, count[3] = {1, ROWS, COLUMNS};
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            data[i] = value_of(V_LEVEL, (long long)((record * ROWS + i / COLUMNS) * width + start[2] + i % COLUMNS));
        N(nc_put_vara_double(file, v[V_LEVEL], start, count, data));
        if (record == RECORDS / 2) N(nc_sync(file));
    }
    free(data);
    N(nc_close(file));
}

static void read_file(const char *path)
{
    int file, written_by = 0, id, unlimited;
    size_t width = (size_t)COLUMNS * (size_t)world_size, records = 0;
    N(nc_open_par(path, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    N(nc_inq_dimid(file, "time", &unlimited));
    N(nc_inq_dimlen(file, unlimited, &records));
    expect((double)records, RECORDS);
    char title[8] = "";
    N(nc_get_att_text(file, NC_GLOBAL, "title", title));
    expect(strcmp(title, "example"), 0);
    N(nc_inq_varid(file, "field", &id));
    N(nc_get_att_int(file, id, "ranks", &written_by));
    expect(written_by, world_size);

    /* Each variable's first dimension is dealt out to the ranks. */
    const size_t lengths[] = {width, ROWS, ROWS, RECORDS}, inner[] = {1, width, width, ROWS * width};
    for (int access = 0; access < 2; access++)
        for (int v = 0; v < 4; v++) {
            size_t start[3] = {lengths[v] * (size_t)world_rank / (size_t)world_size};
            size_t count[3] = {lengths[v] * (size_t)(world_rank + 1) / (size_t)world_size - start[0], ROWS, width};
            if (v != V_LEVEL) count[1] = width;
            size_t n = count[0] * inner[v];
            double *data = allocate(n, sizeof *data);
            N(nc_inq_varid(file, names[v], &id));
            N(nc_var_par_access(file, id, access ? NC_COLLECTIVE : NC_INDEPENDENT));
            N(nc_get_vara_double(file, id, start, count, data));
            for (size_t i = 0; i < n; i++) expect(data[i], value_of(v, (long long)(start[0] * inner[v] + i)));
            free(data);
        }
    N(nc_close(file));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct run run = parse(argc, argv);
    if (run.write) write_file(run.path, !strcmp(run.format, "cdf5"));
    if (run.read) read_file(run.path);
    char version[40];
    snprintf(version, sizeof version, "netCDF %.5s", nc_inq_libvers());
    int code = report("netcdf", version);
    MPI_Finalize();
    return code;
}
