/* Penstock's client library for C: names, and bytes of files, without MPI.
 *
 * Link with libpenstock_capi.a (cargo build -p penstock-capi), -lpthread -ldl -lm.
 *
 * Functions return 0 or a count of bytes, and -1 on failure. Then penstock_last_error() says what went
 * wrong, where, and what to do, and penstock_last_errno() gives the nearest errno. Both belong to the
 * calling thread. A client and its files may be used by several threads at once.
 */
#ifndef PENSTOCK_CLIENT_H
#define PENSTOCK_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_client penstock_client;
typedef struct penstock_file penstock_file;

/* How to open a file; or together. */
enum {
    PENSTOCK_READ = 1,
    PENSTOCK_WRITE = 2,
    PENSTOCK_CREATE = 4,   /* create it if it does not exist, mode 0644 less the umask */
    PENSTOCK_EXCLUSIVE = 8 /* with PENSTOCK_CREATE: it must not exist */
};

/* A regular pattern: `block` bytes, repeated counts[0] times every strides[0] bytes, all that counts[1]
 * times every strides[1] bytes, and so on. Levels are 0 to levels-1, innermost first. The pattern begins
 * at `offset` (a file offset, or a distance from the buffer's start). At most 16 levels; 0 levels = one
 * block. */
typedef struct penstock_loop {
    int64_t offset;
    uint64_t block;
    size_t levels;
    const uint64_t *counts;
    const int64_t *strides;
} penstock_loop;

typedef struct penstock_stat {
    uint64_t size;
    uint64_t id;
    uint32_t mode; /* permission bits */
    uint32_t uid;
    uint32_t gid;
    int is_directory;
    int64_t mtime_ns; /* since the epoch */
    uint64_t stripe_unit;   /* 0 for a directory */
    uint32_t stripe_count;  /* 0 for a directory */
} penstock_stat;

/* A client of the deployment that this file (deployment.toml) describes. `program`: a number that all processes of a
   parallel program have, and no other; 0: what $PENSTOCK_PROGRAM or the launcher says. `rank`: the process within it. */
penstock_client *penstock_connect(const char *deployment, uint64_t program, uint32_t rank);
/* Files stay usable; each is closed by itself. */
void penstock_disconnect(penstock_client *client);

/* NULL on failure. */
penstock_file *penstock_open(penstock_client *client, const char *path, int flags);
/* Does not sync. */
void penstock_close(penstock_file *file);

/* Bytes before the end of the file; less than `n` only there. */
int64_t penstock_pread(penstock_file *file, void *buffer, size_t n, uint64_t offset);
/* All `n` bytes. */
int64_t penstock_pwrite(penstock_file *file, const void *buffer, size_t n, uint64_t offset);

/* One request per data server, however many pieces there are. Both loops have the same number of bytes;
 * memory == NULL means contiguous. The buffer must hold every byte that `memory` describes. */
int64_t penstock_read_loop(penstock_file *file, const penstock_loop *in_file, void *buffer,
                           const penstock_loop *in_memory);
int64_t penstock_write_loop(penstock_file *file, const penstock_loop *in_file, const void *buffer,
                            const penstock_loop *in_memory);

/* Length in bytes. */
int64_t penstock_length(penstock_file *file);
int penstock_set_length(penstock_file *file, uint64_t length);
/* Everything acknowledged so far is on stable storage at all servers. */
int penstock_sync(penstock_file *file);

int penstock_stat_path(penstock_client *client, const char *path, penstock_stat *out);
int penstock_unlink(penstock_client *client, const char *path);
int penstock_mkdir(penstock_client *client, const char *path, uint32_t mode);

/* Of the calling thread's last failure; the text is valid until its next call. */
const char *penstock_last_error(void);
int penstock_last_errno(void);

#ifdef __cplusplus
}
#endif
#endif
