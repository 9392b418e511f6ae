/* A file's communicator for the library: MPI collectives on a duplicate of the communicator given to MPI_File_open.
 *
 * MPI counts are ints, lengths here are 64 bits wide: what is longer than CHUNK goes in several messages. The exchange
 * (alltoallv) is point to point, from the source buffer to the target buffer, without packing. Ranks without bytes for
 * each other send no message.
 *
 * A message to one rank (tell) is copied and sent in the background: two ranks that both tell first do not wait for
 * each other. The receiver polls, with pauses, because MPI_Recv would never return if the other rank has given up.
 */
#include "shim.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHUNK ((uint64_t)1 << 30)
#define EXCHANGE_TAG 1
#define TELL_TAG 2
/* Messages on their way to other ranks at once: AHEAD of crates/mpiio/src/comm.rs. */
#define TOLD 64
/* As long as ranks that share memory wait for each other. */
#define PATIENCE_S 600
/* Looks before the first pause, and the length of a pause. */
#define LOOKS 1000
#define PAUSE_NS 50000

struct told {
    MPI_Request request;
    char bytes[PST_MAX_TOLD];
};

struct comm {
    MPI_Comm comm;
    int rank;
    int size;
    /* Null: free. */
    struct told *told[TOLD];
};

static int failed(int code) {
    return code == MPI_SUCCESS ? 0 : 1;
}

static int comm_barrier(void *self) {
    struct comm *comm = self;
    return failed(REAL(Barrier)(comm->comm));
}

static int comm_bcast(void *self, int root, void *data, uint64_t length) {
    struct comm *comm = self;
    for (uint64_t at = 0; at < length; at += CHUNK) {
        uint64_t part = length - at < CHUNK ? length - at : CHUNK;
        if (REAL(Bcast)((char *)data + at, (int)part, MPI_BYTE, root, comm->comm) != MPI_SUCCESS)
            return 1;
    }
    return 0;
}

static int comm_allgather(void *self, const void *mine, uint64_t length, void *all) {
    struct comm *comm = self;
    if (length > INT_MAX)
        return 1;
    return failed(REAL(Allgather)(mine, (int)length, MPI_BYTE, all, (int)length, MPI_BYTE, comm->comm));
}

static int comm_allgatherv(void *self, const void *mine, void *all, const uint64_t *lengths) {
    struct comm *comm = self;
    size_t ranks = (size_t)comm->size;
    uint64_t total = 0;
    for (size_t r = 0; r < ranks; r++)
        total += lengths[r];
    if (total > INT_MAX) {
        /* Each rank's bytes in turn. */
        uint64_t at = 0;
        for (int r = 0; r < comm->size; at += lengths[r], r++) {
            if (r == comm->rank)
                memcpy((char *)all + at, mine, lengths[r]);
            if (comm_bcast(self, r, (char *)all + at, lengths[r]))
                return 1;
        }
        return 0;
    }
    int *counts = malloc(2 * ranks * sizeof *counts);
    if (!counts)
        return 1;
    int at = 0;
    for (size_t r = 0; r < ranks; r++) {
        counts[r] = (int)lengths[r];
        counts[ranks + r] = at;
        at += counts[r];
    }
    int code = REAL(Allgatherv)(mine, counts[comm->rank], MPI_BYTE, all, counts, counts + ranks, MPI_BYTE,
                                comm->comm);
    free(counts);
    return failed(code);
}

static int comm_alltoall(void *self, const void *send, uint64_t length, void *receive) {
    struct comm *comm = self;
    if (length > INT_MAX)
        return 1;
    return failed(
        REAL(Alltoall)(send, (int)length, MPI_BYTE, receive, (int)length, MPI_BYTE, comm->comm));
}

static uint64_t messages(const uint64_t *lengths, int size, int except) {
    uint64_t n = 0;
    for (int r = 0; r < size; r++)
        if (r != except)
            n += (lengths[r] + CHUNK - 1) / CHUNK;
    return n;
}

static int comm_alltoallv(void *self, const void *const *send, const uint64_t *send_lengths, void *const *receive,
                          const uint64_t *receive_lengths) {
    struct comm *comm = self;
    uint64_t most = messages(send_lengths, comm->size, comm->rank) +
                    messages(receive_lengths, comm->size, comm->rank);
    if (most > INT_MAX)
        return 1;
    MPI_Request *requests = malloc((most + 1) * sizeof *requests);
    if (!requests)
        return 1;
    int n = 0, code = MPI_SUCCESS;
    /* Partners in a rotated order, so that not all ranks turn to the same one first. */
    for (int step = 1; step < comm->size; step++) {
        int from = (comm->rank - step + comm->size) % comm->size;
        for (uint64_t at = 0; code == MPI_SUCCESS && at < receive_lengths[from]; at += CHUNK) {
            uint64_t rest = receive_lengths[from] - at;
            code = REAL(Irecv)((char *)receive[from] + at, (int)(rest < CHUNK ? rest : CHUNK), MPI_BYTE, from,
                               EXCHANGE_TAG, comm->comm, &requests[n]);
            n += code == MPI_SUCCESS;
        }
    }
    for (int step = 1; step < comm->size; step++) {
        int to = (comm->rank + step) % comm->size;
        for (uint64_t at = 0; code == MPI_SUCCESS && at < send_lengths[to]; at += CHUNK) {
            uint64_t rest = send_lengths[to] - at;
            code = REAL(Isend)((const char *)send[to] + at, (int)(rest < CHUNK ? rest : CHUNK), MPI_BYTE, to,
                               EXCHANGE_TAG, comm->comm, &requests[n]);
            n += code == MPI_SUCCESS;
        }
    }
    if (send_lengths[comm->rank])
        memcpy(receive[comm->rank], send[comm->rank], send_lengths[comm->rank]);
    int waited = REAL(Waitall)(n, requests, MPI_STATUSES_IGNORE);
    free(requests);
    return code != MPI_SUCCESS || waited != MPI_SUCCESS;
}

