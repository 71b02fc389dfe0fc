// SPDX-License-Identifier: Apache-2.0
/*
 * For iperf3 servers in virtual time (LD_PRELOAD): let data connections wake the server per 64 KiB, not per frame.
 *
 * On a real machine a program that is behind reads many frames at once. In virtual time a program is never behind: it
 * is woken for every single frame, and simulating these wake-ups took three quarters of the time. The kernel's own
 * means against that is SO_RCVLOWAT. The first connection is iperf3's control connection and left alone, and so is a
 * data connection until its first full read, since it begins with a short greeting.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 4096, GREETING = 1000, WAKE_BYTES = 65536 };
static int connections;
static char is_data[MOST];

int accept(int listener, struct sockaddr *address, socklen_t *length)
{
	static int (*real)(int, struct sockaddr *, socklen_t *);
	int fd;

	if (!real)
		real = (int (*)(int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "accept");
	fd = real(listener, address, length);
	if (fd >= 0 && fd < MOST)
		is_data[fd] = connections++ > 0;
	return fd;
}

ssize_t read(int fd, void *buffer, size_t size)
{
	static ssize_t (*real)(int, void *, size_t);
	const int bytes = WAKE_BYTES;
	ssize_t count;

	if (!real)
		real = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	count = real(fd, buffer, size);
	if (count > GREETING && fd >= 0 && fd < MOST && is_data[fd]) {
		is_data[fd] = 0;
		setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
	}
	return count;
}
