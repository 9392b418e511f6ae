/* A program that forgets to close its files before MPI_Finalize. */
#include <mpi.h>

#include <stdio.h>

int main(int argc, char **argv) {
    /* Asks for little; may get more. */
    int rank, provided, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Query_thread(&level);
    if (provided < MPI_THREAD_FUNNELED || level != provided)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char name[1024];
    for (int i = 0; i < 3; i++) {
        MPI_File file;
        snprintf(name, sizeof name, "%s/leftover-%d", argv[1], i);
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | (i == 2 ? MPI_MODE_DELETE_ON_CLOSE : 0),
                      MPI_INFO_NULL, &file);
        MPI_File_write_at(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    if (rank == 0)
        puts("ok leftover");
    return 0;
}
