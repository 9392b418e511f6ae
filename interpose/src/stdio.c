/* stdio calls on files. What stdio itself asks of the system, it asks within the C library: that is not seen. */
#define _GNU_SOURCE
#include "real.h"
#include "raw.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGIN(operation) (call_begin(&call, LAYER_STDIO, operation, CALLER, false))

static struct open_file *file_behind(FILE *stream, int *fd) {
    if (!settings.on || !stream)
        return NULL;
    int error = errno;
    *fd = fileno_unlocked(stream);
    errno = error;
    return *fd < 0 ? NULL : file_of(*fd);
}

/* Where the stream stands, which the descriptor does not tell. */
static int64_t stdio_move(struct open_file *file, int64_t moved) {
    return __atomic_fetch_add(&file->position, moved > 0 ? moved : 0, __ATOMIC_RELAXED);
}

/* A call that moves `bytes`; `failed` where it did not. The result is `done`. */
#define MOVING(operation, result, name, parameters, arguments, amount, failed)                                         \
    DEFINE(result, name, parameters) {                                                                                 \
        int fd;                                                                                                        \
        struct open_file *file = file_behind(stream, &fd);                                                             \
        struct call call;                                                                                              \
        if (!file)                                                                                                     \
            return REAL(name) arguments;                                                                               \
        uint32_t number = file->number;                                                                                \
        bool recorded = BEGIN(operation);                                                                              \
        result done = REAL(name) arguments;                                                                            \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        int64_t bytes = (int64_t)(amount);                                                                             \
        int64_t at = stdio_move(file, bytes);                                                                          \
        if (recorded)                                                                                                  \
            call_end(&call, number, at, bytes, (failed) ? error : 0);                                                  \
        errno = error;                                                                                                 \
        return done;                                                                                                   \
    }
#define ITEMS(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done * size, done < count && ferror_unlocked(stream))
#define ITEMS_CHECKED ITEMS
#define LINE(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done ? strlen(done) : 0, !done && ferror_unlocked(stream))
#define LINE_CHECKED LINE
#define TEXT(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done < 0 ? 0 : strlen(text), done < 0)
#define CHARACTER(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done != EOF, done == EOF && ferror_unlocked(stream))
#define PUT_CHARACTER(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done != EOF, done == EOF)
#define COUNTED(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, done, done < 0 && ferror_unlocked(stream))
#define COUNTED_VA COUNTED

/* What was read is told by where the stream stands afterwards. */
static int64_t stream_at(FILE *stream) {
    int error = errno;
    int64_t at = ftello(stream);
    errno = error;
    return at;
}
#define MOVED_VA(operation, result, name, parameters, arguments) \
    MOVING(operation, result, name, parameters, arguments, stream_at(stream) - file->position, done == EOF && ferror_unlocked(stream))

/* Those with ... go on to the function that takes a list. */
#define WITH_LIST(operation, result, name, parameters, call_on, amount)                                                \
    DEFINE(result, name, parameters) {                                                                                 \
        int fd;                                                                                                        \
        struct open_file *file = file_behind(stream, &fd);                                                             \
        struct call call;                                                                                              \
        va_list arguments;                                                                                             \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        va_start(arguments, format);                                                                                   \
        result done = call_on;                                                                                         \
        va_end(arguments);                                                                                             \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        if (file) {                                                                                                    \
            int64_t bytes = (int64_t)(amount);                                                                         \
            int64_t at = stdio_move(file, bytes);                                                                      \
            if (recorded)                                                                                              \
                call_end(&call, number, at, bytes, done < 0 ? error : 0);                                              \
        }                                                                                                              \
        errno = error;                                                                                                 \
        return done;                                                                                                   \
    }
#define PRINT(operation, result, name, parameters, unused) \
    WITH_LIST(operation, result, name, parameters, REAL(vfprintf)(stream, format, arguments), done)
#define PRINT_CHECKED(operation, result, name, parameters, unused) \
    WITH_LIST(operation, result, name, parameters, REAL(__vfprintf_chk)(stream, flag, format, arguments), done)
#define SCAN(operation, result, name, parameters, unused) \
    WITH_LIST(operation, result, name, parameters, REAL(vfscanf)(stream, format, arguments), stream_at(stream) - file->position)
