/* Calls of library functions are led through stubs, object by object.
 *
 * A loaded object calls functions of others through its tables of addresses (JUMP_SLOT and GLOB_DAT relocations). Each entry
 * that belongs to a function of the table gets the address of a stub, which knows the function that the entry led to: so two
 * HDF5s in one process, and libraries loaded with RTLD_LOCAL, each keep their own callers. No name is exported: a program that
 * asks dlsym for H5Fopen finds what is there without this library. Objects loaded later are treated when dlopen returns.
 */
#define _GNU_SOURCE
#include "trace.h"

#include "raw.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

struct stub stubs[STUBS];
static unsigned stub_count;
extern const char stub_entries[] __attribute__((visibility("hidden")));

/* Objects that were treated; emptied when one was unloaded. */
enum { OBJECTS = 4096 };
static const void *seen[OBJECTS];
static unsigned seen_count;
static unsigned long long unloaded;
static int busy;
/* An object was perhaps loaded that is not treated yet. */
static int pending;
/* The first pass, before libc has its environment, is over. */
static int started;

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#else
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

static const struct library_function *find(const char *name) {
    if (!(name[0] == 'H' && name[1] == '5') && !(name[0] == 'n' && name[1] == 'c') && !(name[0] == 'M' && name[1] == 'P') &&
        !(name[0] == 'P' && name[1] == 'M'))
        return NULL;
    unsigned low = 0, high = library_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        int order = strcmp(name, library_functions[middle].name);
        if (order == 0)
            return &library_functions[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool is_stub(const void *address) {
    const char *at = address;
    return at >= stub_entries && at < stub_entries + (size_t)STUBS * STUB_BYTES;
}

/* The stub of a function at an address; `real` itself when there are none left. */
static void *stub_for(const struct library_function *function, void *real) {
    unsigned i;
    for (i = 0; i < stub_count; i++)
        if (stubs[i].real == real && stubs[i].function == function)
            break;
    if (i == STUBS)
        return real;
    if (i == stub_count) {
        stubs[i].function = function;
        stubs[i].real = real;
        stubs[i].library = NULL;
        __atomic_store_n(&stub_count, i + 1, __ATOMIC_RELEASE);
    }
    return (void *)(stub_entries + (size_t)i * STUB_BYTES);
}

/* Not before somebody asks: dlopen before main runs constructors, and libc's would find no environment. */
void *patch_ask(struct stub *stub, const char *name) {
    void *library = __atomic_load_n(&stub->library, __ATOMIC_ACQUIRE);
    Dl_info where;
    if (!library && dladdr(stub->real, &where) && where.dli_fname) {
        library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        __atomic_store_n(&stub->library, library, __ATOMIC_RELEASE);
    }
    void *found = library ? dlsym(library, name) : NULL;
    /* Penstock's library has MPI_File's functions only; types are asked of the program's MPI. */
    return found || stub->function->layer != LAYER_MPIIO ? found : dlsym(RTLD_DEFAULT, name);
}

struct object {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Half) * versions;
    const ElfW(Verneed) * needed;
    unsigned needed_count;
    uintptr_t base;
    uintptr_t low, high;
    uintptr_t protected_low, protected_high;
    const char *path;
};

/* Which version of a symbol an object asks for; NULL: any. */
static const char *version_of(const struct object *object, unsigned symbol) {
    if (!object->versions || !object->needed)
        return NULL;
    unsigned wanted = object->versions[symbol] & 0x7fff;
    const char *at = (const char *)object->needed;
    for (unsigned i = 0; i < object->needed_count; i++) {
        const ElfW(Verneed) *need = (const void *)at;
        const char *one = at + need->vn_aux;
        for (unsigned k = 0; k < need->vn_cnt; k++) {
            const ElfW(Vernaux) *version = (const void *)one;
            if (version->vna_other == wanted)
                return object->names + version->vna_name;
            one += version->vna_next;
        }
        at += need->vn_next;
    }
    return NULL;
}

/* What the loader would find for an entry that is not bound yet: in the order of the program, then in the object's own. */
static void *resolve(const struct object *object, const char *name, const char *version) {
    void *found = version ? dlvsym(RTLD_DEFAULT, name, version) : dlsym(RTLD_DEFAULT, name);
    if (found || !started)
        return found;
    void *handle = dlopen(object->path[0] ? object->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    found = version ? dlvsym(handle, name, version) : dlsym(handle, name);
    dlclose(handle);
    return found;
}

static void *hook_dlopen(const char *path, int mode);
static void *hook_dlsym(void *handle, const char *name);
static void *(*real_dlopen)(const char *, int);
static void *(*real_dlsym)(void *, const char *);

static void treat(const struct object *object, const ElfW(Rela) * one, size_t count) {
    for (; count; one++, count--) {
        if (!IS_SLOT(ELF64_R_TYPE(one->r_info)))
            continue;
        unsigned number = (unsigned)ELF64_R_SYM(one->r_info);
        const ElfW(Sym) *symbol = &object->symbols[number];
        const char *name = object->names + symbol->st_name;
        void **slot = (void **)(object->base + one->r_offset);
        void *to;
        if (name[0] == 'd' && name[1] == 'l') {
            if (strcmp(name, "dlopen") == 0)
                to = (void *)hook_dlopen;
            else if (strcmp(name, "dlsym") == 0)
                to = (void *)hook_dlsym;
            else
                continue;
        } else {
            const struct library_function *function = find(name);
            /* Calls of a library to itself are its own matter. */
            if (!function || symbol->st_shndx != SHN_UNDEF)
                continue;
            void *real = __atomic_load_n(slot, __ATOMIC_RELAXED);
            if (is_stub(real))
                continue;
            if ((uintptr_t)real >= object->low && (uintptr_t)real < object->high)
                real = resolve(object, name, version_of(object, number));
            if (!real)
                continue;
            to = stub_for(function, real);
        }
        uintptr_t page = (uintptr_t)slot & ~(uintptr_t)4095;
        bool locked = (uintptr_t)slot >= object->protected_low && (uintptr_t)slot < object->protected_high;
        if (locked && raw(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE) < 0)
            continue;
        __atomic_store_n(slot, to, __ATOMIC_RELEASE);
        if (locked)
            raw(SYS_mprotect, page, 4096, PROT_READ);
    }
}

static bool ends_with_name(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, name, strlen(name)) == 0;
}

static int visit(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)unused;
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs && info->dlpi_subs != unloaded) {
        unloaded = info->dlpi_subs;
        seen_count = 0;
    }
    struct object object = {.base = info->dlpi_addr, .low = UINTPTR_MAX, .path = info->dlpi_name ? info->dlpi_name : ""};
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = object.base + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type == PT_LOAD) {
            object.low = from < object.low ? from : object.low;
            object.high = to > object.high ? to : object.high;
        } else if (part->p_type == PT_DYNAMIC) {
            dynamic = (const void *)from;
        } else if (part->p_type == PT_GNU_RELRO) {
            object.protected_low = from & ~(uintptr_t)4095;
            object.protected_high = to & ~(uintptr_t)4095;
        }
    }
    if (!dynamic)
        return 0;
    for (unsigned i = 0; i < seen_count; i++)
        if (seen[i] == dynamic)
            return 0;
    if (seen_count < OBJECTS)
        seen[seen_count++] = dynamic;
    uintptr_t here = (uintptr_t)visit;
    static const char *const own[] = {"ld-linux", "linux-vdso", "libc.so.", "libm.so.", "libdl.so.", "libpthread.so."};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (ends_with_name(object.path, own[i]))
            return 0;
    if (here >= object.low && here < object.high)
        return 0;
    const ElfW(Rela) *jumps = NULL, *others = NULL;
    size_t jumps_bytes = 0, others_bytes = 0;
    bool rela = true;
    for (const ElfW(Dyn) *one = dynamic; one->d_tag != DT_NULL; one++) {
        uintptr_t at = one->d_un.d_ptr;
        const void *pointer = (const void *)(at < object.base ? at + object.base : at);
        switch (one->d_tag) {
        case DT_SYMTAB: object.symbols = pointer; break;
        case DT_STRTAB: object.names = pointer; break;
        case DT_VERSYM: object.versions = pointer; break;
        case DT_VERNEED: object.needed = pointer; break;
        case DT_VERNEEDNUM: object.needed_count = (unsigned)one->d_un.d_val; break;
        case DT_JMPREL: jumps = pointer; break;
        case DT_PLTRELSZ: jumps_bytes = one->d_un.d_val; break;
        case DT_PLTREL: rela = one->d_un.d_val == DT_RELA; break;
        case DT_RELA: others = pointer; break;
        case DT_RELASZ: others_bytes = one->d_un.d_val; break;
        default: break;
        }
    }
    if (!object.symbols || !object.names || !rela)
        return 0;
    if (jumps)
        treat(&object, jumps, jumps_bytes / sizeof *jumps);
    if (others)
        treat(&object, others, others_bytes / sizeof *others);
    return 0;
}

