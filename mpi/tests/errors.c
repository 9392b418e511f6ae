/* Errors: classes, messages, and who hears of them. */
#include "check.h"

static int heard, heard_code;
static MPI_File heard_file;

static void handler(MPI_File *file, int *code, ...) {
    heard++;
    heard_code = *code;
    heard_file = *file;
}

/* Deals with the error by itself. */
static void forgiving(MPI_File *file, int *code, ...) {
    (void)file;
    heard++;
    *code = MPI_SUCCESS;
}

static void message_has(int code, const char *part) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    OK(MPI_Error_string(code, text, &length));
    CHECK(length == (int)strlen(text));
    if (!strstr(text, part)) {
        fprintf(stderr, "rank %d: message `%s` does not contain `%s`\n", rank, text, part);
        CHECK(0);
    }
}

static void opening(void) {
    MPI_File file;
    char name[1024];
    strcpy(name, new_name("missing"));
    int code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    FAILS(MPI_ERR_NO_SUCH_FILE, code);
    CHECK(file == MPI_FILE_NULL);
    message_has(code, "missing");
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, 0, MPI_INFO_NULL, &file));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_FILE_EXISTS, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR,
                                             MPI_INFO_NULL, &file));
    int different = MPI_File_open(MPI_COMM_WORLD, name, rank == 0 ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL,
                                  &file);
    if (size > 1)
        FAILS(MPI_ERR_NOT_SAME, different);
    else
        OK(MPI_File_close(&file));
    /* Names may differ if they mean one file. */
    char other[1200];
    const char *slash = strrchr(name, '/');
    snprintf(other, sizeof other, "%.*s/.%s", (int)(slash - name), name, slash);
    OK(MPI_File_open(MPI_COMM_WORLD, rank == 0 ? name : other, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
    MPI_File first;
    OK(MPI_File_open(MPI_COMM_WORLD, strcpy(other, new_name("other")), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                     &first));
    OK(MPI_File_close(&first));
    different = MPI_File_open(MPI_COMM_WORLD, rank == 0 ? name : other, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (size > 1)
        FAILS(MPI_ERR_NOT_SAME, different);
    else
        OK(MPI_File_close(&file));
}

static void accesses(void) {
    char name[1024];
    strcpy(name, new_name("accesses"));
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    char byte = 1;
    int code = MPI_File_read_at(file, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE);
    FAILS(MPI_ERR_ACCESS, code);
    message_has(code, "accesses");
    FAILS(MPI_ERR_ACCESS, MPI_File_read_at_all(file, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_COUNT, MPI_File_write_at(file, 0, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_TYPE, MPI_File_write_at(file, 0, &byte, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, -7, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_seek(file, -1, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_seek(file, 0, 12345));
    FAILS(MPI_ERR_ARG, MPI_File_seek_shared(file, 0, 12345));
    FAILS(MPI_ERR_ARG, MPI_File_set_size(file, -1));
    /* One rank's mistake in a collective call hangs nobody. */
    code = MPI_File_write_at_all(file, rank, &byte, rank == 0 ? -1 : 1, MPI_BYTE, MPI_STATUS_IGNORE);
    if (rank == 0)
        FAILS(MPI_ERR_COUNT, code);
    MPI_Request request;
    MPI_Status status;
    code = MPI_File_iwrite_at_all(file, rank, &byte, rank == 0 ? -1 : 1, MPI_BYTE, &request);
    OK(code);
    code = MPI_Wait(&request, &status);
    if (rank == 0)
        FAILS(MPI_ERR_COUNT, code);
    /* A view whose etype does not divide the filetype. */
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, -5, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    code = MPI_File_set_view(file, 0, rank == 0 ? MPI_DATATYPE_NULL : MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    if (rank == 0)
        FAILS(MPI_ERR_TYPE, code);
    else
        CHECK(code != MPI_SUCCESS);
    FAILS(MPI_ERR_UNSUPPORTED_DATAREP, MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "unheard of", MPI_INFO_NULL));
    /* Types that are not committed. */
    MPI_Datatype loose;
    MPI_Type_vector(2, 1, 2, MPI_BYTE, &loose);
    char pair[4] = {1, 2, 3, 4};
    code = MPI_File_write_at(file, 0, pair, 1, loose, MPI_STATUS_IGNORE);
    FAILS(MPI_ERR_TYPE, code);
    message_has(code, "MPI_Type_commit");
    FAILS(MPI_ERR_TYPE, MPI_File_write_at_all(file, 0, pair, 1, loose, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_TYPE, MPI_File_set_view(file, 0, MPI_BYTE, loose, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_TYPE, MPI_File_set_view(file, 0, loose, loose, "native", MPI_INFO_NULL));
    MPI_Type_commit(&loose);
    OK(MPI_File_write_at_all(file, 0, pair, 1, loose, MPI_STATUS_IGNORE));
    MPI_Type_free(&loose);
    /* Beyond the last byte that a file can have. */
    MPI_Offset end = 0x7ffffffffffffffb;
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, end, pair, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_write_at_all(file, end, pair, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    /* Two split collectives at once, and an end without a begin. */
    OK(MPI_File_write_all_begin(file, &byte, 1, MPI_BYTE));
    CHECK(MPI_File_write_all_begin(file, &byte, 1, MPI_BYTE) != MPI_SUCCESS);
    CHECK(MPI_File_write_at_all_end(file, &byte, &status) != MPI_SUCCESS);
    OK(MPI_File_write_all_end(file, &byte, &status));
    COUNTS(1, status, MPI_BYTE);
    CHECK(MPI_File_write_all_end(file, &byte, &status) != MPI_SUCCESS);
    OK(MPI_File_close(&file));
}

/* Extents beyond 2^63 and other nonsense that MPI lets through. */
static void absurd(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "absurd");
    MPI_Datatype a, b;
    MPI_Type_create_resized(MPI_BYTE, 0, (MPI_Aint)1 << 60, &a);
    MPI_Type_vector(1 << 20, 1, 1 << 20, a, &b);
    MPI_Type_commit(&b);
    char byte = 1;
    FAILS(MPI_ERR_TYPE, MPI_File_write_at(file, 0, &byte, 1, b, MPI_STATUS_IGNORE));
    MPI_Type_free(&a);
    MPI_Type_free(&b);
    OK(MPI_File_close(&file));
}

/* Displacements of a filetype never decrease, whether the file is written or not; for reading they may overlap. */
static void views(void) {
    char name[1024];
    strcpy(name, new_name("views"));
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    int places[2] = {1, 0}, same[2] = {1, 1}, values[2] = {7, 8};
    MPI_Datatype back, twice;
    MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &back);
    MPI_Type_create_indexed_block(2, 1, same, MPI_INT, &twice);
    MPI_Type_commit(&back);
    MPI_Type_commit(&twice);
    OK(MPI_File_write_at_all(file, 0, values, 2, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, 0, MPI_INT, back, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, 0, MPI_INT, twice, "native", MPI_INFO_NULL));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, 0, MPI_INT, back, "native", MPI_INFO_NULL));
    OK(MPI_File_set_view(file, 0, MPI_INT, twice, "native", MPI_INFO_NULL));
    int read[2] = {0, 0};
    OK(MPI_File_read_at_all(file, 0, read, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(read[0] == 8 && read[1] == 8);
    OK(MPI_File_close(&file));
    MPI_Type_free(&back);
    MPI_Type_free(&twice);
    /* A sequential file has no pointer that could be set. */
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_close(&file));
}

static void handlers(void) {
    MPI_Errhandler mine, got;
    OK(MPI_File_create_errhandler(handler, &mine));
    MPI_File file = open_new(MPI_COMM_WORLD, "handlers");
    OK(MPI_File_get_errhandler(file, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&got);
    OK(MPI_File_set_errhandler(file, mine));
    /* The file keeps it alive. */
    MPI_Errhandler other = mine;
    MPI_Errhandler_free(&mine);
    CHECK(mine == MPI_ERRHANDLER_NULL);
    char byte;
    int code = MPI_File_write_at(file, 0, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE);
    CHECK(heard == 1 && heard_code == code && heard_file == file);
    OK(MPI_File_get_errhandler(file, &got));
    CHECK(got == other);
    MPI_Errhandler_free(&got);
    OK(MPI_File_call_errhandler(file, MPI_ERR_QUOTA));
    CHECK(heard == 2 && heard_code == MPI_ERR_QUOTA);
    /* Also of requests: the call that completes them tells. */
    MPI_File reader;
    char name[1024];
    strcpy(name, new_name("reader"));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &reader));
    OK(MPI_File_set_errhandler(reader, other));
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int started = MPI_File_iread_at_all(reader, 0, &byte, 1, MPI_BYTE, &requests[0]);
    if (started == MPI_SUCCESS) {
        OK(MPI_File_iwrite_at(file, rank, &byte, 1, MPI_BYTE, &requests[1]));
        FAILS(MPI_ERR_IN_STATUS, MPI_Waitall(2, requests, statuses));
        FAILS(MPI_ERR_ACCESS, statuses[0].MPI_ERROR);
        OK(statuses[1].MPI_ERROR);
        COUNTS(1, statuses[1], MPI_BYTE);
    }
    CHECK(heard == 3);
    /* The code is the handler's to change. */
    MPI_Errhandler calm;
    OK(MPI_File_create_errhandler(forgiving, &calm));
    OK(MPI_File_set_errhandler(reader, calm));
    OK(MPI_File_read_at(reader, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(heard == 4);
    OK(MPI_File_iread_at_all(reader, 0, &byte, 1, MPI_BYTE, &requests[0]));
    OK(MPI_Wait(&requests[0], &statuses[0]));
    OK(MPI_File_iread_at_all(reader, 0, &byte, 1, MPI_BYTE, &requests[0]));
    OK(MPI_Waitall(1, requests, statuses));
    CHECK(heard == 6);
    heard = 3;
    MPI_Errhandler_free(&calm);
    OK(MPI_File_close(&reader));
    OK(MPI_File_close(&file));

    /* What MPI_FILE_NULL has, new files get, and calls without a file raise. */
    MPI_Errhandler before;
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &before));
    OK(MPI_File_create_errhandler(handler, &mine));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, mine));
    code = MPI_File_open(MPI_COMM_WORLD, new_name("none"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    CHECK(heard == 4 && heard_file == MPI_FILE_NULL && heard_code == code);
    file = open_new(MPI_COMM_WORLD, "heir");
    OK(MPI_File_call_errhandler(file, MPI_ERR_IO));
    CHECK(heard == 5 && heard_file == file);
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
    OK(MPI_File_call_errhandler(file, MPI_ERR_IO));
    CHECK(heard == 5);
    OK(MPI_File_close(&file));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, before));
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&mine);
}

static void closed(void) {
    MPI_File file = open_new(MPI_COMM_WORLD, "closed"), stale = file;
    OK(MPI_File_close(&file));
    char byte;
    FAILS(MPI_ERR_FILE, MPI_File_read_at(stale, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_Offset bytes;
    FAILS(MPI_ERR_FILE, MPI_File_get_size(stale, &bytes));
    FAILS(MPI_ERR_FILE, MPI_File_close(&stale));
}

void test_errors(void) {
    opening();
    accesses();
    absurd();
    views();
    handlers();
    closed();
}
