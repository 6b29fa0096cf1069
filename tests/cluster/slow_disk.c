/* Preloaded: every flush takes as many milliseconds longer as the file $SLOW_DISK says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
    const char *name = getenv("SLOW_DISK");
    FILE *file = name ? fopen(name, "r") : NULL;
    int milliseconds = 0;
    if (!file) return;
    if (fscanf(file, "%d", &milliseconds) == 1) usleep(milliseconds * 1000);
    fclose(file);
}

int fsync(int fd) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
