/* One recorded call. */
#ifndef PENSTOCK_CALL_H
#define PENSTOCK_CALL_H

#include "trace.h"

#include <time.h>

#define NESTED 16

/* A thread's open calls, outermost first. Frames tell those that were left by longjmp or an exception: a live call's frame is
 * above that of what it calls. On another stack (sigaltstack) that may be wrong; then a parent is missing, until the outer call
 * ends and sets the depth as it was. */
struct thread {
    uint64_t generation;
    uint32_t index;
    uint32_t depth;
    struct {
        const void *frame;
        uint64_t id;
        uint32_t layers;
    } open[NESTED];
};
extern _Thread_local struct thread self __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct call {
    uint64_t id;
    uint64_t parent;
    uint64_t begin;
    /* 0: not over. */
    uint64_t end;
    const void *code;
    uint32_t depth;
    uint16_t operation;
    uint8_t layer;
};

static inline uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether this process records, now. */
static inline bool call_possible(void) {
    return settings.on && process_attached() && !__atomic_load_n(&process->ring->stop, __ATOMIC_RELAXED);
}

/* This thread, in a process that is attached. */
static inline struct thread *thread_self(void) {
    struct thread *t = &self;
    if (unlikely(t->generation != process->generation)) {
        t->generation = process->generation;
        t->index = __atomic_fetch_add(&process->next_thread, 1, __ATOMIC_RELAXED);
        t->depth = 0;
    }
    return t;
}

/* Open calls that a call with this frame is within. */
static inline uint32_t thread_depth(const struct thread *t, const void *frame) {
    uint32_t depth = t->depth;
    while (depth > 0 && t->open[depth - 1].frame <= frame)
        depth--;
    return depth;
}

static inline void thread_open(struct thread *t, uint32_t depth, const void *frame, uint64_t id, unsigned layer) {
    t->open[depth].frame = frame;
    t->open[depth].id = id;
    t->open[depth].layers = (depth ? t->open[depth - 1].layers : 0) | 1u << layer;
    /* A handler that interrupts here begins above what is set. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t->depth = depth + 1;
}

/* False: the call is not recorded. `once`: not within another call of its layer. */
static inline bool call_begin(struct call *call, enum layer layer, unsigned operation, const void *code, bool once) {
    if (!settings.on || !settings_operation(operation) || !call_possible())
        return false;
    struct thread *t = thread_self();
    uint32_t depth = thread_depth(t, call);
    if (depth >= NESTED)
        return false;
    uint32_t within = depth ? t->open[depth - 1].layers : 0;
    if (once && within >> layer & 1)
        return false;
    call->id = __atomic_add_fetch(&process->next_id, 1, __ATOMIC_RELAXED);
    call->parent = depth ? t->open[depth - 1].id : 0;
    call->depth = depth;
    call->layer = (uint8_t)layer;
    call->operation = (uint16_t)operation;
    call->code = code;
    call->end = 0;
    thread_open(t, depth, call, call->id, layer);
    call->begin = now();
    return true;
}

/* The call is over; what is found out about it from here on does not count as its time. */
static inline void call_stop(struct call *call) {
    call->end = now();
}

static inline void call_end(struct call *call, uint32_t file, int64_t offset, int64_t bytes, int error) {
    uint64_t end = call->end ? call->end : now();
    self.depth = call->depth;
    if (file == FILE_LEFT_OUT)
        return;
    struct slot slot = {
        .operation = call->operation,
        .layer = call->layer,
        .kind = SLOT_RECORD,
        .id = call->id,
        .parent = call->parent,
        .begin = call->begin > process->origin ? call->begin - process->origin : 0,
        .duration = end - call->begin,
        .offset = offset > 0 ? (uint64_t)offset : 0,
        .bytes = bytes > 0 ? (uint64_t)bytes : 0,
        .code = (uint64_t)(uintptr_t)call->code,
        .file = file,
        .error = error,
        .thread = self.index,
        .slots = 1,
    };
    ring_push(&slot, NULL, 0);
}

/* The address that a wrapper returns to. */
#define CALLER __builtin_return_address(0)

#endif
