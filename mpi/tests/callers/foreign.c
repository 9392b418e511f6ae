/* Penstock is configured, but this file is not its own: the MPI library serves it, beside an error of ours. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File file, ours;
    char name[1024], out[100], in[100];
    snprintf(name, sizeof name, "%s/foreign", argv[1]);
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    int bad = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (bad) {
        MPI_Error_string(bad, text, &length);
        printf("FAILED foreign\nmessage: %s\n", text);
        MPI_Finalize();
        return 1;
    }
    memset(out, 'a' + rank, sizeof out);
    MPI_Status status;
    MPI_Request request;
    int count = -1;
    bad |= MPI_File_write_at_all(file, 100 * rank, out, 100, MPI_CHAR, &status);
    bad |= MPI_File_iread_at(file, 100 * rank, in, 100, MPI_CHAR, &request);
    bad |= MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    bad |= count != 100 || memcmp(in, out, sizeof in) != 0;
    int opened = MPI_File_open(MPI_COMM_WORLD, "penstock:/nowhere", MPI_MODE_RDONLY, MPI_INFO_NULL, &ours);
    if (opened != MPI_SUCCESS)
        MPI_Error_string(opened, text, &length);
    bad |= opened == MPI_SUCCESS;
    bad |= MPI_File_close(&file);
    if (rank == 0)
        printf("%s foreign\nmessage: %s\n", bad ? "FAILED" : "ok", text);
    MPI_Finalize();
    return bad != 0;
}
