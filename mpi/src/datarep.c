/* Data representations that the program registers (MPI 4.1, section 14.5.3).
 *
 * A view in such a representation is decoded with the widths that the extent function gives. An access moves the
 * stored bytes as they are between the file and a staging buffer, and the program's functions convert between that
 * and the user's memory: before the write, after the read.
 */
#include "shim.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DATAREPS 64

struct datarep {
    char name[MPI_MAX_DATAREP_STRING];
    /* Of each pair at most one is there; none: stored as in memory. */
    MPI_Datarep_conversion_function *read, *write;
    conversion_function_c *read_c, *write_c;
    MPI_Datarep_extent_function *extent;
    void *extra;
};

static struct datarep registered[MAX_DATAREPS];
static unsigned registered_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int one_byte(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    (void)type, (void)extra;
    *extent = 1;
    return MPI_SUCCESS;
}

const struct datarep datarep_counting = {.extent = one_byte};

const struct datarep *datarep_find(const char *name) {
    const struct datarep *found = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < registered_count; i++)
        if (strcmp(registered[i].name, name) == 0)
            found = &registered[i];
    pthread_mutex_unlock(&lock);
    return found;
}

int datarep_extent(const struct datarep *rep, MPI_Datatype element, uint32_t *extent) {
    MPI_Aint bytes = 0;
    if (rep->extent(element, &bytes, rep->extra) != MPI_SUCCESS || bytes < 0 || bytes > 4096)
        return describe(PST_ERR_CONVERSION, "the extent function of data representation `%s` gives %lld bytes for a "
                        "basic datatype", rep->name, (long long)bytes);
    *extent = (uint32_t)bytes;
    return PST_OK;
}

static int add(const struct datarep *new) {
    if (!new->extent)
        return describe(PST_ERR_ARG, "MPI_Register_datarep: `%s` has no extent function", new->name);
    bool ours = strcmp(new->name, "native") == 0 || strcmp(new->name, "internal") == 0 ||
                strcmp(new->name, "external32") == 0;
    if (ours || datarep_find(new->name))
        return describe(PST_ERR_DUP_DATAREP, "MPI_Register_datarep: `%s` is defined already", new->name);
    int error = PST_OK;
    pthread_mutex_lock(&lock);
    if (registered_count < MAX_DATAREPS)
        registered[registered_count++] = *new;
    else
        error = describe(PST_ERR_NO_MEM, "MPI_Register_datarep: %d data representations is the most there can be",
                         MAX_DATAREPS);
    pthread_mutex_unlock(&lock);
    return error;
}

static int name_new(struct datarep *new, const char *name) {
    if (!name || strlen(name) >= sizeof new->name)
        return describe(PST_ERR_ARG, "MPI_Register_datarep: the name is missing or longer than %zu characters",
                        sizeof new->name - 1);
    snprintf(new->name, sizeof new->name, "%s", name);
    return PST_OK;
}

/* Without conversion functions the MPI library learns of it, too, for files that are not ours. With them it does
 * not: MPICH ends the program over them, Open MPI takes them and never calls them. */
int shim_Register_datarep(const char *datarep, MPI_Datarep_conversion_function *read,
                          MPI_Datarep_conversion_function *write, MPI_Datarep_extent_function *extent, void *extra) {
    struct datarep new = {.read = read, .write = write, .extent = extent, .extra = extra};
    int error = name_new(&new, datarep);
    if (!error)
        error = add(&new);
    if (!error && !read && !write)
        REAL(Register_datarep)(datarep, read, write, extent, extra);
    return finish_null(error);
}

int shim_Register_datarep_c(const char *datarep, conversion_function_c *read, conversion_function_c *write,
                            MPI_Datarep_extent_function *extent, void *extra) {
    struct datarep new = {.read_c = read, .write_c = write, .extent = extent, .extra = extra};
    int error = name_new(&new, datarep);
    if (!error)
        error = add(&new);
    type_Register_datarep_c *real = FIND(Register_datarep_c);
    if (!error && !read && !write && real)
        real(datarep, read, write, extent, extra);
    return finish_null(error);
}

/* ---- Conversion --------------------------------------------------------------------------------------------- */

