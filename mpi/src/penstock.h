/* The C interface of Penstock's MPI-IO library (Rust, crates/capi), as the shim uses it.
 *
 * Constants that MPI libraries number differently have the values of the standard ABI here (MPI 5.0, chapter 20). Each
 * ABI's build of the shim translates from its own mpi.h. Functions that can fail return 0 or an error class; the
 * message of the last error of a class is kept by pst_message(). No function keeps a pointer that it is given, except
 * where it says so.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

enum pst_class {
    PST_OK = 0,
    PST_ERR_BUFFER = 1,
    PST_ERR_COUNT = 2,
    PST_ERR_TYPE = 3,
    PST_ERR_COMM = 5,
    PST_ERR_REQUEST = 7,
    PST_ERR_ARG = 13,
    PST_ERR_OTHER = 16,
    PST_ERR_INTERN = 17,
    PST_ERR_ACCESS = 20,
    PST_ERR_AMODE = 21,
    PST_ERR_BAD_FILE = 23,
    PST_ERR_CONVERSION = 25,
    PST_ERR_DISP = 26,
    PST_ERR_DUP_DATAREP = 27,
    PST_ERR_FILE_EXISTS = 28,
    PST_ERR_FILE_IN_USE = 29,
    PST_ERR_FILE = 30,
    PST_ERR_INFO_KEY = 31,
    PST_ERR_INFO_VALUE = 33,
    PST_ERR_INFO = 34,
    PST_ERR_IO = 35,
    PST_ERR_NO_MEM = 39,
    PST_ERR_NOT_SAME = 40,
    PST_ERR_NO_SPACE = 41,
    PST_ERR_NO_SUCH_FILE = 42,
    PST_ERR_QUOTA = 44,
    PST_ERR_READ_ONLY = 45,
    PST_ERR_UNSUPPORTED_DATAREP = 54,
    PST_ERR_UNSUPPORTED_OPERATION = 55,
    PST_CLASSES = 64
};

enum pst_amode {
    PST_MODE_APPEND = 1,
    PST_MODE_CREATE = 2,
    PST_MODE_DELETE_ON_CLOSE = 4,
    PST_MODE_EXCL = 8,
    PST_MODE_RDONLY = 16,
    PST_MODE_RDWR = 32,
    PST_MODE_SEQUENTIAL = 64,
    PST_MODE_UNIQUE_OPEN = 128,
    PST_MODE_WRONLY = 256,
    /* Stands for bits that the ABI does not define. */
    PST_MODE_INVALID = 1 << 30
};

enum pst_whence { PST_SEEK_CUR = 401, PST_SEEK_END = 402, PST_SEEK_SET = 403 };
enum pst_order { PST_ORDER_C = 12, PST_ORDER_FORTRAN = 15 };
enum pst_distribution { PST_DISTRIBUTE_NONE = 16, PST_DISTRIBUTE_BLOCK = 17, PST_DISTRIBUTE_CYCLIC = 18 };
/* A distribution argument that is not given. */
#define PST_DEFAULT_ARGUMENT (-1)

/* Where an access happens. */
enum pst_where { PST_AT = 0, PST_INDIVIDUAL = 1, PST_SHARED = 2, PST_ORDERED = 3 };
enum pst_direction { PST_READ = 0, PST_WRITE = 1 };
enum pst_datarep { PST_NATIVE = 0, PST_INTERNAL = 1, PST_EXTERNAL32 = 2 };

/* What a basic element is, for conversion to external32. */
enum pst_kind { PST_BYTES = 0, PST_SIGNED = 1, PST_UNSIGNED = 2, PST_FLOAT = 3, PST_EXTENDED = 4 };

/* ---- Process ------------------------------------------------------------------------------------------------ */