struct own_code own_code[OWN_OBJECTS];

struct asked {
    const void *function;
    struct own_code found;
};

static int look_for(struct dl_phdr_info *info, size_t size, void *asked) {
    (void)size;
    struct asked *for_whom = asked;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        low = from < low ? from : low;
        high = to > high ? to : high;
    }
    uintptr_t function = (uintptr_t)for_whom->function;
    if (function ? function >= low && function < high : info->dlpi_name && ends_with_name(info->dlpi_name, "libpenstock.so")) {
        for_whom->found = (struct own_code){low, high - low};
        return 1;
    }
    return 0;
}

void patch_own(const void *function) {
    struct asked asked = {.function = function};
    if (settings.direct || (function && is_own_code(function)) || !dl_iterate_phdr(look_for, &asked))
        return;
    for (int i = 0; i < OWN_OBJECTS; i++)
        if (!own_code[i].bytes) {
            own_code[i].low = asked.found.low;
            __atomic_store_n(&own_code[i].bytes, asked.found.bytes, __ATOMIC_RELEASE);
            return;
        }
}

void patch_all(void) {
    if (!settings.on || !(settings.layers & ((1u << LAYER_STDIO) - 1)))
        return;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQ_REL)) {
        pending = 1;
        return;
    }
    if (!real_dlopen) {
        real_dlopen = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
        real_dlsym = (void *(*)(void *, const char *))dlsym(RTLD_NEXT, "dlsym");
    }
    int error = errno;
    pending = 0;
    if (real_dlopen && real_dlsym)
        dl_iterate_phdr(visit, NULL);
    started = 1;
    errno = error;
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

