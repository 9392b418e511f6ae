/* Blocking accesses: every function in both widths of count, end of file, nothing at all. */
#include "check.h"

enum { N = 1000 };

static void fill(unsigned char *bytes, int of_rank, int turn) {
    for (size_t i = 0; i < N; i++)
        bytes[i] = mark(of_rank + 100 * turn, i);
}

static void same(const unsigned char *bytes, int of_rank, int turn) {
    for (size_t i = 0; i < N; i++)
        CHECK(bytes[i] == mark(of_rank + 100 * turn, i));
}

/* Each turn writes by another function and reads the left neighbour's bytes by its sibling. */
static void offsets(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "offsets");
    unsigned char out[N], in[N];
    int left = (rank + size - 1) % size;
    for (int turn = 0; turn < (LARGE ? 4 : 2); turn++) {
        MPI_Status wrote, read;
        MPI_Offset mine = (MPI_Offset)rank * N, theirs = (MPI_Offset)left * N;
        fill(out, rank, turn);
        memset(in, 0, sizeof in);
        switch (turn) {
        case 0:
            OK(MPI_File_write_at(file, mine, out, N, MPI_BYTE, &wrote));
            break;
        case 1:
            OK(MPI_File_write_at_all(file, mine, out, N / 4, MPI_INT, &wrote));
            break;
#if LARGE
        case 2:
            OK(MPI_File_write_at_c(file, mine, out, N, MPI_CHAR, &wrote));
            break;
        case 3:
            OK(MPI_File_write_at_all_c(file, mine, out, N / 8, MPI_DOUBLE, &wrote));
            break;
#endif
        }
        COUNTS(N, wrote, MPI_BYTE);
        OK(MPI_File_sync(file));
        MPI_Barrier(MPI_COMM_WORLD);
        switch (turn) {
        case 0:
            OK(MPI_File_read_at(file, theirs, in, N, MPI_BYTE, &read));
            break;
        case 1:
            OK(MPI_File_read_at_all(file, theirs, in, N / 4, MPI_INT, &read));
            break;
#if LARGE
        case 2:
            OK(MPI_File_read_at_c(file, theirs, in, N, MPI_CHAR, &read));
            break;
        case 3:
            OK(MPI_File_read_at_all_c(file, theirs, in, N / 8, MPI_DOUBLE, &read));
            break;
#endif
        }
        COUNTS(N / 4, read, MPI_INT);
        same(in, left, turn);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    OK(MPI_File_close(&file));
}

