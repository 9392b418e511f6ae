/* The shared file pointer. */
#include "check.h"

enum { N = 64 };

/* Every rank writes records; each record arrives once and whole, wherever. */
static void contention(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "contention");
    int record[N];
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < N; i++)
            record[i] = rank * 1000 + turn;
        MPI_Status status;
#if LARGE
        if (turn % 2)
            OK(MPI_File_write_shared_c(file, record, N, MPI_INT, &status));
        else
#endif
            OK(MPI_File_write_shared(file, record, N, MPI_INT, &status));
        COUNTS(N, status, MPI_INT);
    }
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset at;
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == (MPI_Offset)size * 20 * N * 4);
    if (rank == 0) {
        char *seen = calloc((size_t)size * 1000, 1);
        for (int r = 0; r < size * 20; r++) {
            OK(MPI_File_read_at(file, (MPI_Offset)r * N * 4, record, N, MPI_INT, MPI_STATUS_IGNORE));
            for (int i = 1; i < N; i++)
                CHECK(record[i] == record[0]);
            CHECK(record[0] >= 0 && record[0] < size * 1000 && record[0] % 1000 < 20);
            CHECK(!seen[record[0]]++);
        }
        free(seen);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Reading takes each record once, too. */
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    long long sum = 0, total;
    for (int turn = 0; turn < 20; turn++) {
#if LARGE
        if (turn % 2)
            OK(MPI_File_read_shared_c(file, record, N, MPI_INT, MPI_STATUS_IGNORE));
        else
#endif
            OK(MPI_File_read_shared(file, record, N, MPI_INT, MPI_STATUS_IGNORE));
        sum += record[0];
    }
    MPI_Allreduce(&sum, &total, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(total == 20LL * 1000 * size * (size - 1) / 2 + (long long)size * 190);
    OK(MPI_File_close(&file));
}

static void nonblocking(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "ishared");
    int value = rank, seen = -1;
    MPI_Request request;
    MPI_Status status;
    OK(MPI_File_iwrite_shared(file, &value, 1, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    COUNTS(1, status, MPI_INT);
#if LARGE
    OK(MPI_File_iwrite_shared_c(file, &value, 1, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
#else
    OK(MPI_File_iwrite_shared(file, &value, 1, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
#endif
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    int sum = 0, total;
    OK(MPI_File_iread_shared(file, &seen, 1, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    sum += seen;
#if LARGE
    OK(MPI_File_iread_shared_c(file, &seen, 1, MPI_INT, &request));
#else
    OK(MPI_File_iread_shared(file, &seen, 1, MPI_INT, &request));
#endif
    OK(MPI_Wait(&request, &status));
    sum += seen;
    MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(total == size * (size - 1));
    OK(MPI_File_close(&file));
}

static void ordered(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "ordered");
    int mine[8], n = 1 + rank;
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < n; i++)
            mine[i] = 100 * turn + rank;
        MPI_Status status;
#if LARGE
        if (turn % 2)
            OK(MPI_File_write_ordered_c(file, mine, n, MPI_INT, &status));
        else
#endif
            OK(MPI_File_write_ordered(file, mine, n, MPI_INT, &status));
        COUNTS(n, status, MPI_INT);
    }
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset at = 0;
    for (int turn = 0; turn < 4; turn++)
        for (int r = 0; r < size; r++)
            for (int i = 0; i <= r; i++, at += 4) {
                int value;
                OK(MPI_File_read_at(file, at, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
                CHECK(value == 100 * turn + r);
            }
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int turn = 0; turn < 4; turn++) {
        MPI_Status status;
        memset(mine, 255, sizeof mine);
#if LARGE
        if (turn % 2)
            OK(MPI_File_read_ordered_c(file, mine, n, MPI_INT, &status));
        else
#endif
            OK(MPI_File_read_ordered(file, mine, n, MPI_INT, &status));
        for (int i = 0; i < n; i++)
            CHECK(mine[i] == 100 * turn + rank);
    }
    OK(MPI_File_seek_shared(file, -4, MPI_SEEK_END));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 4 * 4 * (MPI_Offset)size * (size + 1) / 2 - 4);
    OK(MPI_File_close(&file));
}

void test_shared(void) {
    contention();
    nonblocking();
    ordered();
}
