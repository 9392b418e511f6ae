/* Fortran's MPI_FILE_CREATE_ERRHANDLER.
 *
 * All other Fortran calls reach the C functions through the MPI library's own wrappers. This one is intercepted itself,
 * for two reasons. A Fortran handler takes its arguments in another way than a C handler. Open MPI's wrapper makes the
 * handler without calling the C function. The names differ by compiler and binding, the arguments do not.
 */
#include "shim.h"

static MPI_Errhandler errhandler_of(MPI_Fint number) {
#if defined PENSTOCK_STANDARD_ABI
    return REAL(Errhandler_fromint)(number);
#elif defined MPICH_NUMVERSION
    /* Handles are the same integers in C and Fortran, and older versions convert them in the header only. */
    return (MPI_Errhandler)number;
#else
    return REAL(Errhandler_f2c)(number);
#endif
}

typedef void create_errhandler(MPI_File_errhandler_function *function, MPI_Fint *errhandler, MPI_Fint *error);

static void create(const char *symbol, MPI_File_errhandler_function *function, MPI_Fint *errhandler,
                   MPI_Fint *error) {
    create_errhandler *next = (create_errhandler *)penstock_next(symbol);
    if (!next)
        penstock_missing(symbol);
    bool outer = called_from_fortran;
    called_from_fortran = true;
    next(function, errhandler, error);
    called_from_fortran = outer;
    /* In mpi_f08 the error argument may be absent; a handler that was not made is not called either. */
    if (!error || *error == MPI_SUCCESS)
        handler_remember(errhandler_of(*errhandler), function, true);
}

#define FUNCTION(result, name, parameters, arguments)
#define FORTRAN(name)                                                                                           \
    void shim_##name(MPI_File_errhandler_function *function, MPI_Fint *errhandler, MPI_Fint *error);            \
    void shim_##name(MPI_File_errhandler_function *function, MPI_Fint *errhandler, MPI_Fint *error) {           \
        create(#name, function, errhandler, error);                                                             \
    }
#include "functions.def"
