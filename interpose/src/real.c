/* Finds the functions that wrappers call on. */
#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>

extern const struct real __start_penstock_reals[], __stop_penstock_reals[];

void reals_find(void) {
    static int finding;
    if (__atomic_exchange_n(&finding, 1, __ATOMIC_ACQ_REL))
        return;
    for (const struct real *one = __start_penstock_reals; one < __stop_penstock_reals; one++)
        if (!*one->function)
            *one->function = dlsym(RTLD_NEXT, one->name);
    __atomic_store_n(&finding, 0, __ATOMIC_RELEASE);
}
