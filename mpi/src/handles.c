/* MPI_File handles of ours.
 *
 * A handle is an address inside `space`, which stores nothing. So no handle of the MPI library can equal one of ours,
 * and telling them apart reads no memory that may have been freed. A closed handle stays ours and is reused as late as
 * possible: a use after close is an error and not another file. The Fortran number of a handle is its index in the
 * space, above all numbers that MPI libraries give.
 */
#include "shim.h"

#include <pthread.h>

/* Open files of one process. */
#define MAX_FILES 65536
#define SPACING 16
#define FORTRAN_BASE 0x50000000

static char space[MAX_FILES * SPACING];
static struct file *files[MAX_FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned next_index;
static uint64_t next_serial;

static bool index_of(MPI_File handle, unsigned *index) {
    uintptr_t distance = (uintptr_t)handle - (uintptr_t)space;
    if (distance >= sizeof space || distance % SPACING)
        return false;
    *index = (unsigned)(distance / SPACING);
    return true;
}

int handle_new(struct file *file) {
    pthread_mutex_lock(&lock);
    for (unsigned tried = 0; tried < MAX_FILES; tried++) {
        unsigned index = next_index;
        next_index = (next_index + 1) % MAX_FILES;
        if (files[index])
            continue;
        file->handle = (MPI_File)(void *)(space + (size_t)index * SPACING);
        file->serial = next_serial++;
        __atomic_store_n(&files[index], file, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
        return PST_OK;
    }
    pthread_mutex_unlock(&lock);
    return describe(PST_ERR_NO_MEM, "MPI_File_open: this process has %d files open, the most there can be; "
                    "close some", MAX_FILES);
}

void handle_free(MPI_File handle) {
    unsigned index;
    if (index_of(handle, &index))
        __atomic_store_n(&files[index], NULL, __ATOMIC_RELEASE);
}

struct file *handle_file(MPI_File handle) {
    unsigned index;
    return index_of(handle, &index) ? __atomic_load_n(&files[index], __ATOMIC_ACQUIRE) : NULL;
}

bool handle_ours(MPI_File handle) {
    unsigned index;
    return index_of(handle, &index);
}

struct file *handle_first(void) {
    struct file *first = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned index = 0; index < MAX_FILES; index++)
        if (files[index] && (!first || files[index]->serial < first->serial))
            first = files[index];
    pthread_mutex_unlock(&lock);
    return first;
}

static int number_of(MPI_File handle) {
    unsigned index;
    return index_of(handle, &index) ? FORTRAN_BASE + (int)index : 0;
}

static MPI_File handle_of(int number) {
    if (number < FORTRAN_BASE || number >= FORTRAN_BASE + MAX_FILES)
        return NULL;
    return (MPI_File)(void *)(space + (size_t)(number - FORTRAN_BASE) * SPACING);
}

int fortran_number(MPI_File handle) {
#ifdef PENSTOCK_STANDARD_ABI
    return shim_File_toint(handle);
#else
    return shim_File_c2f(handle);
#endif
}

MPI_Fint shim_File_c2f(MPI_File fh) {
    int number = number_of(fh);
    return number ? number : REAL(File_c2f)(fh);
}

MPI_File shim_File_f2c(MPI_Fint number) {
    MPI_File handle = handle_of(number);
    return handle ? handle : REAL(File_f2c)(number);
}

int shim_File_toint(MPI_File fh) {
    int number = number_of(fh);
    return number ? number : REAL(File_toint)(fh);
}

MPI_File shim_File_fromint(int number) {
    MPI_File handle = handle_of(number);
    return handle ? handle : REAL(File_fromint)(number);
}
