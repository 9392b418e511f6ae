/* Handles as Fortran sees them. */
#include "check.h"

void test_handles(void) {
    MPI_File files[3];
    for (int i = 0; i < 3; i++)
        files[i] = open_new(MPI_COMM_WORLD, "handles");
#ifdef MPI_ABI
#define NUMBER MPI_File_toint
#define HANDLE MPI_File_fromint
#else
#define NUMBER MPI_File_c2f
#define HANDLE MPI_File_f2c
#endif
    CHECK(HANDLE(NUMBER(MPI_FILE_NULL)) == MPI_FILE_NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(HANDLE(NUMBER(files[i])) == files[i]);
        CHECK(NUMBER(files[i]) != NUMBER(MPI_FILE_NULL));
        CHECK(i == 0 || NUMBER(files[i]) != NUMBER(files[i - 1]));
    }
    for (int i = 0; i < 3; i++)
        OK(MPI_File_close(&files[i]));
}
