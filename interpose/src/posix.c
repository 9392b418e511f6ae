/* POSIX calls on files. Each shape of functions.txt is a macro; names of parameters are those of the table. */
#define _GNU_SOURCE
#include "real.h"
#include "raw.h"

#include <aio.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAPPED_STORES = 146 };

#define BEGIN(operation) (!is_own_code(CALLER) && call_begin(&call, LAYER_POSIX, operation, CALLER, false))
/* Errno is the function's, whatever is done behind it. */
#define END(file, offset, bytes, failed)                                                                               \
    do {                                                                                                               \
        int error = errno;                                                                                             \
        call_stop(&call);                                                                                              \
        call_end(&call, file, offset, bytes, (failed) ? error : 0);                                                    \
        errno = error;                                                                                                 \
    } while (0)

/* Bytes at the descriptor's position. */
#define CURRENT(operation, result, name, parameters, arguments)                                                        \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd);                                                                          \
        struct call call;                                                                                              \
        if (!file)                                                                                                     \
            return REAL(name) arguments;                                                                               \
        uint32_t number = file->number;                                                                                \
        bool recorded = BEGIN(operation);                                                                              \
        result moved = REAL(name) arguments;                                                                           \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        int64_t at = file_move(file, fd, moved);                                                                       \
        if (recorded)                                                                                                  \
            call_end(&call, number, at, moved, moved < 0 ? error : 0);                                                 \
        errno = error;                                                                                                 \
        return moved;                                                                                                  \
    }

/* Bytes at an offset; -1, which the vectored forms with flags know, is the position. */
#define AT(operation, result, name, parameters, arguments)                                                             \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd);                                                                          \
        struct call call;                                                                                              \
        if (!file)                                                                                                     \
            return REAL(name) arguments;                                                                               \
        uint32_t number = file->number;                                                                                \
        bool recorded = BEGIN(operation);                                                                              \
        result moved = REAL(name) arguments;                                                                           \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        int64_t at = offset == -1 ? file_move(file, fd, moved) : offset;                                               \
        if (recorded)                                                                                                  \
            call_end(&call, number, at, moved, moved < 0 ? error : 0);                                                 \
        errno = error;                                                                                                 \
        return moved;                                                                                                  \
    }

/* From the file `fd`. */
#define SEND(operation, result, name, parameters, arguments)                                                           \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd), *target = file_of(out);                                                  \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        int64_t begin = at ? *at : 0;                                                                                  \
        bool recorded = file && BEGIN(operation);                                                                      \
        result moved = REAL(name) arguments;                                                                           \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        if (target)                                                                                                    \
            file_move(target, out, moved);                                                                             \
        if (file && !at)                                                                                               \
            begin = file_move(file, fd, moved);                                                                        \
        if (recorded)                                                                                                  \
            call_end(&call, number, begin, moved, moved < 0 ? error : 0);                                              \
        errno = error;                                                                                                 \
        return moved;                                                                                                  \
    }

/* To the file `fd`. */
#define COPY(operation, result, name, parameters, arguments)                                                           \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd), *source = file_of(from);                                                 \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        int64_t begin = at ? *at : 0;                                                                                  \
        bool recorded = file && BEGIN(operation);                                                                      \
        result moved = REAL(name) arguments;                                                                           \
        int error = errno;                                                                                             \
        if (recorded)                                                                                                  \
            call_stop(&call);                                                                                          \
        if (source && !from_at)                                                                                        \
            file_move(source, from, moved);                                                                            \
        if (file && !at)                                                                                               \
            begin = file_move(file, fd, moved);                                                                        \
        if (recorded)                                                                                                  \
            call_end(&call, number, begin, moved, moved < 0 ? error : 0);                                              \
        errno = error;                                                                                                 \
        return moved;                                                                                                  \
    }

/* The end of an opening call. */
static void opened(struct call *call, bool recorded, int fd, int error, int directory, const char *path, int flags) {
    if (recorded)
        call_stop(call);
    if (fd >= 0)
        file_opened(fd, directory, path, flags);
    if (recorded) {
        struct open_file *file = fd >= 0 ? file_of(fd) : NULL;
        uint32_t number = file ? file->number : fd >= 0 ? FILE_LEFT_OUT : file_named(directory, path);
        call_end(call, number, 0, 0, fd < 0 ? error : 0);
    }
    errno = error;
}

