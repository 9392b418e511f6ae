/* Error codes and their messages.
 *
 * A call that fails returns the error class itself as its code. So a comparison with MPI_ERR_NO_SUCH_FILE,
 * MPI_Error_class and every other use work without help from the MPI library. MPI_Error_string of a class gives the
 * message of our last error of that class.
 */
#include "shim.h"

#include <stdio.h>

#define CLASSES(X)                                                                                                \
    X(BUFFER) X(COUNT) X(TYPE) X(COMM) X(ARG) X(REQUEST) X(OTHER) X(INTERN) X(ACCESS) X(AMODE) X(BAD_FILE)        \
    X(CONVERSION) X(DUP_DATAREP) X(FILE_EXISTS) X(FILE_IN_USE) X(FILE) X(INFO_KEY) X(INFO_VALUE) X(INFO) X(IO)    \
    X(NO_MEM) X(NOT_SAME) X(NO_SPACE) X(NO_SUCH_FILE) X(QUOTA) X(READ_ONLY) X(UNSUPPORTED_DATAREP)                \
    X(UNSUPPORTED_OPERATION)

int code_of_class(int pst_class) {
    switch (pst_class) {
    case PST_OK:
        return MPI_SUCCESS;
#define X(name)          \
    case PST_ERR_##name: \
        return MPI_ERR_##name;
        CLASSES(X)
#undef X
    default:
        return MPI_ERR_OTHER;
    }
}

/* Our class of the ABI's code, or PST_OK. */
static int class_of_code(int code) {
#define X(name)               \
    if (code == MPI_ERR_##name) \
        return PST_ERR_##name;
    CLASSES(X)
#undef X
    return PST_OK;
}

int describe(int pst_class, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    pst_set_message(pst_class, message);
    return pst_class;
}

int shim_Error_string(int code, char *string, int *length) {
    int pst_class = class_of_code(code);
    size_t found = pst_class ? pst_message(pst_class, string, MPI_MAX_ERROR_STRING) : 0;
    if (!found)
        return REAL(Error_string)(code, string, length);
    *length = (int)found;
    return MPI_SUCCESS;
}
