/* load busy|think|quarter|open THREADS: a workload whose usage on an empty machine is known.
   busy: always runnable. think: 30 ms of work, 470 ms of sleep, repeated; quarter: 90 ms of sleep. open: 10 ms of work every 50 ms by the clock;
   what is late is caught up. Work is CPU time of the thread, so a neighbour makes it longer and not less. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *workload;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void work(double cpu_s) {
    double until_s = seconds(CLOCK_THREAD_CPUTIME_ID) + cpu_s;
    volatile unsigned long sink = 0;
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < until_s)
        for (int i = 0; i < 20000; i++)
            sink += i;
}

static void rest(double for_s) {
    struct timespec pause = {(time_t)for_s, (long)((for_s - (long)for_s) * 1e9)};
    nanosleep(&pause, NULL);
}

static void *run(void *number) {
    rest(0.061 * (long)number); /* threads begin apart, as clients do */
    if (!strcmp(workload, "busy"))
        for (;;)
            work(1.0);
    if (!strcmp(workload, "think"))
        for (;;) {
            work(0.030);
            rest(0.470);
        }
    if (!strcmp(workload, "quarter"))
        for (;;) {
            work(0.030);
            rest(0.090);
        }
    for (double due_s = seconds(CLOCK_MONOTONIC);; due_s += 0.050) {
        double early_s = due_s - seconds(CLOCK_MONOTONIC);
        if (early_s > 0)
            rest(early_s);
        work(0.010);
    }
    return NULL;
}

int main(int count, char **given) {
    pthread_t thread;
    if (count != 3)
        return 2;
    workload = given[1];
    for (long number = 1; number < atol(given[2]); number++)
        pthread_create(&thread, NULL, run, (void *)number);
    run((void *)0);
    return 0;
}
