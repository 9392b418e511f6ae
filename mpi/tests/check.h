/* What the test programs share. They call MPI only and run under every MPI library, with Penstock or without. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Large count functions: where this mpi.h has them. */
#define LARGE (MPI_VERSION >= 4)

extern int rank, size;
/* A name in the directory under test; the same on all ranks, new for each call. Valid until the next call. */
const char *new_name(const char *what);
/* Opens a new file for reading and writing. */
MPI_File open_new(MPI_Comm comm, const char *what);

/* A failed check ends the program: MPI_Abort stops the other ranks. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__FILE__, __LINE__, #condition);                                                  \
    } while (0)
#define OK(call)                                           \
    do {                                                   \
        int code_ = (call);                                \
        if (code_ != MPI_SUCCESS)                          \
            fail_code(__FILE__, __LINE__, #call, code_);   \
    } while (0)
/* The call must fail with this class. */
#define FAILS(class_, call)                                                    \
    do {                                                                       \
        int code_ = (call), got_ = 0;                                          \
        if (code_ != MPI_SUCCESS)                                              \
            MPI_Error_class(code_, &got_);                                     \
        if (code_ == MPI_SUCCESS || got_ != (class_))                          \
            fail_class(__FILE__, __LINE__, #call, #class_, code_);             \
    } while (0)
void fail(const char *file, int line, const char *what) __attribute__((noreturn));
void fail_code(const char *file, int line, const char *what, int code) __attribute__((noreturn));
void fail_class(const char *file, int line, const char *what, const char *class_, int code)
    __attribute__((noreturn));

/* What a status counts. */
int count_of(MPI_Status *status, MPI_Datatype type);
#define COUNTS(n, status, type) CHECK(count_of(&(status), type) == (n))

/* Bytes of a rank and place that tell where they come from. */
static inline unsigned char mark(int of_rank, size_t at) {
    return (unsigned char)(1 + (31u * (unsigned)of_rank + 7u * (unsigned)at + (unsigned)(at >> 8)) % 251u);
}

/* The tests, one file each. */
void test_files(void);
void test_access(void);
void test_shared(void);
void test_nonblocking(void);
void test_split(void);
void test_views(void);
void test_types(void);
void test_representations(void);
void test_errors(void);
void test_handles(void);

#endif
