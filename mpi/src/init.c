/* Start and end of the MPI program.
 *
 * Nonblocking accesses are completed by a thread of the library, which needs MPI_THREAD_MULTIPLE: the program gets
 * that level even if it asks for less (MPI lets the library give more than was asked for). Where the MPI library
 * gives less, nonblocking accesses complete before they return.
 */
#include "shim.h"

static bool finalized;

bool mpi_usable(void) {
    return !__atomic_load_n(&finalized, __ATOMIC_ACQUIRE);
}

bool threads_allowed(void) {
    /* Constant once MPI is initialized; not asked in the sessions model, where there is no level of the process. */
    static int known;
    if (!known) {
        int initialized = 0, level = MPI_THREAD_SINGLE;
        if (REAL(Initialized)(&initialized) == MPI_SUCCESS && initialized)
            REAL(Query_thread)(&level);
        known = level == MPI_THREAD_MULTIPLE ? 2 : 1;
    }
    return known == 2;
}

int shim_Init(int *argc, char ***argv) {
    int provided;
    return REAL(Init_thread)(argc, argv, MPI_THREAD_MULTIPLE, &provided);
}

int shim_Init_thread(int *argc, char ***argv, int required, int *provided) {
    return REAL(Init_thread)(argc, argv, required > MPI_THREAD_MULTIPLE ? required : MPI_THREAD_MULTIPLE, provided);
}

int shim_Finalize(void) {
    int rank = 0;
    files_close_all();
    REAL(Comm_rank)(MPI_COMM_WORLD, &rank);
    pst_finish(rank);
    types_release();
    __atomic_store_n(&finalized, true, __ATOMIC_RELEASE);
    return REAL(Finalize)();
}
