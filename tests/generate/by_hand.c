/* What a person writes for the four patterns: `by_hand PATTERN FILE` writes the file that the generated programs have to make.
 * Compiled for one level each: -DMPIIO, -DPNETCDF, -DHDF5, -DNETCDF4. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef PNETCDF
#include <pnetcdf.h>
#endif
#ifdef HDF5
#include <hdf5.h>
#endif
#ifdef NETCDF4
#include <netcdf.h>
#include <netcdf_par.h>
#endif

static void fail(const char *what)
{
    fprintf(stderr, "failed: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int code, const char *what)
{
    if (code != 0) fail(what);
}

int main(int argc, char **argv)
{
    int rank, ranks, n;
    const char *name = "u", **names;
    static const char *yx[] = {"y", "x"}, *x[] = {"x"}, *zyx[] = {"z", "y", "x"};
    static const char *flash[] = {"variable", "block", "z", "y", "x"};
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Offset shape[5], start[5] = {0}, count[5], stride[5] = {1, 1, 1, 1, 1};
    if (!strcmp(argv[1], "block")) {
        n = 2, names = yx;
        shape[0] = 3 * ranks, shape[1] = 7, start[0] = 3 * rank, count[0] = 3, count[1] = 7;
    } else if (!strcmp(argv[1], "strided")) {
        n = 1, names = x;
        shape[0] = 11 * ranks, start[0] = rank, count[0] = 11, stride[0] = ranks;
    } else if (!strcmp(argv[1], "guards")) {
        n = 3, names = zyx;
        shape[0] = ranks / 2 * 3, shape[1] = 8, shape[2] = 5;
        start[0] = rank / 2 * 3, start[1] = rank % 2 * 4, count[0] = 3, count[1] = 4, count[2] = 5;
    } else {
        n = 5, names = flash, name = "unk";
        shape[0] = 5, shape[1] = 3 * ranks, shape[2] = shape[3] = shape[4] = 4;
        start[1] = 3 * rank, count[0] = 5, count[1] = 3, count[2] = count[3] = count[4] = 4;
    }
    /* The elements without gaps, in the order of the file. */
    long all = 1;
    for (int k = 0; k < n; k++) all *= (long)count[k];
    double *u = (double *)malloc((size_t)all * sizeof *u);
    for (long e = 0; e < all; e++) {
        long rest = e, at = 0, index[5];
        for (int k = n - 1; k >= 0; k--) index[k] = rest % (long)count[k], rest /= (long)count[k];
        for (int k = 0; k < n; k++) at = at * (long)shape[k] + (long)start[k] + index[k] * (long)stride[k];
        u[e] = (double)at + 0.5;
    }
#ifdef MPIIO
    (void)name, (void)names;
    MPI_Datatype view;
    if (stride[0] > 1) {
        check(MPI_Type_vector((int)count[0], 1, ranks, MPI_DOUBLE, &view), "vector");
    } else {
        int sizes[5], sub[5], first[5];
        for (int k = 0; k < n; k++) sizes[k] = (int)shape[k], sub[k] = (int)count[k], first[k] = (int)start[k];
        check(MPI_Type_create_subarray(n, sizes, sub, first, MPI_ORDER_C, MPI_DOUBLE, &view), "subarray");
    }
    check(MPI_Type_commit(&view), "commit");
    MPI_File file;
    check(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), "open");
    MPI_Offset at = stride[0] > 1 ? rank * (MPI_Offset)sizeof(double) : 0;
    check(MPI_File_set_view(file, at, MPI_DOUBLE, view, "native", MPI_INFO_NULL), "set_view");
    check(MPI_File_write_at_all(file, 0, u, (int)all, MPI_DOUBLE, MPI_STATUS_IGNORE), "write");
    check(MPI_File_close(&file), "close");
    MPI_Type_free(&view);
#endif
#ifdef PNETCDF
    int file, variable, dims[5];
    check(ncmpi_create(MPI_COMM_WORLD, argv[2], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file), "create");
    /* In the order of the declarations: the Fortran templates declare the fastest dimension first. */
    const int backwards = getenv("BACKWARDS") != NULL;
    for (int k = 0; k < n; k++) {
        int d = backwards ? n - 1 - k : k;
        check(ncmpi_def_dim(file, names[d], shape[d], &dims[d]), "def_dim");
    }
    check(ncmpi_def_var(file, name, NC_DOUBLE, n, dims, &variable), "def_var");
    check(ncmpi_enddef(file), "enddef");
    check(ncmpi_put_vars_double_all(file, variable, start, count, stride, u), "put");
    check(ncmpi_close(file), "close");
#endif
#ifdef HDF5
    (void)names;
    hsize_t sizes[5], first[5], many[5], every[5];
    for (int k = 0; k < n; k++) {
        sizes[k] = (hsize_t)shape[k], first[k] = (hsize_t)start[k];
        many[k] = (hsize_t)count[k], every[k] = (hsize_t)stride[k];
    }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER);
    check(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) < 0, "fapl");
    check(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE) < 0, "dxpl");
    hid_t file = H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, access), space = H5Screate_simple(n, sizes, NULL);
    hid_t set = H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t memory = H5Screate_simple(n, many, NULL);
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, first, every, many, NULL) < 0, "select");
    check(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, u) < 0, "write");
    check(H5Sclose(memory) < 0 || H5Dclose(set) < 0 || H5Sclose(space) < 0, "close");
    check(H5Fclose(file) < 0 || H5Pclose(transfer) < 0 || H5Pclose(access) < 0, "close");
#endif
#ifdef NETCDF4
    int file, variable, dims[5];
    size_t first[5], many[5];
    ptrdiff_t every[5];
    check(nc_create_par(argv[2], NC_NETCDF4 | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &file), "create");
    for (int k = 0; k < n; k++) {
        check(nc_def_dim(file, names[k], (size_t)shape[k], &dims[k]), "def_dim");
        first[k] = (size_t)start[k], many[k] = (size_t)count[k], every[k] = (ptrdiff_t)stride[k];
    }
    check(nc_def_var(file, name, NC_DOUBLE, n, dims, &variable), "def_var");
    check(nc_enddef(file), "enddef");
    check(nc_var_par_access(file, variable, NC_COLLECTIVE), "par_access");
    check(nc_put_vars_double(file, variable, first, many, every, u), "put");
    check(nc_close(file), "close");
#endif
    free(u);
    MPI_Finalize();
    return 0;
}
