/* Data accesses: 24 blocking, nonblocking and split calls in two widths of count, which all become a pst_access. */
#include "shim.h"

#include <limits.h>

/* Fills in an access and decodes its datatype. On an error the access carries it, so that it is raised on all ranks of
 * a collective call. access->type must be freed. */
static void prepare(struct file *file, struct pst_access *access, MPI_Count count, MPI_Datatype type,
                    struct conversion **conversion) {
    *conversion = NULL;
    pst_type *decoded = NULL;
    int error = PST_OK;
    if (count < 0)
        error = describe(PST_ERR_COUNT, "a count of %lld is negative", (long long)count);
    if (!error)
        error = type_decode_committed(type, NULL, &decoded);
    access->count = (uint64_t)count;
    access->type = decoded;
    if (!error && file->datarep)
        error = conversion_new(file->datarep, access, type, conversion);
    if (!error)
        return;
    pst_type_free((pst_type *)access->type);
    access->count = 0;
    access->buffer = NULL;
    type_decode(MPI_BYTE, NULL, &decoded);
    access->type = decoded;
    access->error = error;
}

static int blocking(struct file *file, struct pst_access access, MPI_Count count, MPI_Datatype type,
                    MPI_Status *status) {
    struct conversion *conversion;
    uint64_t bytes = 0;
    prepare(file, &access, count, type, &conversion);
    int error = pst_file_access(file->file, &access, &bytes);
    pst_type_free((pst_type *)access.type);
    if (conversion)
        error = conversion_finish(conversion, error, &bytes);
    status_set(status, bytes);
    return finish(file, error);
}

static int nonblocking(struct file *file, struct pst_access access, MPI_Count count, MPI_Datatype type,
                       MPI_Request *out) {
    struct request *request;
    struct conversion *conversion;
    prepare(file, &access, count, type, &conversion);
    int error = access.error && !access.collective ? access.error : request_new(file, &request, out);
    if (!error) {
        if (conversion)
            request_converts(request, conversion);
        uint64_t bytes = 0;
        bool queued = threads_allowed();
        int outcome = queued ? pst_file_start(file->file, &access, request_complete, request)
                             : pst_file_access(file->file, &access, &bytes);
        /* The request exists already: it also tells why the access could not start. */
        if (!queued || outcome)
            request_complete(request, outcome, bytes);
    } else if (conversion) {
        uint64_t bytes = 0;
        conversion_finish(conversion, error, &bytes);
        *out = MPI_REQUEST_NULL;
    } else
        *out = MPI_REQUEST_NULL;
    pst_type_free((pst_type *)access.type);
    return finish(file, error);
}

static int begin(struct file *file, struct pst_access access, MPI_Count count, MPI_Datatype type) {
    struct conversion *conversion;
    prepare(file, &access, count, type, &conversion);
    int error = pst_file_begin(file->file, &access);
    pst_type_free((pst_type *)access.type);
    if (!error)
        file->split = conversion;
    else if (conversion) {
        uint64_t bytes = 0;
        conversion_finish(conversion, error, &bytes);
    }
    return finish(file, error);
}

static int end(struct file *file, int direction, int where, MPI_Status *status) {
    uint64_t bytes = 0;
    int error = pst_file_end(file->file, direction, where, &bytes);
    if (error != PST_ERR_REQUEST) {
        if (file->split)
            error = conversion_finish(file->split, error, &bytes);
        file->split = NULL;
    }
    status_set(status, bytes);
    return finish(file, error);
}

/* ---- The functions ------------------------------------------------------------------------------------------ */

#define ACCESS(direction_, where_, collective_, offset_) \
    ((struct pst_access){.direction = direction_,        \
                         .where = where_,                \
                         .collective = collective_,      \
                         .offset = offset_,              \
                         .buffer = (void *)(uintptr_t)buf})

