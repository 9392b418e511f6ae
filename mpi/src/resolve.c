/* Which MPI library is in this process, and where each exported function leads.
 *
 * Decided at the first call of an exported function, because programs like mpi4py load their MPI library late and
 * privately. If Penstock is configured in the environment, calls lead to the ABI's build of the shim. Otherwise they
 * lead straight to the function that would have been called without Penstock, at the cost of one extra jump per call.
 */
#define _GNU_SOURCE
#include "resolve.h"

#include "penstock.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The entries of trampoline.S, in its order. */
static const struct {
    const char *name;
    enum function function;
} entries[] = {
#define FUNCTION(result, name, parameters, arguments) {"MPI_" #name, F_##name}, {"PMPI_" #name, F_##name},
#define FORTRAN(name) {#name, F_##name},
#include "functions.def"
#undef FUNCTION
#undef FORTRAN
};
extern void *penstock_targets[] __attribute__((visibility("hidden")));

enum flavor { NONE, MPICH, STANDARD, OPENMPI };
static const char *const flavor_names[] = {"no", "the MPICH", "the standard MPI", "the Open MPI"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock until `flavor` is set; constant afterwards. */
static enum flavor flavor;
static void *library;
static char library_path[PATH_MAX];
static const struct abi *abi;
static bool active;

/* Takes the object as the process's MPI library if it defines an MPI function itself. Its name is not enough: Fortran
 * and C++ bindings are called libmpi..., too. A library of the standard ABI may be a layer over another one, so it is
 * preferred. */
static int consider(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *base = slash ? slash + 1 : object->dlpi_name;
    if (strncmp(base, "libmpi", 6) != 0)
        return 0;
    void *handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return 0;
    void *init = dlsym(handle, "PMPI_Init");
    Dl_info where;
    if (!init || !dladdr(init, &where) || (uintptr_t)where.dli_fbase != (uintptr_t)object->dlpi_addr) {
        dlclose(handle);
        return 0;
    }
    enum flavor found = strncmp(base, "libmpi_abi.", 11) == 0 ? STANDARD
                        : dlsym(handle, "ompi_mpi_comm_world") ? OPENMPI
                                                               : MPICH;
    if (flavor != NONE && (found != STANDARD || flavor == STANDARD)) {
        dlclose(handle);
        return 0;
    }
    /* The handle is kept: the library must not go away under the pointers into it. */
    flavor = found;
    library = handle;
    snprintf(library_path, sizeof library_path, "%s", object->dlpi_name);
    return 0;
}

static void find_library(void) {
    dl_iterate_phdr(consider, NULL);
    abi = flavor == MPICH ? &penstock_abi_mpich
          : flavor == STANDARD ? &penstock_abi_standard
          : flavor == OPENMPI ? &penstock_abi_openmpi
                              : NULL;
    if (flavor == NONE)
        return;
    active = abi && pst_configured();
    if (!abi && pst_configured())
        fprintf(stderr,
                "penstock: %s has %s ABI, for which this libpenstock.so was not built; "
                "file I/O goes to the MPI library. Rebuild with that ABI's headers.\n",
                library_path, flavor_names[flavor]);
}

void *penstock_real(const char *symbol) {
    return library ? dlsym(library, symbol) : NULL;
}

/* A program may hold a copy of the library's variable, which then counts for the library, too: the search in the
 * program's order finds it. A privately loaded library is not in that order. */
void *penstock_variable(const char *symbol) {
    void *found = dlsym(RTLD_DEFAULT, symbol);
    return found ? found : penstock_real(symbol);
}

const char *penstock_real_path(void) {
    return library_path;
}

void *penstock_next(const char *symbol) {
    void *next = dlsym(RTLD_NEXT, symbol);
    return next ? next : penstock_real(symbol);
}

void penstock_missing(const char *symbol) {
    if (flavor == NONE)
        fprintf(stderr, "penstock: %s was called, but no MPI library is loaded in this process\n", symbol);
    else
        fprintf(stderr, "penstock: %s was called, but %s does not have it\n", symbol, library_path);
    exit(127);
}

/* Without a deployment every call goes on as if Penstock were not here. The exception are names that only Penstock can
 * open: for these our function says what is missing. Handles pass through as integers, which are wide enough in every
 * ABI. */
static const char prefix[] = "penstock:";
typedef int opener(uintptr_t comm, const char *name, uintptr_t amode, uintptr_t info, uintptr_t file);
typedef int deleter(const char *name, uintptr_t info);

static int open_of(const char *symbol, uintptr_t comm, const char *name, uintptr_t amode, uintptr_t info,
                   uintptr_t file) {
    bool known = name && strncmp(name, prefix, sizeof prefix - 1) == 0;
    void *open = known ? abi->functions[F_File_open] : penstock_next(symbol);
    if (!open)
        penstock_missing(symbol);
    return ((opener *)open)(comm, name, amode, info, file);
}
static int idle_open(uintptr_t comm, const char *name, uintptr_t amode, uintptr_t info, uintptr_t file) {
    return open_of("MPI_File_open", comm, name, amode, info, file);
}
static int idle_profiled_open(uintptr_t comm, const char *name, uintptr_t amode, uintptr_t info, uintptr_t file) {
    return open_of("PMPI_File_open", comm, name, amode, info, file);
}

static int delete_of(const char *symbol, const char *name, uintptr_t info) {
    bool known = name && strncmp(name, prefix, sizeof prefix - 1) == 0;
    void *delete = known ? abi->functions[F_File_delete] : penstock_next(symbol);
    if (!delete)
        penstock_missing(symbol);
    return ((deleter *)delete)(name, info);
}
static int idle_delete(const char *name, uintptr_t info) {
    return delete_of("MPI_File_delete", name, info);
}
static int idle_profiled_delete(const char *name, uintptr_t info) {
    return delete_of("PMPI_File_delete", name, info);
}

/* Where an entry leads when nothing is configured. */
static void *idle_target(unsigned entry) {
    bool profiled = entries[entry].name[0] == 'P';
    if (!abi)
        return penstock_next(entries[entry].name);
    switch (entries[entry].function) {
    case F_File_open:
        return profiled ? (void *)idle_profiled_open : (void *)idle_open;
    case F_File_delete:
        return profiled ? (void *)idle_profiled_delete : (void *)idle_delete;
    case F_Error_string: /* knows our messages */
        return abi->functions[F_Error_string];
    default:
        return penstock_next(entries[entry].name);
    }
}

/* The target of one entry; called from trampoline.S. */
void *penstock_resolve(unsigned entry) __attribute__((visibility("hidden")));
void *penstock_resolve(unsigned entry) {
    pthread_mutex_lock(&lock);
    if (flavor == NONE)
        find_library();
    void *ours = abi ? abi->functions[entries[entry].function] : NULL;
    void *target = active ? ours : idle_target(entry);
    /* A large count function that an older library lacks: programs that look for it find ours, which falls back. */
    if (!target)
        target = ours;
    pthread_mutex_unlock(&lock);
    if (!target)
        penstock_missing(entries[entry].name);
    __atomic_store_n(&penstock_targets[entry], target, __ATOMIC_RELEASE);
    return target;
}
