// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into a slurmd that is to take this machine for one with cgroup2 alone.
 *
 * Slurm's plugin cgroup/v2 refuses to run when /proc/PID/cgroup names trees of the first version,
 * and no mount can hide these: they are the kernel's. The library hides their lines from slurmd and
 * its slurmstepds, and changes nothing else.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_BYTES 65536

typedef int (*open_function)(const char *, int, ...);

static bool names_cgroups(const char *path)
{
    size_t length = strlen(path);

    return !strncmp(path, "/proc/", 6) && length > 13 && !strcmp(path + length - 7, "/cgroup");
}

/* A file in memory with the line of cgroup2 alone, in place of the open file. */
static int shortened(int file, int flags)
{
    char text[MAX_BYTES], *rest = text, *line;
    ssize_t length, all = 0;
    int made = memfd_create("cgroup", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);

    while ((length = read(file, text + all, sizeof(text) - 1 - (size_t)all)) > 0)
        all += length;
    close(file);
    text[all] = 0;
    while (made >= 0 && (line = strsep(&rest, "\n")))
        if (!strncmp(line, "0::", 3))
            dprintf(made, "%s\n", line);
    if (made >= 0)
        lseek(made, 0, SEEK_SET);
    return made;
}

static int open_by(const char *name, const char *path, int flags, mode_t mode)
{
    open_function real = (open_function)dlsym(RTLD_NEXT, name);
    int file = real(path, flags, mode);

    return file >= 0 && names_cgroups(path) ? shortened(file, flags) : file;
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = mode_of(flags, more);
    va_end(more);
    return open_by("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = mode_of(flags, more);
    va_end(more);
    return open_by("open64", path, flags, mode);
}
