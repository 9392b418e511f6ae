/* Request scheduling for any I/O service: which request next, alone or with others.
 *
 * Link with -lpenstock_sched_c. docs/administer/scheduling.md describes the algorithms and options.
 *
 * There are two ways to use it. A `penstock_sched` has no clock and no thread. The caller passes times (nanoseconds
 * from any start), and serves the requests that are returned; one thread at a time. A `penstock_service` has a thread
 * that calls back; its functions may be called from any thread.
 *
 * Functions that return int return 0 or a positive result, or a negative errno. -EINVAL: the request or an option is
 * wrong. -EAGAIN: the most requests are held already. -ENOENT: the request is not being served.
 */
#ifndef PENSTOCK_SCHED_H
#define PENSTOCK_SCHED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PENSTOCK_SCHED_READ = 0, PENSTOCK_SCHED_WRITE = 1 };

typedef struct {
    uint64_t id;      /* chosen by the caller */
    uint64_t file;
    uint64_t offset;  /* first byte */
    uint64_t bytes;   /* 1 to 2^38 */
    uint32_t op;      /* PENSTOCK_SCHED_READ or _WRITE */
    uint32_t program; /* the program that sends it */
} penstock_sched_request;

/* Requests of one file and operation that are served as one. */
typedef struct {
    uint64_t id; /* for penstock_sched_completed */
    uint64_t file;
    uint64_t offset;  /* first byte of all parts */
    uint64_t end;     /* one past the last byte of all parts */
    uint64_t bytes;   /* sum over the parts */
    uint64_t arrived; /* when the first part arrived, ns */
    uint32_t op;
    uint32_t parts;
} penstock_sched_virtual;

typedef struct {
    uint64_t queued, serving, peak_queued; /* requests */
    uint64_t arrived, completed, refused;
    uint64_t decisions, bytes; /* virtual requests dispatched, bytes in them */
    uint64_t largest_aggregation, shift_waits, aggregation_waits, conflicts;
    uint64_t waiting_p50_ns, waiting_p99_ns; /* arrival to dispatch */
    uint64_t failed;                         /* a service's callbacks that failed */
} penstock_sched_statistics;

typedef struct penstock_sched penstock_sched;

/* `options`: words name=value with spaces between, such as "sched=aioli quantum=128KiB"; NULL or "": the defaults.
 * Returns NULL if they are wrong. Then `error` (which may be NULL) has the reason, up to `room` bytes of text. */
penstock_sched *penstock_sched_create(const char *options, char *error, size_t room);

/* Adds a request, which arrives at `now`. */
int penstock_sched_add(penstock_sched *s, uint64_t now, const penstock_sched_request *request);

enum { PENSTOCK_SCHED_IDLE = 0, PENSTOCK_SCHED_DISPATCH = 1, PENSTOCK_SCHED_WAIT = 2 };

/* Decides what to do at `now`. DISPATCH: serve *v. WAIT: do nothing before *until, unless a request is added or
 * completed first. IDLE: do nothing until a request is added or completed. */
int penstock_sched_next(penstock_sched *s, uint64_t now, penstock_sched_virtual *v, uint64_t *until);

/* Writes up to `room` parts of a virtual request that is being served, by offset. Returns how many it has. */
size_t penstock_sched_parts(const penstock_sched *s, uint64_t id, penstock_sched_request *parts, size_t room);

/* The virtual request `id` has been served. */
int penstock_sched_completed(penstock_sched *s, uint64_t now, uint64_t id);

/* Changes options; queued requests are carried over. */
int penstock_sched_set(penstock_sched *s, uint64_t now, const char *options);

void penstock_sched_get_statistics(const penstock_sched *s, penstock_sched_statistics *statistics);
void penstock_sched_reset_statistics(penstock_sched *s);
void penstock_sched_destroy(penstock_sched *s);

/* ---- with a thread and callbacks ---- */

typedef struct penstock_service penstock_service;

/* Serves requests. Called from the service's thread, without any lock: it may add requests.
 * Returns 0: served. 1: the caller calls penstock_service_completed(…, served) later. Negative: failed; this is
 * counted and has no other effect. */
typedef int (*penstock_sched_callback)(void *context, uint64_t served, const penstock_sched_request *requests, size_t n);

/* `one` is called for each request. If `list` is not NULL, it is called instead for requests that are served as one. */
penstock_service *penstock_service_start(const char *options, penstock_sched_callback one,
                                         penstock_sched_callback list, void *context, char *error, size_t room);
int penstock_service_add(penstock_service *s, const penstock_sched_request *request);

/* One callback that returned 1 has been served. */
int penstock_service_completed(penstock_service *s, uint64_t served);
int penstock_service_set(penstock_service *s, const char *options);
void penstock_service_get_statistics(const penstock_service *s, penstock_sched_statistics *statistics);
void penstock_service_reset_statistics(penstock_service *s);

/* Serves the queued requests, waits for those being served, and ends the thread. `s` must not be used afterwards.
 * Returns -EDEADLK if called from a callback. */
int penstock_service_stop(penstock_service *s);

#ifdef __cplusplus
}
#endif
#endif