struct conversion {
    const struct datarep *rep;
    int direction;
    void *user;
    /* The user's datatype; a duplicate, because the user may free it before a nonblocking access ends. */
    MPI_Datatype type;
    /* Basic elements, stored bytes and bytes in memory of the whole access. */
    uint64_t items, stored, memory;
    char *staged;
};

static void conversion_free(struct conversion *conversion) {
    if (conversion->type != MPI_DATATYPE_NULL && mpi_usable())
        REAL(Type_free)(&conversion->type);
    free(conversion->staged);
    free(conversion);
}

/* Calls the program's function for items [0, items), in pieces that its count can express. */
static int convert(struct conversion *c, uint64_t items) {
    const struct datarep *rep = c->rep;
    conversion_function_c *large = c->direction == PST_READ ? rep->read_c : rep->write_c;
    MPI_Datarep_conversion_function *small = c->direction == PST_READ ? rep->read : rep->write;
    for (uint64_t at = 0; at < items;) {
        uint64_t n = large || items - at < INT_MAX ? items - at : INT_MAX;
        void *stored = c->staged + (c->items ? c->stored / c->items * at : 0);
        int code = large ? large(c->user, c->type, (MPI_Count)n, stored, (MPI_Offset)at, rep->extra)
                         : small(c->user, c->type, (int)n, stored, (MPI_Offset)at, rep->extra);
        if (code != MPI_SUCCESS)
            return describe(PST_ERR_CONVERSION, "the conversion function of data representation `%s` failed with "
                            "code %d", rep->name, code);
        at += n;
    }
    return PST_OK;
}

static int size_in(MPI_Datatype type, const struct datarep *rep, uint64_t count, uint64_t *out) {
    pst_type *decoded;
    int error = type_decode(type, rep, &decoded);
    if (error)
        return error;
    if (__builtin_mul_overflow(pst_type_size(decoded), count, out))
        error = describe(PST_ERR_COUNT, "an access of more than 2^64 bytes");
    pst_type_free(decoded);
    return error;
}

int conversion_new(const struct datarep *rep, struct pst_access *access, MPI_Datatype type,
                   struct conversion **out) {
    *out = NULL;
    bool read = access->direction == PST_READ;
    if (read ? !rep->read && !rep->read_c : !rep->write && !rep->write_c)
        return PST_OK;
    struct conversion *c = calloc(1, sizeof *c);
    if (!c)
        return describe(PST_ERR_NO_MEM, "no memory to convert data");
    *c = (struct conversion){.rep = rep, .direction = access->direction, .user = access->buffer};
    c->type = MPI_DATATYPE_NULL;
    int error = size_in(type, rep, access->count, &c->stored);
    if (!error)
        error = size_in(type, &datarep_counting, access->count, &c->items);
    if (!error)
        error = size_in(type, NULL, access->count, &c->memory);
    if (!error && REAL(Type_dup)(type, &c->type) != MPI_SUCCESS)
        error = describe(PST_ERR_TYPE, "a datatype cannot be duplicated");
    if (!error && !(c->staged = malloc(c->stored ? c->stored : 1)))
        error = describe(PST_ERR_NO_MEM, "no memory to convert %llu bytes to data representation `%s`; access less "
                         "at a time", (unsigned long long)c->stored, rep->name);
    if (!error && !read)
        error = convert(c, c->items);
    pst_type *bytes;
    if (!error)
        error = type_decode(MPI_BYTE, NULL, &bytes);
    if (error) {
        conversion_free(c);
        return error;
    }
    access->buffer = c->staged;
    access->count = c->stored;
    pst_type_free((pst_type *)access->type);
    access->type = bytes;
    *out = c;
    return PST_OK;
}

int conversion_finish(struct conversion *c, int pst_class, uint64_t *bytes) {
    uint64_t items = c->stored ? (uint64_t)((__extension__ (unsigned __int128)*bytes) * c->items / c->stored) : 0;
    if (!pst_class && c->direction == PST_READ)
        pst_class = convert(c, items);
    *bytes = c->items ? (uint64_t)((__extension__ (unsigned __int128)items) * c->memory / c->items) : 0;
    conversion_free(c);
    return pst_class;
}
