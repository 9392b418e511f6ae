/* What is known of this process: whether MPI can be called, and by how many threads; its rank and its world. Start and end
 * (init.c) say so, and everything else asks. */
#include "shim.h"

/* What was counted is written under this rank: that in MPI_COMM_WORLD, or in the last file's communicator. */
static int counted_under;
static bool ended;

bool mpi_usable(void) {
    return !__atomic_load_n(&ended, __ATOMIC_ACQUIRE);
}

void mpi_ends(void) {
    __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
}

void mpi_begins_again(void) {
    __atomic_store_n(&ended, false, __ATOMIC_RELEASE);
}

void process_is(int rank) {
    __atomic_store_n(&counted_under, rank, __ATOMIC_RELAXED);
}

int process_rank(void) {
    return __atomic_load_n(&counted_under, __ATOMIC_RELAXED);
}

void process_world(void) {
    static bool told;
    if (__atomic_load_n(&told, __ATOMIC_ACQUIRE))
        return;
    int initialized = 0, ranks = 0;
    /* The sessions model has no world to ask. */
    if (REAL(Initialized)(&initialized) != MPI_SUCCESS || !initialized)
        return;
    if (REAL(Comm_size)(MPI_COMM_WORLD, &ranks) == MPI_SUCCESS)
        pst_world(ranks);
    __atomic_store_n(&told, true, __ATOMIC_RELEASE);
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
