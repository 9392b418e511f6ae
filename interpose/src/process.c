/* This process's ring in shared memory, and the collector that empties it.
 *
 * A session is the trace of one directory on one host: /dev/shm/penstock-UID/HASH, HASH of the directory's path. A process
 * makes PID-START.ring there when it first records something; the collector (`penstock collect DIRECTORY`), which holds a lock
 * on `lock`, maps the ring, removes its name and empties it. Who finds nobody holding the lock starts the collector. All
 * directories and files are the user's alone; others' directories and links are refused.
 */
#define _GNU_SOURCE
#include "real.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/wait.h>
#include <sched.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Thread_local struct thread self __attribute__((tls_model("initial-exec"), visibility("hidden")));

static struct process fallback;
struct process *process = &fallback;

/* Where rings lie; the disk if there is no shared memory. */
static const char *const bases[] = {"/dev/shm", "/tmp"};

struct text {
    size_t length;
    char bytes[PATH_ROOM + 64];
};

static void add(struct text *text, const char *part) {
    for (; *part && text->length + 1 < sizeof text->bytes; part++)
        text->bytes[text->length++] = *part;
    text->bytes[text->length] = 0;
}

static void add_number(struct text *text, uint64_t number, unsigned base) {
    char digits[24];
    size_t n = sizeof digits;
    digits[--n] = 0;
    do
        digits[--n] = "0123456789abcdef"[number % base];
    while ((number /= base) && n);
    add(text, digits + n);
}

void process_prepare(void) {
    if (!settings.on)
        return;
    long page = raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page < 0 && page > -4096)
        settings.on = false;
    else if (raw(SYS_madvise, page, 4096, MADV_WIPEONFORK) < 0) {
        say("the kernel is older than 4.14", "");
        settings.on = false;
    } else
        process = (struct process *)page;
}

/* A directory of the user's own, made if it is missing. */
static bool own_directory(const char *path) {
    struct stat status;
    long made = raw(SYS_mkdirat, AT_FDCWD, path, 0700);
    if (made < 0 && made != -EEXIST)
        return false;
    if (raw(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return S_ISDIR(status.st_mode) && (status.st_mode & 077) == 0 && status.st_uid == (uid_t)raw(SYS_geteuid);
}

/* The session's directory. */
static bool session(struct text *path) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = settings.directory; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        path->length = 0;
        add(path, bases[i]);
        struct stat status;
        if (raw(SYS_newfstatat, AT_FDCWD, path->bytes, &status, 0) < 0)
            continue;
        add(path, "/penstock-");
        add_number(path, (uint64_t)raw(SYS_geteuid), 10);
        if (!own_directory(path->bytes)) {
            say("not a directory of this user's alone: ", path->bytes);
            return false;
        }
        add(path, "/");
        add_number(path, hash, 16);
        if (!own_directory(path->bytes)) {
            say("not a directory of this user's alone: ", path->bytes);
            return false;
        }
        return true;
    }
    say("there is neither /dev/shm nor /tmp", "");
    return false;
}

