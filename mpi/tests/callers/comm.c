/* The shim's communicator by itself, over this MPI library. Tests messages between two ranks, which no MPI call
 * makes by itself, and the collective operations beside them. */
#include "../../src/comm.c"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

void *real_function(void **found, const char *symbol, bool must) {
    if (!*found)
        *found = dlsym(RTLD_DEFAULT, symbol);
    if (!*found && must)
        abort();
    return *found;
}
void *penstock_variable(const char *symbol) {
    return dlsym(RTLD_DEFAULT, symbol);
}
bool mpi_usable(void) {
    return true;
}
int describe(int pst_class, const char *format, ...) {
    fprintf(stderr, "%s\n", format);
    return pst_class;
}

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 1);                               \
        }                                                               \
    } while (0)

/* Lengths up to the longest, which MPI libraries send in different ways. */
static const uint64_t lengths[] = {0, 1, 41, 1000, PST_MAX_TOLD};
enum { LENGTHS = sizeof lengths / sizeof *lengths, ROUNDS = 8 };

static void fill(char *into, uint64_t length, int from, int to, int round) {
    for (uint64_t i = 0; i < length; i++)
        into[i] = (char)(i * 7 + (uint64_t)(from * 31 + to * 5 + round));
}

/* Everyone tells everyone before it hears anyone, then turns go round; on whatever thread. */
static void *talk(void *given) {
    struct pst_comm *comm = given;
    static char out[PST_MAX_TOLD], in[PST_MAX_TOLD];
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < LENGTHS; n++)
            for (int peer = 0; peer < comm->size; peer++)
                if (peer != comm->rank) {
                    fill(out, lengths[n], comm->rank, peer, round);
                    CHECK(comm->tell(comm->self, peer, out, lengths[n]) == 0);
                    memset(out, -1, sizeof out);
                }
        CHECK(round % 2 || comm->barrier(comm->self) == 0);
        for (int peer = comm->size - 1; peer >= 0; peer--)
            for (int n = 0; n < LENGTHS && peer != comm->rank; n++) {
                memset(in, -1, sizeof in);
                CHECK(comm->hear(comm->self, peer, in, sizeof in) == 0);
                fill(out, lengths[n], peer, comm->rank, round);
                CHECK(memcmp(in, out, lengths[n]) == 0);
            }
    }
    uint64_t count = 0;
    if (comm->rank > 0)
        CHECK(comm->hear(comm->self, comm->rank - 1, &count, sizeof count) == 0);
    CHECK(count == (uint64_t)comm->rank);
    count++;
    if (comm->rank + 1 < comm->size)
        CHECK(comm->tell(comm->self, comm->rank + 1, &count, sizeof count) == 0);
    CHECK(comm->bcast(comm->self, comm->size - 1, &count, sizeof count) == 0);
    CHECK(count == (uint64_t)comm->size);
    return NULL;
}

int main(int argc, char **argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    struct pst_comm comm;
    CHECK(comm_make(MPI_COMM_WORLD, &comm) == PST_OK && comm.size > 1);
    talk(&comm);
    if (provided == MPI_THREAD_MULTIPLE) {
        /* As nonblocking collective accesses do. */
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, talk, &comm) == 0 && pthread_join(thread, NULL) == 0);
    }
    /* More than may be under way: the rank that tells waits until some are taken. */
    uint64_t number = 0;
    for (int i = 0; i < 3 * TOLD && comm.rank < 2; i++) {
        if (comm.rank == 0)
            CHECK(comm.tell(comm.self, 1, &(uint64_t){(uint64_t)i}, sizeof number) == 0);
        else
            CHECK(comm.hear(comm.self, 0, &number, sizeof number) == 0 && number == (uint64_t)i);
    }
    CHECK(comm.tell(comm.self, 0, &number, PST_MAX_TOLD + 1) != 0);
    comm.release(comm.self);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        puts("ok comm");
    MPI_Finalize();
    return 0;
}