/* Between two looks at what another rank does; false when it has had all its time. */
struct patience {
    unsigned looks;
    time_t until;
};

static bool wait_a_little(struct patience *patience) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!patience->until)
        patience->until = now.tv_sec + PATIENCE_S;
    if (++patience->looks < LOOKS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return now.tv_sec < patience->until;
}

/* Frees what has been taken; returns a free place, or -1. */
static int free_place(struct comm *comm) {
    int place = -1;
    for (int i = 0; i < TOLD; i++) {
        int taken = 1;
        if (comm->told[i]) {
            int code = REAL(Test)(&comm->told[i]->request, &taken, MPI_STATUS_IGNORE);
            /* After an error the request is over. */
            if (code != MPI_SUCCESS || taken) {
                free(comm->told[i]);
                comm->told[i] = NULL;
                taken = 1;
            }
        }
        if (taken)
            place = i;
    }
    return place;
}

static int comm_tell(void *self, int peer, const void *message, uint64_t length) {
    struct comm *comm = self;
    struct patience patience = {0};
    int place;
    if (length > PST_MAX_TOLD)
        return 1;
    while ((place = free_place(comm)) < 0)
        if (!wait_a_little(&patience))
            return PST_SILENT;
    struct told *told = malloc(sizeof *told);
    if (!told)
        return 1;
    memcpy(told->bytes, message, length);
    if (REAL(Isend)(told->bytes, (int)length, MPI_BYTE, peer, TELL_TAG, comm->comm, &told->request) != MPI_SUCCESS) {
        free(told);
        return 1;
    }
    comm->told[place] = told;
    return 0;
}

static int comm_hear(void *self, int peer, void *message, uint64_t room) {
    struct comm *comm = self;
    struct patience patience = {0};
    MPI_Request request;
    MPI_Status status;
    int heard = 0, cancelled = 0;
    if (room > PST_MAX_TOLD)
        room = PST_MAX_TOLD;
    if (REAL(Irecv)(message, (int)room, MPI_BYTE, peer, TELL_TAG, comm->comm, &request) != MPI_SUCCESS)
        return 1;
    for (;;) {
        if (REAL(Test)(&request, &heard, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 1;
        if (heard)
            return 0;
        if (!wait_a_little(&patience))
            break;
    }
    /* Nothing may come into the caller's memory later; a message that comes just now is good. */
    if (REAL(Cancel)(&request) != MPI_SUCCESS || REAL(Wait)(&request, &status) != MPI_SUCCESS)
        return 1;
    REAL(Test_cancelled)(&status, &cancelled);
    return cancelled ? PST_SILENT : 0;
}

static void comm_release(void *self) {
    struct comm *comm = self;
    /* What nobody has taken by now belongs to calls that failed. MPI may still read it: it stays. */
    if (mpi_usable())
        free_place(comm);
    if (comm->comm != MPI_COMM_NULL && mpi_usable())
        REAL(Comm_free)(&comm->comm);
    free(comm);
}

int comm_make(MPI_Comm given, struct pst_comm *out) {
    int inter = 0;
    if (given == MPI_COMM_NULL || REAL(Comm_test_inter)(given, &inter) != MPI_SUCCESS || inter)
        return describe(PST_ERR_COMM, "MPI_File_open: the communicator is %s",
                        inter ? "an intercommunicator; give an intracommunicator" : "invalid");
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return describe(PST_ERR_NO_MEM, "MPI_File_open: no memory");
    comm->comm = MPI_COMM_NULL;
    REAL(Comm_rank)(given, &comm->rank);
    REAL(Comm_size)(given, &comm->size);
    /* A rank alone has nobody to talk to. */
    if (comm->size > 1) {
        if (REAL(Comm_dup)(given, &comm->comm) != MPI_SUCCESS) {
            free(comm);
            return describe(PST_ERR_COMM, "MPI_File_open: the communicator cannot be duplicated");
        }
        REAL(Comm_set_errhandler)(comm->comm, MPI_ERRORS_RETURN);
    }
    *out = (struct pst_comm){.self = comm,
                             .rank = comm->rank,
                             .size = comm->size,
                             .barrier = comm_barrier,
                             .bcast = comm_bcast,
                             .allgather = comm_allgather,
                             .allgatherv = comm_allgatherv,
                             .alltoall = comm_alltoall,
                             .alltoallv = comm_alltoallv,
                             .tell = comm_tell,
                             .hear = comm_hear,
                             .release = comm_release};
    return PST_OK;
}
