/* What is recorded, from the environment (docs/use/launchers.md). */
#define _GNU_SOURCE
#include "trace.h"

#include "raw.h"

#include <string.h>

struct settings settings;

static const struct {
    uint16_t number;
    const char *kind;
    const char *name;
} operations[] = {
#include "operations.inc"
};
static const char *const layer_names[LAYERS] = {"netcdf", "pnetcdf", "hdf5", "mpiio", "stdio", "posix", "client"};

void say(const char *what, const char *which) {
    char line[PATH_ROOM + 256];
    size_t n = 0;
    for (const char *part = "penstock: not traced: "; *part; part++)
        line[n++] = *part;
    for (const char *part = what; *part && n < sizeof line - 1; part++)
        line[n++] = *part;
    for (const char *part = which; *part && n < sizeof line - 1; part++)
        line[n++] = *part;
    line[n++] = '\n';
    raw(SYS_write, 2, line, n);
}

static const char *variable(char **environment, const char *name) {
    size_t length = strlen(name);
    for (char **one = environment; one && *one; one++)
        if (strncmp(*one, name, length) == 0 && (*one)[length] == '=' && (*one)[length + 1])
            return *one + length + 1;
    return NULL;
}

/* True if it fits. */
static bool copy(char *to, size_t room, const char *from) {
    size_t length = strnlen(from, room);
    if (length >= room)
        return false;
    memcpy(to, from, length + 1);
    return true;
}

static uint64_t number(const char *text) {
    uint64_t n = 0;
    for (; text && *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (uint64_t)(*text - '0');
    return n;
}

/* Shell patterns: * ? and sets. A star crosses slashes. `end` is the end of the pattern. */
static bool matches(const char *pattern, const char *end, const char *text) {
    const char *star = NULL, *back = NULL;
    while (*text) {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            back = text;
        } else if (pattern < end && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++back;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

/* Whether one of the patterns, parted by commas, takes the text. Those that begin with ! take it out again. */
static bool listed(const char *list, const char *text) {
    bool taken = list[0] == '!';
    while (*list) {
        const char *end = strchrnul(list, ',');
        bool out = *list == '!';
        if (matches(list + out, end, text))
            taken = !out;
        list = *end ? end + 1 : end;
    }
    return taken;
}

/* Lists like 0,4-7. */
static bool has_rank(const char *list, uint32_t rank) {
    while (*list) {
        uint64_t first = number(list);
        const char *end = strchrnul(list, ','), *dash = memchr(list, '-', (size_t)(end - list));
        uint64_t last = dash ? number(dash + 1) : first;
        if (first <= rank && rank <= last)
            return true;
        list = *end ? end + 1 : end;
    }
    return false;
}

static void choose(const char *kinds, const char *functions, const char *layers) {
    for (int i = 0; i < LAYERS; i++)
        if (!layers || listed(layers, layer_names[i]))
            settings.layers |= 1u << i;
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        unsigned n = operations[i].number;
        /* Numbers of posix, stdio, MPI-IO, HDF5, PnetCDF, netCDF: operations.txt */
        unsigned layer = n >= 6000 ? LAYER_NETCDF : n >= 3000 ? LAYER_PNETCDF : n >= 2000 ? LAYER_HDF5
                       : n >= 1500 ? LAYER_MPIIO : n >= 1000 ? LAYER_STDIO : LAYER_POSIX;
        if (settings.layers >> layer & 1 && (!kinds || listed(kinds, operations[i].kind)) &&
            (!functions || listed(functions, operations[i].name)))
            settings.chosen[n / 64] |= (uint64_t)1 << (n % 64);
    }
}

/* Directories of the system, which programs read as they start, and shared memory of MPI libraries. */
static const char system_files[] = "!/proc/*,!/sys/*,!/dev/*,!/etc/*,!/usr/*,!/bin/*,!/sbin/*,!/lib/*,!/lib64/*,!/boot/*,/dev/shm/*,!/dev/shm/ucx_*,!/dev/shm/*mpi*";

bool settings_choose(const char *path) {
    size_t length = strlen(settings.summaries);
    if (length && strncmp(path, settings.summaries, length) == 0 && path[length] == '/')
        return false;
    return listed(settings.files[0] ? settings.files : system_files, path);
}

void settings_read(char **environment) {
    const char *directory = variable(environment, "PENSTOCK_TRACE");
    if (!directory)
        return;
    const char *collector = variable(environment, "PENSTOCK_TRACE_COLLECTOR");
    const char *files = variable(environment, "PENSTOCK_TRACE_FILES");
    if (directory[0] != '/') {
        say("PENSTOCK_TRACE is no absolute path: ", directory);
        return;
    }
    if (!copy(settings.directory, sizeof settings.directory, directory) ||
        !copy(settings.collector, sizeof settings.collector, collector ? collector : "") ||
        !copy(settings.files, sizeof settings.files, files ? files : "")) {
        say("too long: ", "PENSTOCK_TRACE, PENSTOCK_TRACE_COLLECTOR or PENSTOCK_TRACE_FILES");
        return;
    }
    const char *summaries = variable(environment, "PENSTOCK_SUMMARY_DIR"), *direct = variable(environment, "PENSTOCK_DIRECT");
    copy(settings.summaries, sizeof settings.summaries, summaries ? summaries : "");
    settings.direct = direct && strcmp(direct, "0") != 0;
    settings.rank = UINT32_MAX;
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0] && settings.rank == UINT32_MAX; i++) {
        const char *rank = variable(environment, ranks[i]);
        if (rank)
            settings.rank = (uint32_t)number(rank);
    }
    const char *chosen = variable(environment, "PENSTOCK_TRACE_RANKS");
    if (chosen && settings.rank != UINT32_MAX && !has_rank(chosen, settings.rank))
        return;
    settings.program = number(variable(environment, "PENSTOCK_PROGRAM"));
    uint64_t room = number(variable(environment, "PENSTOCK_TRACE_BUFFER"));
    settings.room = room >= 1 && room <= 256 ? (size_t)room << 20 : 2u << 20;
    const char *job = variable(environment, "SLURM_JOB_ID");
    if (!job)
        job = variable(environment, "PBS_JOBID");
    copy(settings.job, sizeof settings.job, job ? job : "");
    static const char *const choices[] = {"PENSTOCK_TRACE_KINDS", "PENSTOCK_TRACE_FUNCTIONS", "PENSTOCK_TRACE_LAYERS",
                                          "PENSTOCK_TRACE_FILES", "PENSTOCK_TRACE_RANKS"};
    const char *said[5];
    size_t n = 0;
    for (int i = 0; i < 5; i++) {
        said[i] = variable(environment, choices[i]);
        /* As a user set it: NAME=VALUE, parted by spaces. */
        for (int part = 0; said[i] && part < 4; part++) {
            const char *text = part == 0 ? choices[i] + sizeof "PENSTOCK_TRACE_" - 1 : part == 1 ? "=" : part == 2 ? said[i] : " ";
            for (; *text && n + 1 < sizeof settings.words; text++)
                settings.words[n++] = *text;
        }
    }
    choose(said[0], said[1], said[2]);
    settings.on = true;
}
