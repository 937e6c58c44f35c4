/* The floor: the files of one sample, read with pread ten times a second, nothing parsed but one number each. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    const char *paths[] = {"/proc/stat", "/proc/pressure/cpu", "/proc/meminfo"};
    const char *keys[] = {"cpu ", "total=", "MemAvailable:"};
    static char text[1 << 16];
    volatile long long sink = 0;
    int fds[3];
    struct timespec due;
    for (int i = 0; i < 3; i++)
        fds[i] = open(paths[i], O_RDONLY);
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (;;) {
        for (int i = 0; i < 3; i++) {
            ssize_t got = fds[i] < 0 ? -1 : pread(fds[i], text, sizeof text - 1, 0);
            if (got <= 0)
                continue;
            text[got] = 0;
            char *at = strstr(text, keys[i]);
            sink += at ? strtoll(at + strlen(keys[i]), NULL, 10) : 0;
        }
        due.tv_nsec += 100000000;
        if (due.tv_nsec >= 1000000000) {
            due.tv_nsec -= 1000000000;
            due.tv_sec++;
        }
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
            ;
    }
}
