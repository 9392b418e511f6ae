/* Opening, closing, sizes, hints and what a file knows of itself. */
#include "check.h"

static void modes(void) {
    char name[1024];
    strcpy(name, new_name("modes"));
    MPI_File file;
    int amode = MPI_MODE_CREATE | MPI_MODE_WRONLY, got;
    OK(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file));
    OK(MPI_File_get_amode(file, &got));
    CHECK(got == amode);
    OK(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);

    /* Appending begins at the end. */
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, 100));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
    MPI_Offset at;
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 100);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 100);
    OK(MPI_File_close(&file));

    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    CHECK(file == MPI_FILE_NULL);
}

static void sizes(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "sizes");
    MPI_Offset bytes;
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 0);
    OK(MPI_File_set_size(file, 12345));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 12345);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_preallocate(file, 20000));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 20000);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_preallocate(file, 10));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 20000);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_size(file, 7));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 7);
    /* Far beyond 32 bits, without a byte in between. */
    MPI_Barrier(MPI_COMM_WORLD);
    char last = 'x';
    if (rank == 0)
        OK(MPI_File_write_at(file, (MPI_Offset)5 << 32, &last, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == ((MPI_Offset)5 << 32) + 1);
    OK(MPI_File_close(&file));
}

static void hints(void) {
    MPI_Info info, used;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_buffer_size", "1048576");
    MPI_Info_set(info, "a_hint_nobody_knows", "7");
    MPI_File file;
    char name[1024];
    strcpy(name, new_name("hints"));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    char value[257];
    int found;
    OK(MPI_File_get_info(file, &used));
    MPI_Info_get(used, "cb_buffer_size", 256, value, &found);
    CHECK(!found || strcmp(value, "1048576") == 0);
    MPI_Info_free(&used);
    MPI_Info_set(info, "cb_buffer_size", "2097152");
    OK(MPI_File_set_info(file, info));
    OK(MPI_File_get_info(file, &used));
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    OK(MPI_File_set_info(file, MPI_INFO_NULL));
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        OK(MPI_File_delete(name, MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_delete(name, MPI_INFO_NULL));
}

static void groups(void) {
    MPI_Comm odd;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &odd);
    MPI_File file;
    char name[1024];
    snprintf(name, sizeof name, "%s-%d", new_name("groups"), rank % 2);
    OK(MPI_File_open(odd, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MPI_Group of_file, of_comm;
    OK(MPI_File_get_group(file, &of_file));
    MPI_Comm_group(odd, &of_comm);
    int same;
    MPI_Group_compare(of_file, of_comm, &same);
    CHECK(same == MPI_IDENT);
    MPI_Group_free(&of_file);
    MPI_Group_free(&of_comm);
    /* The file has a communicator of its own. */
    MPI_Comm_free(&odd);
    int flag;
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag);
    OK(MPI_File_set_atomicity(file, 0));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(!flag);
    OK(MPI_File_sync(file));
    OK(MPI_File_close(&file));
}

/* A file like a tape: the shared pointer only, and views that begin where it is. */
static void sequential(void) {
    char name[1024];
    strcpy(name, new_name("sequential"));
    MPI_File file;
    MPI_Offset at;
    MPI_Datatype a, b;
    char representation[MPI_MAX_DATAREP_STRING];
    int mine[2] = {rank, 100 + rank}, seen[2];
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    OK(MPI_File_write_ordered(file, mine, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_view(file, &at, &a, &b, representation));
    CHECK(at == 4 * size);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_write_ordered(file, mine + 1, 1, MPI_INT, MPI_STATUS_IGNORE));
    const char *expected = getenv("PENSTOCK_EXPECTED");
    if (expected && *expected == '1')
        FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write_at(file, 0, mine, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    for (int i = 0; i < 2; i++)
        OK(MPI_File_read_at(file, 4 * (i * size + rank), &seen[i], 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(seen, mine, sizeof seen) == 0);
    OK(MPI_File_close(&file));
}

static void many_at_once(void) {
    enum { FILES = 40 };
    MPI_File files[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i] = open_new(i % 2 ? MPI_COMM_WORLD : MPI_COMM_SELF, rank && i % 2 == 0 ? "own" : "many");
        for (int j = 0; j < i; j++)
            CHECK(files[j] != files[i]);
    }
    for (int i = 0; i < FILES; i++)
        OK(MPI_File_close(&files[(i * 7) % FILES]));
}

void test_files(void) {
    modes();
    sizes();
    hints();
    groups();
    sequential();
    many_at_once();
}
