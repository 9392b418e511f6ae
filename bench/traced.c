/* traced FILE BYTES CALLS: writes of one size to a file of at most 64 MiB, one after the other; prints their time as JSON. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int pass(int fd, const char *buffer, size_t bytes, long calls)
{
    off_t end = 64 << 20;
    for (long i = 0; i < calls; i++)
        if (pwrite(fd, buffer, bytes, (off_t)bytes * i % end) != (ssize_t)bytes)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    size_t bytes = strtoul(argv[2], NULL, 10);
    long calls = atol(argv[3]);
    char *buffer = calloc(bytes, 1);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    /* Once before: the file has its pages then, and a trace its ring. */
    if (fd < 0 || !buffer || pass(fd, buffer, bytes, calls)) return 1;
    double begin = now();
    if (pass(fd, buffer, bytes, calls)) return 1;
    printf("{\"seconds\": %.9f, \"calls\": %ld, \"bytes\": %zu}\n", now() - begin, calls, bytes * (size_t)calls);
    return 0;
}
