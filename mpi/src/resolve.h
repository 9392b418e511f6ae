/* What the ABI builds and the resolver tell each other; no MPI header is needed here. */
#ifndef RESOLVE_H
#define RESOLVE_H

/* The functions of functions.def, numbered. */
enum function {
#define FUNCTION(result, name, parameters, arguments) F_##name,
#define FORTRAN(name) F_##name,
#include "functions.def"
#undef FUNCTION
#undef FORTRAN
    FUNCTIONS
};

/* One ABI's build of the shim: its implementation of each function. */
struct abi {
    void *functions[FUNCTIONS];
};
/* Absent (null) where no header was found when this library was built. */
extern const struct abi penstock_abi_mpich __attribute__((weak, visibility("hidden")));
extern const struct abi penstock_abi_standard __attribute__((weak, visibility("hidden")));
extern const struct abi penstock_abi_openmpi __attribute__((weak, visibility("hidden")));

/* A symbol of the program's MPI library, or null. Valid once an MPI function has been called. */
void *penstock_real(const char *symbol);
/* The address that the whole program uses for a variable of the MPI library, or null. */
void *penstock_variable(const char *symbol);
/* The path of the program's MPI library. */
const char *penstock_real_path(void);
/* The Fortran function of this name that would be called without Penstock, or null. */
void *penstock_next(const char *symbol);
/* Ends the process like the dynamic linker does for a symbol that it cannot find. */
void penstock_missing(const char *symbol) __attribute__((noreturn));

#endif