static void pointers(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "pointers");
    unsigned char out[N], in[N];
    MPI_Offset at;
    for (int turn = 0; turn < (LARGE ? 4 : 2); turn++) {
        MPI_Offset mine = ((MPI_Offset)turn * size + rank) * N;
        fill(out, rank, turn);
        memset(in, 0, sizeof in);
        OK(MPI_File_seek(file, mine, MPI_SEEK_SET));
        switch (turn) {
        case 0:
            OK(MPI_File_write(file, out, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
        case 1:
            OK(MPI_File_write_all(file, out, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
#if LARGE
        case 2:
            OK(MPI_File_write_c(file, out, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
        case 3:
            OK(MPI_File_write_all_c(file, out, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
#endif
        }
        OK(MPI_File_get_position(file, &at));
        CHECK(at == mine + N);
        OK(MPI_File_seek(file, -N, MPI_SEEK_CUR));
        switch (turn) {
        case 0:
            OK(MPI_File_read(file, in, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
        case 1:
            OK(MPI_File_read_all(file, in, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
#if LARGE
        case 2:
            OK(MPI_File_read_c(file, in, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
        case 3:
            OK(MPI_File_read_all_c(file, in, N, MPI_BYTE, MPI_STATUS_IGNORE));
            break;
#endif
        }
        same(in, rank, turn);
        OK(MPI_File_get_position(file, &at));
        CHECK(at == mine + N);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek(file, -5, MPI_SEEK_END));
    MPI_Offset bytes;
    OK(MPI_File_get_size(file, &bytes));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == bytes - 5);
    OK(MPI_File_get_byte_offset(file, at, &bytes));
    CHECK(bytes == at);
    OK(MPI_File_close(&file));
}

static void end_of_file(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "end");
    int ten[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, in[10];
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, ten, 10, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Status status;
    memset(in, 255, sizeof in);
    OK(MPI_File_read_at(file, 24, in, 10, MPI_INT, &status));
    COUNTS(4, status, MPI_INT);
    CHECK(in[3] == 9 && in[4] == -1);
    int elements;
    OK(MPI_Get_elements(&status, MPI_INT, &elements));
    CHECK(elements == 4);
    OK(MPI_File_read_at_all(file, 38, in, 10, MPI_INT, &status));
    COUNTS(2, status, MPI_BYTE);
    COUNTS(MPI_UNDEFINED, status, MPI_INT);
    OK(MPI_File_read_at(file, 40, in, 10, MPI_INT, &status));
    COUNTS(0, status, MPI_INT);
    OK(MPI_File_read_at(file, 4000, in, 10, MPI_INT, &status));
    COUNTS(0, status, MPI_INT);
    int cancelled;
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(!cancelled);
    OK(MPI_File_close(&file));
}

static void nothing(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "nothing");
    MPI_Status status;
    OK(MPI_File_write_at(file, 10, NULL, 0, MPI_INT, &status));
    COUNTS(0, status, MPI_INT);
    OK(MPI_File_write_at_all(file, 10, NULL, 0, MPI_INT, &status));
    /* Some ranks with something, others without. */
    int value = rank;
    OK(MPI_File_write_at_all(file, 4 * rank, &value, rank % 2, MPI_INT, &status));
    COUNTS(rank % 2, status, MPI_INT);
    MPI_Datatype empty;
    MPI_Type_contiguous(0, MPI_INT, &empty);
    MPI_Type_commit(&empty);
    OK(MPI_File_write_at_all(file, 0, &value, 3, empty, &status));
    COUNTS(0, status, MPI_INT);
#if LARGE
    /* More instances than an int can count. */
    OK(MPI_File_write_at_c(file, 0, &value, (MPI_Count)1 << 40, empty, &status));
    COUNTS(0, status, MPI_INT);
#endif
    MPI_Type_free(&empty);
    OK(MPI_File_close(&file));
}

/* Memory that is addressed absolutely, and backwards. */
static void absolute(void) {
    char name[32];
    snprintf(name, sizeof name, "absolute-%d", rank);
    MPI_File file = open_new(MPI_COMM_SELF, name);
    int a = 1, b = 2, c = 3;
    int lengths[3] = {1, 1, 1};
    MPI_Aint at[3];
    MPI_Get_address(&c, &at[0]);
    MPI_Get_address(&a, &at[1]);
    MPI_Get_address(&b, &at[2]);
    MPI_Datatype scattered, reversed;
    MPI_Type_create_hindexed(3, lengths, at, MPI_INT, &scattered);
    MPI_Type_commit(&scattered);
    OK(MPI_File_write_at(file, 0, MPI_BOTTOM, 1, scattered, MPI_STATUS_IGNORE));
    MPI_Type_free(&scattered);
    int in[3];
    OK(MPI_File_read_at(file, 0, in, 3, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(in[0] == 3 && in[1] == 1 && in[2] == 2);
    MPI_Type_vector(3, 1, -1, MPI_INT, &reversed);
    MPI_Type_commit(&reversed);
    OK(MPI_File_read_at(file, 0, &in[2], 1, reversed, MPI_STATUS_IGNORE));
    CHECK(in[2] == 3 && in[1] == 1 && in[0] == 2);
    MPI_Type_free(&reversed);
    /* The same bytes written several times. */
    char letters[] = "abcdef", wrote[13] = "";
    MPI_Datatype overlapping;
    MPI_Type_create_hvector(4, 3, 1, MPI_CHAR, &overlapping);
    MPI_Type_commit(&overlapping);
    MPI_Status status;
    OK(MPI_File_write_at(file, 0, letters, 1, overlapping, &status));
    COUNTS(12, status, MPI_CHAR);
    MPI_Type_free(&overlapping);
    OK(MPI_File_read_at(file, 0, wrote, 12, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(strcmp(wrote, "abcbcdcdedef") == 0);
    OK(MPI_File_close(&file));
}

void test_access(void) {
    offsets();
    pointers();
    end_of_file();
    nothing();
    absolute();
}
