/* Errors that end the program: MPI_ERRORS_ARE_FATAL on the file. */
#include <mpi.h>

#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_File file;
    char name[1024];
    snprintf(name, sizeof name, "%s/fatal", argv[1]);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
    char byte;
    MPI_File_read_at(file, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE);
    puts("still here");
    MPI_Finalize();
    return 0;
}
