/* The C interface as a C program uses it; tests/capi.rs compiles this and calls run(). Returns the line of
 * the first check that fails, 0 if none does. */
#include "penstock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #x,                \
                    penstock_last_error());                                                        \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

int run(const char *deployment) {
    penstock_client *client = penstock_connect(deployment, 1, 0);
    CHECK(client);
    CHECK(!penstock_connect("/nothing/here.toml", 1, 0));
    CHECK(strstr(penstock_last_error(), "/nothing/here.toml"));

    CHECK(!penstock_open(client, "/matrix", PENSTOCK_READ));
    CHECK(penstock_last_errno() == ENOENT);
    penstock_file *file = penstock_open(client, "/matrix",
                                        PENSTOCK_READ | PENSTOCK_WRITE | PENSTOCK_CREATE |
                                            PENSTOCK_EXCLUSIVE);
    CHECK(file);
    CHECK(!penstock_open(client, "/matrix",
                         PENSTOCK_WRITE | PENSTOCK_CREATE | PENSTOCK_EXCLUSIVE));
    CHECK(penstock_last_errno() == EEXIST);

    /* A 100 x 100 matrix of ints, row by row. */
    static int matrix[100][100], back[100][100], column[100];
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < 100; j++)
            matrix[i][j] = 1000 * i + j;
    CHECK(penstock_pwrite(file, matrix, sizeof matrix, 0) == (int64_t)sizeof matrix);
    CHECK(penstock_length(file) == (int64_t)sizeof matrix);
    CHECK(penstock_pread(file, back, sizeof back, 0) == (int64_t)sizeof back);
    CHECK(memcmp(matrix, back, sizeof back) == 0);
    CHECK(penstock_pread(file, back, 100, sizeof matrix - 10) == 10);

    /* One column into contiguous memory. */
    uint64_t counts[2] = {100, 0};
    int64_t strides[2] = {100 * sizeof(int), 0};
    penstock_loop in_file = {7 * sizeof(int), sizeof(int), 1, counts, strides};
    CHECK(penstock_read_loop(file, &in_file, column, NULL) == (int64_t)sizeof column);
    for (int i = 0; i < 100; i++)
        CHECK(column[i] == 1000 * i + 7);
    /* A 10 x 10 block out of memory with the same shape. */
    uint64_t block[1] = {10};
    int64_t rows[1] = {100 * sizeof(int)};
    penstock_loop tile = {20 * 100 * sizeof(int) + 30 * sizeof(int), 10 * sizeof(int), 1, block, rows};
    for (int i = 20; i < 30; i++)
        for (int j = 30; j < 40; j++)
            matrix[i][j] = -1;
    CHECK(penstock_write_loop(file, &tile, matrix, &tile) == 400);
    CHECK(penstock_pread(file, back, sizeof back, 0) == (int64_t)sizeof back);
    CHECK(memcmp(matrix, back, sizeof back) == 0);

    /* Wrong calls. */
    CHECK(penstock_pread(NULL, back, 1, 0) == -1);
    CHECK(penstock_last_errno() == EINVAL);
    CHECK(penstock_pread(file, NULL, 1, 0) == -1);
    CHECK(penstock_pread(file, back, 1, UINT64_MAX) == -1);
    CHECK(penstock_write_loop(file, NULL, matrix, NULL) == -1);
    penstock_loop deep = {0, 1, 17, counts, strides};
    CHECK(penstock_write_loop(file, &deep, matrix, NULL) == -1);
    CHECK(strstr(penstock_last_error(), "at most 16"));

    CHECK(penstock_sync(file) == 0);
    CHECK(penstock_set_length(file, 1000) == 0);
    penstock_stat st;
    CHECK(penstock_stat_path(client, "/matrix", &st) == 0);
    CHECK(st.size == 1000 && !st.is_directory && st.stripe_count > 0);
    CHECK(penstock_mkdir(client, "/sub", 0755) == 0);
    CHECK(penstock_stat_path(client, "/sub", &st) == 0);
    CHECK(st.is_directory && st.mode == 0755);
    penstock_close(file);
    CHECK(penstock_unlink(client, "/matrix") == 0);
    CHECK(penstock_stat_path(client, "/matrix", &st) == -1);
    CHECK(penstock_last_errno() == ENOENT);
    penstock_disconnect(client);
    return 0;
}
