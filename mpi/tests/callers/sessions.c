/* The sessions model: there is no MPI_COMM_WORLD, and no thread level of the process. One session after another, each
 * of which leaves a file open at its end. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int session_run(const char *directory, int number, int last) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, bad = 0;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "penstock.test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);

    char name[1024], out[100], in[100] = "";
    MPI_File file, left;
    MPI_Request request;
    MPI_Status status;
    int count = 0;
    snprintf(name, sizeof name, "%s/sessions", directory);
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

    snprintf(name, sizeof name, "%s/left-%d", directory, number);
    bad |= MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &left);
    bad |= MPI_File_write_at(left, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    bad |= MPI_Session_finalize(&session);
    if (rank == 0 && number == last)
        puts(bad ? "FAILED" : "ok sessions");
    return bad;
}

int main(int argc, char **argv) {
    int bad = argc < 3, last = bad ? 0 : atoi(argv[2]);
    for (int number = 1; number <= last; number++)
        bad |= session_run(argv[1], number, last);
    return bad;
}
