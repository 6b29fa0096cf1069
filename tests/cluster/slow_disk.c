/* Preloaded: delays every flush by the number of milliseconds in the file $SLOW_DISK. If a word follows the number, the delay
   is random, up to this number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
    const char *name = getenv("SLOW_DISK");
    FILE *file = name ? fopen(name, "r") : NULL;
    int milliseconds = 0;
    char word[16];
    if (!file) return;
    int fields = fscanf(file, "%d %15s", &milliseconds, word);
    fclose(file);
    if (fields == 2 && milliseconds > 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        milliseconds = (int)((now.tv_nsec / 1000) % (milliseconds + 1));
    }
    if (fields >= 1) usleep(milliseconds * 1000);
}

int fsync(int fd) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
