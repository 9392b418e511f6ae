/* Calls of MPI-IO, HDF5, PnetCDF and netCDF, reached through stubs.
 *
 * No header of these libraries is needed: arguments are integers and pointers, in registers and on the stack, whatever the
 * version calls their types. What a call moves is asked of the library itself, within the call: size of a datatype, points of a
 * selection, lengths of dimensions. Unknown bytes are 0.
 */
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum shape {
    MPIIO_OPEN, MPIIO_CLOSE, MPIIO_NAME, MPIIO_SIZE, MPIIO_OTHER, MPIIO_AT, MPIIO_DATA, MPIIO_MARK,
    HDF5_FILE, HDF5_CHILD, HDF5_CLOSE, HDF5_OTHER, HDF5_DATA, HDF5_MULTI, HDF5_ATTRIBUTE, HDF5_CHUNK_WRITE,
    PNETCDF_OPEN, PNETCDF_CLOSE, PNETCDF_OTHER, PNETCDF_VAR, PNETCDF_ONE, PNETCDF_SECTION, PNETCDF_SECTIONS, PNETCDF_VARS,
    PNETCDF_ONES, PNETCDF_MANY,
    NETCDF_OPEN, NETCDF_CLOSE, NETCDF_OTHER, NETCDF_VAR, NETCDF_ONE, NETCDF_SECTION,
};

const struct library_function library_functions[] = {
#include "libraries.inc"
};
const unsigned library_count = sizeof library_functions / sizeof library_functions[0];

/* Arguments in registers, and those read from the stack: more than any function of the table has. */
#if defined(__x86_64__)
enum { REGISTERS = 6 };
#else
enum { REGISTERS = 8 };
#endif
enum { ARGUMENTS = 14 };
typedef long function14(long, long, long, long, long, long, long, long, long, long, long, long, long, long);

static long call_on(const struct stub *stub, const long *a) {
    return ((function14 *)stub->real)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
}

static int64_t product(int64_t a, int64_t b) {
    int64_t result;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) ? 0 : result;
}

/* MPI-IO ----------------------------------------------------------------------------------------------------------- */

static int64_t mpi_bytes(struct stub *stub, long count, long type) {
    size_t length = strlen(stub->function->name);
    bool large = length > 2 && strcmp(stub->function->name + length - 2, "_c") == 0;
    int (*size_of)(long, int64_t *) = (int (*)(long, int64_t *))patch_ask(stub, "PMPI_Type_size_x");
    int64_t size = 0;
    if (!size_of || size_of(type, &size) != 0)
        return 0;
    return product(large ? count : (int)count, size);
}

/* A name as MPI_File_open takes it: ROMIO's prefix names a kind of file system, Penstock's a name in its deployment. */
static uint32_t mpi_file(const char *name) {
    static const char own[] = "penstock:";
    if (!name || !process_attached())
        return 0;
    const char *end = name;
    while ((*end >= 'a' && *end <= 'z') || (*end >= '0' && *end <= '9'))
        end++;
    const char *rest = end - name >= 2 && *end == ':' ? end + 1 : name;
    if (settings.direct || strncmp(name, own, sizeof own - 1) != 0)
        return file_named(AT_FDCWD, rest);
    char path[PATH_ROOM] = "/";
    while (*rest == '/')
        rest++;
    size_t length = strnlen(rest, sizeof path - 2);
    memcpy(path + 1, rest, length);
    path[length + 1] = 0;
    return file_of_deployment(path, 0);
}

/* HDF5 ------------------------------------------------------------------------------------------------------------- */

/* Identifiers have 32 bits before 1.10. */
static uint64_t hdf5_id(struct stub *stub, long id) {
    return patch_ask(stub, "H5Dflush") ? (uint64_t)id : (uint32_t)id;
}

static bool hdf5_valid(struct stub *stub, long id) {
    int (*valid)(long) = (int (*)(long))patch_ask(stub, "H5Iis_valid");
    return valid && valid(id) > 0;
}

