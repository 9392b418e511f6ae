/* Accesses in a data representation of the program.
 *
 * An access moves the stored bytes unchanged between the file and a staging buffer. The program's functions convert
 * between that buffer and the user's memory: before the write, after the read.
 */
#include "shim.h"

#include <limits.h>
#include <stdlib.h>

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
