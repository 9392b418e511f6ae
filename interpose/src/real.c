/* Finds the functions that wrappers call on. */
#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>

/* Hidden here for one linker, in exports.map for the other. */
#define LINKED __attribute__((visibility("hidden")))
extern const struct real __start_penstock_reals[] LINKED, __stop_penstock_reals[] LINKED;

void reals_find(void) {
    static int finding;
    if (__atomic_exchange_n(&finding, 1, __ATOMIC_ACQ_REL))
        return;
    for (const struct real *one = __start_penstock_reals; one < __stop_penstock_reals; one++)
        if (!*one->function)
            *one->function = dlsym(RTLD_NEXT, one->name);
    __atomic_store_n(&finding, 0, __ATOMIC_RELEASE);
}
