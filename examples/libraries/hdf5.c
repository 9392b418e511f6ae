/* Parallel HDF5: the ways in which programs lay out and transfer datasets.
 *
 *   columns      contiguous storage, each rank a block of columns, collective
 *   interleaved  contiguous storage, a strided hyperslab of each rank, independent
 *   steps        chunked, extended by one step at a time, collective; the chunks don't fit the ranks' parts
 *   squeezed     chunked and compressed, collective (as HDF5 demands)
 *   log          chunked, extended, each rank's rows written independently from scattered memory
 *
 * with attributes on the file, a group and a dataset. What was written is read back with another distribution of the
 * elements over the ranks. Times are not tracked, so that the same program writes the same bytes each time.
 * With --leave-open the program closes neither the file nor the dataset written last: HDF5 does so in MPI_Finalize.
 *
 *   mpicc.mpich -I/usr/include/hdf5/mpich hdf5.c -L/usr/lib/x86_64-linux-gnu/hdf5/mpich -lhdf5
 */
#include "check.h"

#include <hdf5.h>

enum { ROWS = 37, COLUMNS = 29, STEPS = 5, CHUNK_ROWS = 8, CHUNK_COLUMNS = 20, LOG_RECORDS = 40 };
enum { V_COLUMNS, V_INTERLEAVED, V_STEPS, V_SQUEEZED, V_LOG };

/* Every call of HDF5 gives a negative number when it fails, and has said why by then. */
static long long check(long long result, const char *call)
{
    if (result < 0) give_up(call, "HDF5 failed");
    return result;
}
#define H(call) check((long long)(call), #call)

/* All ranks open a file together, and all get the error: they end in order, and nothing that HDF5 said is cut off. */
static hid_t opened(hid_t file)
{
    if (file < 0) {
        MPI_Finalize();
        exit(1);
    }
    return file;
}

static hid_t transfer(H5FD_mpio_xfer_t mode)
{
    hid_t list = H(H5Pcreate(H5P_DATASET_XFER));
    H(H5Pset_dxpl_mpio(list, mode));
    return list;
}

static hid_t without_times(hid_t class)
{
    hid_t list = H(H5Pcreate(class));
    H(H5Pset_obj_track_times(list, 0));
    return list;
}