/* Whether the environment configures Penstock (a deployment or direct mode). Cheap; allocates nothing. */
int pst_configured(void);
/* Whether the file of this name is Penstock's: prefix, mount path, or any in direct mode. */
int pst_owns(const char *name);
/* MPI_COMM_WORLD has so many ranks. Told before the first file is opened or deleted; only the first call counts. */
void pst_world(int ranks);
/* Writes what is counted; `rank` is the rank in MPI_COMM_WORLD. A later call replaces what was written. */
void pst_finish(int rank);
/* The last message of an error class into `out` (always terminated); its length, 0 if there is none. */
size_t pst_message(int error_class, char *out, size_t capacity);
/* Keeps a message of the shim's own. */
void pst_set_message(int error_class, const char *message);

/* ---- Key and value pairs (MPI_Info) ------------------------------------------------------------------------- */

typedef struct pst_info pst_info;
pst_info *pst_info_new(void);
void pst_info_add(pst_info *info, const char *key, const char *value);
int pst_info_count(const pst_info *info);
/* Valid until the object is changed or freed. */
const char *pst_info_key(const pst_info *info, int index);
const char *pst_info_value(const pst_info *info, int index);
void pst_info_free(pst_info *info);

/* ---- Datatypes ---------------------------------------------------------------------------------------------- */

/* One datatype: its bytes as loops, and its elements. Immutable and counted: each pst_type must be freed. */
typedef struct pst_type pst_type;
/* One basic element: `numbers` (2 for complex) values of `memory` bytes, `file` bytes in external32. */
int pst_type_element(int kind, uint32_t memory, uint32_t file, uint32_t numbers, pst_type **out);
int pst_type_contiguous(uint64_t count, const pst_type *child, pst_type **out);
/* Strides and displacements count bytes or the child's extents. */
enum pst_unit { PST_IN_BYTES = 0, PST_IN_EXTENTS = 1 };
int pst_type_vector(uint64_t count, uint64_t length, int64_t stride, int unit, const pst_type *child,
                    pst_type **out);
int pst_type_blocks(uint64_t count, uint64_t length, const int64_t *displacements, int unit, const pst_type *child,
                    pst_type **out);
int pst_type_indexed(uint64_t count, const uint64_t *lengths, const int64_t *displacements, int unit,
                     const pst_type *child, pst_type **out);
/* Displacements in bytes. */
int pst_type_struct(uint64_t count, const uint64_t *lengths, const int64_t *displacements,
                    pst_type *const *children, pst_type **out);
int pst_type_subarray(int dimensions, const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
                      int order, const pst_type *child, pst_type **out);
int pst_type_darray(uint64_t ranks, uint64_t rank, int dimensions, const uint64_t *sizes, const int *distributions,
                    const int64_t *arguments, const uint64_t *process_sizes, int order, const pst_type *child,
                    pst_type **out);
/* As the user asked, in memory and in external32. */
int pst_type_resized(int64_t lower_bound, int64_t extent, const pst_type *child, pst_type **out);
/* As the MPI library pads a struct in memory; external32 keeps its own bounds if its widths differ. */
int pst_type_padded(int64_t lower_bound, int64_t extent, const pst_type *child, pst_type **out);
uint64_t pst_type_size(const pst_type *type);
int64_t pst_type_lower_bound(const pst_type *type);
int64_t pst_type_extent(const pst_type *type);
pst_type *pst_type_share(const pst_type *type);
/* Null is allowed. */
void pst_type_free(pst_type *type);

/* ---- Communicator ------------------------------------------------------------------------------------------- */

/* Longest message between two ranks, and what tell and hear return when the other rank takes or sends none for minutes. */
#define PST_MAX_TOLD 4104
#define PST_SILENT 2
/* The communicator of one open file, as functions over `self`. Each returns 0, or 1 when MPI reports an error.
 * Calls come from one thread at a time, though not always the same. */
