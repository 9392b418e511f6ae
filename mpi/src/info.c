/* MPI_Info objects and the library's key and value pairs. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest value taken over. */
#define MAX_VALUE 65536

pst_info *info_from_mpi(MPI_Info info) {
    pst_info *out = pst_info_new();
    int count = 0;
    if (info != MPI_INFO_NULL)
        REAL(Info_get_nkeys)(info, &count);
    for (int i = 0; i < count; i++) {
        char key[MPI_MAX_INFO_KEY + 1];
        int length = 0, found = 0;
        if (REAL(Info_get_nthkey)(info, i, key) != MPI_SUCCESS ||
            REAL(Info_get_valuelen)(info, key, &length, &found) != MPI_SUCCESS || !found || length > MAX_VALUE)
            continue;
        char *value = malloc((size_t)length + 1);
        if (!value)
            continue;
        if (REAL(Info_get)(info, key, length, value, &found) == MPI_SUCCESS && found)
            pst_info_add(out, key, value);
        free(value);
    }
    return out;
}

int info_to_mpi(const pst_info *info, MPI_Info *out) {
    int code = REAL(Info_create)(out);
    for (int i = 0; code == MPI_SUCCESS && i < pst_info_count(info); i++) {
        const char *key = pst_info_key(info, i);
        /* Open MPI allows 36 characters for a key and 256 for a value, and aborts on more. */
        char value[MPI_MAX_INFO_VAL];
        snprintf(value, sizeof value, "%s", pst_info_value(info, i));
        if (strlen(key) < MPI_MAX_INFO_KEY && value[0])
            code = REAL(Info_set)(*out, key, value);
    }
    return code;
}
