/* This ABI's implementations, in the order of functions.def, and the way to the MPI library's functions. */
#include "shim.h"

#define FUNCTION(result, name, parameters, arguments)
#define FORTRAN(name) extern void shim_##name(void);
#include "functions.def"
#undef FUNCTION
#undef FORTRAN

const struct abi PENSTOCK_ABI = {{
#define FUNCTION(result, name, parameters, arguments) (void *)shim_##name,
#define FORTRAN(name) (void *)shim_##name,
#include "functions.def"
#undef FUNCTION
#undef FORTRAN
}};

void *real_function(void **found, const char *symbol, bool must) {
    /* What the library does not have is remembered, too. */
    static char absent;
    void *address = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (!address) {
        address = penstock_real(symbol);
        if (!address)
            address = &absent;
        __atomic_store_n(found, address, __ATOMIC_RELAXED);
    }
    if (address != &absent)
        return address;
    if (must)
        penstock_missing(symbol);
    return NULL;
}