/* Begins a large count function. For a file that is not ours it calls the MPI library's. If that has none and the count
 * allows it, it calls the small count sibling. */
#define FILE_OR_FORWARD_LARGE(name, large, small)          \
    struct file *file = handle_file(fh);                   \
    if (!file && handle_ours(fh))                          \
        return closed_handle("MPI_" #name "_c");           \
    if (!file && FIND(name##_c))                           \
        return FIND(name##_c) large;                       \
    if (!file && (count > INT_MAX || count < INT_MIN))     \
        penstock_missing("PMPI_" #name "_c");              \
    if (!file)                                             \
    return REAL(name) small

/* Each macro below defines one function in both widths; `action` is what it does with a file of ours. */
#define WITH_OFFSET(name, buffer, last_type, last, action)                                                        \
    int shim_##name(MPI_File fh, MPI_Offset offset, buffer buf, int count, MPI_Datatype type, last_type last) {   \
        FILE_OR_FORWARD(name, (fh, offset, buf, count, type, last));                                              \
        return action;                                                                                            \
    }                                                                                                             \
    int shim_##name##_c(MPI_File fh, MPI_Offset offset, buffer buf, MPI_Count count, MPI_Datatype type,           \
                        last_type last) {                                                                         \
        FILE_OR_FORWARD_LARGE(name, (fh, offset, buf, count, type, last),                                         \
                              (fh, offset, buf, (int)count, type, last));                                         \
        return action;                                                                                            \
    }
#define WITHOUT_OFFSET(name, buffer, last_type, last, action)                                                     \
    int shim_##name(MPI_File fh, buffer buf, int count, MPI_Datatype type, last_type last) {                      \
        FILE_OR_FORWARD(name, (fh, buf, count, type, last));                                                      \
        return action;                                                                                            \
    }                                                                                                             \
    int shim_##name##_c(MPI_File fh, buffer buf, MPI_Count count, MPI_Datatype type, last_type last) {            \
        FILE_OR_FORWARD_LARGE(name, (fh, buf, count, type, last), (fh, buf, (int)count, type, last));             \
        return action;                                                                                            \
    }
#define BLOCKING_AT(name, buffer, direction, collective)     \
    WITH_OFFSET(name, buffer, MPI_Status *, status,          \
                blocking(file, ACCESS(direction, PST_AT, collective, offset), count, type, status))
#define NONBLOCKING_AT(name, buffer, direction, collective)  \
    WITH_OFFSET(name, buffer, MPI_Request *, request,        \
                nonblocking(file, ACCESS(direction, PST_AT, collective, offset), count, type, request))
#define BLOCKING(name, buffer, direction, where, collective) \
    WITHOUT_OFFSET(name, buffer, MPI_Status *, status,       \
                   blocking(file, ACCESS(direction, where, collective, 0), count, type, status))
#define NONBLOCKING(name, buffer, direction, where, collective) \
    WITHOUT_OFFSET(name, buffer, MPI_Request *, request,        \
                   nonblocking(file, ACCESS(direction, where, collective, 0), count, type, request))
#define BEGIN_AT(name, buffer, direction)                                                                         \
    int shim_##name(MPI_File fh, MPI_Offset offset, buffer buf, int count, MPI_Datatype type) {                   \
        FILE_OR_FORWARD(name, (fh, offset, buf, count, type));                                                    \
        return begin(file, ACCESS(direction, PST_AT, 1, offset), count, type);                                    \
    }                                                                                                             \
    int shim_##name##_c(MPI_File fh, MPI_Offset offset, buffer buf, MPI_Count count, MPI_Datatype type) {         \
        FILE_OR_FORWARD_LARGE(name, (fh, offset, buf, count, type), (fh, offset, buf, (int)count, type));         \
        return begin(file, ACCESS(direction, PST_AT, 1, offset), count, type);                                    \
    }
