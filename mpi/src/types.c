/* MPI datatypes, decoded into loops.
 *
 * MPI_Type_get_envelope and MPI_Type_get_contents decode a datatype down to its basic elements. It is rebuilt as a
 * pst_type, constructor by constructor, so that regular patterns stay loops. The result is an attribute of the
 * datatype. MPI deletes it with the datatype, so a handle that is reused for another type gets no stale result.
 * Predefined types are decoded once per process.
 */
#include "shim.h"

#include <float.h>
#include <pthread.h>
#include <stdlib.h>

/* Nesting of constructors that is believed. */
#define MAX_DEPTH 512

/* ---- Basic elements ----------------------------------------------------------------------------------------- */

/* Width in external32 (MPI 4.1, table 14.2; 0: as in memory) and how many numbers one element is. */
struct basic {
    int kind;
    uint32_t external;
    uint32_t numbers;
};

/* One entry per predefined type: name without MPI_, kind, width in external32 of each number, numbers. */
/* `long double` is what the compiler has: extended precision on x86, binary128 elsewhere. */
#if LDBL_MANT_DIG == 64
#define PST_LONG_DOUBLE PST_EXTENDED
#else
#define PST_LONG_DOUBLE PST_FLOAT
#endif
#define BASIC_TYPES(X)                                                                                            \
    X(PACKED, BYTES, 1, 1) X(BYTE, BYTES, 1, 1) X(CHAR, BYTES, 1, 1) X(CHARACTER, BYTES, 1, 1)                    \
    X(SIGNED_CHAR, BYTES, 1, 1) X(UNSIGNED_CHAR, BYTES, 1, 1) X(WCHAR, UNSIGNED, 2, 1)                            \
    X(SHORT, SIGNED, 2, 1) X(UNSIGNED_SHORT, UNSIGNED, 2, 1) X(INT, SIGNED, 4, 1) X(UNSIGNED, UNSIGNED, 4, 1)     \
    X(LONG, SIGNED, 4, 1) X(UNSIGNED_LONG, UNSIGNED, 4, 1) X(LONG_LONG_INT, SIGNED, 8, 1)                         \
    X(UNSIGNED_LONG_LONG, UNSIGNED, 8, 1) X(FLOAT, FLOAT, 4, 1) X(DOUBLE, FLOAT, 8, 1)                            \
    X(LONG_DOUBLE, LONG_DOUBLE, 16, 1) X(C_BOOL, UNSIGNED, 1, 1) X(INT8_T, SIGNED, 1, 1) X(INT16_T, SIGNED, 2, 1)       \
    X(INT32_T, SIGNED, 4, 1) X(INT64_T, SIGNED, 8, 1) X(UINT8_T, UNSIGNED, 1, 1) X(UINT16_T, UNSIGNED, 2, 1)      \
    X(UINT32_T, UNSIGNED, 4, 1) X(UINT64_T, UNSIGNED, 8, 1) X(AINT, SIGNED, 8, 1) X(OFFSET, SIGNED, 8, 1)         \
    X(COUNT, SIGNED, 8, 1) X(C_FLOAT_COMPLEX, FLOAT, 4, 2) X(C_DOUBLE_COMPLEX, FLOAT, 8, 2)                       \
    X(C_LONG_DOUBLE_COMPLEX, LONG_DOUBLE, 16, 2) X(CXX_BOOL, UNSIGNED, 1, 1) X(CXX_FLOAT_COMPLEX, FLOAT, 4, 2)          \
    X(CXX_DOUBLE_COMPLEX, FLOAT, 8, 2) X(CXX_LONG_DOUBLE_COMPLEX, LONG_DOUBLE, 16, 2) X(INTEGER, SIGNED, 4, 1)          \
    X(REAL, FLOAT, 4, 1) X(DOUBLE_PRECISION, FLOAT, 8, 1) X(COMPLEX, FLOAT, 4, 2)                                 \
    X(DOUBLE_COMPLEX, FLOAT, 8, 2) X(LOGICAL, UNSIGNED, 4, 1) X(INTEGER1, SIGNED, 1, 1)                           \
    X(INTEGER2, SIGNED, 2, 1) X(INTEGER4, SIGNED, 4, 1) X(INTEGER8, SIGNED, 8, 1) X(INTEGER16, SIGNED, 16, 1)     \
    X(REAL2, FLOAT, 2, 1) X(REAL4, FLOAT, 4, 1) X(REAL8, FLOAT, 8, 1) X(REAL16, FLOAT, 16, 1)                     \
    X(COMPLEX4, FLOAT, 2, 2) X(COMPLEX8, FLOAT, 4, 2) X(COMPLEX16, FLOAT, 8, 2) X(COMPLEX32, FLOAT, 16, 2)        \
   