#define SCAN_C99(operation, result, name, parameters, unused) \
    WITH_LIST(operation, result, name, parameters, REAL(__isoc99_vfscanf)(stream, format, arguments), stream_at(stream) - file->position)
#define SCAN_C23(operation, result, name, parameters, unused) \
    WITH_LIST(operation, result, name, parameters, REAL(__isoc23_vfscanf)(stream, format, arguments), stream_at(stream) - file->position)

static void opened(struct call *call, bool recorded, FILE *stream, const char *path, const char *mode) {
    int error = errno;
    if (recorded)
        call_stop(call);
    int fd = -1;
    if (stream && (fd = fileno_unlocked(stream)) >= 0)
        file_opened(fd, AT_FDCWD, path, 0);
    struct open_file *file = fd >= 0 ? file_of(fd) : NULL;
    struct stat status;
    /* Those that append begin at the end, those made of a descriptor where that is. */
    if (file && mode && mode[0] == 'a')
        file->position = raw(SYS_fstat, fd, &status) == 0 ? status.st_size : 0;
    else if (file && !path)
        file->position = raw(SYS_lseek, fd, 0, SEEK_CUR);
    if (recorded)
        call_end(call, file ? file->number : stream ? FILE_LEFT_OUT : file_named(AT_FDCWD, path), 0, 0, stream ? 0 : error);
    errno = error;
}
#define OPENING(operation, result, name, parameters, arguments, before, path, mode)                                    \
    DEFINE(result, name, parameters) {                                                                                 \
        struct call call;                                                                                              \
        bool recorded = BEGIN(operation);                                                                              \
        before;                                                                                                        \
        result made = REAL(name) arguments;                                                                            \
        if (settings.on)                                                                                               \
            opened(&call, recorded, made, path, mode);                                                                 \
        return made;                                                                                                   \
    }
#define OPEN(operation, result, name, parameters, arguments) \
    OPENING(operation, result, name, parameters, arguments, (void)0, path, mode)
#define REOPEN(operation, result, name, parameters, arguments) \
    OPENING(operation, result, name, parameters, arguments, if (stream) file_closed(fileno_unlocked(stream)), path, mode)
#define UNNAMED(operation, result, name, parameters, arguments) \
    OPENING(operation, result, name, parameters, arguments, (void)0, NULL, NULL)

#define CLOSE(operation, result, name, parameters, arguments)                                                          \
    DEFINE(result, name, parameters) {                                                                                 \
        int fd = -1;                                                                                                   \
        struct open_file *file = process->generation ? file_behind(stream, &fd) : NULL;                                \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        if (file)                                                                                                      \
            file_closed(fd);                                                                                           \
        result done = REAL(name) arguments;                                                                            \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_end(&call, number, 0, 0, done < 0 ? error : 0);                                                       \
        errno = error;                                                                                                 \
        return done;                                                                                                   \
    }
#define PLACING(operation, result, name, parameters, call_on, failed, back)                                            \
    DEFINE(result, name, parameters) {                                                                                 \
        int fd;                                                                                                        \
        struct open_file *file = file_behind(stream, &fd);                                                             \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        call_on;                                                                                                       \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        if (file) {                                                                                                    \
            int64_t at = stream_at(stream);                                                                            \
            if (at >= 0)                                                                                               \
                file->position = at;                                                                                   \
            if (recorded)                                                                                              \
                call_end(&call, number, at, 0, (failed) ? error : 0);                                                  \
        }                                                                                                              \
        errno = error;                                                                                                 \
        back;                                                                                                          \
    }
#define SEEK(operation, result, name, parameters, arguments) \
    PLACING(operation, result, name, parameters, result done = REAL(name) arguments, done < 0, return done)
#define SET_POSITION SEEK
#define REWIND(operation, result, name, parameters, arguments) \
    PLACING(operation, result, name, parameters, REAL(name) arguments, false, return)
#define FLUSH(operation, result, name, parameters, arguments)                                                          \
    DEFINE(result, name, parameters) {                                                                                 \
        int fd;                                                                                                        \
        struct open_file *file = file_behind(stream, &fd);                                                             \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_end(&call, number, 0, 0, done < 0 ? error : 0);                                                       \
        errno = error;                                                                                                 \
        return done;                                                                                                   \
    }

#include "stdio.inc"
