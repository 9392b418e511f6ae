/* PnetCDF: classic netCDF files (CDF-5) written by all ranks at once.
 *
 *   field   fixed size (y, x): each rank a block of rows; blocking, collective
 *   strided fixed size (x): every ranks-th element; blocking, independent
 *   level   record variable (time, y, x): one record after another, blocking, collective
 *   flux    record variable (time, x): nonblocking iput, all records in one wait_all; their places alternate with those
 *           of `level`
 *   sum     record variable (time): buffered bput of scattered elements, wait_all
 *   pieces  fixed size (y, x): varn, many small blocks in one call
 *
 * with attributes, fill values, and a second define mode that moves all data to make room in the header. What was
 * written is read back with another distribution, blocking and nonblocking.
 *
 *   mpicc.openmpi pnetcdf.c -lpnetcdf
 */
#include "check.h"

#include <pnetcdf.h>

enum { ROWS = 6, COLUMNS = 48, RECORDS = 7, PIECE = 4 };
enum { V_FIELD, V_STRIDED, V_LEVEL, V_FLUX, V_SUM, V_PIECES };
static const char *const names[] = {"field", "strided", "level", "flux", "sum", "pieces"};

#define N(call)                                                    \
    do {                                                           \
        int code_ = (call);                                        \
        if (code_ != NC_NOERR) give_up(#call, ncmpi_strerror(code_)); \
    } while (0)

static MPI_Offset rows(void) { return (MPI_Offset)ROWS * world_size; }

static void write_file(const char *path)
{
    int file, time, y, x, v[6];
    MPI_Offset rank = world_rank, ranks = world_size;
    N(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    N(ncmpi_def_dim(file, "time", NC_UNLIMITED, &time));
    N(ncmpi_def_dim(file, "y", rows(), &y));
    N(ncmpi_def_dim(file, "x", COLUMNS * ranks, &x));
    int yx[2] = {y, x}, tyx[3] = {time, y, x}, tx[2] = {time, x};
    N(ncmpi_def_var(file, names[V_FIELD], NC_FLOAT, 2, yx, &v[V_FIELD]));
    N(ncmpi_def_var(file, names[V_STRIDED], NC_INT, 1, &x, &v[V_STRIDED]));
    N(ncmpi_def_var(file, names[V_LEVEL], NC_DOUBLE, 3, tyx, &v[V_LEVEL]));
    N(ncmpi_def_var(file, names[V_FLUX], NC_FLOAT, 2, tx, &v[V_FLUX]));
    N(ncmpi_def_var(file, names[V_SUM], NC_INT64, 1, &time, &v[V_SUM]));
    N(ncmpi_def_var(file, names[V_PIECES], NC_INT, 2, yx, &v[V_PIECES]));
    N(ncmpi_put_att_text(file, NC_GLOBAL, "title", 7, "example"));
    N(ncmpi_put_att_int(file, v[V_FIELD], "ranks", NC_INT, 1, &world_size));
    int none = -1;
    N(ncmpi_def_var_fill(file, v[V_PIECES], 0, &none));
    N(ncmpi_enddef(file));

    MPI_Offset width = COLUMNS * ranks;
    {
        MPI_Offset start[2] = {ROWS * rank, 0}, count[2] = {ROWS, width};
        float *data = allocate((size_t)(ROWS * width), sizeof *data);
        for (long long i = 0; i < ROWS * width; i++) data[i] = (float)value_of(V_FIELD, start[0] * width + i);
        N(ncmpi_put_vara_float_all(file, v[V_FIELD], start, count, data));
        free(data);
    }
    {
        MPI_Offset start = rank, count = COLUMNS, stride = ranks;
        int data[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) data[i] = (int)value_of(V_STRIDED, start + i * stride);
        N(ncmpi_begin_indep_data(file));
        N(ncmpi_put_vars_int(file, v[V_STRIDED], &start, &count, &stride, data));
        N(ncmpi_end_indep_data(file));
    }
    double *level = allocate((size_t)(ROWS * width), sizeof *level);
    for (MPI_Offset record = 0; record < RECORDS; record++) {
        MPI_Offset start[3] = {record, 0, COLUMNS * rank}, count[3] = {1, rows(), COLUMNS};
        for (long long i = 0; i < rows() * COLUMNS; i++)
            level[i] = value_of(V_LEVEL, (record * rows() + i / COLUMNS) * width + start[2] + i % COLUMNS);
        N(ncmpi_put_vara_double_all(file, v[V_LEVEL], start, count, level));
    }
    free(level);

    /* A longer attribute needs a longer header: everything behind it moves. */
    char history[9000];
    memset(history, 'h', sizeof history);
    N(ncmpi_redef(file));
    N(ncmpi_put_att_text(file, NC_GLOBAL, "history", sizeof history, history));
    N(ncmpi_enddef(file));

    {
        int requests[RECORDS], states[RECORDS];
        float data[RECORDS][COLUMNS];
        for (int record = 0; record < RECORDS; record++) {
            MPI_Offset start[2] = {record, COLUMNS * rank}, count[2] = {1, COLUMNS};
            for (int i = 0; i < COLUMNS; i++) data[record][i] = (float)value_of(V_FLUX, record * width + start[1] + i);
            N(ncmpi_iput_vara_float(file, v[V_FLUX], start, count, data[record], &requests[record]));
        }
        N(ncmpi_wait_all(file, RECORDS, requests, states));
        for (int i = 0; i < RECORDS; i++) N(states[i]);
    }
    {
        /* Buffered: the value may be overwritten at once. Ranks take turns by record. */
        int requests[RECORDS], states[RECORDS], n = 0;
        N(ncmpi_buffer_attach(file, RECORDS * sizeof(long long)));
        for (MPI_Offset record = rank; record < RECORDS; record += ranks) {
            long long value = (long long)value_of(V_SUM, record);
            N(ncmpi_bput_var1_longlong(file, v[V_SUM], &record, &value, &requests[n++]));
            value = -1;
        }
        N(ncmpi_wait_all(file, n, requests, states));
        for (int i = 0; i < n; i++) N(states[i]);
        N(ncmpi_buffer_detach(file));
    }
    {
        /* The pieces of a row go to the ranks in turn; every second row stays empty. */
        int per_row = COLUMNS / PIECE, n = (int)(rows() + 1) / 2 * per_row;
        MPI_Offset(*starts)[2] = allocate((size_t)n, sizeof *starts), (*counts)[2] = allocate((size_t)n, sizeof *counts);
        MPI_Offset **start = allocate((size_t)n, sizeof *start), **count = allocate((size_t)n, sizeof *count);
        int *data = allocate((size_t)(n * PIECE), sizeof *data);
        for (int i = 0; i < n; i++) {
            starts[i][0] = i / per_row * 2;
            starts[i][1] = (i % per_row * ranks + rank) * PIECE;
            counts[i][0] = 1;
            counts[i][1] = PIECE;
            start[i] = starts[i];
            count[i] = counts[i];
            for (int k = 0; k < PIECE; k++)
                data[i * PIECE + k] = (int)value_of(V_PIECES, starts[i][0] * width + starts[i][1] + k);
        }
        N(ncmpi_put_varn_int_all(file, v[V_PIECES], n, start, count, data));
        free(starts), free(counts), free(start), free(count), free(data);
    }
    N(ncmpi_sync(file));
    N(ncmpi_close(file));
}

static void share(MPI_Offset all, MPI_Offset *first, MPI_Offset *count)
{
    *first = all * world_rank / world_size;
    *count = all * (world_rank + 1) / world_size - *first;
}

static void read_file(const char *path)
{
    int file, unlimited, written_by = 0;
    MPI_Offset width = (MPI_Offset)COLUMNS * world_size, records = 0, length = 0;
    N(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    N(ncmpi_inq_unlimdim(file, &unlimited));
    N(ncmpi_inq_dimlen(file, unlimited, &records));
    expect((double)records, RECORDS);
    char title[8] = "", history[9000];
    N(ncmpi_get_att_text(file, NC_GLOBAL, "title", title));
    expect(strcmp(title, "example"), 0);
    N(ncmpi_inq_attlen(file, NC_GLOBAL, "history", &length));
    expect((double)length, sizeof history);
    N(ncmpi_get_att_text(file, NC_GLOBAL, "history", history));
    for (size_t i = 0; i < sizeof history; i++) expect(history[i], 'h');
    int field;
    N(ncmpi_inq_varid(file, "field", &field));
    N(ncmpi_get_att_int(file, field, "ranks", &written_by));
    expect(written_by, world_size);

    /* Each variable's first dimension is dealt out to the ranks: all are asked for, one wait_all reads. */
    const MPI_Offset lengths[] = {rows(), width, RECORDS, RECORDS, RECORDS, rows()};
    const MPI_Offset inner[] = {width, 1, rows() * width, width, 1, width};
    double *data[6];
    int requests[6], states[6];
    for (int pass = 0; pass < 2; pass++) {
        for (int v = 0; v < 6; v++) {
            int id;
            MPI_Offset start[3] = {0}, count[3] = {1, rows(), width};
            N(ncmpi_inq_varid(file, names[v], &id));
            if (v != V_LEVEL) count[1] = width;
            share(lengths[v], &start[0], &count[0]);
            data[v] = allocate((size_t)(count[0] * inner[v]), sizeof **data);
            if (pass == 0) N(ncmpi_iget_vara_double(file, id, start, count, data[v], &requests[v]));
            else N(ncmpi_get_vara_double_all(file, id, start, count, data[v]));
        }
        if (pass == 0) {
            N(ncmpi_wait_all(file, 6, requests, states));
            for (int i = 0; i < 6; i++) N(states[i]);
        }
        for (int v = 0; v < 6; v++) {
            MPI_Offset first, count;
            share(lengths[v], &first, &count);
            for (long long i = 0; i < count * inner[v]; i++) {
                long long at = first * inner[v] + i;
                int empty = v == V_PIECES && at / width % 2;
                expect(data[v][i], empty ? -1 : value_of(v, at));
            }
            free(data[v]);
        }
    }
    N(ncmpi_close(file));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct run run = parse(argc, argv);
    if (run.write) write_file(run.path);
    if (run.read) read_file(run.path);
    char version[40];
    snprintf(version, sizeof version, "PnetCDF %.6s", ncmpi_inq_libvers());
    int code = report("pnetcdf", version);
    MPI_Finalize();
    return code;
}