static long open_own(const char *path, int flags) {
    return raw(SYS_openat, AT_FDCWD, path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Field 22 of /proc/self/stat. */
static uint64_t start_time(void) {
    char text[1024];
    long fd = open_own("/proc/self/stat", O_RDONLY);
    if (fd < 0)
        return 0;
    long n = raw(SYS_read, fd, text, sizeof text - 1);
    raw(SYS_close, fd);
    text[n > 0 ? n : 0] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    uint64_t ticks = 0;
    for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
        ticks = ticks * 10 + (uint64_t)(*at - '0');
    return ticks;
}

static void command_line(char *to, size_t room) {
    long fd = open_own("/proc/self/cmdline", O_RDONLY);
    long n = fd < 0 ? 0 : raw(SYS_read, fd, to, room - 1);
    if (fd >= 0)
        raw(SYS_close, fd);
    for (long i = 0; i + 1 < n; i++)
        if (!to[i])
            to[i] = ' ';
    to[n > 0 ? n : 0] = 0;
}

/* A process of its own, which nobody waits for and which has none of this one's descriptors. */
static bool start_collector(void) {
    if (!settings.collector[0] || raw(SYS_faccessat, AT_FDCWD, settings.collector, 1 /* X_OK */) < 0) {
        say("no collector runs on this host, and PENSTOCK_TRACE_COLLECTOR names no program: ", settings.collector);
        return false;
    }
    extern char **environ;
    static char *kept[64];
    size_t n = 0;
    for (char **one = environ; one && *one && n < 63; one++)
        if (strncmp(*one, "PENSTOCK_", 9) == 0 || strncmp(*one, "PATH=", 5) == 0 || strncmp(*one, "HOME=", 5) == 0)
            kept[n++] = *one;
    kept[n] = NULL;
    char *const words[] = {settings.collector, "collect", settings.directory, NULL};
    /* No signal at its end: the program must not see it. In the child only system calls. */
    long child = raw(SYS_clone, 0, 0, 0, 0, 0);
    if (child == 0) {
        if (raw(SYS_clone, 0, 0, 0, 0, 0) != 0)
            raw(SYS_exit_group, 0);
        raw(SYS_setsid);
        uint64_t none = 0;
        raw(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &none, 0, 8);
        long null = raw(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
        for (int fd = 0; fd < 3 && null >= 0; fd++)
            if (null != fd)
                raw(SYS_dup3, null, fd, 0);
        if (raw(SYS_close_range, 3, ~0u, 0) < 0)
            for (int fd = 3; fd < 65536; fd++)
                raw(SYS_close, fd);
        raw(SYS_chdir, "/");
        raw(SYS_execve, settings.collector, words, kept);
        raw(SYS_exit_group, 127);
    }
    int status;
    if (child > 0)
        while (raw(SYS_wait4, child, &status, __WALL, 0) == -EINTR)
            ;
    return child > 0;
}

/* Maps `room` bytes of a new file, with memory behind them. NULL: there is none. */
static void *map_file(const char *path, size_t room, int flags) {
    long fd = open_own(path, O_RDWR | O_CREAT | flags);
    if (fd < 0)
        return NULL;
    long at = raw(SYS_fallocate, fd, 0, 0, room);
    if (at >= 0)
        at = raw(SYS_mmap, 0, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    raw(SYS_close, fd);
    if (at < 0 && at > -4096) {
        if (flags & O_EXCL)
            raw(SYS_unlinkat, AT_FDCWD, path, 0);
        return NULL;
    }
    return (void *)at;
}

/* Nanoseconds since 1970, and what now() was then: of several readings the one that was interrupted least. */
static uint64_t wall_clock(uint64_t *steady) {
    uint64_t wall = 0, least = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct timespec real;
        uint64_t before = now();
        clock_gettime(CLOCK_REALTIME, &real);
        uint64_t took = now() - before;
        if (took >= least)
            continue;
        least = took;
        *steady = before + took / 2;
        wall = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    }
    return wall;
}

static bool attach(void) {
    struct text path;
    if (!session(&path))
        return false;
    size_t directory = path.length;
    add(&path, "/bell");
    uint32_t *bell = map_file(path.bytes, 4096, 0);
    path.length = directory;

    uint64_t origin = 0, began = wall_clock(&origin);
    pid_t pid = (pid_t)raw(SYS_getpid);
    add(&path, "/");
    add_number(&path, (uint64_t)pid, 10);
    add(&path, "-");
    add_number(&path, began, 10);
    add(&path, ".ring");
    size_t room = settings.room;
    struct ring *ring;
    while (!(ring = map_file(path.bytes, room, O_EXCL)) && room > 128u << 10)
        room /= 2;
    if (!ring) {
        say("no room for a ring: ", path.bytes);
        return false;
    }
    uint32_t slots = 1;
    while ((size_t)slots * 2 * sizeof(struct slot) + RING_HEADER <= room)
        slots *= 2;
    ring->version = RING_VERSION;
    ring->slot_bytes = sizeof(struct slot);
    ring->slots = slots;
    ring->pid = (uint32_t)pid;
    ring->started = start_time();
    ring->began = began;
    ring->program = settings.program;
    ring->rank = settings.rank;
    command_line(ring->command, sizeof ring->command);
    memcpy(ring->job, settings.job, sizeof ring->job);
    memcpy(ring->chosen, settings.words, sizeof ring->chosen);
    __atomic_store_n(&ring->magic, RING_MAGIC, __ATOMIC_RELEASE);

    struct text name = path;
    path.length = directory;
    add(&path, "/lock");
    long lock = open_own(path.bytes, O_RDWR | O_CREAT);
    if (lock >= 0 && raw(SYS_flock, lock, LOCK_EX | LOCK_NB) == 0) {
        raw(SYS_close, lock);
        if (!start_collector()) {
            raw(SYS_unlinkat, AT_FDCWD, name.bytes, 0);
            raw(SYS_munmap, ring, room);
            return false;
        }
    } else if (lock >= 0) {
        raw(SYS_close, lock);
    }

    process->ring = ring;
    process->slots = (struct slot *)((char *)ring + RING_HEADER);
    process->mask = slots - 1;
    process->origin = origin;
    process->pid = pid;
    process->bell = bell;
    files_forget();
    __atomic_store_n(&process->generation, began, __ATOMIC_RELEASE);
    return true;
}

bool process_attach(void) {
    if (!settings.on || __atomic_exchange_n(&process->attaching, 1, __ATOMIC_ACQ_REL) != 0)
        return false;
    if (!attach()) {
        process->attaching = 2;
        /* Each process says it once, and goes on. */
        return false;
    }
    return true;
}

static void ring_wake(void) {
    if (process->bell) {
        __atomic_add_fetch(process->bell, 1, __ATOMIC_RELEASE);
        raw(SYS_futex, process->bell, FUTEX_WAKE, 1, 0, 0, 0);
    }
}

void ring_push(struct slot *first, const void *text, size_t bytes) {
    struct ring *ring = process->ring;
    uint64_t count = 1 + (bytes + sizeof(struct slot) - 1) / sizeof(struct slot);
    uint64_t all = (uint64_t)process->mask + 1;
    uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED), used;
    do {
        used = head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
        if (unlikely(used + count > all)) {
            __atomic_add_fetch(&ring->dropped, 1, __ATOMIC_RELAXED);
            return;
        }
    } while (!__atomic_compare_exchange_n(&ring->head, &head, head + count, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    first->slots = (uint32_t)count;
    first->sequence = 0;
    struct slot *to = &process->slots[head & process->mask];
    *to = *first;
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < sizeof(struct slot) ? bytes - done : sizeof(struct slot);
        memcpy(&process->slots[++head & process->mask], (const char *)text + done, part);
        done += part;
    }
    uint32_t sequence = (uint32_t)(head - (count - 1)) + 1;
    __atomic_store_n(&to->sequence, sequence ? sequence : 1, __ATOMIC_RELEASE);
    if (unlikely(used < all / 2 && used + count >= all / 2))
        ring_wake();
}

/* First of all constructors (the linker's -z initfirst): before anything of the program runs. */
__attribute__((constructor)) static void start(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
    reals_find();
    settings_read(environment);
    process_prepare();
    if (settings.on) {
        patch_own(NULL);
        patch_all();
    }
}
