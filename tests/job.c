/* job IN OUT SECONDS CODE: all ranks copy a file, each its part. The first one says so, all stay for some time, and
 * end with CODE. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(int code)
{
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Offset length;
    MPI_File in, out;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5) return 2;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &in));
    check(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &out));
    check(MPI_File_get_size(in, &length));
    MPI_Offset begin = length * rank / size, end = length * (rank + 1) / size;
    char *part = malloc((size_t)(end - begin) + 1);
    check(MPI_File_read_at_all(in, begin, part, (int)(end - begin), MPI_BYTE, MPI_STATUS_IGNORE));
    check(MPI_File_write_at_all(out, begin, part, (int)(end - begin), MPI_BYTE, MPI_STATUS_IGNORE));
    check(MPI_File_close(&in));
    check(MPI_File_close(&out));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("written");
        fflush(stdout);
    }
    sleep((unsigned)atoi(argv[3]));
    MPI_Finalize();
    return atoi(argv[4]);
}