/* Whether dlopen's result depends on who calls: a name without a slash is looked for in the caller's run path. */
static bool by_caller(const char *path, const void *caller) {
    if (!path)
        return false;
    if (strchr(path, '$'))
        return true;
    if (strchr(path, '/'))
        return false;
    Dl_info where;
    struct link_map *map;
    if (!dladdr1(caller, &where, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return true;
    for (const ElfW(Dyn) *one = map->l_ld; one->d_tag != DT_NULL; one++)
        if (one->d_tag == DT_RPATH || one->d_tag == DT_RUNPATH)
            return true;
    return false;
}

/* True: the loader may see that this library calls. */
static __attribute__((noinline)) bool before_dlopen(const char *path, const void *caller) {
    if (pending)
        patch_all();
    if (!by_caller(path, caller))
        return true;
    pending = 1;
    return false;
}

static __attribute__((noinline)) void *dlopen_and_patch(const char *path, int mode) {
    void *handle = real_dlopen(path, mode);
    if (handle)
        patch_all();
    return handle;
}

/* The last calls are jumps: where it matters the loader sees the program's return address. */
static void *hook_dlopen(const char *path, int mode) {
    if (before_dlopen(path, __builtin_return_address(0)))
        return dlopen_and_patch(path, mode);
    return real_dlopen(path, mode);
}

static __attribute__((noinline)) const struct library_function *before_dlsym(void *handle, const char *name) {
    if (pending)
        patch_all();
    return handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name ? NULL : find(name);
}

static __attribute__((noinline)) void *dlsym_and_stub(const struct library_function *function, void *handle, const char *name) {
    void *real = real_dlsym(handle, name);
    if (!real || is_stub(real) || __atomic_exchange_n(&busy, 1, __ATOMIC_ACQ_REL))
        return real;
    void *stub = stub_for(function, real);
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return stub;
}

static void *hook_dlsym(void *handle, const char *name) {
    const struct library_function *function = before_dlsym(handle, name);
    if (function)
        return dlsym_and_stub(function, handle, name);
    return real_dlsym(handle, name);
}
