/* A wall clock that jumps: each answer is the true time and the seconds that the file $CLOCK_OFFSET holds. Other
   clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int file = -1;

__attribute__((constructor)) static void open_it(void) {
    const char *path = getenv("CLOCK_OFFSET");
    if (path) file = open(path, O_RDONLY | O_CLOEXEC);
}

static int64_t offset(void) {
    int64_t seconds = 0;
    if (file < 0 || pread(file, &seconds, sizeof seconds, 0) != sizeof seconds) return 0;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
