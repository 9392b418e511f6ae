/* A library that closes its files when MPI ends: in the delete callback of an attribute on MPI_COMM_SELF. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

static MPI_File file;
static int rank, bad = 1;

static int at_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    int finalized = 1, count = 0;
    char out[100], in[100] = "";
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype pairs;
    bad = MPI_Finalized(&finalized) || finalized;
    memset(out, 'a' + rank, sizeof out);
    bad |= MPI_File_write_at_all(file, 100 * rank, out, 100, MPI_CHAR, &status);
    bad |= MPI_File_iread_at(file, 100 * rank, in, 100, MPI_CHAR, &request);
    bad |= MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    bad |= count != 100 || memcmp(in, out, sizeof in) != 0;
    MPI_Type_vector(50, 1, 2, MPI_CHAR, &pairs);
    MPI_Type_commit(&pairs);
    bad |= MPI_File_set_view(file, 1000, MPI_CHAR, pairs, "native", MPI_INFO_NULL);
    MPI_Type_free(&pairs);
    bad |= MPI_File_sync(file);
    bad |= MPI_File_close(&file);
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char name[1024];
    int key;
    snprintf(name, sizeof name, "%s/at_finalize", argv[1]);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key);
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    if (rank == 0)
        puts(bad ? "FAILED" : "ok at_finalize");
    return bad;
}