/* The file of an object; of one that was opened by a call that is not followed, the library knows it. */
static uint32_t hdf5_file(struct stub *stub, long object) {
    uint32_t number = handle_get(LAYER_HDF5, hdf5_id(stub, object));
    if (number != NOT_SEEN)
        return number;
    long (*file_of)(long) = (long (*)(long))patch_ask(stub, "H5Iget_file_id");
    int (*close)(long) = (int (*)(long))patch_ask(stub, "H5Fclose");
    long file = file_of && close && hdf5_valid(stub, object) ? file_of(object) : -1;
    if ((int)file == -1 || !hdf5_valid(stub, file))
        return NOT_SEEN;
    number = handle_get(LAYER_HDF5, hdf5_id(stub, file));
    close(file);
    return number;
}

/* Points of what `get` tells of an object: its data space. */
static int64_t hdf5_points_of(struct stub *stub, const char *get, long object) {
    long (*space_of)(long) = (long (*)(long))patch_ask(stub, get);
    int64_t (*points)(long) = (int64_t(*)(long))patch_ask(stub, "H5Sget_select_npoints");
    int (*close)(long) = (int (*)(long))patch_ask(stub, "H5Sclose");
    if (!space_of || !points || !close || !hdf5_valid(stub, object))
        return 0;
    long space = space_of(object);
    if (!hdf5_valid(stub, space))
        return 0;
    int64_t n = points(space);
    close(space);
    return n;
}

static int64_t hdf5_type_size(struct stub *stub, long type) {
    size_t (*size_of)(long) = (size_t(*)(long))patch_ask(stub, "H5Tget_size");
    return size_of && hdf5_valid(stub, type) ? (int64_t)size_of(type) : 0;
}

/* Selected points of the memory space, or of the file's, or all of the data set. */
static int64_t hdf5_bytes(struct stub *stub, long set, long type, long memory, long file) {
    int64_t (*points)(long) = (int64_t(*)(long))patch_ask(stub, "H5Sget_select_npoints");
    long space = (int)memory ? memory : file;
    int64_t n = !points ? 0 : (int)space == 0 ? hdf5_points_of(stub, "H5Dget_space", set)
              : hdf5_valid(stub, space)       ? points(space)
                                              : 0;
    return product(n, hdf5_type_size(stub, type));
}

/* netCDF and PnetCDF: the same questions, with other names --------------------------------------------------------- */

enum { DIMENSIONS = 1024 };

static void *grid_ask(struct stub *stub, const char *name) {
    char full[64] = "nc_";
    if (stub->function->layer == LAYER_PNETCDF)
        memcpy(full, "ncmpi_", 7);
    strncat(full, name, sizeof full - strlen(full) - 1);
    return patch_ask(stub, full);
}

/* Bytes of one element in the file. */
static int64_t grid_size(struct stub *stub, int id, int variable) {
    static const uint8_t sizes[] = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8, 8};
    int (*type_of)(int, int, int *) = (int (*)(int, int, int *))grid_ask(stub, "inq_vartype");
    int type = 0;
    if (!type_of || type_of(id, variable, &type) != 0 || type < 0 || type >= (int)sizeof sizes)
        return 0;
    return sizes[type];
}

static int grid_dimensions(struct stub *stub, int id, int variable) {
    int (*dimensions_of)(int, int, int *) = (int (*)(int, int, int *))grid_ask(stub, "inq_varndims");
    int n = -1;
    return dimensions_of && dimensions_of(id, variable, &n) == 0 && n <= DIMENSIONS ? n : -1;
}

static int64_t grid_section(struct stub *stub, int id, int variable, const int64_t *counts) {
    int n = grid_dimensions(stub, id, variable);
    int64_t elements = n < 0 || (n && !counts) ? 0 : 1;
    for (int i = 0; i < n && counts; i++)
        elements = product(elements, counts[i]);
    return product(elements, grid_size(stub, id, variable));
}

