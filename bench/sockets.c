/* Two processes copy memory to each other over one TCP connection on loopback: the least that an access over TCP can take.
 *
 *   sockets OP MESSAGE TOTAL SECONDS
 *   OP       write | read, as seen from the client
 *   MESSAGE  bytes of one message; each is answered (write) or asked for (read) by a header, one at a time
 *   TOTAL    bytes of the memory that is copied over and over
 *
 * Prints one JSON line: bytes, seconds and processor seconds of both processes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 64 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_of(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* All bytes, or 0 at the end of the stream. */
static int take(int fd, char *to, size_t n)
{
    while (n) {
        ssize_t got = recv(fd, to, n, MSG_WAITALL);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            fail("recv");
        if (got > 0)
            to += got, n -= (size_t)got;
    }
    return 1;
}

static void give(int fd, const char *from, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, from, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            fail("send");
        if (sent > 0)
            from += sent, n -= (size_t)sent;
    }
}

static void no_delay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void serve(int listener, int writes, size_t message, size_t total)
{
    char header[HEADER] = {0}, *memory = malloc(total);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || !memory)
        fail("accept");
    memset(memory, 1, total);
    no_delay(fd);
    for (size_t at = 0;; at = (at + message) % total) {
        if (writes ? !take(fd, memory + at, message) : !take(fd, header, HEADER))
            exit(0);
        if (writes)
            give(fd, header, HEADER);
        else
            give(fd, memory + at, message);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: sockets write|read MESSAGE TOTAL SECONDS\n");
        return 2;
    }
    int writes = !strcmp(argv[1], "write");
    size_t message = strtoull(argv[2], NULL, 10), total = strtoull(argv[3], NULL, 10);
    double wanted = atof(argv[4]);
    if (!message || total % message) {
        fprintf(stderr, "sockets: TOTAL must be a multiple of MESSAGE\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &len))
        fail("listen");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0)
        serve(listener, writes, message, total);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, len))
        fail("connect");
    no_delay(fd);
    char header[HEADER] = {0}, *memory = malloc(total);
    if (!memory)
        fail("malloc");
    memset(memory, 2, total);
    double bytes = 0, began = now(), took;
    do {
        for (size_t at = 0; at < total; at += message, bytes += (double)message) {
            give(fd, writes ? memory + at : header, writes ? message : HEADER);
            take(fd, writes ? header : memory + at, writes ? HEADER : message);
        }
        took = now() - began;
    } while (took < wanted);
    close(fd);
    if (waitpid(child, NULL, 0) != child)
        fail("waitpid");
    printf("{\"bytes\": %.0f, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", bytes, took,
           cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN));
    return 0;
}