#define BEGIN(name, buffer, direction, where)                                                                     \
    int shim_##name(MPI_File fh, buffer buf, int count, MPI_Datatype type) {                                      \
        FILE_OR_FORWARD(name, (fh, buf, count, type));                                                            \
        return begin(file, ACCESS(direction, where, 1, 0), count, type);                                          \
    }                                                                                                             \
    int shim_##name##_c(MPI_File fh, buffer buf, MPI_Count count, MPI_Datatype type) {                            \
        FILE_OR_FORWARD_LARGE(name, (fh, buf, count, type), (fh, buf, (int)count, type));                         \
        return begin(file, ACCESS(direction, where, 1, 0), count, type);                                          \
    }
#define END(name, buffer, direction, where)                     \
    int shim_##name(MPI_File fh, buffer buf, MPI_Status *status) { \
        FILE_OR_FORWARD(name, (fh, buf, status));               \
        return end(file, direction, where, status);             \
    }

typedef void *into;
typedef const void *from;

BLOCKING_AT(File_read_at, into, PST_READ, 0)
BLOCKING_AT(File_read_at_all, into, PST_READ, 1)
BLOCKING_AT(File_write_at, from, PST_WRITE, 0)
BLOCKING_AT(File_write_at_all, from, PST_WRITE, 1)
NONBLOCKING_AT(File_iread_at, into, PST_READ, 0)
NONBLOCKING_AT(File_iread_at_all, into, PST_READ, 1)
NONBLOCKING_AT(File_iwrite_at, from, PST_WRITE, 0)
NONBLOCKING_AT(File_iwrite_at_all, from, PST_WRITE, 1)

BLOCKING(File_read, into, PST_READ, PST_INDIVIDUAL, 0)
BLOCKING(File_read_all, into, PST_READ, PST_INDIVIDUAL, 1)
BLOCKING(File_write, from, PST_WRITE, PST_INDIVIDUAL, 0)
BLOCKING(File_write_all, from, PST_WRITE, PST_INDIVIDUAL, 1)
NONBLOCKING(File_iread, into, PST_READ, PST_INDIVIDUAL, 0)
NONBLOCKING(File_iread_all, into, PST_READ, PST_INDIVIDUAL, 1)
NONBLOCKING(File_iwrite, from, PST_WRITE, PST_INDIVIDUAL, 0)
NONBLOCKING(File_iwrite_all, from, PST_WRITE, PST_INDIVIDUAL, 1)

BLOCKING(File_read_shared, into, PST_READ, PST_SHARED, 0)
BLOCKING(File_write_shared, from, PST_WRITE, PST_SHARED, 0)
NONBLOCKING(File_iread_shared, into, PST_READ, PST_SHARED, 0)
NONBLOCKING(File_iwrite_shared, from, PST_WRITE, PST_SHARED, 0)
BLOCKING(File_read_ordered, into, PST_READ, PST_ORDERED, 1)
BLOCKING(File_write_ordered, from, PST_WRITE, PST_ORDERED, 1)

BEGIN_AT(File_read_at_all_begin, into, PST_READ)
BEGIN_AT(File_write_at_all_begin, from, PST_WRITE)
BEGIN(File_read_all_begin, into, PST_READ, PST_INDIVIDUAL)
BEGIN(File_write_all_begin, from, PST_WRITE, PST_INDIVIDUAL)
BEGIN(File_read_ordered_begin, into, PST_READ, PST_ORDERED)
BEGIN(File_write_ordered_begin, from, PST_WRITE, PST_ORDERED)
END(File_read_at_all_end, into, PST_READ, PST_AT)
END(File_write_at_all_end, from, PST_WRITE, PST_AT)
END(File_read_all_end, into, PST_READ, PST_INDIVIDUAL)
END(File_write_all_end, from, PST_WRITE, PST_INDIVIDUAL)
END(File_read_ordered_end, into, PST_READ, PST_ORDERED)
END(File_write_ordered_end, from, PST_WRITE, PST_ORDERED)
