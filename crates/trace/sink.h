/* Where the records of a process go: a library for tracing exports this table as `penstock_trace_sink`. The client library and the
 * MPI-IO library look for it. crates/trace/src/sink.rs says what the functions promise. */
#ifndef PENSTOCK_TRACE_SINK_H
#define PENSTOCK_TRACE_SINK_H

#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_TRACE_SINK_VERSION 2

struct penstock_trace_record {
    uint64_t id, parent, begin, duration, offset, bytes, code;
    uint32_t file;
    int32_t error;
    uint32_t thread; /* UINT32_MAX: the calling one */
    uint32_t server; /* UINT32_MAX: none */
    uint16_t operation;
    uint8_t layer;
    uint8_t reserved[5];
};

struct penstock_trace_sink {
    uint32_t version;
    uint64_t (*now)(void);  /* nanoseconds since the stream's `began` */
    uint64_t (*next)(void); /* the id of a new record; 0: nothing is recorded */
    /* The innermost open call of this thread from now on. Its parent's id or 0; UINT64_MAX: not to be recorded, nothing opened. */
    uint64_t (*open)(const void *frame, uint8_t layer, uint16_t operation, uint64_t id);
    void (*close)(uint64_t id);
    uint32_t (*file)(const char *name, size_t length, uint64_t id);
    void (*record)(const struct penstock_trace_record *record);
    /* Which process of which program this is, and a function of the library that asks: its own I/O is no call of the program. */
    void (*identify)(uint64_t program, uint32_t rank, const void *code);
};

#endif