static hid_t create(hid_t where, const char *name, hid_t type, int rank, const hsize_t *dims, const hsize_t *chunk)
{
    hsize_t most[3] = {H5S_UNLIMITED, rank > 1 ? dims[1] : 0, rank > 2 ? dims[2] : 0};
    hid_t list = without_times(H5P_DATASET_CREATE);
    if (chunk) H(H5Pset_chunk(list, rank, chunk));
    if (!strcmp(name, "squeezed") && H5Zfilter_avail(H5Z_FILTER_DEFLATE)) H(H5Pset_deflate(list, 4));
    hid_t space = H(H5Screate_simple(rank, dims, chunk ? most : NULL));
    hid_t set = H(H5Dcreate2(where, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H(H5Sclose(space));
    H(H5Pclose(list));
    return set;
}

/* One hyperslab of a dataset, to or from packed memory. */
static void move(hid_t set, int writes, hid_t type, const hsize_t *start, const hsize_t *stride, const hsize_t *count,
                 const hsize_t *block, void *memory, hid_t mode)
{
    hid_t space = H(H5Dget_space(set));
    H(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block));
    hsize_t elements = (hsize_t)H(H5Sget_select_npoints(space));
    hid_t packed = H(H5Screate_simple(1, &elements, NULL));
    if (writes) H(H5Dwrite(set, type, packed, space, mode, memory));
    else H(H5Dread(set, type, packed, space, mode, memory));
    H(H5Sclose(packed));
    H(H5Sclose(space));
}

static void attribute(hid_t where, const char *name, hid_t type, hsize_t count, const void *value)
{
    hid_t space = H(H5Screate_simple(1, &count, NULL));
    hid_t made = H(H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
    H(H5Awrite(made, type, value));
    H(H5Aclose(made));
    H(H5Sclose(space));
}

static hid_t access_list(void)
{
    hid_t list = H(H5Pcreate(H5P_FILE_ACCESS));
    H(H5Pset_fapl_mpio(list, MPI_COMM_WORLD, MPI_INFO_NULL));
    /* Small metadata writes at the end are made together, too. */
    H(H5Pset_coll_metadata_write(list, 1));
    return list;
}

static void write_file(const char *path, int leave_open)
{
    hsize_t rank = (hsize_t)world_rank, ranks = (hsize_t)world_size;
    hid_t list = access_list(), together = transfer(H5FD_MPIO_COLLECTIVE), alone = transfer(H5FD_MPIO_INDEPENDENT);
    hid_t file = opened(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, list));
    double origin[3] = {0.5, 1.5, 2.5};
    attribute(file, "origin", H5T_NATIVE_DOUBLE, 3, origin);
    hid_t times = without_times(H5P_GROUP_CREATE);
    hid_t group = H(H5Gcreate2(file, "fields", H5P_DEFAULT, times, H5P_DEFAULT));
    attribute(group, "ranks", H5T_NATIVE_INT, 1, &world_size);

    {
        hsize_t dims[2] = {ROWS, COLUMNS * ranks}, start[2] = {0, COLUMNS * rank}, count[2] = {ROWS, COLUMNS};
        hid_t set = create(group, "columns", H5T_IEEE_F32LE, 2, dims, NULL);
        attribute(set, "units", H5T_C_S1, 6, "kelvin");
        float *data = allocate(ROWS * COLUMNS, sizeof *data);
        for (hsize_t i = 0; i < ROWS * COLUMNS; i++)
            data[i] = (float)value_of(V_COLUMNS, (long long)(i / COLUMNS * dims[1] + start[1] + i % COLUMNS));
        move(set, 1, H5T_NATIVE_FLOAT, start, NULL, count, NULL, data, together);
        free(data);
        H(H5Dclose(set));
    }
    {
        /* Blocks of 3 elements, dealt out to the ranks in turn. */
        hsize_t n = 3 * 64 * ranks, start = 3 * rank, stride = 3 * ranks, count = 64, block = 3;
        hid_t set = create(group, "interleaved", H5T_STD_I32BE, 1, &n, NULL);
        int data[3 * 64];
        for (int i = 0; i < 3 * 64; i++)
            data[i] = (int)value_of(V_INTERLEAVED, (long long)(start + (hsize_t)(i / 3) * stride) + i % 3);
        move(set, 1, H5T_NATIVE_INT, &start, &stride, &count, &block, data, alone);
        H(H5Dclose(set));
    }
    for (int v = V_STEPS; v <= V_SQUEEZED; v++) {
        hsize_t dims[3] = {0, ROWS * ranks, COLUMNS}, chunk[3] = {2, CHUNK_ROWS, CHUNK_COLUMNS};
        hid_t set = create(group, v == V_STEPS ? "steps" : "squeezed", H5T_IEEE_F64LE, 3, dims, chunk);
        double *data = allocate(ROWS * COLUMNS, sizeof *data);
        for (hsize_t step = 0; step < STEPS; step++) {
            dims[0] = step + 1;
            H(H5Dset_extent(set, dims));
            hsize_t start[3] = {step, ROWS * rank, 0}, count[3] = {1, ROWS, COLUMNS};
            for (hsize_t i = 0; i < ROWS * COLUMNS; i++)
                data[i] = value_of(v, (long long)((step * dims[1] + start[1]) * COLUMNS + i));
            move(set, 1, H5T_NATIVE_DOUBLE, start, NULL, count, NULL, data, together);
            if (step == STEPS / 2) H(H5Fflush(file, H5F_SCOPE_GLOBAL));
        }
        free(data);
        H(H5Dclose(set));
    }
    {
        /* Storage of chunks is made when the dataset is extended, by all; then each rank writes when it likes. */
        hsize_t n = 0, chunk = 16;
        hid_t set = create(file, "log", H5T_STD_I64LE, 1, &n, &chunk);
        n = LOG_RECORDS * ranks;
        H(H5Dset_extent(set, &n));
        long long data[2 * LOG_RECORDS];
        memset(data, 0xee, sizeof data);
        for (hsize_t i = 0; i < LOG_RECORDS; i++) data[2 * i] = (long long)value_of(V_LOG, (long long)(rank * LOG_RECORDS + i));
        hsize_t in_memory = 2 * LOG_RECORDS, zero = 0, two = 2, start = LOG_RECORDS * rank, count = LOG_RECORDS;
        hid_t memory = H(H5Screate_simple(1, &in_memory, NULL)), space = H(H5Dget_space(set));
        H(H5Sselect_hyperslab(memory, H5S_SELECT_SET, &zero, &two, &count, NULL));
        H(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
        H(H5Dwrite(set, H5T_NATIVE_LLONG, memory, space, alone, data));
        H(H5Sclose(memory));
        H(H5Sclose(space));
        if (leave_open) return;
        H(H5Dclose(set));
    }
    H(H5Gclose(group));
    H(H5Pclose(times));
    H(H5Fclose(file));
    H(H5Pclose(list));
    H(H5Pclose(together));
    H(H5Pclose(alone));
}

/* Rows [first, end) of `rows` that this rank reads. */
static void share(hsize_t rows, hsize_t *first, hsize_t *count)
{
    hsize_t rank = (hsize_t)world_rank, ranks = (hsize_t)world_size;
    *first = rows * rank / ranks;
    *count = rows * (rank + 1) / ranks - *first;
}

static void read_all(hid_t file, const char *name, int variable, int rank, const hsize_t *wanted, hid_t mode)
{
    hid_t set = H(H5Dopen2(file, name, H5P_DEFAULT)), space = H(H5Dget_space(set));
    hsize_t dims[3] = {1, 1, 1}, start[3] = {0}, count[3] = {1, 1, 1};
    if (H5Sget_simple_extent_ndims(space) != rank) give_up(name, "wrong number of dimensions");
    H(H5Sget_simple_extent_dims(space, dims, NULL));
    for (int d = 0; d < rank; d++) {
        expect((double)dims[d], (double)wanted[d]);
        count[d] = dims[d];
    }
    share(dims[0], &start[0], &count[0]);
    hsize_t row = dims[1] * dims[2], n = count[0] * row;
    double *data = allocate(n, sizeof *data);
    move(set, 0, H5T_NATIVE_DOUBLE, start, NULL, count, NULL, data, mode);
    for (hsize_t i = 0; i < n; i++) expect(data[i], value_of(variable, (long long)(start[0] * row + i)));
    free(data);
    H(H5Sclose(space));
    H(H5Dclose(set));
}

static void read_file(const char *path)
{
    hsize_t ranks = (hsize_t)world_size;
    hid_t list = access_list(), together = transfer(H5FD_MPIO_COLLECTIVE), alone = transfer(H5FD_MPIO_INDEPENDENT);
    hid_t file = opened(H5Fopen(path, H5F_ACC_RDONLY, list));
    double origin[3] = {0};
    int written_by = 0;
    char units[6];
    hid_t a = H(H5Aopen(file, "origin", H5P_DEFAULT));
    H(H5Aread(a, H5T_NATIVE_DOUBLE, origin));
    H(H5Aclose(a));
    for (int i = 0; i < 3; i++) expect(origin[i], 0.5 + i);
    a = H(H5Aopen_by_name(file, "fields", "ranks", H5P_DEFAULT, H5P_DEFAULT));
    H(H5Aread(a, H5T_NATIVE_INT, &written_by));
    H(H5Aclose(a));
    expect(written_by, world_size);
    a = H(H5Aopen_by_name(file, "fields/columns", "units", H5P_DEFAULT, H5P_DEFAULT));
    H(H5Aread(a, H5T_C_S1, units));
    H(H5Aclose(a));
    expect(memcmp(units, "kelvin", 6), 0);

    hid_t modes[2] = {together, alone};
    for (int m = 0; m < 2; m++) {
        hsize_t columns[2] = {ROWS, COLUMNS * ranks}, interleaved = 3 * 64 * ranks, log = LOG_RECORDS * ranks;
        hsize_t steps[3] = {STEPS, ROWS * ranks, COLUMNS};
        read_all(file, "fields/columns", V_COLUMNS, 2, columns, modes[m]);
        read_all(file, "fields/interleaved", V_INTERLEAVED, 1, &interleaved, modes[m]);
        read_all(file, "fields/steps", V_STEPS, 3, steps, modes[m]);
        read_all(file, "fields/squeezed", V_SQUEEZED, 3, steps, modes[m]);
        read_all(file, "log", V_LOG, 1, &log, modes[m]);
    }
    H(H5Fclose(file));
    H(H5Pclose(list));
    H(H5Pclose(together));
    H(H5Pclose(alone));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct run run = parse(argc, argv);
    if (run.write) write_file(run.path, run.leave_open);
    if (run.read) read_file(run.path);
    unsigned v[3];
    char version[40];
    H(H5get_libversion(&v[0], &v[1], &v[2]));
    snprintf(version, sizeof version, "HDF5 %u.%u.%u", v[0], v[1], v[2]);
    int code = report("hdf5", version);
    MPI_Finalize();
    return code;
}
