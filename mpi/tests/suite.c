/* Runs the tests named as arguments (all without), in one MPI program: suite DIRECTORY [TEST...].
 *
 * PENSTOCK_EXPECTED=1 in the environment says that files are Penstock's, whose promises go beyond those of MPI
 * libraries. Without it the same programs run on the MPI library's own MPI-IO, through a library that must not be
 * noticed.
 */
#include "check.h"

#include <stdbool.h>

int rank, size;
static const char *directory;
static int names;

const char *new_name(const char *what) {
    static char name[1024];
    snprintf(name, sizeof name, "%s/%s-%d", directory, what, names++);
    return name;
}

MPI_File open_new(MPI_Comm comm, const char *what) {
    MPI_File file;
    OK(MPI_File_open(comm, new_name(what), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    return file;
}

void fail(const char *file, int line, const char *what) {
    fprintf(stderr, "rank %d: %s:%d: failed: %s\n", rank, file, line, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static void fail_with(const char *file, int line, const char *what, const char *expected, int code) {
    char text[MPI_MAX_ERROR_STRING] = "no error";
    int length;
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s:%d: %s: expected %s, got %d: %s\n", rank, file, line, what, expected, code, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void fail_code(const char *file, int line, const char *what, int code) {
    fail_with(file, line, what, "success", code);
    abort();
}

void fail_class(const char *file, int line, const char *what, const char *class_, int code) {
    fail_with(file, line, what, class_, code);
    abort();
}

int count_of(MPI_Status *status, MPI_Datatype type) {
    int count;
    OK(MPI_Get_count(status, type, &count));
    return count;
}

static const struct {
    const char *name;
    void (*run)(void);
    /* Only of Penstock's files. */
    bool ours;
} tests[] = {
    {"files", test_files, false},           {"access", test_access, false},
    {"shared", test_shared, false},         {"nonblocking", test_nonblocking, false},
    {"split", test_split, false},           {"views", test_views, false},
    {"types", test_types, false},           {"representations", test_representations, true},
    {"errors", test_errors, true},          {"handles", test_handles, false},
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    directory = argc > 1 ? argv[1] : ".";
    const char *expected = getenv("PENSTOCK_EXPECTED");
    bool ours = expected && *expected == '1';
    int ran = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool wanted = argc <= 2;
        for (int a = 2; a < argc; a++)
            wanted |= strcmp(argv[a], tests[i].name) == 0;
        if (!wanted || (tests[i].ours && !ours))
            continue;
        MPI_Barrier(MPI_COMM_WORLD);
        tests[i].run();
        ran++;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("ok %s\n", tests[i].name);
        fflush(stdout);
    }
    MPI_Finalize();
    return ran ? 0 : 2;
}