struct pst_comm {
    void *self;
    int rank;
    int size;
    int (*barrier)(void *self);
    int (*bcast)(void *self, int root, void *data, uint64_t length);
    /* `length` bytes from every rank, in rank order. */
    int (*allgather)(void *self, const void *mine, uint64_t length, void *all);
    /* lengths[r] bytes from rank r, one after another. */
    int (*allgatherv)(void *self, const void *mine, void *all, const uint64_t *lengths);
    /* `length` bytes from and to every rank. */
    int (*alltoall)(void *self, const void *send, uint64_t length, void *receive);
    /* send_lengths[r] bytes at send[r] to rank r; receive_lengths[r] bytes from rank r to receive[r]. */
    int (*alltoallv)(void *self, const void *const *send, const uint64_t *send_lengths, void *const *receive,
                     const uint64_t *receive_lengths);
    /* `length` bytes to one other rank; copied, so that it need not wait until they are taken. */
    int (*tell)(void *self, int peer, const void *message, uint64_t length);
    /* The next message of one other rank, at most `room` bytes; it says itself how long it is. */
    int (*hear)(void *self, int peer, void *message, uint64_t room);
    void (*release)(void *self);
};

/* ---- Files -------------------------------------------------------------------------------------------------- */

typedef struct pst_file pst_file;
struct pst_open {
    /* Taken over: the file releases it, also when opening fails. */
    struct pst_comm comm;
    const char *name;
    int amode;
    const pst_info *info;
    /* Rank in MPI_COMM_WORLD. */
    int world_rank;
};
/* Collective. */
int pst_file_open(const struct pst_open *how, pst_file **out);
/* Collective; the file is gone afterwards, whatever is returned. */
int pst_file_close(pst_file *file);
int pst_file_delete(const char *name, const pst_info *info);

int pst_file_set_size(pst_file *file, int64_t size);
int pst_file_preallocate(pst_file *file, int64_t size);
int pst_file_size(pst_file *file, int64_t *size);
int pst_file_set_info(pst_file *file, const pst_info *info);
/* The hints in use; the caller frees it. */
int pst_file_info(pst_file *file, pst_info **out);
int pst_file_sync(pst_file *file);
int pst_file_set_atomicity(pst_file *file, int atomic);
int pst_file_atomicity(pst_file *file, int *atomic);
/* In the view's data representation. */
int pst_file_type_extent(pst_file *file, const pst_type *type, int64_t *extent);

/* `displacement` may be PST_DISPLACEMENT_CURRENT. */
#define PST_DISPLACEMENT_CURRENT INT64_MIN
/* What a rank gives whose arguments are invalid: the call fails on every rank. The types may be null. */
#define PST_DISPLACEMENT_INVALID (-2)
int pst_file_set_view(pst_file *file, int64_t displacement, const pst_type *etype, const pst_type *filetype,
                      int datarep, const pst_info *info);
/* Of the view, in bytes. */
int64_t pst_file_displacement(pst_file *file);
/* Offsets in etypes. */
int pst_file_seek(pst_file *file, int64_t offset, int whence);
int pst_file_seek_shared(pst_file *file, int64_t offset, int whence);
int pst_file_position(pst_file *file, int64_t *offset);
int pst_file_position_shared(pst_file *file, int64_t *offset);
int pst_file_byte_offset(pst_file *file, int64_t offset, int64_t *byte);

struct pst_access {
    int direction;
    int where;
    int collective;
    /* In etypes, for PST_AT. */
    int64_t offset;
    void *buffer;
    uint64_t count;
    const pst_type *type;
    /* Not PST_OK: the class of what is wrong with the arguments above, which are then not used. The access fails with
     * it, a collective one on all ranks. */
    int error;
};
/* `bytes` is what was read or written, also when an error is returned. */
int pst_file_access(pst_file *file, const struct pst_access *access, uint64_t *bytes);
/* Returns once the access is queued; `done` is called once, from another thread, when it is complete (not if an
 * error is returned here). The buffer stays the access's own until then. */
typedef void pst_done(void *context, int error_class, uint64_t bytes);
int pst_file_start(pst_file *file, const struct pst_access *access, pst_done *done, void *context);
/* Split collective: begins one (at most one at a time is open on a file); `collective` is implied. */
int pst_file_begin(pst_file *file, const struct pst_access *access);
int pst_file_end(pst_file *file, int direction, int where, uint64_t *bytes);

#endif
