/* Error handlers of files.
 *
 * They are kept here, because the MPI library does not know the file. The handler of MPI_FILE_NULL stays with the MPI
 * library: new files inherit it, and calls without a file raise their errors through it.
 */
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

__thread bool called_from_fortran;

/* User functions by the handle the MPI library gave them. A handle given out again replaces its entry. */
#define MAX_HANDLERS 1024
static struct handler known[MAX_HANDLERS];
static unsigned known_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void handler_remember(MPI_Errhandler handle, MPI_File_errhandler_function *function, bool fortran) {
    pthread_mutex_lock(&lock);
    unsigned at = 0;
    while (at < known_count && known[at].handle != handle)
        at++;
    if (at == MAX_HANDLERS)
        fprintf(stderr, "penstock: more than %d error handlers for files; the newest will not be called\n",
                MAX_HANDLERS);
    else {
        known[at] = (struct handler){handle, function, fortran};
        if (at == known_count)
            known_count++;
    }
    pthread_mutex_unlock(&lock);
}

static struct handler look_up(MPI_Errhandler handle) {
    struct handler found = {handle, NULL, false};
    pthread_mutex_lock(&lock);
    for (unsigned at = 0; at < known_count; at++)
        if (known[at].handle == handle)
            found = known[at];
    pthread_mutex_unlock(&lock);
    return found;
}

/* Another reference to an error handler. MPI has no call for it, but getting the handler of MPI_FILE_NULL gives
 * one. Returns the MPI library's code if it refuses the handler. */
static int share(MPI_Errhandler handle, MPI_Errhandler *shared) {
    MPI_Errhandler before;
    pthread_mutex_lock(&lock);
    int code = REAL(File_get_errhandler)(MPI_FILE_NULL, &before);
    if (code == MPI_SUCCESS) {
        code = REAL(File_set_errhandler)(MPI_FILE_NULL, handle);
        if (code == MPI_SUCCESS)
            code = REAL(File_get_errhandler)(MPI_FILE_NULL, shared);
        REAL(File_set_errhandler)(MPI_FILE_NULL, before);
        REAL(Errhandler_free)(&before);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void handler_inherit(struct handler *handler) {
    MPI_Errhandler inherited = MPI_ERRORS_RETURN;
    REAL(File_get_errhandler)(MPI_FILE_NULL, &inherited);
    *handler = look_up(inherited);
}

void handler_drop(struct handler *handler) {
    if (handler->handle != MPI_ERRHANDLER_NULL && mpi_usable())
        REAL(Errhandler_free)(&handler->handle);
}

static bool aborts(MPI_Errhandler handle) {
    if (handle == MPI_ERRORS_ARE_FATAL)
        return true;
#if MPI_VERSION >= 4
    if (handle == MPI_ERRORS_ABORT)
        return true;
#endif
    return false;
}

/* Calls the file's handler with a code, which it may change. */
static int call_handler(struct file *file, int code) {
    const struct handler *handler = &file->handler;
    if (handler->function && handler->fortran) {
        /* Fortran passes the file as an integer, by reference, and expects nothing after the code. */
        int number = fortran_number(file->handle);
        void (*function)(int *, int *) = (void (*)(int *, int *))(void *)handler->function;
        function(&number, &code);
    } else if (handler->function) {
        MPI_File handle = file->handle;
        handler->function(&handle, &code);
    } else if (aborts(handler->handle)) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int length;
        shim_Error_string(code, text, &length);
        fprintf(stderr, "penstock: fatal error on a file, whose error handler is MPI_ERRORS_ARE_FATAL: %s\n", text);
        /* A launcher may drop what it has not passed on yet when the abort reaches it. */
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
        REAL(Abort)(MPI_COMM_WORLD, code);
        /* MPICH's launcher ends the process, but may take a while. */
        _exit(1);
    }
    return code;
}

int finish(struct file *file, int pst_class) {
    if (pst_class == PST_OK)
        return MPI_SUCCESS;
    return call_handler(file, code_of_class(pst_class));
}

int finish_null(int pst_class) {
    if (pst_class == PST_OK)
        return MPI_SUCCESS;
    int code = code_of_class(pst_class);
    MPI_Errhandler handle;
    if (REAL(File_get_errhandler)(MPI_FILE_NULL, &handle) == MPI_SUCCESS) {
        struct handler handler = look_up(handle);
        struct file none = {.handler = handler, .handle = MPI_FILE_NULL};
        code = call_handler(&none, code);
        handler_drop(&handler);
    }
    return code;
}

int closed_handle(const char *call) {
    return finish_null(describe(PST_ERR_FILE, "%s: the file of this handle is closed", call));
}

int shim_File_create_errhandler(MPI_File_errhandler_function *function, MPI_Errhandler *errhandler) {
    int code = REAL(File_create_errhandler)(function, errhandler);
    if (code == MPI_SUCCESS)
        handler_remember(*errhandler, function, called_from_fortran);
    return code;
}

int shim_File_set_errhandler(MPI_File fh, MPI_Errhandler errhandler) {
    FILE_OR_FORWARD(File_set_errhandler, (fh, errhandler));
    MPI_Errhandler shared;
    int code = share(errhandler, &shared);
    if (code != MPI_SUCCESS)
        return code;
    handler_drop(&file->handler);
    file->handler = look_up(shared);
    return MPI_SUCCESS;
}

int shim_File_get_errhandler(MPI_File fh, MPI_Errhandler *errhandler) {
    FILE_OR_FORWARD(File_get_errhandler, (fh, errhandler));
    return share(file->handler.handle, errhandler);
}

int shim_File_call_errhandler(MPI_File fh, int code) {
    FILE_OR_FORWARD(File_call_errhandler, (fh, code));
    call_handler(file, code);
    return MPI_SUCCESS;
}