/* Types that not every mpi.h has. */
#ifndef MPI_REAL2
#define MPI_REAL2 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX4
#define MPI_COMPLEX4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER16
#define MPI_INTEGER16 MPI_DATATYPE_NULL
#endif

/* What a predefined type is; unknown ones are bytes. */
static struct basic basic_of(MPI_Datatype type) {
#define X(name, kind, external, numbers) \
    if (type == MPI_##name)              \
        return (struct basic){PST_##kind, external, numbers};
    BASIC_TYPES(X)
#undef X
    return (struct basic){PST_BYTES, 0, 1};
}

/* The value and index of MPI_DOUBLE_INT and its like, whose layout is that of a C struct. */
static bool pair_of(MPI_Datatype type, MPI_Datatype *value, MPI_Datatype *index) {
    *value = type == MPI_FLOAT_INT         ? MPI_FLOAT
             : type == MPI_DOUBLE_INT      ? MPI_DOUBLE
             : type == MPI_LONG_INT        ? MPI_LONG
             : type == MPI_SHORT_INT       ? MPI_SHORT
             : type == MPI_LONG_DOUBLE_INT ? MPI_LONG_DOUBLE
             : type == MPI_2INT            ? MPI_INT
             : type == MPI_2INTEGER        ? MPI_INTEGER
             : type == MPI_2REAL           ? MPI_REAL
             : type == MPI_2DOUBLE_PRECISION ? MPI_DOUBLE_PRECISION
                                           : MPI_DATATYPE_NULL;
    *index = type == MPI_2INTEGER || type == MPI_2REAL || type == MPI_2DOUBLE_PRECISION ? *value : MPI_INT;
    return *value != MPI_DATATYPE_NULL;
}

/* ---- Attributes --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval;
static bool have_keyval;

/* A duplicate decodes anew: an attribute must have one owner. */
static int copy_attribute(MPI_Datatype type, int key, void *extra, void *value, void *copy, int *flag) {
    (void)type, (void)key, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* What is known of a derived type. */
struct known {
    pst_type *decoded;
    /* Found to be committed, which it stays. */
    bool committed;
};

static int delete_attribute(MPI_Datatype type, int key, void *value, void *extra) {
    (void)type, (void)key, (void)extra;
    pst_type_free(((struct known *)value)->decoded);
    free(value);
    return MPI_SUCCESS;
}

static bool ensure_keyval(void) {
    if (!__atomic_load_n(&have_keyval, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&lock);
        if (!have_keyval &&
            REAL(Type_create_keyval)(copy_attribute, delete_attribute, &keyval, NULL) == MPI_SUCCESS)
            __atomic_store_n(&have_keyval, true, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    return have_keyval;
}

/* Under the lock: what is known of the type, or null. */
static struct known *known_of(MPI_Datatype type) {
    void *found;
    int flag = 0;
    return REAL(Type_get_attr)(type, keyval, &found, &flag) == MPI_SUCCESS && flag ? found : NULL;
}

/* A reference to what a datatype is known to decode to, or null. The lock keeps what another thread attaches from
 * being replaced between finding and counting it. */
static pst_type *attached(MPI_Datatype type) {
    pthread_mutex_lock(&lock);
    const struct known *known = known_of(type);
    pst_type *out = known ? pst_type_share(known->decoded) : NULL;
    pthread_mutex_unlock(&lock);
    return out;
}

static void attach(MPI_Datatype type, const pst_type *decoded) {
    pthread_mutex_lock(&lock);
    struct known *known = known_of(type) ? NULL : malloc(sizeof *known);
    if (known) {
        *known = (struct known){.decoded = pst_type_share(decoded)};
        if (REAL(Type_set_attr)(type, keyval, known) != MPI_SUCCESS) {
            pst_type_free(known->decoded);
            free(known);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- Committed types ------------------------------------------------------------------------------------------ */

/* MPI has no call that says whether a type is committed, but a send needs a committed one. So the MPI library is asked
 * to send one element to MPI_PROC_NULL, which moves no bytes (with none, MPICH does not check the type). It does so on
 * a communicator of our own, where an error is not fatal. That is a split of MPI_COMM_SELF, since a duplicate would run
 * the copy callbacks of the program's attributes. In the sessions model there is none, and all types pass. */
static MPI_Comm nobody;
static bool have_nobody;

static bool may_be_sent(MPI_Datatype type) {
    int initialized = 0;
    pthread_mutex_lock(&lock);
    if (!have_nobody && REAL(Initialized)(&initialized) == MPI_SUCCESS && initialized &&
        REAL(Comm_split)(MPI_COMM_SELF, 0, 0, &nobody) == MPI_SUCCESS) {
        REAL(Comm_set_errhandler)(nobody, MPI_ERRORS_RETURN);
        have_nobody = true;
    }
    char unread = 0;
    bool may = !have_nobody || REAL(Send)(&unread, 1, type, MPI_PROC_NULL, 0, nobody) == MPI_SUCCESS;
    pthread_mutex_unlock(&lock);
    return may;
}

static bool is_committed(MPI_Datatype type) {
    bool derived = ensure_keyval();
    pthread_mutex_lock(&lock);
    const struct known *known = derived ? known_of(type) : NULL;
    bool committed = known && known->committed;
    pthread_mutex_unlock(&lock);
    if (committed)
        return true;
    if (!may_be_sent(type))
        return false;
    pthread_mutex_lock(&lock);
    struct known *now = derived ? known_of(type) : NULL;
    if (now)
        now->committed = true;
    pthread_mutex_unlock(&lock);
    return true;
}

void types_release(void) {
    if (have_keyval)
        REAL(Type_free_keyval)(&keyval);
    have_keyval = false;
    if (have_nobody)
        REAL(Comm_free)(&nobody);
    have_nobody = false;
}

/* ---- Predefined types, decoded once ----------------------------------------------------------------------------- */

/* At least twice as many as there are predefined types. */
#define NAMED_SLOTS 256
static struct {
    MPI_Datatype type;
    pst_type *decoded;
} named[NAMED_SLOTS];

static unsigned named_slot(MPI_Datatype type) {
    uint64_t bits = (uint64_t)(uintptr_t)type * 0x9E3779B97F4A7C15u;
    return (unsigned)(bits >> 56) % NAMED_SLOTS;
}

/* The decoded type (not a reference of its own), or null. */
static pst_type *named_find(MPI_Datatype type) {
    for (unsigned slot = named_slot(type), step = 0; step < NAMED_SLOTS; step++, slot = (slot + 1) % NAMED_SLOTS) {
        pst_type *decoded = __atomic_load_n(&named[slot].decoded, __ATOMIC_ACQUIRE);
        if (!decoded)
            return NULL;
        if (named[slot].type == type)
            return decoded;
    }
    return NULL;
}

static void named_keep(MPI_Datatype type, pst_type *decoded) {
    pthread_mutex_lock(&lock);
    unsigned slot = named_slot(type), step = 0;
    while (step < NAMED_SLOTS && named[slot].decoded && named[slot].type != type)
        slot = (slot + 1) % NAMED_SLOTS, step++;
    if (step < NAMED_SLOTS && !named[slot].decoded) {
        named[slot].type = type;
        __atomic_store_n(&named[slot].decoded, pst_type_share(decoded), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- Contents ----------------------------------------------------------------------------------------------- */

/* What a constructor was called with. With large counts, numbers and displacements are all in `large`. */
struct contents {
    int combiner;
    MPI_Count integer_count, address_count, large_count, type_count;
    int *integers;
    MPI_Aint *addresses;
    MPI_Count *large;
    MPI_Datatype *types;
};

static void contents_free(struct contents *contents) {
    free(contents->integers);
    free(contents->addresses);
    free(contents->large);
    free(contents->types);
}

static int envelope(MPI_Datatype type, struct contents *out) {
    *out = (struct contents){0};
    type_Type_get_envelope_c *large = FIND(Type_get_envelope_c);
    int code;
    if (large)
        code = large(type, &out->integer_count, &out->address_count, &out->large_count, &out->type_count,
                     &out->combiner);
    else {
        int integers, addresses, types;
        code = REAL(Type_get_envelope)(type, &integers, &addresses, &types, &out->combiner);
        out->integer_count = integers;
        out->address_count = addresses;
        out->type_count = types;
    }
    return code == MPI_SUCCESS ? PST_OK : describe(PST_ERR_TYPE, "a datatype is invalid");
}

static int contents(MPI_Datatype type, struct contents *c) {
    /* One more of each, so that nothing is an allocation of no bytes. */
    c->integers = calloc((size_t)c->integer_count + 1, sizeof *c->integers);
    c->addresses = calloc((size_t)c->address_count + 1, sizeof *c->addresses);
    c->large = calloc((size_t)c->large_count + 1, sizeof *c->large);
    c->types = calloc((size_t)c->type_count + 1, sizeof *c->types);
    if (!c->integers || !c->addresses || !c->large || !c->types) {
        contents_free(c);
        return describe(PST_ERR_NO_MEM, "no memory to decode a datatype of %lld integers and %lld addresses",
                        (long long)(c->integer_count + c->large_count), (long long)c->address_count);
    }
    type_Type_get_contents_c *large = FIND(Type_get_contents_c);
    int code = large ? large(type, c->integer_count, c->address_count, c->large_count, c->type_count, c->integers,
                             c->addresses, c->large, c->types)
                     : REAL(Type_get_contents)(type, (int)c->integer_count, (int)c->address_count,
                                               (int)c->type_count, c->integers, c->addresses, c->types);
    if (code != MPI_SUCCESS) {
        contents_free(c);
        return describe(PST_ERR_TYPE, "the MPI library does not tell the contents of a datatype");
    }
    return PST_OK;
}

static bool combiner_is_predefined(int combiner) {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

bool type_is_predefined(MPI_Datatype type) {
    struct contents c;
    return envelope(type, &c) == PST_OK && combiner_is_predefined(c.combiner);
}

/* ---- Decoding ----------------------------------------------------------------------------------------------- */

static int decode(MPI_Datatype type, const struct datarep *rep, int depth, pst_type **out);

/* `size` bytes in memory; `external` 0 means the same width in external32. */
static int element(struct basic basic, int size, pst_type **out) {
    uint32_t width = (uint32_t)size / basic.numbers;
    return pst_type_element(basic.kind, width, basic.external ? basic.external : width, basic.numbers, out);
}

/* A struct of a value and an index, padded as in C unless a representation says how it is stored. */
static int pair(pst_type *const children[2], const struct datarep *rep, pst_type **out) {
    int64_t unit = pst_type_extent(children[1]);
    int64_t after = pst_type_extent(children[0]);
    int64_t displacements[2] = {0, rep || unit <= 0 ? after : (after + unit - 1) / unit * unit};
    uint64_t lengths[2] = {1, 1};
    return pst_type_struct(2, lengths, displacements, children, out);
}

/* A basic element as the representation stores it: `rep` gives its width. */
static int represented(MPI_Datatype type, const struct datarep *rep, pst_type **out) {
    uint32_t extent;
    int error = datarep_extent(rep, type, &extent);
    return error ? error : pst_type_element(PST_BYTES, extent, extent, 1, out);
}

static int decode_named(MPI_Datatype type, const struct datarep *rep, pst_type **out) {
    MPI_Datatype value, index;
    if (pair_of(type, &value, &index)) {
        pst_type *children[2] = {NULL, NULL};
        int error = decode(value, rep, 1, &children[0]);
        if (!error)
            error = decode(index, rep, 1, &children[1]);
        if (!error)
            error = pair(children, rep, out);
        pst_type_free(children[0]);
        pst_type_free(children[1]);
        return error;
    }
    if (rep)
        return represented(type, rep, out);
    int size;
    if (REAL(Type_size)(type, &size) != MPI_SUCCESS || size < 0)
        return describe(PST_ERR_TYPE, "a predefined datatype has no size");
    return element(basic_of(type), size, out);
}

/* Types of MPI_Type_create_f90_*: numbers of the machine's own widths, which external32 has, too. */
static int decode_f90(MPI_Datatype type, int combiner, const struct datarep *rep, pst_type **out) {
    if (rep)
        return represented(type, rep, out);
    int size;
    if (REAL(Type_size)(type, &size) != MPI_SUCCESS || size <= 0)
        return describe(PST_ERR_TYPE, "a Fortran 90 datatype has no size");
    struct basic basic = {combiner == MPI_COMBINER_F90_INTEGER ? PST_SIGNED : PST_FLOAT, 0,
                          combiner == MPI_COMBINER_F90_COMPLEX ? 2 : 1};
    return element(basic, size, out);
}

/* Numbers of the contents as 64 bits wide arrays; negative counts cannot occur in a datatype that exists. */
static uint64_t *counts(const int *integers, const MPI_Count *large, uint64_t n) {
    uint64_t *out = malloc((n + 1) * sizeof *out);
    for (uint64_t i = 0; out && i < n; i++)
        out[i] = large ? (uint64_t)large[i] : (uint64_t)integers[i];
    return out;
}

static int64_t *displacements(const int *integers, const MPI_Aint *addresses, const MPI_Count *large, uint64_t n) {
    int64_t *out = malloc((n + 1) * sizeof *out);
    for (uint64_t i = 0; out && i < n; i++)
        out[i] = large ? (int64_t)large[i] : addresses ? (int64_t)addresses[i] : (int64_t)integers[i];
    return out;
}

static int no_memory(void) {
    return describe(PST_ERR_NO_MEM, "no memory to decode a datatype");
}

/* indexed, hindexed: lengths and displacements. indexed_block, hindexed_block: one length. struct: many children. */
static int decode_list(const struct contents *c, pst_type **children, pst_type **out) {
    bool large = c->large_count > 0;
    bool one_length = c->combiner == MPI_COMBINER_INDEXED_BLOCK || c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    bool extents = c->combiner == MPI_COMBINER_INDEXED || c->combiner == MPI_COMBINER_INDEXED_BLOCK;
    uint64_t n = large ? (uint64_t)c->large[0] : (uint64_t)c->integers[0];
    uint64_t lengths_count = one_length ? 1 : n;
    uint64_t after = 1 + lengths_count;
    uint64_t *lengths = counts(c->integers + 1, large ? c->large + 1 : NULL, lengths_count);
    int64_t *places = displacements(extents ? c->integers + after : NULL, extents ? NULL : c->addresses,
                                    large ? c->large + after : NULL, n);
    int unit = extents ? PST_IN_EXTENTS : PST_IN_BYTES;
    int error;
    if (!lengths || !places)
        error = no_memory();
    else if (c->combiner == MPI_COMBINER_STRUCT)
        error = pst_type_struct(n, lengths, places, children, out);
    else if (one_length)
        error = pst_type_blocks(n, lengths[0], places, unit, children[0], out);
    else
        error = pst_type_indexed(n, lengths, places, unit, children[0], out);
    free(lengths);
    free(places);
    return error;
}

static int order_of(int order) {
    return order == MPI_ORDER_FORTRAN ? PST_ORDER_FORTRAN : PST_ORDER_C;
}

static int decode_subarray(const struct contents *c, const pst_type *child, pst_type **out) {
    bool large = c->large_count > 0;
    uint64_t n = (uint64_t)c->integers[0];
    int order = large ? c->integers[1] : c->integers[3 * n + 1];
    uint64_t *numbers = counts(c->integers + 1, large ? c->large : NULL, 3 * n);
    if (!numbers)
        return no_memory();
    int error = pst_type_subarray((int)n, numbers, numbers + n, numbers + 2 * n, order_of(order), child, out);
    free(numbers);
    return error;
}

static int decode_darray(const struct contents *c, const pst_type *child, pst_type **out) {
    bool large = c->large_count > 0;
    uint64_t n = (uint64_t)c->integers[2];
    /* Global sizes stand before the rest, or among the large counts. */
    const int *rest = c->integers + 3 + (large ? 0 : n);
    uint64_t *sizes = counts(c->integers + 3, large ? c->large : NULL, n);
    uint64_t *processes = counts(rest + 2 * n, NULL, n);
    int64_t *arguments = displacements(rest + n, NULL, NULL, n);
    int *distributions = malloc((n + 1) * sizeof *distributions);
    int error;
    if (!sizes || !processes || !arguments || !distributions)
        error = no_memory();
    else {
        for (uint64_t i = 0; i < n; i++) {
            distributions[i] = rest[i] == MPI_DISTRIBUTE_BLOCK    ? PST_DISTRIBUTE_BLOCK
                               : rest[i] == MPI_DISTRIBUTE_CYCLIC ? PST_DISTRIBUTE_CYCLIC
                                                                  : PST_DISTRIBUTE_NONE;
            if (rest[n + i] == MPI_DISTRIBUTE_DFLT_DARG)
                arguments[i] = PST_DEFAULT_ARGUMENT;
        }
        error = pst_type_darray((uint64_t)c->integers[0], (uint64_t)c->integers[1], (int)n, sizes, distributions,
                                arguments, processes, order_of(rest[3 * n]), child, out);
    }
    free(sizes);
    free(processes);
    free(arguments);
    free(distributions);
    return error;
}

/* Puts a derived type together from its decoded children. */
static int build(const struct contents *c, const struct datarep *rep, pst_type **children, pst_type **out) {
    (void)rep;
    bool large = c->large_count > 0;
    const pst_type *child = c->type_count ? children[0] : NULL;
#define NUMBER(i) (large ? (int64_t)c->large[i] : (int64_t)c->integers[i])
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
        *out = pst_type_share(child);
        return PST_OK;
    case MPI_COMBINER_CONTIGUOUS:
        return pst_type_contiguous((uint64_t)NUMBER(0), child, out);
    case MPI_COMBINER_VECTOR:
        return pst_type_vector((uint64_t)NUMBER(0), (uint64_t)NUMBER(1), NUMBER(2), PST_IN_EXTENTS, child, out);
    case MPI_COMBINER_HVECTOR:
        return pst_type_vector((uint64_t)NUMBER(0), (uint64_t)NUMBER(1),
                               large ? (int64_t)c->large[2] : (int64_t)c->addresses[0], PST_IN_BYTES, child, out);
    case MPI_COMBINER_RESIZED:
        return large ? pst_type_resized(c->large[0], c->large[1], child, out)
                     : pst_type_resized(c->addresses[0], c->addresses[1], child, out);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT:
        return decode_list(c, children, out);
    case MPI_COMBINER_SUBARRAY:
        return decode_subarray(c, child, out);
    case MPI_COMBINER_DARRAY:
        return decode_darray(c, child, out);
#if MPI_VERSION >= 5 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    case MPI_COMBINER_VALUE_INDEX:
        return pair(children, rep, out);
#endif
    default:
        return describe(PST_ERR_TYPE, "a datatype was made by combiner %d, which this build of Penstock's MPI "
                        "interface does not know; build it with the headers of this MPI version", c->combiner);
    }
#undef NUMBER
}

/* The MPI library pads structs to alignment, and old programs have bound markers: its extent decides. */
static int take_extent(MPI_Datatype type, pst_type **decoded) {
    MPI_Count lower_bound, extent;
    type_Type_get_extent_c *large = FIND(Type_get_extent_c);
    int code;
    if (large)
        code = large(type, &lower_bound, &extent);
    else {
        MPI_Aint lb, ext;
        code = REAL(Type_get_extent)(type, &lb, &ext);
        lower_bound = lb;
        extent = ext;
    }
    if (code != MPI_SUCCESS ||
        (lower_bound == pst_type_lower_bound(*decoded) && extent == pst_type_extent(*decoded)))
        return PST_OK;
    pst_type *padded;
    int error = pst_type_padded(lower_bound, extent, *decoded, &padded);
    pst_type_free(*decoded);
    *decoded = error ? NULL : padded;
    return error;
}

static int decode_derived(MPI_Datatype type, struct contents *c, const struct datarep *rep, int depth,
                          pst_type **out) {
    if (depth > MAX_DEPTH)
        return describe(PST_ERR_TYPE, "a datatype is nested deeper than %d constructors", MAX_DEPTH);
    int error = contents(type, c);
    if (error)
        return error;
    pst_type **children = calloc((size_t)c->type_count + 1, sizeof *children);
    error = children ? PST_OK : no_memory();
    *out = NULL;
    for (MPI_Count i = 0; i < c->type_count; i++) {
        if (!error)
            error = decode(c->types[i], rep, depth + 1, &children[i]);
        if (!type_is_predefined(c->types[i]))
            REAL(Type_free)(&c->types[i]);
    }
    if (!error)
        error = build(c, rep, children, out);
    for (MPI_Count i = 0; children && i < c->type_count; i++)
        pst_type_free(children[i]);
    free(children);
    contents_free(c);
    return error || rep ? error : take_extent(type, out);
}

static int decode(MPI_Datatype type, const struct datarep *rep, int depth, pst_type **out) {
    if (!rep) {
        pst_type *known = named_find(type);
        if (known) {
            *out = pst_type_share(known);
            return PST_OK;
        }
    }
    struct contents c;
    int error = envelope(type, &c);
    if (error)
        return error;
    if (c.combiner == MPI_COMBINER_NAMED) {
        error = decode_named(type, rep, out);
        if (!error && !rep)
            error = take_extent(type, out);
        if (!error && !rep)
            named_keep(type, *out);
        return error;
    }
    if (combiner_is_predefined(c.combiner))
        return decode_f90(type, c.combiner, rep, out);
    bool kept = !rep && ensure_keyval();
    if (kept && (*out = attached(type)))
        return PST_OK;
    error = decode_derived(type, &c, rep, depth, out);
    if (!error && kept)
        attach(type, *out);
    return error;
}

int type_decode(MPI_Datatype type, const struct datarep *rep, pst_type **out) {
    *out = NULL;
    if (type == MPI_DATATYPE_NULL)
        return describe(PST_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL; give a committed one");
    return decode(type, rep, 0, out);
}

int type_decode_committed(MPI_Datatype type, const struct datarep *rep, pst_type **out) {
    int error = type_decode(type, rep, out);
    if (error || named_find(type) || is_committed(type))
        return error;
    pst_type_free(*out);
    *out = NULL;
    return describe(PST_ERR_TYPE, "the datatype is not committed; call MPI_Type_commit first");
}
