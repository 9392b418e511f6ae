/* Data representations that the program registers (MPI 4.1, section 14.5.3).
 *
 * A view in such a representation is decoded with the widths that the extent function gives.
 */
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_DATAREPS 64

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