static int64_t grid_all(struct stub *stub, int id, int variable) {
    int (*ids_of)(int, int, int *) = (int (*)(int, int, int *))grid_ask(stub, "inq_vardimid");
    int (*length_of)(int, int, int64_t *) = (int (*)(int, int, int64_t *))grid_ask(stub, "inq_dimlen");
    int n = grid_dimensions(stub, id, variable), ids[DIMENSIONS];
    if (n < 0 || !ids_of || !length_of || ids_of(id, variable, ids) != 0)
        return 0;
    int64_t elements = 1;
    for (int i = 0; i < n; i++) {
        int64_t length = 0;
        if (length_of(id, ids[i], &length) != 0)
            return 0;
        elements = product(elements, length);
    }
    return product(elements, grid_size(stub, id, variable));
}

/* Of netCDF the upper half names the file, the lower a group in it. */
static uint64_t grid_handle(const struct stub *stub, long id) {
    uint32_t number = (uint32_t)id;
    return stub->function->layer == LAYER_NETCDF && number >> 16 ? number & 0xffff0000u : number;
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* What a call says of its file before it is made. */
static uint32_t file_before(struct stub *stub, const long *a) {
    const struct library_function *f = stub->function;
    switch ((enum shape)f->shape) {
    case MPIIO_MARK: return 0;
    case MPIIO_OPEN: return mpi_file((const char *)a[1]);
    case MPIIO_NAME: return mpi_file((const char *)a[0]);
    case MPIIO_CLOSE: return a[0] ? handle_get(LAYER_MPIIO, *(const uint64_t *)a[0]) : 0;
    case MPIIO_SIZE: case MPIIO_OTHER: case MPIIO_AT: case MPIIO_DATA: return handle_get(LAYER_MPIIO, (uint64_t)a[0]);
    case HDF5_FILE: return file_named(AT_FDCWD, (const char *)a[f->one]);
    case HDF5_MULTI: return (size_t)a[f->one] && a[f->one + 1] ? hdf5_file(stub, *(const long *)a[f->one + 1]) : 0;
    case HDF5_CHILD: case HDF5_CLOSE: case HDF5_OTHER: case HDF5_DATA: case HDF5_ATTRIBUTE: case HDF5_CHUNK_WRITE:
        return hdf5_file(stub, a[f->one]);
    case PNETCDF_OPEN: case NETCDF_OPEN: return file_named(AT_FDCWD, (const char *)a[f->one]);
    default: return handle_get((enum layer)f->layer, grid_handle(stub, a[0]));
    }
}

/* Bytes that the call moves, asked before it is made. */
static int64_t bytes_of(struct stub *stub, const long *a) {
    const struct library_function *f = stub->function;
    const long *b = a + f->one;
    int64_t sum = 0;
    switch ((enum shape)f->shape) {
    case MPIIO_AT: return mpi_bytes(stub, a[3], a[4]);
    case MPIIO_DATA: return mpi_bytes(stub, a[2], a[3]);
    case HDF5_DATA: return hdf5_bytes(stub, b[0], b[1], b[2], b[3]);
    case HDF5_ATTRIBUTE: return product(hdf5_points_of(stub, "H5Aget_space", b[0]), hdf5_type_size(stub, b[1]));
    case HDF5_CHUNK_WRITE: return b[4];
    case HDF5_MULTI:
        for (size_t i = 0; i < (size_t)b[0] && b[1] && b[2] && b[3] && b[4]; i++)
            sum += hdf5_bytes(stub, ((const long *)b[1])[i], ((const long *)b[2])[i], ((const long *)b[3])[i], ((const long *)b[4])[i]);
        return sum;
    case PNETCDF_VAR: case NETCDF_VAR: return grid_all(stub, (int)a[0], (int)a[1]);
    case PNETCDF_ONE: case NETCDF_ONE: return grid_size(stub, (int)a[0], (int)a[1]);
    case PNETCDF_SECTION: case NETCDF_SECTION: return grid_section(stub, (int)a[0], (int)a[1], (const int64_t *)a[3]);
    case PNETCDF_SECTIONS:
        for (int i = 0; i < (int)a[2]; i++) {
            const int64_t *const *counts = (const int64_t *const *)a[4];
            /* Without counts each piece is one element. */
            sum += counts ? grid_section(stub, (int)a[0], (int)a[1], counts[i]) : grid_size(stub, (int)a[0], (int)a[1]);
        }
        return sum;
    case PNETCDF_VARS: case PNETCDF_ONES: case PNETCDF_MANY:
        for (int i = 0; i < (int)a[1] && a[2]; i++) {
            int variable = ((const int *)a[2])[i];
            const int64_t *const *counts = (const int64_t *const *)a[4];
            sum += f->shape == PNETCDF_VARS   ? grid_all(stub, (int)a[0], variable)
                   : f->shape == PNETCDF_ONES ? grid_size(stub, (int)a[0], variable)
                   : counts                   ? grid_section(stub, (int)a[0], variable, counts[i])
                                              : 0;
        }
        return sum;
    default: return 0;
    }
}

/* Handles that the call made or gave back. */
static void file_after(struct stub *stub, const long *a, uint64_t closed, long result, uint32_t number) {
    const struct library_function *f = stub->function;
    switch ((enum shape)f->shape) {
    case MPIIO_OPEN:
        if ((int)result == 0 && a[4])
            handle_set(LAYER_MPIIO, *(const uint64_t *)a[4], number);
        break;
    case MPIIO_CLOSE:
        if ((int)result == 0)
            handle_set(LAYER_MPIIO, closed, NOT_SEEN);
        break;
    case HDF5_FILE: case HDF5_CHILD:
        if ((int64_t)hdf5_id(stub, result) > 0 && (int)result != -1)
            handle_set(LAYER_HDF5, hdf5_id(stub, result), number);
        break;
    case HDF5_CLOSE: handle_set(LAYER_HDF5, hdf5_id(stub, a[f->one]), NOT_SEEN); break;
    case PNETCDF_OPEN: case NETCDF_OPEN:
        if ((int)result == 0 && a[f->two])
            handle_set((enum layer)f->layer, grid_handle(stub, *(const int *)a[f->two]), number);
        break;
    case PNETCDF_CLOSE: case NETCDF_CLOSE: handle_set((enum layer)f->layer, grid_handle(stub, a[0]), NOT_SEEN); break;
    default: break;
    }
}

static int error_of(struct stub *stub, long result) {
    switch (stub->function->layer) {
    /* HDF5 says no more than that it failed; its class is EIO. */
    case LAYER_HDF5: return (int)result < 0 && (int64_t)hdf5_id(stub, result) != 0 && ((int)result == -1 || result < 0) ? EIO : 0;
    default: return (int)result;
    }
}

long library_call(const long *registers, const long *stack, unsigned number, const void *code) __attribute__((visibility("hidden")));
long library_call(const long *registers, const long *stack, unsigned number, const void *code) {
    struct stub *stub = &stubs[number];
    const struct library_function *f = stub->function;
    long a[ARGUMENTS];
    for (int i = 0; i < ARGUMENTS; i++)
        a[i] = i < REGISTERS ? registers[i] : stack[i - REGISTERS];
    struct call call;
    /* Calls of a library to itself through its own names are parts of the outer one. */
    bool recorded = call_begin(&call, (enum layer)f->layer, f->operation, code, true);
    bool follows = recorded || (settings.on && settings.layers >> f->layer & 1 && process->generation);
    if (!follows)
        return call_on(stub, a);
    int error = errno;
    uint32_t file = file_before(stub, a);
    uint64_t closed = f->shape == MPIIO_CLOSE && a[0] ? *(const uint64_t *)a[0] : 0;
    int64_t bytes = recorded && file != FILE_LEFT_OUT ? bytes_of(stub, a) : 0;
    errno = error;
    long result = call_on(stub, a);
    error = errno;
    if (recorded)
        call_stop(&call);
    file_after(stub, a, closed, result, file);
    if (recorded) {
        bool at = f->shape == MPIIO_AT || f->shape == MPIIO_SIZE;
        /* A mark's level stands in place of an offset. */
        int64_t offset = at ? a[1] : f->shape == MPIIO_MARK ? (int)a[0] : 0;
        call_end(&call, file, offset, bytes, error_of(stub, result));
    }
    errno = error;
    return result;
}
