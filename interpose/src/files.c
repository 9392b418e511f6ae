/* Which file is behind a descriptor, and behind a library's handle.
 *
 * A descriptor that was opened out of sight (before this library, by exec's parent, within the C library) is looked up when it
 * is first used. Files are numbered as they are opened; the collector brings equal names together.
 */
#define _GNU_SOURCE
#include "call.h"
#include "raw.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors above are not followed: they are recorded without a file. */
enum { DESCRIPTORS = 65536 };
static struct open_file table[DESCRIPTORS];
static struct open_file beyond = {.number = 0, .asked = 1};
static unsigned highest;

bool process_is_own(void) {
    return process->pid == (pid_t)raw(SYS_getpid);
}

/* Sends a name to the collector. */
static uint32_t announce(const char *path, uint64_t id) {
    uint32_t number = __atomic_add_fetch(&process->next_file, 1, __ATOMIC_RELAXED);
    size_t length = strnlen(path, PATH_ROOM);
    struct slot slot = {.kind = SLOT_NAME, .file = number, .bytes = length, .id = id};
    ring_push(&slot, path, length);
    return number;
}

static bool is_kept(int fd) {
    struct stat status;
    return raw(SYS_fstat, fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

/* The kernel's name of a descriptor's file. */
static bool name_of(int fd, char *path) {
    char link[32] = "/proc/self/fd/";
    size_t n = strlen(link);
    char digits[12];
    int count = 0;
    do
        digits[count++] = (char)('0' + fd % 10);
    while (fd /= 10);
    while (count)
        link[n++] = digits[--count];
    link[n] = 0;
    long length = raw(SYS_readlinkat, AT_FDCWD, link, path, PATH_ROOM - 1);
    if (length <= 0)
        return false;
    path[length] = 0;
    static const char gone[] = " (deleted)";
    size_t tail = sizeof gone - 1;
    if ((size_t)length > tail && strcmp(path + length - tail, gone) == 0)
        path[(size_t)length - tail] = 0;
    return true;
}

/* The path as the kernel would begin it: absolute. */
static bool absolute(int directory, const char *path, char *to) {
    size_t at = 0;
    if (path[0] != '/') {
        if (directory == AT_FDCWD) {
            if (raw(SYS_getcwd, to, PATH_ROOM) < 0)
                return false;
        } else if (!name_of(directory, to)) {
            return false;
        }
        at = strlen(to);
        while (path[0] == '.' && path[1] == '/')
            path += 2;
        if (at && to[at - 1] != '/')
            to[at++] = '/';
    }
    size_t length = strnlen(path, PATH_ROOM);
    if (at + length >= PATH_ROOM)
        return false;
    memcpy(to + at, path, length);
    to[at + length] = 0;
    return true;
}

uint32_t file_named(int directory, const char *path) {
    char name[PATH_ROOM];
    if (!path || !process_attached() || !absolute(directory, path, name))
        return 0;
    return settings_choose(name) ? announce(name, 0) : FILE_LEFT_OUT;
}

uint32_t file_of_deployment(const char *path, uint64_t id) {
    /* What is left out unless asked for are directories of hosts; names of a deployment are no such. */
    return settings.files[0] && !settings_choose(path) ? FILE_LEFT_OUT : announce(path, id);
}

static void note_highest(unsigned fd) {
    unsigned seen = __atomic_load_n(&highest, __ATOMIC_RELAXED);
    while (fd >= seen && !__atomic_compare_exchange_n(&highest, &seen, fd + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void enter(int fd, const char *name, bool asked) {
    struct open_file *file = &table[fd];
    file->position = 0;
    file->asked = asked;
    __atomic_store_n(&file->number, name && settings_choose(name) ? announce(name, 0) : FILE_LEFT_OUT, __ATOMIC_RELEASE);
    note_highest((unsigned)fd);
}

struct open_file *file_of(int fd) {
    if (fd < 0 || !settings.on || !process_attached())
        return NULL;
    if (unlikely(fd >= DESCRIPTORS))
        return is_kept(fd) ? &beyond : NULL;
    uint32_t number = __atomic_load_n(&table[fd].number, __ATOMIC_ACQUIRE);
    if (unlikely(number == NOT_SEEN)) {
        char name[PATH_ROOM];
        struct stat status;
        if (raw(SYS_fstat, fd, &status) < 0)
            return NULL;
        /* Others may hold it, too. */
        enter(fd, is_kept(fd) && name_of(fd, name) ? name : NULL, true);
        number = table[fd].number;
        table[fd].position = number == FILE_LEFT_OUT ? 0 : raw(SYS_lseek, fd, 0, SEEK_CUR);
    }
    return number == FILE_LEFT_OUT ? NULL : &table[fd];
}

void file_opened(int fd, int directory, const char *path, int flags) {
    if (fd < 0 || fd >= DESCRIPTORS || !settings.on || !process_attached() || !process_is_own())
        return;
    char name[PATH_ROOM];
    /* Where the path leads through links or . and .., the kernel says where it ended. */
    bool plain = path && path[0] == '/' && !strstr(path, "/.") && absolute(directory, path, name);
    bool named = is_kept(fd) && (plain || name_of(fd, name));
    enter(fd, named ? name : NULL, flags & O_APPEND);
}

void file_closed(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS && table[fd].number != NOT_SEEN && settings.on && process_is_own())
        __atomic_store_n(&table[fd].number, NOT_SEEN, __ATOMIC_RELEASE);
}

void files_closed(unsigned first, unsigned last) {
    if (!settings.on || !process_is_own())
        return;
    for (unsigned fd = first; fd <= last && fd < highest; fd++)
        table[fd].number = NOT_SEEN;
}

void file_duplicated(int from, int to) {
    if (from < 0 || to < 0 || from == to || !settings.on || !process_is_own())
        return;
    struct open_file file = {0};
    if (from < DESCRIPTORS) {
        table[from].asked = 1;
        file = table[from];
    }
    if (to < DESCRIPTORS) {
        table[to] = file;
        note_highest((unsigned)to);
    }
}

void files_shared(void) {
    for (unsigned fd = 0; fd < highest; fd++)
        table[fd].asked = 1;
}

int64_t file_move(struct open_file *file, int fd, int64_t moved) {
    if (file->asked) {
        long at = raw(SYS_lseek, fd, 0, SEEK_CUR);
        return at >= 0 ? at - (moved > 0 ? moved : 0) : 0;
    }
    return __atomic_fetch_add(&file->position, moved > 0 ? moved : 0, __ATOMIC_RELAXED);
}

/* Handles of libraries: a table with places by hash. When it is full, new handles have no file. */
enum { HANDLES = 8192, PROBES = 16 };
static struct {
    uint64_t key;
    uint32_t number;
} handles[HANDLES];

void files_forget(void) {
    for (unsigned fd = 0; fd < highest; fd++)
        table[fd].number = NOT_SEEN;
    highest = 0;
    memset(handles, 0, sizeof handles);
}

static uint64_t key_of(enum layer layer, uint64_t handle) {
    return (handle << 3 | (uint64_t)layer) + 1;
}

static unsigned place_of(uint64_t key) {
    return (unsigned)(key * 0x9e3779b97f4a7c15u >> 51);
}

void handle_set(enum layer layer, uint64_t handle, uint32_t number) {
    uint64_t key = key_of(layer, handle);
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned at = (place_of(key) + i) % HANDLES;
        uint64_t there = __atomic_load_n(&handles[at].key, __ATOMIC_ACQUIRE);
        /* Given back: the number is NOT_SEEN. */
        if (there == key || ((there == 0 || handles[at].number == NOT_SEEN) &&
                             __atomic_compare_exchange_n(&handles[at].key, &there, key, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))) {
            __atomic_store_n(&handles[at].number, number, __ATOMIC_RELEASE);
            return;
        }
    }
}

uint32_t handle_get(enum layer layer, uint64_t handle) {
    uint64_t key = key_of(layer, handle);
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned at = (place_of(key) + i) % HANDLES;
        uint64_t there = __atomic_load_n(&handles[at].key, __ATOMIC_ACQUIRE);
        if (there == key)
            return __atomic_load_n(&handles[at].number, __ATOMIC_ACQUIRE);
        if (there == 0)
            break;
    }
    return 0;
}
