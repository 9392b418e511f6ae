/* Split collectives. */
#include "check.h"

enum { N = 700 };

/* Each pair in both widths: begin and end around other work. */
#define PAIR(turn, begin, begin_c, end)                    \
    do {                                                   \
        if (LARGE && turn % 2)                             \
            OK(begin_c);                                   \
        else                                               \
            OK(begin);                                     \
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); \
        OK(end);                                           \
        CHECK(all == size);                                \
        COUNTS(N, status, MPI_INT);                        \
    } while (0)

#if !LARGE
#define MPI_File_write_at_all_begin_c MPI_File_write_at_all_begin
#define MPI_File_read_at_all_begin_c MPI_File_read_at_all_begin
#define MPI_File_write_all_begin_c MPI_File_write_all_begin
#define MPI_File_read_all_begin_c MPI_File_read_all_begin
#define MPI_File_write_ordered_begin_c MPI_File_write_ordered_begin
#define MPI_File_read_ordered_begin_c MPI_File_read_ordered_begin
#endif

void test_split(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "split");
    int out[N], in[N], one = 1, all;
    MPI_Status status;
    for (int turn = 0; turn < 4; turn++) {
        MPI_Offset mine = (MPI_Offset)rank * N * 4;
        for (int i = 0; i < N; i++)
            out[i] = 100000 * turn + 1000 * rank + i;
        memset(in, 0, sizeof in);
        PAIR(turn, MPI_File_write_at_all_begin(file, mine, out, N, MPI_INT),
             MPI_File_write_at_all_begin_c(file, mine, out, N, MPI_INT),
             MPI_File_write_at_all_end(file, out, &status));
        PAIR(turn, MPI_File_read_at_all_begin(file, mine, in, N, MPI_INT),
             MPI_File_read_at_all_begin_c(file, mine, in, N, MPI_INT),
             MPI_File_read_at_all_end(file, in, &status));
        CHECK(memcmp(in, out, sizeof in) == 0);

        for (int i = 0; i < N; i++)
            out[i] += 7;
        OK(MPI_File_seek(file, mine, MPI_SEEK_SET));
        PAIR(turn, MPI_File_write_all_begin(file, out, N, MPI_INT), MPI_File_write_all_begin_c(file, out, N, MPI_INT),
             MPI_File_write_all_end(file, out, &status));
        OK(MPI_File_seek(file, mine, MPI_SEEK_SET));
        PAIR(turn, MPI_File_read_all_begin(file, in, N, MPI_INT), MPI_File_read_all_begin_c(file, in, N, MPI_INT),
             MPI_File_read_all_end(file, in, &status));
        CHECK(memcmp(in, out, sizeof in) == 0);

        for (int i = 0; i < N; i++)
            out[i] += 7;
        OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
        PAIR(turn, MPI_File_write_ordered_begin(file, out, N, MPI_INT),
             MPI_File_write_ordered_begin_c(file, out, N, MPI_INT), MPI_File_write_ordered_end(file, out, &status));
        OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
        PAIR(turn, MPI_File_read_ordered_begin(file, in, N, MPI_INT),
             MPI_File_read_ordered_begin_c(file, in, N, MPI_INT), MPI_File_read_ordered_end(file, in, &status));
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
    OK(MPI_File_close(&file));
}
