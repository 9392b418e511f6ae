/* Nonblocking accesses and every way to wait for them. */
#include "check.h"

enum { N = 5000, PIECES = 8 };

static unsigned char out[PIECES][N], in[PIECES][N];

static void fill(int turn) {
    for (int p = 0; p < PIECES; p++)
        for (size_t i = 0; i < N; i++)
            out[p][i] = mark(rank + 10 * p + 100 * turn, i);
    memset(in, 0, sizeof in);
}

static MPI_Offset place(int piece) {
    return ((MPI_Offset)piece * size + rank) * N;
}

/* Starts an access by one of the functions, by turns. */
static void start_write(MPI_File file, int turn, int p, MPI_Request *request) {
    switch (turn % (LARGE ? 4 : 2)) {
    case 0:
        OK(MPI_File_iwrite_at(file, place(p), out[p], N, MPI_BYTE, request));
        break;
    case 1:
        OK(MPI_File_iwrite_at_all(file, place(p), out[p], N, MPI_BYTE, request));
        break;
#if LARGE
    case 2:
        OK(MPI_File_iwrite_at_c(file, place(p), out[p], N, MPI_BYTE, request));
        break;
    case 3:
        OK(MPI_File_iwrite_at_all_c(file, place(p), out[p], N, MPI_BYTE, request));
        break;
#endif
    }
}

static void start_read(MPI_File file, int turn, int p, MPI_Request *request) {
    switch (turn % (LARGE ? 4 : 2)) {
    case 0:
        OK(MPI_File_iread_at(file, place(p), in[p], N, MPI_BYTE, request));
        break;
    case 1:
        OK(MPI_File_iread_at_all(file, place(p), in[p], N, MPI_BYTE, request));
        break;
#if LARGE
    case 2:
        OK(MPI_File_iread_at_c(file, place(p), in[p], N, MPI_BYTE, request));
        break;
    case 3:
        OK(MPI_File_iread_at_all_c(file, place(p), in[p], N, MPI_BYTE, request));
        break;
#endif
    }
}

/* Completes all requests in one of the ways that MPI has. */
static void complete(int way, MPI_Request requests[PIECES]) {
    MPI_Status statuses[PIECES];
    int flag = 0, left = PIECES, index, indices[PIECES], done;
    switch (way) {
    case 0:
        for (int p = 0; p < PIECES; p++)
            OK(MPI_Wait(&requests[p], &statuses[p]));
        break;
    case 1:
        OK(MPI_Waitall(PIECES, requests, statuses));
        break;
    case 2:
        for (; left; left--) {
            MPI_Status one;
            OK(MPI_Waitany(PIECES, requests, &index, &one));
            statuses[index] = one;
        }
        break;
    case 3:
        while (left) {
            MPI_Status some[PIECES];
            OK(MPI_Waitsome(PIECES, requests, &done, indices, some));
            for (int i = 0; i < done; i++)
                statuses[indices[i]] = some[i];
            left -= done;
        }
        break;
    case 4:
        for (int p = 0; p < PIECES; p++) {
            do
                OK(MPI_Request_get_status(requests[p], &flag, &statuses[p]));
            while (!flag);
            COUNTS(N, statuses[p], MPI_BYTE);
            do
                OK(MPI_Test(&requests[p], &flag, &statuses[p]));
            while (!flag);
        }
        break;
    case 5:
        while (!flag)
            OK(MPI_Testall(PIECES, requests, &flag, statuses));
        break;
    case 6:
        while (left) {
            MPI_Status one;
            OK(MPI_Testany(PIECES, requests, &index, &flag, &one));
            if (flag) {
                statuses[index] = one;
                left--;
            }
        }
        break;
    default:
        while (left) {
            MPI_Status some[PIECES];
            OK(MPI_Testsome(PIECES, requests, &done, indices, some));
            for (int i = 0; i < done; i++)
                statuses[indices[i]] = some[i];
            left -= done;
        }
        break;
    }
    for (int p = 0; p < PIECES; p++) {
        CHECK(requests[p] == MPI_REQUEST_NULL);
        COUNTS(N, statuses[p], MPI_BYTE);
    }
}

static void ways(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "ways");
    for (int way = 0; way < 8; way++) {
        MPI_Request requests[PIECES];
        fill(way);
        for (int p = 0; p < PIECES; p++)
            start_write(file, way, p, &requests[p]);
        complete(way, requests);
        for (int p = 0; p < PIECES; p++)
            start_read(file, way, p, &requests[p]);
        complete(way, requests);
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
    OK(MPI_File_close(&file));
}

/* The individual pointer moves when the access starts. */
static void pointers(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "ipointers");
    MPI_Request requests[4];
    MPI_Offset base = (MPI_Offset)rank * 4 * N, at;
    fill(9);
    OK(MPI_File_seek(file, base, MPI_SEEK_SET));
    OK(MPI_File_iwrite(file, out[0], N, MPI_BYTE, &requests[0]));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == base + N);
    OK(MPI_File_iwrite_all(file, out[1], N, MPI_BYTE, &requests[1]));
#if LARGE
    OK(MPI_File_iwrite_c(file, out[2], N, MPI_BYTE, &requests[2]));
    OK(MPI_File_iwrite_all_c(file, out[3], N, MPI_BYTE, &requests[3]));
#else
    OK(MPI_File_iwrite(file, out[2], N, MPI_BYTE, &requests[2]));
    OK(MPI_File_iwrite_all(file, out[3], N, MPI_BYTE, &requests[3]));
#endif
    OK(MPI_File_get_position(file, &at));
    CHECK(at == base + 4 * N);
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    OK(MPI_File_seek(file, base, MPI_SEEK_SET));
    OK(MPI_File_iread(file, in[0], N, MPI_BYTE, &requests[0]));
    OK(MPI_File_iread_all(file, in[1], N, MPI_BYTE, &requests[1]));
#if LARGE
    OK(MPI_File_iread_c(file, in[2], N, MPI_BYTE, &requests[2]));
    OK(MPI_File_iread_all_c(file, in[3], N, MPI_BYTE, &requests[3]));
#else
    OK(MPI_File_iread(file, in[2], N, MPI_BYTE, &requests[2]));
    OK(MPI_File_iread_all(file, in[3], N, MPI_BYTE, &requests[3]));
#endif
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    CHECK(memcmp(in, out, 4 * N) == 0);
    OK(MPI_File_close(&file));
}

/* Messages and accesses complete together, in one call. */
static void mixed(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "mixed");
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int value = rank, got = -1;
    fill(11);
    OK(MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_File_iwrite_at(file, place(0), out[0], N, MPI_BYTE, &requests[1]));
    OK(MPI_Isend(&value, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Waitall(3, requests, statuses));
    CHECK(got == (rank + size - 1) % size && statuses[0].MPI_TAG == 5);
    COUNTS(N, statuses[1], MPI_BYTE);
    /* The datatype may go while the access runs. */
    MPI_Datatype every;
    MPI_Type_vector(N / 2, 1, 2, MPI_BYTE, &every);
    MPI_Type_commit(&every);
    MPI_Request request;
    OK(MPI_File_iread_at(file, place(0), in[0], 1, every, &request));
    MPI_Type_free(&every);
    OK(MPI_Wait(&request, &statuses[0]));
    for (size_t i = 0; i < N / 2; i++)
        CHECK(in[0][2 * i] == out[0][i]);
    OK(MPI_File_close(&file));
}

void test_nonblocking(void) {
    ways();
    pointers();
    mixed();
}
