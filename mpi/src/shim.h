/* Inside one ABI's build of the shim. Compiled once per ABI against that ABI's own mpi.h; handles, constants and
 * the size of a status never cross from one build to another. The MPI library is reached through REAL(): nothing
 * here refers to a symbol of a libmpi.
 */
#ifndef SHIM_H
#define SHIM_H

#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "penstock.h"
#include "resolve.h"

#include <stdarg.h>
#include <stdbool.h>

/* ---- The ABI's mpi.h ---------------------------------------------------------------------------------------- */

/* Open MPI's predefined handles are addresses of its variables: look each up once. */
#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, variable) ((type)GLOBAL_ADDRESS(#variable))
#define GLOBAL_ADDRESS(symbol)                   \
    __extension__({                              \
        static void *address;                    \
        address ? address : (address = penstock_variable(symbol)); \
    })
#endif

/* Large count conversion functions came with MPI 4.0. */
typedef int conversion_function_c(void *userbuf, MPI_Datatype type, MPI_Count count, void *filebuf,
                                  MPI_Offset position, void *extra);
/* Open MPI has sessions since version 5; older programs call no function on them. */
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION < 5
typedef struct ompi_instance_t *MPI_Session;
#endif
/* The standard ABI has no Fortran integer in C. */
#ifdef PENSTOCK_STANDARD_ABI
typedef int MPI_Fint;
#endif

/* ---- The MPI library ---------------------------------------------------------------------------------------- */

/* The functions that the shim implements, as implemented here ... */
#define FUNCTION(result, name, parameters, arguments) result shim_##name parameters;
#define FORTRAN(name)
#include "functions.def"
#undef FUNCTION
#undef FORTRAN
/* ... and as the MPI library has them. */
#define FUNCTION(result, name, parameters, arguments) typedef result type_##name parameters;
#define FORTRAN(name)
#include "functions.def"
#undef FUNCTION
#undef FORTRAN

/* Other functions that the shim needs of the MPI library. */
#define NEEDED(name) typedef __typeof__(PMPI_##name) type_##name;
#include "needed.def"
#undef NEEDED
/* Functions that older libraries or headers lack: FIND gives null where there is none. */
typedef int type_Type_get_envelope_c(MPI_Datatype, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int *);
typedef int type_Type_get_contents_c(MPI_Datatype, MPI_Count, MPI_Count, MPI_Count, MPI_Count, int[], MPI_Aint[],
                                     MPI_Count[], MPI_Datatype[]);
typedef int type_Type_get_extent_c(MPI_Datatype, MPI_Count *, MPI_Count *);
typedef int type_Status_set_elements_c(MPI_Status *, MPI_Datatype, MPI_Count);
typedef MPI_Errhandler type_Errhandler_f2c(MPI_Fint);
typedef MPI_Errhandler type_Errhandler_fromint(int);

