/* Random accesses checked against a model: random_accesses DIRECTORY SEED STEPS [FIRST].
 *
 * Several files are open at once, on all ranks, on halves and on one; each has random views. Every rank knows what all
 * ranks of a file do in a step, and does it on an array of bytes as well. Then it compares buffers to the last byte,
 * counts, pointers, sizes, and the whole file as somebody else sees it. The same seed does the same under every MPI
 * library.
 *
 * PENSTOCK_EXPECTED=1 says that the files are Penstock's. Without it the MPI library's own MPI-IO is held to the model,
 * but for what it is known to do otherwise. */
#include "random_types.h"

#define LARGE (MPI_VERSION >= 4)

enum { FILES = 3, RANKS = 8, MODEL = 1 << 20, BUFFER = 1 << 17, IN_FLIGHT = 3 };

static int rank, size, ours;
static uint64_t seed, step;
static const char *directory;
static char doing[6000];

static void fail(int line, const char *format, ...) {
    char text[500];
    va_list words;
    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    fprintf(stderr, "random_accesses.c:%d: rank %d of %d, seed %llu, step %llu: %s\n  %s\n", line, rank, size,
            (unsigned long long)seed, (unsigned long long)step, text, doing);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

#define CHECK(condition, ...)                \
    do {                                     \
        if (!(condition))                    \
            fail(__LINE__, __VA_ARGS__);     \
    } while (0)
#define OK(call)                                                  \
    do {                                                          \
        int code_ = (call);                                       \
        if (code_ != MPI_SUCCESS) {                               \
            char why_[MPI_MAX_ERROR_STRING];                      \
            int length_;                                          \
            MPI_Error_string(code_, why_, &length_);              \
            fail(__LINE__, "%s: %.300s", #call, why_);            \
        }                                                         \
    } while (0)

static void say(const char *format, ...) {
    size_t n = strlen(doing);
    va_list words;
    va_start(words, format);
    vsnprintf(doing + n, sizeof doing - n, format, words);
    va_end(words);
}

/* What a rank sees of a file. */
typedef struct {
    MPI_Offset displacement;
    Type filetype;
} View;

typedef struct {
    MPI_File file;
    MPI_Comm comm;
    char name[1024];
    int rank, size, members[RANKS], color;
    int same_views, atomic, external, readable, writable;
    /* Of the etype: its bytes; of its basic type: its bytes. */
    Type etype;
    int basic;
    View views[RANKS];
    MPI_Offset pointers[RANKS], shared;
    unsigned char *bytes, *written;
    MPI_Offset length;
} File;

static File files[FILES];

static MPI_Datatype basic_type(int i, const char **name) {
    switch (i) {
    case 0:
        *name = "byte";
        return MPI_BYTE;
    case 1:
        *name = "short";
        return MPI_SHORT;
    case 2:
        *name = "int";
        return MPI_INT;
    default:
        *name = "double";
        return MPI_DOUBLE;
    }
}

/* Byte of the file where byte `at` of rank `r`'s stream lies. */
static MPI_Offset place(const File *f, int r, MPI_Offset at) {
    const View *v = &f->views[r];
    return v->displacement + at / v->filetype.n * v->filetype.extent + v->filetype.at[at % v->filetype.n];
}

/* Etypes that begin before byte `end` of the file. */
static MPI_Offset etypes_before(const File *f, int r, MPI_Offset end) {
    MPI_Offset n = 0;
    while (place(f, r, n * f->etype.n) < end)
        n++;
    return n;
}

/* ---- opening ---- */

static void forget_views(File *f) {
    for (int r = 0; r < f->size; r++)
        if (f->views[r].filetype.n)
            type_free(&f->views[r].filetype);
    type_free(&f->etype);
}

static void default_views(File *f) {
    f->etype = type_of(MPI_BYTE, "byte");
    type_finish(&f->etype);
    f->basic = 1;
    f->external = 0;
    f->same_views = 1;
    for (int r = 0; r < f->size; r++) {
        f->views[r] = (View){.filetype = type_of(MPI_BYTE, "byte")};
        type_finish(&f->views[r].filetype);
        f->pointers[r] = 0;
    }
    f->shared = 0;
}

static void reopen(File *f, Random *r, int first) {
    int append = 0, mode = MPI_MODE_RDWR;
    if (first) {
        mode |= MPI_MODE_CREATE | (once_in(r, 2) ? MPI_MODE_EXCL : 0);
    } else {
        int kind = below(r, 8);
        OK(MPI_File_close(&f->file));
        CHECK(f->file == MPI_FILE_NULL, "a closed file is not MPI_FILE_NULL");
        forget_views(f);
        mode = kind == 0 ? MPI_MODE_RDONLY : kind == 1 ? MPI_MODE_WRONLY : MPI_MODE_RDWR;
        append = once_in(r, 4);
        if (append)
            mode |= MPI_MODE_APPEND;
        if (kind > 3 && once_in(r, 2))
            mode |= MPI_MODE_CREATE;
        if (kind == 7) {
            /* It goes with the last close, and another begins. */
            OK(MPI_File_open(f->comm, f->name, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &f->file));
            OK(MPI_File_close(&f->file));
            mode |= MPI_MODE_CREATE | MPI_MODE_EXCL;
            f->length = 0;
            memset(f->bytes, 0, MODEL);
            memset(f->written, 0, MODEL);
        }
    }
    say("open %s mode %d", f->name, mode);
    f->readable = !(mode & MPI_MODE_WRONLY);
    f->writable = !(mode & MPI_MODE_RDONLY);
    f->atomic = 0;
    OK(MPI_File_open(f->comm, f->name, mode, MPI_INFO_NULL, &f->file));
    default_views(f);
    if (append) {
        f->shared = f->length;
        for (int i = 0; i < f->size; i++)
            f->pointers[i] = f->length;
    }
    int got;
    OK(MPI_File_get_amode(f->file, &got));
    CHECK(got == mode, "amode is %d, not %d", got, mode);
}

static void open_files(void) {
    for (int i = 0; i < FILES; i++) {
        File *f = &files[i];
        Random r = seeded(seed, 0, (uint64_t)i);
        int kind = i == 0 ? 0 : below(&r, 3);
        f->color = kind == 0 ? 0 : kind == 1 ? rank % 2 : rank;
        /* Halves count their ranks downwards. */
        MPI_Comm_split(MPI_COMM_WORLD, f->color, kind == 1 ? -rank : rank, &f->comm);
        MPI_Comm_rank(f->comm, &f->rank);
        MPI_Comm_size(f->comm, &f->size);
        MPI_Allgather(&rank, 1, MPI_INT, f->members, 1, MPI_INT, f->comm);
        snprintf(f->name, sizeof f->name, "%s/random-%llu-%d-%d", directory, (unsigned long long)seed, i, f->color);
        f->bytes = calloc(MODEL, 1);
        f->written = calloc(MODEL, 1);
        r = seeded(seed, 0, (uint64_t)(1000 + 10 * i + f->color));
        doing[0] = 0;
        reopen(f, &r, 1);
    }
}

/* ---- views ---- */

/* Types of all ranks: the same, side by side, parts of an array, or each as it likes. */
static void choose_filetypes(File *f, Random *r, MPI_Datatype etype, int kind) {
    Random own = *r;
    for (int i = 0; i < f->size; i++) {
        View *v = &f->views[i];
        Random mine = seeded(r->state, step, (uint64_t)f->members[i]);
        Random *from = kind == 3 ? &mine : &own;
        own = *r;
        v->displacement = once_in(from, 2) ? 0 : below(from, 3000);
        if (kind == 2 && f->size > 1) {
            /* A distributed array, seen by its parts. */
            v->filetype = type_of(etype, f->etype.name);
            int sizes[2] = {1 + below(from, 3) * f->size, f->size * (1 + below(from, 8)) + below(from, 3)};
            int kinds[2] = {MPI_DISTRIBUTE_NONE, once_in(from, 2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK};
            int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {1, f->size};
            if (kinds[1] == MPI_DISTRIBUTE_CYCLIC && once_in(from, 2))
                arguments[1] = 1 + below(from, 2);
            MPI_Datatype out;
            int order = once_in(from, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
            MPI_Type_create_darray(f->size, i, 2, sizes, kinds, arguments, grid, order, etype, &out);
            type_become(&v->filetype, out);
            type_say(&v->filetype, "darray %dx%d", sizes[0], sizes[1]);
        } else {
            v->filetype = type_random(from, etype, f->etype.name, 3, ours ? FORWARD : GENTLE);
            MPI_Aint width = v->filetype.high - v->filetype.low;
            if (kind == 1) {
                v->displacement += width * i;
                type_resize(&v->filetype, v->filetype.low, width * f->size);
            } else if (once_in(from, 3)) {
                /* Room before and after. ROMIO does not see a lower bound below the first byte. */
                int lower = 8 * below(from, 3) * ours;
                type_resize(&v->filetype, v->filetype.low - lower, width + 16 + below(from, 100));
            }
        }
        if (v->filetype.n == 0) {
            type_free(&v->filetype);
            v->filetype = type_of(etype, f->etype.name);
        }
        /* The last rank's choices are as long as the first's: all go on from the same state. */
    }
    *r = own;
}

static void set_view(File *f, Random *r) {
    const char *name;
    int which = below(r, 4), kind = below(r, 4);
    MPI_Datatype basic = basic_type(which, &name);
    forget_views(f);
    f->external = once_in(r, 4) && ours;
    f->etype = type_of(basic, name);
    MPI_Type_size(basic, &f->basic);
    int etype_kind = below(r, 4);
    if (etype_kind == 1) {
        MPI_Datatype out;
        MPI_Type_contiguous(2, basic, &out);
        type_become(&f->etype, out);
        type_say(&f->etype, "contiguous 2");
    } else if (etype_kind == 2) {
        MPI_Datatype out;
        MPI_Type_vector(2, 1, 2, basic, &out);
        type_become(&f->etype, out);
        type_say(&f->etype, "vector 2 1 2");
        type_resize(&f->etype, 0, 4 * f->basic);
    }
    MPI_Datatype etype = f->etype.type;
    type_finish(&f->etype);
    choose_filetypes(f, r, etype, kind);
    f->same_views = kind == 0 || f->size == 1;
    for (int i = 0; i < f->size; i++) {
        type_finish(&f->views[i].filetype);
        f->pointers[i] = 0;
    }
    f->shared = 0;
    View *mine = &f->views[f->rank];
    const char *representation = f->external ? "external32" : once_in(r, 3) && ours ? "internal" : "native";
    say("%s: view at %lld of %s, %s", f->name, (long long)mine->displacement, mine->filetype.name, representation);
    OK(MPI_File_set_view(f->file, mine->displacement, etype, mine->filetype.type, representation, MPI_INFO_NULL));
    MPI_Offset displacement;
    MPI_Datatype types[2];
    char named[MPI_MAX_DATAREP_STRING];
    OK(MPI_File_get_view(f->file, &displacement, &types[0], &types[1], named));
    CHECK(displacement == mine->displacement && strcmp(named, representation) == 0, "view at %lld, %s",
          (long long)displacement, named);
    for (int i = 0; i < 2; i++) {
        Type got = {.type = types[i]}, *had = i ? &mine->filetype : &f->etype;
        type_measure(&got);
        CHECK(got.n == had->n && got.extent == had->extent && got.lb == had->lb, "another type from get_view");
        type_free(&got);
    }
}

/* ---- accesses ---- */

enum { AT, OWN, SHARED, ORDERED, WHERES };
enum { PLAIN, ALL, NONBLOCKING, NONBLOCKING_ALL, SPLIT, FORMS };
static const char *const where_names[] = {"at", "own", "shared", "ordered"};
static const char *const form_names[] = {"plain", "all", "i", "iall", "split"};

/* One rank's part in a step. */
typedef struct {
    MPI_Offset at; /* etypes */
    int count, n;  /* instances, and bytes of the stream */
    Type memory;
    unsigned char *data; /* what lies in memory before */
} Part;

#if LARGE
#define CALL(wide, name, ...) ((wide) ? MPI_File_##name##_c(__VA_ARGS__) : MPI_File_##name(__VA_ARGS__))
#else
#define CALL(wide, name, ...) ((void)(wide), MPI_File_##name(__VA_ARGS__))
#endif
#define BOTH(name, ...)                                                                    \
    (writes ? CALL(wide, write##name, __VA_ARGS__) : CALL(wide, read##name, __VA_ARGS__))
#define IBOTH(name, ...)                                                                   \
    (writes ? CALL(wide, iwrite##name, __VA_ARGS__) : CALL(wide, iread##name, __VA_ARGS__))
#define ENDED(name, ...) (writes ? MPI_File_write##name(__VA_ARGS__) : MPI_File_read##name(__VA_ARGS__))

static void transfer(File *f, int writes, int where, int form, int wide, Part *p, unsigned char *origin,
                     MPI_Status *status) {
    MPI_File h = f->file;
    MPI_Datatype t = p->memory.type;
    MPI_Request request = MPI_REQUEST_NULL;
    int n = p->count, code = MPI_SUCCESS;
    switch (where * FORMS + form) {
    case AT * FORMS + PLAIN:
        code = BOTH(_at, h, p->at, origin, n, t, status);
        break;
    case AT * FORMS + ALL:
        code = BOTH(_at_all, h, p->at, origin, n, t, status);
        break;
    case AT * FORMS + NONBLOCKING:
        code = IBOTH(_at, h, p->at, origin, n, t, &request);
        break;
    case AT * FORMS + NONBLOCKING_ALL:
        code = IBOTH(_at_all, h, p->at, origin, n, t, &request);
        break;
    case AT * FORMS + SPLIT:
        OK(BOTH(_at_all_begin, h, p->at, origin, n, t));
        code = ENDED(_at_all_end, h, origin, status);
        break;
    case OWN * FORMS + PLAIN:
        code = BOTH(, h, origin, n, t, status);
        break;
    case OWN * FORMS + ALL:
        code = BOTH(_all, h, origin, n, t, status);
        break;
    case OWN * FORMS + NONBLOCKING:
        code = IBOTH(, h, origin, n, t, &request);
        break;
    case OWN * FORMS + NONBLOCKING_ALL:
        code = IBOTH(_all, h, origin, n, t, &request);
        break;
    case OWN * FORMS + SPLIT:
        OK(BOTH(_all_begin, h, origin, n, t));
        code = ENDED(_all_end, h, origin, status);
        break;
    case SHARED * FORMS + PLAIN:
        code = BOTH(_shared, h, origin, n, t, status);
        break;
    case SHARED * FORMS + NONBLOCKING:
        code = IBOTH(_shared, h, origin, n, t, &request);
        break;
    case ORDERED * FORMS + ALL:
        code = BOTH(_ordered, h, origin, n, t, status);
        break;
    case ORDERED * FORMS + SPLIT:
        OK(BOTH(_ordered_begin, h, origin, n, t));
        code = ENDED(_ordered_end, h, origin, status);
        break;
    default:
        fail(__LINE__, "no such call");
    }
    OK(code);
    if (form == NONBLOCKING || form == NONBLOCKING_ALL)
        OK(MPI_Wait(&request, status));
}

/* Memory for a part: random bytes, and where the type's origin lies in it. */
static unsigned char *memory_for(const Part *p, Random *r, size_t *bytes, unsigned char **origin) {
    const Type *t = &p->memory;
    MPI_Aint low = t->low, high = t->high;
    if (p->count > 1 && t->extent > 0)
        high += (p->count - 1) * t->extent;
    if (p->count > 1 && t->extent < 0)
        low += (p->count - 1) * t->extent;
    *bytes = (size_t)(high - low) + 32;
    unsigned char *buffer = malloc(*bytes);
    for (size_t i = 0; i < *bytes; i++)
        buffer[i] = (unsigned char)below(r, 256);
    *origin = buffer + 16 - low;
    return buffer;
}

/* Displacement in memory of byte `k` of a part's stream, as the file orders the bytes of an element. */
static MPI_Aint in_memory(const File *f, const Part *p, int k) {
    if (f->external)
        k = k / f->basic * f->basic + f->basic - 1 - k % f->basic;
    return k / p->memory.n * p->memory.extent + p->memory.at[k % p->memory.n];
}

static void choose_part(File *f, Random *r, int i, int writes, Part *p) {
    const char *name;
    MPI_Datatype basic = MPI_BYTE;
    for (int b = 0, bytes; b < 4; b++) {
        MPI_Datatype candidate = basic_type(b, &name);
        MPI_Type_size(candidate, &bytes);
        if (bytes == f->basic) {
            basic = candidate;
            break;
        }
    }
    int most = once_in(r, 4) ? 24000 : 2000;
    for (;;) {
        p->memory = type_random(r, basic, name, 3, ANY);
        /* Whole etypes. */
        int step_count = 1;
        while (step_count * p->memory.n % f->etype.n)
            step_count++;
        int room = most / p->memory.n / step_count;
        p->count = once_in(r, 12) ? 0 : step_count * (1 + below(r, room > 0 ? room : 1));
        type_finish(&p->memory);
        MPI_Aint span = p->memory.high - p->memory.low + llabs((long long)p->memory.extent) * p->count;
        /* ROMIO takes what is contiguous for something that begins at its address. */
        int good = ours || p->memory.low == 0 || p->memory.n < p->memory.high - p->memory.low;
        if (good && span < BUFFER && (writes || type_is_disjoint(&p->memory, p->count)))
            break;
        type_free(&p->memory);
    }
    p->n = p->count * p->memory.n;
    MPI_Offset end = etypes_before(f, i, f->length);
    p->at = once_in(r, 3) ? below(r, 3) : below(r, (int)(end < 4000 ? end + 40 : 4000));
    /* Nothing beyond the model. */
    while (p->n && place(f, i, p->at * f->etype.n + p->n - 1) >= MODEL)
        p->at /= 2, p->count = p->at ? p->count : 0, p->n = p->count * p->memory.n;
}

/* Whether part `i` touches a byte that one of the first `before` does. */
static int meets(const File *f, const Part *parts, int i, int before) {
    static unsigned char *taken;
    if (!taken)
        taken = malloc(MODEL);
    memset(taken, 0, MODEL);
    for (int j = 0; j < before; j++)
        for (int k = 0; k < parts[j].n; k++)
            taken[place(f, j, parts[j].at * f->etype.n + k)] = 1;
    for (int k = 0; k < parts[i].n; k++)
        if (taken[place(f, i, parts[i].at * f->etype.n + k)])
            return 1;
    return 0;
}

static void access_file(File *f, Random *r) {
    Part parts[RANKS];
    int writes = f->readable && f->writable ? below(r, 2) : f->writable;
    int where = below(r, WHERES), form = below(r, FORMS), wide = below(r, 2);
    if (where >= SHARED && !f->same_views)
        where -= SHARED;
    if (where == SHARED)
        form = form < ALL || form == SPLIT ? PLAIN : NONBLOCKING;
    if (where == ORDERED)
        form = form % 2 ? ALL : SPLIT;
    int collective = form == ALL || form == NONBLOCKING_ALL || form == SPLIT;
    say("%s: %s %s %s%s", f->name, form_names[form], writes ? "write" : "read", where_names[where],
        f->atomic ? " atomic" : "");
    /* ROMIO's independent writers may undo each other's. */
    int together = collective || !(where == SHARED || once_in(r, 4) || (writes && !ours));
    MPI_Offset shared = f->shared;
    for (int i = 0; i < f->size; i++) {
        Random own = seeded(r->state, step, (uint64_t)(100 + f->members[i]));
        Part *p = &parts[i];
        choose_part(f, &own, i, writes, p);
        if (where == OWN)
            p->at = f->pointers[i];
        if (where >= SHARED)
            p->at = shared;
        int beyond = p->n && place(f, i, p->at * f->etype.n + p->n - 1) >= MODEL;
        /* Who would write what others write has nothing to write. */
        if (beyond || (writes && collective && meets(f, parts, i, i)))
            p->count = p->n = 0;
        else if (writes && meets(f, parts, i, i))
            together = 0;
        MPI_Offset after = p->at + p->n / f->etype.n;
        if (where == OWN)
            f->pointers[i] = after;
        if (where >= SHARED)
            f->shared = shared = after;
    }
    Part *mine = &parts[f->rank];
    say(" %d etypes at %lld, %d of %s", mine->n / f->etype.n, (long long)mine->at, mine->count, mine->memory.name);

    Random filler = seeded(r->state, step, (uint64_t)(200 + f->members[f->rank]));
    size_t bytes;
    unsigned char *origin, *memory = memory_for(mine, &filler, &bytes, &origin), *before = malloc(bytes);
    memcpy(before, memory, bytes);
    MPI_Status status;
    memset(&status, 0, sizeof status);
    for (int turn = 0; turn < f->size; turn++) {
        if (together ? turn == 0 : turn == f->rank)
            transfer(f, writes, where, form, wide, mine, origin, &status);
        if (!together)
            MPI_Barrier(f->comm);
    }
    MPI_Barrier(f->comm);

    /* The same on the model. */
    int expected = mine->n;
    if (writes) {
        CHECK(memcmp(memory, before, bytes) == 0, "a write changed its buffer");
        for (int i = 0; i < f->size; i++) {
            Random other = seeded(r->state, step, (uint64_t)(200 + f->members[i]));
            size_t n;
            unsigned char *at, *theirs = memory_for(&parts[i], &other, &n, &at);
            for (int k = 0; k < parts[i].n; k++) {
                MPI_Offset to = place(f, i, parts[i].at * f->etype.n + k);
                f->bytes[to] = at[in_memory(f, &parts[i], k)];
                f->written[to] = 1;
                if (to >= f->length)
                    f->length = to + 1;
            }
            free(theirs);
        }
    } else {
        unsigned char *wanted = before + (origin - memory);
        expected = 0;
        while (expected < mine->n && place(f, f->rank, mine->at * f->etype.n + expected) < f->length)
            expected++;
        /* Of an element that ends behind the end of the file only a representation of bytes can be read in part. */
        int whole = f->external ? expected / f->basic * f->basic : expected;
        for (int k = 0; k < whole; k++)
            wanted[in_memory(f, mine, k)] = f->bytes[place(f, f->rank, mine->at * f->etype.n + k)];
        /* ROMIO puts something into the rest of the buffer. */
        for (int k = whole; k < mine->n && !ours; k++)
            wanted[in_memory(f, mine, k)] = origin[in_memory(f, mine, k)];
        for (size_t i = 0; i < bytes; i++)
            CHECK(memory[i] == before[i], "byte %zu of %zu in memory is %d, not %d", i, bytes, memory[i], before[i]);
        expected = whole;
    }
    int got;
    OK(MPI_Get_count(&status, MPI_BYTE, &got));
    CHECK(got == expected || (!ours && expected < mine->n), "a status of %d bytes, not %d of %d", got, expected,
          mine->n);
    free(memory);
    free(before);
    for (int i = 0; i < f->size; i++)
        type_free(&parts[i].memory);
}

/* Overlapping writers at once: each byte is one of theirs; in atomic mode one call came wholly before the other. */
static void race(File *f, Random *r) {
    Part parts[RANKS];
    unsigned char *data[RANKS];
    int form = once_in(r, 2) ? ALL : PLAIN;
    say("%s: %s race%s", f->name, form_names[form], f->atomic ? " atomic" : "");
    for (int i = 0; i < f->size; i++) {
        Random own = seeded(r->state, step, (uint64_t)(100 + f->members[i]));
        choose_part(f, &own, i, 1, &parts[i]);
        data[i] = malloc((size_t)parts[i].n + 1);
        memset(data[i], 1 + 50 * i + (int)(step % 40), (size_t)parts[i].n + 1);
    }
    Part *mine = &parts[f->rank];
    MPI_Status status;
    if (form == ALL)
        OK(MPI_File_write_at_all(f->file, mine->at, data[f->rank], mine->n, MPI_BYTE, &status));
    else
        OK(MPI_File_write_at(f->file, mine->at, data[f->rank], mine->n, MPI_BYTE, &status));
    MPI_Barrier(f->comm);
    /* Bit i of a byte: rank i writes there. */
    unsigned char *who = calloc(MODEL, 1), *now = malloc(MODEL);
    for (int i = 0; i < f->size; i++)
        for (int k = 0; k < parts[i].n; k++) {
            MPI_Offset to = place(f, i, parts[i].at * f->etype.n + k);
            who[to] |= (unsigned char)(1 << i);
            if (to >= f->length)
                f->length = to + 1;
        }
    MPI_File other;
    OK(MPI_File_open(MPI_COMM_SELF, f->name, MPI_MODE_RDONLY, MPI_INFO_NULL, &other));
    OK(MPI_File_read_at(other, 0, now, (int)f->length, MPI_BYTE, &status));
    OK(MPI_File_close(&other));
    /* after[i] has bit j: i's bytes lie over j's somewhere. */
    unsigned char after[RANKS] = {0};
    for (MPI_Offset i = 0; i < f->length; i++) {
        if (!who[i]) {
            CHECK(now[i] == f->bytes[i] || (!ours && !f->written[i]), "byte %lld, which nobody wrote, is %d, not %d", (long long)i, now[i],
                  f->bytes[i]);
            continue;
        }
        int winner = -1;
        for (int w = 0; w < f->size; w++)
            if (who[i] >> w & 1 && now[i] == data[w][0])
                winner = w;
        CHECK(winner >= 0, "byte %lld is %d, which none of %x wrote", (long long)i, now[i], who[i]);
        after[winner] |= (unsigned char)(who[i] & ~(1 << winner));
        f->bytes[i] = now[i];
        f->written[i] = 1;
    }
    if (f->atomic && form == PLAIN && ours)
        for (int left = (1 << f->size) - 1; left;) {
            int last = -1;
            for (int i = 0; i < f->size; i++) {
                int over = 0;
                for (int j = 0; j < f->size; j++)
                    over |= (left >> j & 1) && (after[j] >> i & 1);
                if (left >> i & 1 && !over)
                    last = i;
            }
            CHECK(last >= 0, "atomic writes lie over each other in a circle");
            left &= ~(1 << last);
        }
    MPI_Barrier(f->comm);
    for (int i = 0; i < f->size; i++) {
        type_free(&parts[i].memory);
        free(data[i]);
    }
    free(who);
    free(now);
}

/* Several nonblocking accesses of one rank in flight, completed in any order. */
static void in_flight(File *f, Random *r) {
    Random own = seeded(r->state, step, (uint64_t)(100 + f->members[f->rank]));
    MPI_Request requests[IN_FLIGHT];
    MPI_Status statuses[IN_FLIGHT];
    Part parts[IN_FLIGHT];
    unsigned char *memory[IN_FLIGHT], *before[IN_FLIGHT], *origin[IN_FLIGHT];
    size_t bytes[IN_FLIGHT];
    say("%s: reads in flight", f->name);
    for (int i = 0; i < IN_FLIGHT; i++) {
        choose_part(f, &own, f->rank, 0, &parts[i]);
        Random filler = own;
        memory[i] = memory_for(&parts[i], &filler, &bytes[i], &origin[i]);
        before[i] = malloc(bytes[i]);
        memcpy(before[i], memory[i], bytes[i]);
        OK(MPI_File_iread_at(f->file, parts[i].at, origin[i], parts[i].count, parts[i].memory.type, &requests[i]));
    }
    OK(MPI_Waitall(IN_FLIGHT, requests, statuses));
    for (int i = 0; i < IN_FLIGHT; i++) {
        unsigned char *wanted = before[i] + (origin[i] - memory[i]);
        int n = 0, got;
        while (n < parts[i].n && place(f, f->rank, parts[i].at * f->etype.n + n) < f->length)
            n++;
        if (f->external)
            n = n / f->basic * f->basic;
        for (int k = 0; k < n; k++)
            wanted[in_memory(f, &parts[i], k)] = f->bytes[place(f, f->rank, parts[i].at * f->etype.n + k)];
        for (int k = n; k < parts[i].n && !ours; k++)
            wanted[in_memory(f, &parts[i], k)] = origin[i][in_memory(f, &parts[i], k)];
        CHECK(memcmp(memory[i], before[i], bytes[i]) == 0, "read %d in flight is wrong", i);
        OK(MPI_Get_count(&statuses[i], MPI_BYTE, &got));
        CHECK(got == n || (!ours && n < parts[i].n), "read %d in flight: %d bytes, not %d", i, got, n);
        free(memory[i]);
        free(before[i]);
        type_free(&parts[i].memory);
    }
    MPI_Barrier(f->comm);
}

/* ---- pointers, sizes, the rest ---- */

static void look_at_pointers(File *f) {
    MPI_Offset at;
    OK(MPI_File_get_position(f->file, &at));
    if (!ours)
        /* ROMIO moves pointers by what was read, MPI by what was asked for. */
        MPI_Allgather(&at, 1, MPI_OFFSET, f->pointers, 1, MPI_OFFSET, f->comm);
    CHECK(at == f->pointers[f->rank], "position %lld, not %lld", (long long)at, (long long)f->pointers[f->rank]);
    if (f->same_views) {
        OK(MPI_File_get_position_shared(f->file, &at));
        CHECK(at == f->shared, "shared position %lld, not %lld", (long long)at, (long long)f->shared);
    }
    MPI_Offset byte;
    at = f->pointers[f->rank];
    OK(MPI_File_get_byte_offset(f->file, at, &byte));
    CHECK(byte == place(f, f->rank, at * f->etype.n), "etype %lld at byte %lld, not %lld", (long long)at,
          (long long)byte, (long long)place(f, f->rank, at * f->etype.n));
    OK(MPI_File_get_size(f->file, &byte));
    CHECK(byte == f->length, "size %lld, not %lld", (long long)byte, (long long)f->length);
}

static void seek(File *f, Random *r) {
    int whence = below(r, 3), shared = f->same_views && once_in(r, 3);
    MPI_Offset targets[RANKS], offset = 0;
    for (int i = 0; i < f->size; i++) {
        Random own = shared ? *r : seeded(r->state, step, (uint64_t)f->members[i]);
        MPI_Offset end = etypes_before(f, i, f->length), base = shared ? f->shared : f->pointers[i];
        targets[i] = below(&own, (int)(end < 3000 ? end + 20 : 3000));
        MPI_Offset by = whence == 0 ? targets[i] : whence == 1 ? targets[i] - base : targets[i] - end;
        if (i == f->rank)
            offset = by;
    }
    int kind = whence == 0 ? MPI_SEEK_SET : whence == 1 ? MPI_SEEK_CUR : MPI_SEEK_END;
    say("%s: seek%s %lld from %d", f->name, shared ? "_shared" : "", (long long)offset, whence);
    if (shared) {
        OK(MPI_File_seek_shared(f->file, offset, kind));
        f->shared = targets[0];
    } else {
        OK(MPI_File_seek(f->file, offset, kind));
        for (int i = 0; i < f->size; i++)
            f->pointers[i] = targets[i];
    }
}

static void resize(File *f, Random *r) {
    MPI_Offset to = below(r, 3) ? below(r, (int)f->length + 500) : below(r, 200000);
    int preallocates = once_in(r, 3);
    say("%s: %s %lld", f->name, preallocates ? "preallocate" : "set_size", (long long)to);
    if (preallocates) {
        OK(MPI_File_preallocate(f->file, to));
        f->length = to > f->length ? to : f->length;
    } else {
        OK(MPI_File_set_size(f->file, to));
        if (to < f->length)
            memset(f->bytes + to, 0, (size_t)(f->length - to)), memset(f->written + to, 0, (size_t)(f->length - to));
        f->length = to;
    }
    MPI_Barrier(f->comm);
}

/* The whole file as somebody else sees it. */
static void look_at_bytes(File *f) {
    int who = (int)(step % (uint64_t)f->size);
    unsigned char *all = malloc(MODEL);
    if (f->rank == who) {
        MPI_File other;
        MPI_Status status;
        int got;
        OK(MPI_File_open(MPI_COMM_SELF, f->name, MPI_MODE_RDONLY, MPI_INFO_NULL, &other));
        OK(MPI_File_read(other, all, MODEL, MPI_BYTE, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &got));
        CHECK(got == f->length, "%d bytes in %s, not %lld", got, f->name, (long long)f->length);
        for (int i = 0; i < got; i++)
            CHECK(all[i] == f->bytes[i] || (!ours && !f->written[i]), "byte %d of %s is %d, not %d", i, f->name, all[i],
                  f->bytes[i]);
        OK(MPI_File_close(&other));
    }
    /* ROMIO puts something into bytes that nobody wrote. */
    if (!ours) {
        MPI_Bcast(all, (int)f->length, MPI_BYTE, who, f->comm);
        memcpy(f->bytes, all, (size_t)f->length);
    }
    free(all);
    MPI_Barrier(f->comm);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 4 || size > RANKS) {
        fprintf(stderr, "usage: random_accesses DIRECTORY SEED STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    directory = argv[1];
    seed = strtoull(argv[2], NULL, 10);
    uint64_t steps = strtoull(argv[3], NULL, 10);
    const char *expected = getenv("PENSTOCK_EXPECTED"), *tell = getenv("TELL");
    ours = expected && *expected == '1';
    open_files();
    for (step = 1; step <= steps; step++) {
        Random all = seeded(seed, step, 0);
        File *f = &files[below(&all, FILES)];
        Random r = seeded(seed, step, (uint64_t)(1000 + 10 * (f - files) + f->color));
        int kind = below(&r, 24);
        doing[0] = 0;
        if (kind < 4)
            set_view(f, &r);
        else if (kind < 6)
            seek(f, &r);
        else if (kind == 6 && f->writable)
            resize(f, &r);
        else if (kind == 7)
            reopen(f, &r, 0);
        else if (kind == 8) {
            f->atomic = !f->atomic;
            say("%s: atomicity %d", f->name, f->atomic);
            OK(MPI_File_set_atomicity(f->file, f->atomic));
        } else if (kind == 9 && f->readable)
            in_flight(f, &r);
        else if (kind < 12 && f->writable && !f->external && f->size > 1 && ours)
            race(f, &r);
        else if (kind == 12 && f->writable)
            OK(MPI_File_sync(f->file));
        else
            access_file(f, &r);
        if (tell)
            fprintf(stderr, "rank %d, step %llu: %s\n", rank, (unsigned long long)step, doing);
        look_at_pointers(f);
        look_at_bytes(f);
    }
    for (int i = 0; i < FILES; i++) {
        OK(MPI_File_close(&files[i].file));
        forget_views(&files[i]);
        free(files[i].bytes);
        free(files[i].written);
        MPI_Barrier(files[i].comm);
        if (files[i].rank == 0)
            OK(MPI_File_delete(files[i].name, MPI_INFO_NULL));
        MPI_Comm_free(&files[i].comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        puts("ok random_accesses");
    MPI_Finalize();
    return 0;
}
