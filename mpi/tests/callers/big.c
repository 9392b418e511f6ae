/* Accesses of more than 2^31 bytes, counted in bytes and in larger units, and contiguous ranges beyond any int. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int failed(const char *what, int line) {
    fprintf(stderr, "big.c:%d: failed: %s\n", line, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}
#define CHECK(condition) ((condition) ? 0 : failed(#condition, __LINE__))

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const uint64_t bytes = ((uint64_t)1 << 31) + 4096;
    /* Pages that are only read stay the shared page of zeros: this costs no memory but for the ends. */
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    memcpy(memory, "first", 5);
    memcpy(memory + bytes - 4, "last", 4);
    char name[1024], in[4];
    snprintf(name, sizeof name, "%s/big", argv[1]);
    MPI_File file;
    MPI_Status status;
    MPI_Offset size;
    MPI_Count moved;
    CHECK(!MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                         MPI_INFO_NULL, &file));
    MPI_Datatype page;
    MPI_Type_contiguous(4096, MPI_BYTE, &page);
    MPI_Type_commit(&page);
    CHECK(!MPI_File_write_at(file, 1, memory, (int)(bytes / 4096), page, &status));
    MPI_Get_elements_x(&status, MPI_BYTE, &moved);
    CHECK(moved == (MPI_Count)bytes);
    CHECK(!MPI_File_get_size(file, &size));
    CHECK(size == (MPI_Offset)bytes + 1);
    CHECK(!MPI_File_read_at(file, (MPI_Offset)bytes - 3, in, 4, MPI_CHAR, &status));
    CHECK(memcmp(in, "last", 4) == 0);
    CHECK(!MPI_File_set_size(file, 0));
#if MPI_VERSION >= 4
    CHECK(!MPI_File_write_at_c(file, 1, memory, (MPI_Count)bytes, MPI_BYTE, &status));
    MPI_Get_elements_x(&status, MPI_BYTE, &moved);
    CHECK(moved == (MPI_Count)bytes);
    CHECK(!MPI_File_read_at(file, (MPI_Offset)bytes - 3, in, 4, MPI_CHAR, &status));
    CHECK(memcmp(in, "last", 4) == 0);
    CHECK(!MPI_File_set_size(file, 0));
    /* A datatype whose numbers are larger than an int. */
    MPI_Datatype ends;
    MPI_Type_vector_c(2, 4, (MPI_Count)bytes - 4, MPI_BYTE, &ends);
    MPI_Type_commit(&ends);
    CHECK(!MPI_File_write_at(file, 0, memory, 1, ends, &status));
    char eight[9] = "";
    CHECK(!MPI_File_read_at(file, 0, eight, 8, MPI_CHAR, &status));
    CHECK(strcmp(eight, "firslast") == 0);
    MPI_Type_free(&ends);
#endif
    MPI_Type_free(&page);
    CHECK(!MPI_File_close(&file));
    puts("ok big");
    MPI_Finalize();
    return 0;
}
