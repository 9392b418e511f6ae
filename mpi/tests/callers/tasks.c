/* What a task of a launcher writes, which may be a rank or a program of its own.
 *
 * tasks write|own|read|delete|twice|self|hold FILE DIRECTORY: 1000 letters, those of this task, to FILE (own: FILE.NUMBER), at
 * the place of its rank. In DIRECTORY, which is no file system of Penstock's, tasks wait for each other: launchers end all tasks
 * when one fails. hold: until another task was refused the file is kept open.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 1000, PATIENCE = 600 };

/* A file in the directory says what has happened. */
static char written[1024], lost[1024];

static void say(const char *name) {
    FILE *file = fopen(name, "w");
    if (file)
        fclose(file);
}

static void await(const char *name) {
    for (int i = 0; i < PATIENCE && access(name, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
}

static int number(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return 0;
}

static void refused(const char *what, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("%s refused: %s\n", what, text);
    fflush(stdout);
    say(lost);
    await(written);
    MPI_Finalize();
    exit(3);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const char *how = argv[1];
    char name[1024], letters[LENGTH];
    snprintf(lost, sizeof lost, "%s/lost", argv[3]);
    snprintf(written, sizeof written, "%s/written", argv[3]);
    snprintf(name, sizeof name, strcmp(how, "own") == 0 ? "%s.%d" : "%s", argv[2], number());
    memset(letters, 'a' + number(), sizeof letters);
    int rank, code;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm comm = strcmp(how, "self") == 0 ? MPI_COMM_SELF : MPI_COMM_WORLD;
    int amode = strcmp(how, "read") == 0 ? MPI_MODE_RDONLY : MPI_MODE_CREATE | MPI_MODE_RDWR;
    if (strcmp(how, "delete") == 0 && rank == 0) {
        code = MPI_File_delete(name, MPI_INFO_NULL);
        int class = MPI_SUCCESS;
        if (code != MPI_SUCCESS)
            MPI_Error_class(code, &class);
        if (class != MPI_SUCCESS && class != MPI_ERR_NO_SUCH_FILE)
            refused("delete", code);
    }
    MPI_File file, again = MPI_FILE_NULL;
    code = MPI_File_open(comm, name, amode, MPI_INFO_NULL, &file);
    if (code != MPI_SUCCESS)
        refused("open", code);
    if (strcmp(how, "twice") == 0 && (code = MPI_File_open(comm, name, amode, MPI_INFO_NULL, &again)) != MPI_SUCCESS)
        refused("second open", code);
    if (strcmp(how, "read") == 0)
        code = MPI_File_read_at(file, rank * LENGTH, letters, LENGTH, MPI_CHAR, MPI_STATUS_IGNORE);
    else
        code = MPI_File_write_at(file, rank * LENGTH, letters, LENGTH, MPI_CHAR, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (strcmp(how, "hold") == 0)
        await(lost);
    if (again != MPI_FILE_NULL)
        MPI_File_close(&again);
    MPI_File_close(&file);
    printf("task %d rank %d done\n", number(), rank);
    fflush(stdout);
    say(written);
    MPI_Finalize();
    return 0;
}
