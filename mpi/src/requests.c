/* Nonblocking accesses as generalized requests, and the statuses of all accesses.
 *
 * The library's thread completes a request when the access is done. MPI has one way to report an error to the waiting
 * call, and MPI libraries turn it into a fatal error of MPI_COMM_WORLD. So the request always succeeds for the MPI
 * library, and its query function leaves a note for this thread. Our MPI_Wait and its siblings turn the note into what
 * MPI requires. This is the file's error handler and the error class, in the status where there are several.
 */
#include "shim.h"

#include <limits.h>
#include <stdlib.h>

/* MPI_TAG of the status of a failed request, plus the error class, until our MPI_Wait has seen it. */
#define FAILED_TAG (INT_MIN + 4096)

struct request {
    MPI_Request handle;
    MPI_File file;
    struct conversion *conversion;
    int pst_class;
    uint64_t bytes;
};

/* Requests that failed since this thread last looked: how many, and the first one. */
static __thread unsigned failures;
static __thread int failure_class;
static __thread MPI_File failure_file;

void status_set(MPI_Status *status, uint64_t bytes) {
    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    type_Status_set_elements_c *large = FIND(Status_set_elements_c);
    if (large)
        large(status, MPI_BYTE, (MPI_Count)bytes);
    else
        REAL(Status_set_elements_x)(status, MPI_BYTE, (MPI_Count)bytes);
    REAL(Status_set_cancelled)(status, 0);
}

static int query(void *extra, MPI_Status *status) {
    struct request *request = extra;
    status_set(status, request->bytes);
    if (request->pst_class) {
        if (!failures++) {
            failure_class = request->pst_class;
            failure_file = request->file;
        }
        if (status != MPI_STATUS_IGNORE)
            status->MPI_TAG = FAILED_TAG + request->pst_class;
    }
    return MPI_SUCCESS;
}

static int release(void *extra) {
    free(extra);
    return MPI_SUCCESS;
}

/* An access under way cannot be taken back. */
static int cancel(void *extra, int complete) {
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

int request_new(struct file *file, struct request **out, MPI_Request *handle) {
    *handle = MPI_REQUEST_NULL;
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        return describe(PST_ERR_NO_MEM, "no memory for a nonblocking access");
    request->file = file->handle;
    if (REAL(Grequest_start)(query, release, cancel, request, &request->handle) != MPI_SUCCESS) {
        free(request);
        return describe(PST_ERR_INTERN, "the MPI library gives no generalized request");
    }
    *handle = request->handle;
    *out = request;
    return PST_OK;
}

void request_converts(struct request *request, struct conversion *conversion) {
    request->conversion = conversion;
}

void request_complete(void *context, int pst_class, uint64_t bytes) {
    struct request *request = context;
    if (request->conversion)
        pst_class = conversion_finish(request->conversion, pst_class, &bytes);
    if (!request->pst_class)
        request->pst_class = pst_class;
    request->bytes = bytes;
    /* The waiting thread may free the request before this call returns. */
    REAL(Grequest_complete)(request->handle);
}

/* ---- Waiting and testing ------------------------------------------------------------------------------------ */

/* The note left for this thread: calls the file's handler and gives the error code. */
static int raise_failure(void) {
    struct file *file = handle_file(failure_file);
    failures = 0;
    return file ? finish(file, failure_class) : code_of_class(failure_class);
}

/* Calls that complete one request. */
static int after_one(int code, MPI_Status *status) {
    if (!failures)
        return code;
    if (status != MPI_STATUS_IGNORE)
        status->MPI_TAG = MPI_UNDEFINED;
    int failed = raise_failure();
    return code == MPI_SUCCESS ? failed : code;
}

/* Calls that complete several: each status tells its own error. */
static int after_many(int code, int count, MPI_Status *statuses) {
    if (!failures)
        return code;
    for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; i++) {
        int pst_class = statuses[i].MPI_TAG - FAILED_TAG;
        bool failed = statuses[i].MPI_SOURCE == MPI_UNDEFINED && pst_class > 0 && pst_class < PST_CLASSES;
        if (failed)
            statuses[i].MPI_TAG = MPI_UNDEFINED;
        if (failed || code == MPI_SUCCESS)
            statuses[i].MPI_ERROR = failed ? code_of_class(pst_class) : MPI_SUCCESS;
    }
    /* A handler that calls the failure a success has dealt with it. */
    return raise_failure() == MPI_SUCCESS ? code : MPI_ERR_IN_STATUS;
}

int shim_Wait(MPI_Request *request, MPI_Status *status) {
    return after_one(REAL(Wait)(request, status), status);
}

int shim_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    return after_one(REAL(Test)(request, flag, status), status);
}

int shim_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    return after_one(REAL(Waitany)(count, requests, index, status), status);
}

int shim_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
    return after_one(REAL(Testany)(count, requests, index, flag, status), status);
}

int shim_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    return after_one(REAL(Request_get_status)(request, flag, status), status);
}

int shim_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    return after_many(REAL(Waitall)(count, requests, statuses), count, statuses);
}

int shim_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    int code = REAL(Testall)(count, requests, flag, statuses);
    return after_many(code, *flag ? count : 0, statuses);
}

int shim_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    int code = REAL(Waitsome)(count, requests, done, indices, statuses);
    return after_many(code, *done == MPI_UNDEFINED ? 0 : *done, statuses);
}

int shim_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    int code = REAL(Testsome)(count, requests, done, indices, statuses);
    return after_many(code, *done == MPI_UNDEFINED ? 0 : *done, statuses);
}
