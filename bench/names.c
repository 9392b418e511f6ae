/* Names on the local file system, the peer of the metadata server: create, stat and open, one at a time.
 * usage: names DIR SECONDS      one JSON line per figure: {"name": ..., "per_s": ...} */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int create_one(const char *path)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    return fd < 0 ? -1 : close(fd);
}

static int stat_one(const char *path)
{
    struct stat s;
    return stat(path, &s);
}

static int open_one(const char *path)
{
    int fd = open(path, O_RDONLY);
    return fd < 0 ? -1 : close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: names DIR SECONDS\n");
        return 2;
    }
    struct {
        const char *name;
        int (*call)(const char *);
    } figures[] = {{"create", create_one}, {"stat", stat_one}, {"open", open_one}};
    double seconds = atof(argv[2]);
    long made = 0;
    for (int f = 0; f < 3; f++) {
        char path[4096];
        long n = 0;
        double start = now(), end = start;
        do {
            for (int k = 0; k < 64; k++, n++) {
                snprintf(path, sizeof path, "%s/%ld", argv[1], f ? n % made : n);
                if (figures[f].call(path)) {
                    perror(path);
                    return 1;
                }
            }
            end = now();
        } while (end - start < seconds);
        if (f == 0)
            made = n;
        printf("{\"name\": \"%s\", \"per_s\": %.0f}\n", figures[f].name, (double)n / (end - start));
    }
    return 0;
}
