/* The sessions model: there is no MPI_COMM_WORLD, and no thread level of the process. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, bad = argc < 2;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "penstock.test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);

    char name[1024], out[100], in[100] = "";
    snprintf(name, sizeof name, "%s/sessions", argv[1]);
    MPI_File file;
    MPI_Request request;
    MPI_Status status;
    int count = 0;
    bad |= MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    memset(out, 'a' + rank, sizeof out);
    bad |= MPI_File_write_at_all(file, 100 * rank, out, 100, MPI_CHAR, &status);
    /* Completes before it returns, where another thread must not complete it. */
    bad |= MPI_File_iread_at(file, 100 * rank, in, 100, MPI_CHAR, &request);
    bad |= MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    bad |= count != 100 || memcmp(in, out, sizeof in) != 0;
    bad |= MPI_File_iread_at_all(file, 100 * rank, in, 100, MPI_CHAR, &request);
    bad |= MPI_Wait(&request, &status);
    bad |= MPI_File_close(&file);
    if (rank == 0)
        puts(bad ? "FAILED" : "ok sessions");
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return bad;
}
