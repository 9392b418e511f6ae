/* Start and end of the MPI program.
 *
 * A thread of the library completes nonblocking accesses, and needs MPI_THREAD_MULTIPLE. The program gets that level
 * even if it asks for less (MPI lets the library give more). Where the MPI library gives less, nonblocking accesses
 * complete before they return.
 *
 * Libraries such as HDF5 close their files in a delete callback of an attribute on MPI_COMM_SELF. MPI_Finalize calls
 * these first, in reverse order of setting (MPI 4.1, section 11.2.4). Our own attribute is set before MPI_Init returns,
 * so it is deleted last. It closes files that are still open, while MPI can still communicate. The sessions model has
 * no MPI_COMM_SELF. There the end of the last session closes what is open; which session a file belongs to cannot be
 * asked.
 */
#include "shim.h"

/* Whether our attribute on MPI_COMM_SELF announces the end. */
static bool announced;
/* Sessions that are open. */
static unsigned sessions;

/* Closes what is open and writes what was counted, while MPI can still communicate. `last`: this process may not call
 * MPI afterwards. */
static void shut_down(bool last) {
    files_close_all();
    pst_finish(process_rank());
    if (last) {
        types_release();
        mpi_ends();
    }
}

/* ---- The world model ------------------------------------------------------------------------------------------ */

static int copy_end(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

static int delete_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    announced = false;
    shut_down(!__atomic_load_n(&sessions, __ATOMIC_ACQUIRE));
    return MPI_SUCCESS;
}

static int begin(int code) {
    if (code != MPI_SUCCESS)
        return code;
    int key, rank = 0;
    REAL(Comm_rank)(MPI_COMM_WORLD, &rank);
    process_is(rank);
    process_world();
    if (REAL(Comm_create_keyval)(copy_end, delete_end, &key, NULL) == MPI_SUCCESS) {
        announced = REAL(Comm_set_attr)(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
        /* The attribute keeps the key alive. */
        REAL(Comm_free_keyval)(&key);
    }
    return MPI_SUCCESS;
}

int shim_Init(int *argc, char ***argv) {
    int provided;
    return begin(REAL(Init_thread)(argc, argv, MPI_THREAD_MULTIPLE, &provided));
}

int shim_Init_thread(int *argc, char ***argv, int required, int *provided) {
    return begin(REAL(Init_thread)(argc, argv, required > MPI_THREAD_MULTIPLE ? required : MPI_THREAD_MULTIPLE,
                                   provided));
}

int shim_Finalize(void) {
    /* Without our attribute, as when MPI was initialized past us, this is the last moment. */
    if (!announced)
        shut_down(!__atomic_load_n(&sessions, __ATOMIC_ACQUIRE));
    return REAL(Finalize)();
}

/* ---- The sessions model --------------------------------------------------------------------------------------- */

int shim_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session) {
    int code = REAL(Session_init)(info, errhandler, session);
    if (code == MPI_SUCCESS) {
        __atomic_add_fetch(&sessions, 1, __ATOMIC_ACQ_REL);
        /* MPI may be started again after the last session has ended. */
        mpi_begins_again();
    }
    return code;
}

/* Between MPI_Init and MPI_Finalize. */
static bool world_is_up(void) {
    int initialized = 0, finalized = 0;
    REAL(Initialized)(&initialized);
    REAL(Finalized)(&finalized);
    return initialized && !finalized;
}

int shim_Session_finalize(MPI_Session *session) {
    if (__atomic_sub_fetch(&sessions, 1, __ATOMIC_ACQ_REL) == 0 && !world_is_up())
        shut_down(true);
    return REAL(Session_finalize)(session);
}