#define OPENING(operation, name, parameters, arguments, directory, flags)                                              \
    DEFINE(int, name, parameters) {                                                                                    \
        struct call call;                                                                                              \
        bool recorded = BEGIN(operation);                                                                              \
        int fd = REAL(name) arguments;                                                                                 \
        if (settings.on)                                                                                               \
            opened(&call, recorded, fd, errno, directory, path, flags);                                                \
        return fd;                                                                                                     \
    }
#define OPEN(operation, result, name, parameters, arguments) OPENING(operation, name, parameters, arguments, AT_FDCWD, flags)
#define CREATE(operation, result, name, parameters, arguments) OPENING(operation, name, parameters, arguments, AT_FDCWD, 0)
#define OPENAT(operation, result, name, parameters, arguments) OPENING(operation, name, parameters, arguments, directory, flags)
#define TEMPORARY(operation, result, name, parameters, arguments) OPENING(operation, name, parameters, arguments, AT_FDCWD, 0)

#define CLOSE(operation, result, name, parameters, arguments)                                                          \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = settings.on && process->generation ? file_of(fd) : NULL;                              \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && process_is_own() && BEGIN(operation);                                                  \
        /* Before: another thread may be given the descriptor at once. */                                              \
        file_closed(fd);                                                                                               \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, 0, 0, done < 0);                                                                               \
        return done;                                                                                                   \
    }

#define DUPLICATE(operation, result, name, parameters, arguments)                                                      \
    DEFINE(result, name, parameters) {                                                                                 \
        result made = REAL(name) arguments;                                                                            \
        file_duplicated(fd, made);                                                                                     \
        return made;                                                                                                   \
    }
#define CONTROL(operation, result, name, parameters, arguments)                                                        \
    DEFINE(result, name, parameters) {                                                                                 \
        result made = REAL(name) arguments;                                                                            \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)                                                          \
            file_duplicated(fd, made);                                                                                 \
        return made;                                                                                                   \
    }
#define FORGET(operation, result, name, parameters, arguments)                                                         \
    DEFINE(result, name, parameters) {                                                                                 \
        if (!(flags & 4 /* CLOSE_RANGE_CLOEXEC */))                                                                    \
            files_closed(first, last);                                                                                 \
        return REAL(name) arguments;                                                                                   \
    }
#define FORGET_FROM(operation, result, name, parameters, arguments)                                                    \
    DEFINE(result, name, parameters) {                                                                                 \
        files_closed(first < 0 ? 0 : (unsigned)first, UINT32_MAX);                                                     \
        REAL(name) arguments;                                                                                          \
    }
/* Positions are shared with the child. */
#define FORK(operation, result, name, parameters, arguments)                                                           \
    DEFINE(result, name, parameters) {                                                                                 \
        files_shared();                                                                                                \
        return REAL(name) arguments;                                                                                   \
    }

/* A call on a descriptor with an offset and bytes. */
#define ON_FILE(operation, result, name, parameters, arguments, offset, bytes, failed)                                 \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd);                                                                          \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, offset, bytes, failed);                                                                        \
        return done;                                                                                                   \
    }
#define FLUSH(operation, result, name, parameters, arguments) \
    ON_FILE(operation, result, name, parameters, arguments, 0, 0, done < 0)
#define DESCRIPTOR FLUSH
#define VERSION_FD FLUSH
#define RANGE(operation, result, name, parameters, arguments) \
    ON_FILE(operation, result, name, parameters, arguments, offset, length, done < 0)
#define RESERVE RANGE
#define RESIZE(operation, result, name, parameters, arguments) \
    ON_FILE(operation, result, name, parameters, arguments, length, 0, done < 0)
#define RESERVE_NUMBER(operation, result, name, parameters, arguments)                                                 \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd);                                                                          \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            call_end(&call, number, offset, length, done);                                                             \
        return done;                                                                                                   \
    }
#define SEEK(operation, result, name, parameters, arguments)                                                           \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = file_of(fd);                                                                          \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        if (file && done >= 0)                                                                                         \
            __atomic_store_n(&file->position, done, __ATOMIC_RELAXED);                                                 \
        if (recorded)                                                                                                  \
            END(number, done, 0, done < 0);                                                                            \
        return done;                                                                                                   \
    }
