/* The ring in shared memory through which a process hands its records to the collector.
 *
 *   file  = header (one page of 4096 bytes) slot*      PID-START.ring in the session's directory, see session.c
 *
 * Writers are all threads of one process, also in signal handlers; the reader is the collector (crates/collect/src/ring.rs,
 * which has the same layout). A writer moves `head` over the slots that it takes, fills them, and stores the sequence of the
 * first one last. The reader takes slots in order, stores 0 into the sequence of each, and then moves `tail`. A process that is
 * killed leaves at most slots whose sequence was not stored: they are counted as dropped.
 */
#ifndef PENSTOCK_RING_H
#define PENSTOCK_RING_H

#include <stdint.h>

#define RING_MAGIC 0x31474e4952545350ull /* "PSTRING1" */
#define RING_VERSION 1
#define RING_HEADER 4096

/* What a slot begins. */
enum slot_kind {
    SLOT_RECORD = 1,
    /* The name of a file: `file` is its number within the process, `id` that in the deployment or 0, `bytes` the length; the text
     * fills the slots behind. */
    SLOT_NAME = 2,
};

struct slot {
    /* Low 32 bits of the slot's place from the beginning of time, plus 1, never 0; 0: not written. */
    uint32_t sequence;
    uint16_t operation;
    uint8_t layer;
    uint8_t kind;
    uint64_t id;
    /* Id of the call of this process that this one is part of; 0: none. */
    uint64_t parent;
    /* Since the header's `began`, nanoseconds. */
    uint64_t begin;
    uint64_t duration;
    uint64_t offset;
    uint64_t bytes;
    /* Return address of the call. Of layers below POSIX: the server, or UINT32_MAX. */
    uint64_t code;
    uint32_t file;
    int32_t error;
    uint32_t thread;
    /* Slots of this entry, itself included. */
    uint32_t slots;
};

struct ring {
    /* Stored last. */
    uint64_t magic;
    uint32_t version;
    uint32_t slot_bytes;
    uint32_t slots;
    uint32_t pid;
    /* Start of the process, as in field 22 of /proc/PID/stat: tells it from a later one with its number. */
    uint64_t started;
    /* Time 0 of the records, nanoseconds since 1970. */
    uint64_t began;
    uint64_t program;
    uint32_t rank;
    /* Set by the collector: nothing is to be recorded any more. */
    uint32_t stop;
    char command[1024];
    char job[128];
    /* What was chosen, in words. */
    char chosen[1024];
    /* Words that change stand on cache lines of their own. */
    _Alignas(128) uint64_t head;
    _Alignas(128) uint64_t tail;
    _Alignas(128) uint64_t dropped;
};

_Static_assert(sizeof(struct slot) == 80, "the collector knows the layout");
_Static_assert(sizeof(struct ring) <= RING_HEADER, "the header is one page");

#endif
