/* Uses every function of penstock_sched.h. */
#define _POSIX_C_SOURCE 200809L
#include "penstock_sched.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what)                                                   \
    do {                                                              \
        if (!(what)) {                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static penstock_sched_request request(uint64_t id, uint64_t file, uint64_t offset, uint64_t bytes) {
    penstock_sched_request r = {.id = id, .file = file, .offset = offset, .bytes = bytes, .op = PENSTOCK_SCHED_READ};
    return r;
}

static void machine(void) {
    char error[200];
    CHECK(penstock_sched_create("sched=cfq", error, sizeof error) == NULL && strstr(error, "cfq") != NULL);
    CHECK(penstock_sched_create("quantum=0", error, 8) == NULL && strlen(error) == 7);
    CHECK(penstock_sched_create("aioli", NULL, 0) == NULL);
    penstock_sched *s = penstock_sched_create("sched=to-agg queue_limit=4", error, sizeof error);
    CHECK(s != NULL);
    for (uint64_t i = 0; i < 3; i++) {
        penstock_sched_request r = request(i, 7, 100 * i, 100);
        CHECK(penstock_sched_add(s, 10 + i, &r) == 0);
    }
    penstock_sched_request other = request(3, 8, 0, 50), empty = request(4, 8, 0, 0);
    CHECK(penstock_sched_add(s, 20, &other) == 0);
    CHECK(penstock_sched_add(s, 20, &other) == -EAGAIN);
    CHECK(penstock_sched_add(s, 20, &empty) == -EINVAL);
    other.op = 9;
    CHECK(penstock_sched_add(s, 20, &other) == -EINVAL && penstock_sched_add(s, 20, NULL) == -EINVAL);
    penstock_sched_virtual v;
    uint64_t until = 0;
    CHECK(penstock_sched_next(s, 30, &v, &until) == PENSTOCK_SCHED_DISPATCH);
    CHECK(v.file == 7 && v.offset == 0 && v.end == 300 && v.bytes == 300 && v.parts == 3 && v.arrived == 10);
    penstock_sched_request parts[2];
    CHECK(penstock_sched_parts(s, v.id, parts, 2) == 3 && parts[0].id == 0 && parts[1].id == 1);
    CHECK(penstock_sched_completed(s, 40, v.id) == 0 && penstock_sched_completed(s, 40, v.id) == -ENOENT);
    CHECK(penstock_sched_set(s, 40, "sched=sjf") == 0 && penstock_sched_set(s, 40, "sched=no") == -EINVAL);
    CHECK(penstock_sched_next(s, 50, &v, &until) == PENSTOCK_SCHED_DISPATCH && v.file == 8);
    CHECK(penstock_sched_completed(s, 60, v.id) == 0);
    CHECK(penstock_sched_next(s, 60, &v, &until) == PENSTOCK_SCHED_IDLE);
    /* Two of one queue a window apart: TWINS waits for the other queue's turn. */
    CHECK(penstock_sched_set(s, 60, "sched=twins twins_window=1ms") == 0);
    penstock_sched_request one = request(5, 1, 0, 10), two = request(6, 2, 0, 10);
    one.program = 1;
    two.program = 2;
    CHECK(penstock_sched_add(s, 100, &one) == 0 && penstock_sched_add(s, 100, &two) == 0);
    CHECK(penstock_sched_next(s, 100, &v, &until) == PENSTOCK_SCHED_DISPATCH);
    CHECK(penstock_sched_next(s, 100, &v, &until) == PENSTOCK_SCHED_WAIT && until == 1000100);
    penstock_sched_statistics all;
    penstock_sched_get_statistics(s, &all);
    CHECK(all.arrived == 6 && all.completed == 4 && all.decisions == 3 && all.queued == 1 && all.serving == 1);
    CHECK(all.largest_aggregation == 3 && all.refused == 2);
    penstock_sched_reset_statistics(s);
    penstock_sched_get_statistics(s, &all);
    CHECK(all.arrived == 0 && all.queued == 1);
    penstock_sched_destroy(s);
}

struct seen {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    penstock_service *service;
    int calls, requests, later;
    uint64_t served[100];
};

static int one(void *context, uint64_t served, const penstock_sched_request *requests, size_t n) {
    struct seen *seen = context;
    (void)served;
    pthread_mutex_lock(&seen->mutex);
    CHECK(n == 1 && penstock_service_stop(seen->service) == -EDEADLK);
    seen->calls++;
    seen->requests++;
    pthread_mutex_unlock(&seen->mutex);
    /* One of them fails; the others are served all the same. */
    return requests[0].id == 3 ? -EIO : 0;
}

static int list(void *context, uint64_t served, const penstock_sched_request *requests, size_t n) {
    struct seen *seen = context;
    (void)requests;
    pthread_mutex_lock(&seen->mutex);
    seen->calls++;
    seen->requests += (int)n;
    seen->served[seen->later++] = served;
    pthread_cond_signal(&seen->changed);
    pthread_mutex_unlock(&seen->mutex);
    return 1;
}

static void service(void) {
    char error[200];
    struct seen seen = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0, {0}};
    CHECK(penstock_service_start("sched=none", one, NULL, &seen, error, sizeof error) == NULL);
    pthread_mutex_lock(&seen.mutex);
    seen.service = penstock_service_start("sched=mlf", one, NULL, &seen, error, sizeof error);
    CHECK(seen.service != NULL);
    pthread_mutex_unlock(&seen.mutex);
    for (uint64_t i = 0; i < 100; i++) {
        penstock_sched_request r = request(i, i % 5, 4096 * i, 4096);
        CHECK(penstock_service_add(seen.service, &r) == 0);
        if (i == 50) CHECK(penstock_service_set(seen.service, "sched=aioli") == 0);
    }
    /* All are served in the end, the failed one is counted. */
    penstock_sched_statistics done;
    struct timespec moment = {0, 10 * 1000 * 1000};
    for (int i = 0; i < 6000; i++) {
        penstock_service_get_statistics(seen.service, &done);
        if (done.completed == 100) break;
        nanosleep(&moment, NULL);
    }
    CHECK(done.completed == 100 && done.failed == 1);
    CHECK(penstock_service_stop(seen.service) == 0);
    CHECK(seen.requests == 100 && seen.calls == 100);

    /* Completion comes later, from another thread. */
    memset(&seen.calls, 0, 3 * sizeof(int));
    seen.service = penstock_service_start("sched=to-agg", one, list, &seen, error, sizeof error);
    CHECK(seen.service != NULL);
    for (uint64_t i = 0; i < 10; i++) {
        penstock_sched_request r = request(i, 1, 4096 * i, 4096);
        CHECK(penstock_service_add(seen.service, &r) == 0);
    }
    int completed = 0;
    pthread_mutex_lock(&seen.mutex);
    while (seen.requests < 10 || seen.later > 0) {
        while (seen.later == 0) pthread_cond_wait(&seen.changed, &seen.mutex);
        completed += penstock_service_completed(seen.service, seen.served[--seen.later]) == 0;
    }
    pthread_mutex_unlock(&seen.mutex);
    penstock_sched_statistics all;
    penstock_service_get_statistics(seen.service, &all);
    CHECK(all.arrived == 10 && all.failed == 0);
    CHECK(penstock_service_completed(seen.service, 12345) == -ENOENT);
    penstock_service_reset_statistics(seen.service);
    CHECK(completed > 0);
    CHECK(penstock_service_stop(seen.service) == 0);
}

int main(void) {
    machine();
    service();
    puts("ok");
    return 0;
}