/* Stores to a shared mapping are not seen: the mapping itself says so. */
#define MAP(operation, result, name, parameters, arguments)                                                            \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = fd < 0 || flags & MAP_ANONYMOUS ? NULL : file_of(fd);                                 \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool stores = (flags & MAP_TYPE) != MAP_PRIVATE && protection & PROT_WRITE;                                    \
        bool recorded = file && BEGIN(stores ? MAPPED_STORES : operation);                                             \
        if (unlikely(!real_##name))                                                                                    \
            reals_find();                                                                                              \
        if (unlikely(!real_##name)) {                                                                                  \
            long at = raw(SYS_mmap, address, length, protection, flags, fd, offset);                                   \
            if (at >= 0 || at < -4095)                                                                                 \
                return (result)at;                                                                                     \
            errno = (int)-at;                                                                                          \
            return MAP_FAILED;                                                                                         \
        }                                                                                                              \
        result done = real_##name arguments;                                                                           \
        if (recorded)                                                                                                  \
            END(number, offset, (int64_t)length, done == MAP_FAILED);                                                  \
        return done;                                                                                                   \
    }

/* A call on a name. */
#define ON_NAME(operation, result, name, parameters, arguments, directory, offset)                                     \
    DEFINE(result, name, parameters) {                                                                                 \
        struct call call;                                                                                              \
        if (!BEGIN(operation))                                                                                         \
            return REAL(name) arguments;                                                                               \
        uint32_t number = file_named(directory, path);                                                                 \
        call.begin = now();                                                                                            \
        result done = REAL(name) arguments;                                                                            \
        END(number, offset, 0, done < 0);                                                                              \
        return done;                                                                                                   \
    }
#define NAME(operation, result, name, parameters, arguments) ON_NAME(operation, result, name, parameters, arguments, AT_FDCWD, 0)
#define VERSION_NAME NAME
#define NAME_AT(operation, result, name, parameters, arguments) ON_NAME(operation, result, name, parameters, arguments, directory, 0)
#define NAME_RESIZE(operation, result, name, parameters, arguments) \
    ON_NAME(operation, result, name, parameters, arguments, AT_FDCWD, length)

#define AIO(operation, result, name, parameters, arguments)                                                            \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = request ? file_of(request->aio_fildes) : NULL;                                        \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        int64_t at = recorded ? request->aio_offset : 0, bytes = recorded ? (int64_t)request->aio_nbytes : 0;          \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, at, bytes, done < 0);                                                                          \
        return done;                                                                                                   \
    }
#define AIO_FLUSH(operation, result, name, parameters, arguments)                                                      \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = request ? file_of(request->aio_fildes) : NULL;                                        \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, 0, 0, done < 0);                                                                               \
        return done;                                                                                                   \
    }
#define AIO_RETURN(operation, result, name, parameters, arguments)                                                     \
    DEFINE(result, name, parameters) {                                                                                 \
        struct open_file *file = request ? file_of(request->aio_fildes) : NULL;                                        \
        struct call call;                                                                                              \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        int64_t at = recorded ? request->aio_offset : 0;                                                               \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, at, done, done < 0);                                                                           \
        return done;                                                                                                   \
    }
/* The bytes of its reads and writes together, under the file of the first. */
#define AIO_LIST(operation, result, name, parameters, arguments)                                                       \
    DEFINE(result, name, parameters) {                                                                                 \
        struct call call;                                                                                              \
        struct open_file *file = NULL;                                                                                 \
        int64_t bytes = 0;                                                                                             \
        for (int i = 0; settings.on && i < count; i++)                                                                 \
            if (requests[i] && requests[i]->aio_lio_opcode != LIO_NOP) {                                               \
                if (!file)                                                                                             \
                    file = file_of(requests[i]->aio_fildes);                                                           \
                bytes += (int64_t)requests[i]->aio_nbytes;                                                             \
            }                                                                                                          \
        uint32_t number = file ? file->number : FILE_LEFT_OUT;                                                         \
        bool recorded = file && BEGIN(operation);                                                                      \
        result done = REAL(name) arguments;                                                                            \
        if (recorded)                                                                                                  \
            END(number, 0, bytes, done < 0);                                                                           \
        return done;                                                                                                   \
    }

#include "posix.inc"