/* The MPI library's PMPI_name, found once; ends the process if the library has none. */
#define REAL(name) (*(type_##name *)FOUND(name, true))
/* A pointer to it, or null. */
#define FIND(name) ((type_##name *)FOUND(name, false))
#define FOUND(name, must)                       \
    __extension__({                             \
        static void *found;                     \
        real_function(&found, "PMPI_" #name, must); \
    })
void *real_function(void **found, const char *symbol, bool must);

/* ---- Errors (errors.c) and error handlers (handlers.c) ------------------------------------------------------- */

/* Error codes are the classes themselves: valid everywhere, also in the MPI library. */
int code_of_class(int pst_class);
/* Sets the message of a class; returns the class. */
int describe(int pst_class, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct file;
/* Ends a call on a file with an error class (or 0). Calls the file's error handler and returns the code as the
 * handler leaves it: the handler may change it (MPI 4.1, section 9.3.3). */
int finish(struct file *file, int pst_class);
/* The same for calls without an open file, whose error handler is that of MPI_FILE_NULL. */
int finish_null(int pst_class);

/* The error handler of one file. */
struct handler {
    /* Holds a reference, so that MPI_Errhandler_free by the user does not take it away. */
    MPI_Errhandler handle;
    MPI_File_errhandler_function *function;
    bool fortran;
};
/* The one new files get: that of MPI_FILE_NULL. */
void handler_inherit(struct handler *handler);
void handler_drop(struct handler *handler);
/* Records a user function under its handle. */
void handler_remember(MPI_Errhandler handle, MPI_File_errhandler_function *function, bool fortran);
/* While a Fortran wrapper is on the stack of this thread, functions given are Fortran's. */
extern __thread bool called_from_fortran;

/* ---- Datatypes (types.c) and data representations (datarep.c) -------------------------------------------------- */

struct datarep;
/* A counted reference to the decoded type; `rep` null for native, internal and external32. */
int type_decode(MPI_Datatype type, const struct datarep *rep, pst_type **out);
/* The same for accesses and views, which take committed types only. */
int type_decode_committed(MPI_Datatype type, const struct datarep *rep, pst_type **out);
bool type_is_predefined(MPI_Datatype type);
void types_release(void);

/* A representation registered by the program. */
struct datarep {
    char name[MPI_MAX_DATAREP_STRING];
    /* Of each pair at most one is there; none: stored as in memory. */
    MPI_Datarep_conversion_function *read, *write;
    conversion_function_c *read_c, *write_c;
    MPI_Datarep_extent_function *extent;
    void *extra;
};
/* The one of a name, or null. */
const struct datarep *datarep_find(const char *name);
/* Counts basic elements: each is one byte. */
extern const struct datarep datarep_counting;
/* Bytes of one basic element in the representation. */
int datarep_extent(const struct datarep *rep, MPI_Datatype element, uint32_t *extent);

/* ---- Files (file.c, handles.c) --------------------------------------------------------------------------------- */

struct conversion;
struct file {
    pst_file *file;
    MPI_Group group;
    int amode;
    struct handler handler;
    /* The view as the user gave it, for MPI_File_get_view. */
    MPI_Offset displacement;
    MPI_Datatype etype;
    MPI_Datatype filetype;
    char datarep_name[MPI_MAX_DATAREP_STRING];
    const struct datarep *datarep;
    /* What the split collective between begin and end still has to convert. */
    struct conversion *split;
    /* Files are closed in the order they were opened, which is the same on all ranks. */
    uint64_t serial;
    MPI_File handle;
};

/* Gives the file a handle; PST_ERR_NO_MEM when there are too many. */
int handle_new(struct file *file);
void handle_free(MPI_File handle);
/* The file of a handle, or null if the handle is not ours. */
struct file *handle_file(MPI_File handle);
/* Whether the handle is one of ours, open or not. */
bool handle_ours(MPI_File handle);
/* The number of a handle in Fortran, ours or not. */
int fortran_number(MPI_File handle);
/* Begins each function on a file: `file` if the handle is ours, else the MPI library gets the call. */
#define FILE_OR_FORWARD(name, arguments)   \
    struct file *file = handle_file(fh);   \
    if (!file)                             \
    return handle_ours(fh) ? closed_handle("MPI_" #name) : REAL(name) arguments
/* The error of a call on a closed file. */
int closed_handle(const char *call);
/* The open file with the lowest serial, or null. */
struct file *handle_first(void);
/* Closes what the program left open. */
void files_close_all(void);

pst_info *info_from_mpi(MPI_Info info);
int info_to_mpi(const pst_info *info, MPI_Info *out);

/* Takes a duplicate of the communicator. */
int comm_make(MPI_Comm comm, struct pst_comm *out);

/* ---- Accesses in representations of the program (conversion.c) ---------------------------------------------------- */

/* An access whose bytes pass through the program's conversion functions: the library moves the stored bytes between
 * the file and a buffer of its own. */
struct conversion;
/* Prepares the access (its type and buffer become those of the stored bytes). */
int conversion_new(const struct datarep *rep, struct pst_access *access, MPI_Datatype type, struct conversion **out);
/* After the access: converts what was read. `bytes` in: stored bytes moved; out: bytes in the user's memory. */
int conversion_finish(struct conversion *conversion, int pst_class, uint64_t *bytes);

/* ---- Nonblocking accesses (requests.c) ------------------------------------------------------------------------------ */

/* A generalized request under way. */
struct request;
int request_new(struct file *file, struct request **request, MPI_Request *out);
void request_converts(struct request *request, struct conversion *conversion);
/* The pst_done of an access: from any thread; the request must not be used afterwards. */
void request_complete(void *request, int pst_class, uint64_t bytes);
void status_set(MPI_Status *status, uint64_t bytes);

/* ---- The process (process.c) ------------------------------------------------------------------------------------ */

/* Whether requests may be completed by another thread. */
bool threads_allowed(void);
/* Not after MPI_Finalize. */
bool mpi_usable(void);
void mpi_ends(void);
/* With another session. */
void mpi_begins_again(void);
/* The rank under which this process is counted. */
void process_is(int rank);
int process_rank(void);
/* Tells the library the size of MPI_COMM_WORLD, where there is one. */
void process_world(void);

#endif
