/* Wrappers that stand in front of the C library's functions, under their names. */
#ifndef PENSTOCK_REAL_H
#define PENSTOCK_REAL_H

#include "call.h"

#include <errno.h>

/* A function behind a wrapper. All of them are looked up before the program runs. */
struct real {
    void **function;
    const char *name;
};
void reals_find(void);

#define DEFINE(result, name, parameters)                                                                               \
    static result(*real_##name) parameters;                                                                            \
    static const struct real entry_##name __attribute__((section("penstock_reals"), used)) = {(void **)&real_##name, #name}; \
    result wrap_##name parameters __asm__(#name) __attribute__((visibility("default")));                               \
    result wrap_##name parameters

#define REAL(name) (likely(real_##name != NULL) ? real_##name : (reals_find(), real_##name))

#endif
