/* The table that Penstock's own libraries in this process look for (crates/trace/src/sink.rs): their records go to the ring, and
 * have the program's calls as parents. What the layer `client` holds is one choice: calls of the client library, its requests,
 * what it moves by descriptors. */
#define _GNU_SOURCE
#include "call.h"

#include "../../crates/trace/sink.h"

#include <string.h>

static uint64_t sink_now(void) {
    uint64_t at = now();
    return at > process->origin ? at - process->origin : 0;
}

static uint64_t sink_next(void) {
    return call_possible() ? __atomic_add_fetch(&process->next_id, 1, __ATOMIC_RELAXED) : 0;
}

static bool chosen(uint8_t layer, uint16_t operation) {
    if (layer > LAYER_POSIX)
        return settings.layers >> LAYER_CLIENT & 1;
    return operation < OPERATIONS && settings_operation(operation);
}

static uint64_t sink_open(const void *frame, uint8_t layer, uint16_t operation, uint64_t id) {
    if (layer >= 32 || !chosen(layer, operation) || !call_possible())
        return UINT64_MAX;
    struct thread *thread = thread_self();
    uint32_t depth = thread_depth(thread, frame);
    if (depth >= NESTED || (depth && thread->open[depth - 1].layers >> layer & 1))
        return UINT64_MAX;
    uint64_t parent = depth ? thread->open[depth - 1].id : 0;
    thread_open(thread, depth, frame, id, layer);
    return parent;
}

static void sink_close(uint64_t id) {
    struct thread *thread = &self;
    if (thread->generation != process->generation)
        return;
    for (uint32_t depth = thread->depth; depth > 0; depth--)
        if (thread->open[depth - 1].id == id) {
            thread->depth = depth - 1;
            return;
        }
}

static uint32_t sink_file(const char *name, size_t length, uint64_t id) {
    char path[PATH_ROOM];
    if (length >= sizeof path || !call_possible())
        return 0;
    memcpy(path, name, length);
    path[length] = 0;
    return file_of_deployment(path, id);
}

static void sink_record(const struct penstock_trace_record *from) {
    if (from->file == FILE_LEFT_OUT || !call_possible() || (from->layer > LAYER_POSIX && !chosen(from->layer, from->operation)))
        return;
    struct slot slot = {
        .operation = from->operation,
        .layer = from->layer,
        .kind = SLOT_RECORD,
        .id = from->id,
        .parent = from->parent,
        .begin = from->begin,
        .duration = from->duration,
        .offset = from->offset,
        .bytes = from->bytes,
        .code = from->layer > LAYER_POSIX ? from->server : from->code,
        .file = from->file,
        .error = from->error,
        .thread = from->thread == UINT32_MAX ? thread_self()->index : from->thread,
        .slots = 1,
    };
    ring_push(&slot, NULL, 0);
}

static void sink_identify(uint64_t program, uint32_t rank, const void *code) {
    if (!settings.on)
        return;
    settings.program = program;
    settings.rank = rank;
    patch_own(code);
    if (process_attached()) {
        process->ring->program = program;
        __atomic_store_n(&process->ring->rank, rank, __ATOMIC_RELEASE);
    }
}

extern const struct penstock_trace_sink penstock_trace_sink __attribute__((visibility("default")));
const struct penstock_trace_sink penstock_trace_sink = {
    .version = PENSTOCK_TRACE_SINK_VERSION,
    .now = sink_now,
    .next = sink_next,
    .open = sink_open,
    .close = sink_close,
    .file = sink_file,
    .record = sink_record,
    .identify = sink_identify,
};
