/* What the parts of the traced process's library share. See docs/decisions/0052 for the mechanism.
 *
 *   settings.c    what is recorded, from the environment         files.c      descriptors, names and handles of files
 *   process.c     this process's ring, its collector             call.h       one call: begin, end
 *   posix.c, stdio.c   wrappers that are exported                libraries.c  calls of MPI-IO, HDF5, PnetCDF, netCDF
 *   patch.c       tables of loaded objects lead to stubs         stub.S       the stubs
 *   sink.c        records of Penstock's own libraries
 *
 * Rules for all of it: no malloc, no lock, errno as the program's function leaves it, and usable in a signal handler.
 */
#ifndef PENSTOCK_TRACE_H
#define PENSTOCK_TRACE_H

#include "ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Numbers of penstock_trace::Layer. */
enum layer { LAYER_NETCDF, LAYER_PNETCDF, LAYER_HDF5, LAYER_MPIIO, LAYER_STDIO, LAYER_POSIX, LAYER_CLIENT };
#define LAYERS 7

enum { OPERATIONS = 8192, PATH_ROOM = 4096 };

/* settings.c ------------------------------------------------------------------------------------------------------- */

struct settings {
    /* Calls are to be recorded; else every wrapper only calls on. */
    bool on;
    /* Bit for each operation. */
    uint64_t chosen[OPERATIONS / 64];
    /* Bit for each layer. */
    uint32_t layers;
    uint32_t rank;
    uint64_t program;
    /* Bytes of the ring. */
    size_t room;
    /* The trace's directory, and the command that collects. */
    char directory[PATH_ROOM];
    char collector[PATH_ROOM];
    char files[1024];
    /* Where Penstock's library leaves summaries: no file of the program. */
    char summaries[PATH_ROOM];
    /* Files that MPI-IO opens are on ordinary file systems. */
    bool direct;
    char words[1024];
    char job[128];
};
extern struct settings settings;

void settings_read(char **environment);
/* Whether calls on this file are recorded. */
bool settings_choose(const char *path);
/* One line on standard error. */
void say(const char *what, const char *which);

static inline bool settings_operation(unsigned operation) {
    return settings.chosen[operation / 64] >> (operation % 64) & 1;
}

/* process.c -------------------------------------------------------------------------------------------------------- */

/* State of this process. It lies in memory that fork empties in the child: a child is another process. */
struct process {
    /* Not 0: attached; differs between processes. */
    uint64_t generation;
    struct ring *ring;
    struct slot *slots;
    uint32_t mask;
    /* Monotonic time at which `began` was. */
    uint64_t origin;
    uint64_t next_id;
    uint32_t next_thread;
    uint32_t next_file;
    pid_t pid;
    /* 1: being attached; 2: it failed. */
    int attaching;
    uint32_t *bell;
};
extern struct process *process;

void process_prepare(void);
bool process_attach(void);
static inline bool process_attached(void) {
    return likely(process->generation != 0) || process_attach();
}
/* Puts `slots` in the ring: the first as it stands, behind it `bytes` of `text`. Full: dropped and counted. */
void ring_push(struct slot *first, const void *text, size_t bytes);

/* files.c ---------------------------------------------------------------------------------------------------------- */

enum { NOT_SEEN = 0, FILE_LEFT_OUT = UINT32_MAX };

struct open_file {
    /* Its number in this process; NOT_SEEN, or FILE_LEFT_OUT. */
    uint32_t number;
    /* The position is not known here: others move it, or it is the end. The kernel is asked. */
    uint32_t asked;
    int64_t position;
};

/* The file behind a descriptor; NULL: not one that is recorded. */
struct open_file *file_of(int fd);
/* Number of a file by the name that a program uses; FILE_LEFT_OUT. */
uint32_t file_named(int directory, const char *path);
/* Number of a file by its name in a deployment of Penstock, and its number there or 0; FILE_LEFT_OUT. */
uint32_t file_of_deployment(const char *path, uint64_t id);
/* A descriptor was opened. */
void file_opened(int fd, int directory, const char *path, int flags);
void file_closed(int fd);
void file_duplicated(int from, int to);
void files_closed(unsigned first, unsigned last);
/* All positions are shared with another process from now on. */
void files_shared(void);
void files_forget(void);
/* The position before `moved` bytes were, and moves it. */
int64_t file_move(struct open_file *file, int fd, int64_t moved);
/* vfork: a child works in this memory; it must not change tables. */
bool process_is_own(void);

/* Handles of libraries. */
void handle_set(enum layer layer, uint64_t handle, uint32_t number);
uint32_t handle_get(enum layer layer, uint64_t handle);

/* patch.c ---------------------------------------------------------------------------------------------------------- */

struct library_function {
    const char *name;
    uint16_t operation;
    uint8_t layer;
    uint8_t shape;
    uint8_t one;
    uint8_t two;
};
extern const struct library_function library_functions[];
extern const unsigned library_count;

/* One place that calls lead through: a function of a library, and where it is. */
struct stub {
    const struct library_function *function;
    void *real;
    /* The library that has it, for what is asked of it. */
    void *library;
};
#include "stubs.h"
extern struct stub stubs[STUBS];

void patch_all(void);
/* Calls from the object that has this function, or from libpenstock.so, are Penstock's own I/O and not the program's; unless the
 * program's files are on ordinary file systems, where it is done for the program. */
void patch_own(const void *function);
enum { OWN_OBJECTS = 4 };
struct own_code {
    uintptr_t low;
    uintptr_t bytes;
};
extern struct own_code own_code[OWN_OBJECTS];
static inline bool is_own_code(const void *code) {
    for (int i = 0; i < OWN_OBJECTS && own_code[i].bytes; i++)
        if ((uintptr_t)code - own_code[i].low < own_code[i].bytes)
            return true;
    return false;
}
/* A function of the library that a stub leads to. */
void *patch_ask(struct stub *stub, const char *name);

#endif
