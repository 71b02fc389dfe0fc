// SPDX-License-Identifier: Apache-2.0
/*
 * The job option --ri2n of srun, sbatch and salloc: a plugin for Slurm (SPANK).
 *
 * On the submitting machine it checks the option and hands it to the prolog, which finds it in its
 * variable SPANK_RI2N. On the nodes it moves each task of a job into the cgroup that the prolog
 * has made for the job, before the task gives up root and starts the user's program. What a task
 * starts stays in the cgroup, and what it sends belongs to the job. Where Slurm itself has a cgroup
 * of the unified tree for the job, no task is moved, and the plugin lets that cgroup be marked.
 *
 * Build: gcc -shared -fPIC -O2 -Wall -Wextra -o spank_ri2n.so spank_ri2n.c
 * Line of plugstack.conf: required /PATH/spank_ri2n.so [state-dir=/run/ri2n/slurm]
 */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(ri2n, 1)

/* The prolog refuses what is longer, too (common.sh). */
#define MAX_OPTION_BYTES 1024
#define MAX_WORD_BYTES 256
#define MAX_REASON_BYTES 400
/* These are also in limits.sh, which need not be where this is compiled. */
#define MAX_RATE_BPS 1000000000000000ULL /* 1,000 Tbit/s */
#define MAX_VLAN 4094
#define MAX_DSCP 63
#define DEFAULT_STATE_DIR "/run/ri2n/slurm"
#define EXAMPLE "policy=exclusive,min-rate=400M"

static const char *const POLICIES[] = {"shared", "paths", "exclusive", "isolated"};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The option as the user gave it; empty without one. Both passes of sbatch over its options, and
 * the variable of an outer job, call the option's function again: the last one counts. */
static char option_text[MAX_OPTION_BYTES + 1];

/* What a parsed option says, as far as one part of it must fit another. */
struct wish {
    const char *kind; /* of POLICIES */
    bool policy, paths, services;
    unsigned long long tables; /* a bit for each DSCP */
    unsigned long long min_rate_bps, max_rate_bps; /* 0: not given */
};

/* Print one line about a wrong option, and return the error for an option's function. Elsewhere
 * Slurm stops at negative numbers alone. */
static int refuse(const char *format, ...)
{
    char line[MAX_REASON_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    slurm_error("--ri2n: %s", line);
    return ESPANK_BAD_ARG;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number that a text of digits alone says; false for anything else, and above `most`. */
static bool read_number(const char *text, unsigned long long most, unsigned long long *number)
{
    if (!*text || strlen(text) > 15)
        return false;
    *number = 0;
    for (const char *c = text; *c; c++) {
        if (!is_digit(*c))
            return false;
        *number = *number * 10 + (unsigned)(*c - '0');
    }
    return *number <= most;
}

/* A rate in bit/s: digits with k, M or G, such as 400M or 2.5G. It is a whole number. */
static bool read_rate(const char *text, unsigned long long *rate_bps)
{
    unsigned long long factor = 1, whole = 0, part = 0, scale = 1;
    const char *c = text;

    for (; is_digit(*c) && c - text < 16; c++)
        whole = whole * 10 + (unsigned)(*c - '0');
    if (c == text)
        return false;
    if (*c == '.') {
        for (c++; is_digit(*c) && scale < 1000000000ULL; c++, scale *= 10)
            part = part * 10 + (unsigned)(*c - '0');
        if (scale == 1)
            return false;
    }
    switch (*c) {
    case 'k': factor = 1000ULL; break;
    case 'M': factor = 1000000ULL; break;
    case 'G': factor = 1000000000ULL; break;
    }
    if (factor > 1)
        c++;
    if ((*c && strcmp(c, "bit/s")) || whole > MAX_RATE_BPS / factor || part * factor % scale)
        return false;
    whole = whole * factor + part * factor / scale;
    if (!whole || whole > MAX_RATE_BPS)
        return false;
    *rate_bps = whole;
    return true;
}

/* The length of a word in front of a text: a letter or digit first, then _ . @ - too. */
static size_t word_length(const char *text)
{
    size_t length = 0;

    while (isascii(text[length]) &&
           (isalnum(text[length]) || (length && text[length] && strchr("_.@-", text[length]))))
        length++;
    return length <= 63 ? length : 0;
}

/* One name of a path: net1, net1/12, vlan:12, A:eth1 or eth1. */
static bool is_path(const char *name)
{
    unsigned long long vlan;
    size_t length = word_length(name), more;

    if (!length)
        return false;
    if (!name[length])
        return true;
    if (name[length] == '/' || !strncmp(name, "vlan:", 5))
        return strlen(name + length + 1) <= 4 && read_number(name + length + 1, MAX_VLAN, &vlan);
    more = name[length] == ':' ? word_length(name + length + 1) : 0;
    return more && !name[length + 1 + more];
}

/* Names of paths, joined by +. */
static int check_paths(const char *key, const char *value)
{
    char copy[MAX_WORD_BYTES + 1], *names[MAX_WORD_BYTES], *rest = copy, *name;
    size_t count = 0;

    strcpy(copy, value);
    while ((name = strsep(&rest, "+"))) {
        if (!is_path(name))
            return refuse("%s=%s: a path is a network (net1), network/VLAN (net1/12), vlan:VLAN, "
                          "host:NIC or NIC; join several by +", key, value);
        for (size_t i = 0; i < count; i++)
            if (!strcmp(names[i], name))
                return refuse("%s=%s: %s is there twice", key, value, name);
        names[count++] = name;
    }
    return ESPANK_SUCCESS;
}

static int check_table(const char *value, struct wish *wish)
{
    char dscp[3] = "";
    unsigned long long number;
    const char *equals = strchr(value, '=');

    if (equals && (size_t)(equals - value) < sizeof(dscp))
        memcpy(dscp, value, (size_t)(equals - value));
    if (!read_number(dscp, MAX_DSCP, &number))
        return refuse("table=%s: must be DSCP=PATH+PATH, with a DSCP from 0 to 63", value);
    if (wish->tables & (1ULL << number))
        return refuse("table=%s: DSCP %llu is there twice", value, number);
    wish->tables |= 1ULL << number;
    return check_paths("table", equals + 1);
}

/* Whether a text is ADDRESS/tcp/PORT or ADDRESS/udp/PORT, with [ADDRESS] for IPv6; changes it. */
static bool is_service(char *text)
{
    unsigned char address[sizeof(struct in6_addr)];
    unsigned long long port;
    char *host = strsep(&text, "/"), *proto = strsep(&text, "/");
    size_t length = strlen(host);

    if (!text || (strcmp(proto, "tcp") && strcmp(proto, "udp")) ||
        !read_number(text, 65535, &port) || !port)
        return false;
    if (*host != '[')
        return inet_pton(AF_INET, host, address) == 1;
    if (host[length - 1] != ']')
        return false;
    host[length - 1] = 0;
    return inet_pton(AF_INET6, host + 1, address) == 1;
}

/* Services, joined by +. */
static int check_services(const char *value)
{
    char copy[MAX_WORD_BYTES + 1], *rest = copy, *service;

    strcpy(copy, value);
    while ((service = strsep(&rest, "+")))
        if (!is_service(service))
            return refuse("service=%s: must be ADDRESS/tcp/PORT or ADDRESS/udp/PORT, with "
                          "[ADDRESS] for IPv6; join several by +", value);
    return ESPANK_SUCCESS;
}

/* Check one KEY=VALUE of the option, and note in `wish` what it says. */
static int check_word(char *key, char *value, struct wish *wish)
{
    if (!strcmp(key, "policy")) {
        if (wish->policy)
            return refuse("policy is given twice");
        wish->policy = true;
        for (size_t i = 0; i < COUNT_OF(POLICIES); i++)
            if (!strcmp(value, POLICIES[i]))
                wish->kind = POLICIES[i];
        return wish->kind ? ESPANK_SUCCESS
                          : refuse("policy=%s: must be shared, paths, exclusive or isolated",
                                   value);
    }
    if (!strcmp(key, "paths")) {
        if (wish->paths)
            return refuse("paths is given twice; join paths by +");
        wish->paths = true;
        return check_paths(key, value);
    }
    if (!strcmp(key, "table"))
        return check_table(value, wish);
    if (!strcmp(key, "service")) {
        wish->services = true;
        return check_services(value);
    }
    if (!strcmp(key, "min-rate") || !strcmp(key, "max-rate")) {
        unsigned long long *rate = key[1] == 'i' ? &wish->min_rate_bps : &wish->max_rate_bps;

        if (*rate)
            return refuse("%s is given twice", key);
        return read_rate(value, rate)
                   ? ESPANK_SUCCESS
                   : refuse("%s=%s: must be a number with k, M or G, in bit/s, such as 400M or "
                            "2.5G", key, value);
    }
    return refuse("unknown %s; choose from policy, paths, table, service, min-rate, max-rate", key);
}

/* Check the whole option, and print one line when it is wrong. */
static int check_option(const char *text)
{
    char copy[MAX_OPTION_BYTES + 1], *rest = copy, *key;
    struct wish wish = {0};

    if (!text || !*text)
        return refuse("is empty; an example: " EXAMPLE);
    if (strlen(text) > MAX_OPTION_BYTES)
        return refuse("is longer than %d bytes", MAX_OPTION_BYTES);
    strcpy(copy, text);
    while ((key = strsep(&rest, ","))) {
        char *value = strchr(key, '=');
        int result;

        if (strlen(key) > MAX_WORD_BYTES)
            return refuse("%.20s...: is longer than %d bytes", key, MAX_WORD_BYTES);
        if (!value || value == key || !value[1])
            return refuse("%s: must be KEY=VALUE; an example: " EXAMPLE, *key ? key : "(empty)");
        *value++ = 0;
        result = check_word(key, value, &wish);
        if (result != ESPANK_SUCCESS)
            return result;
    }
    if (!wish.policy)
        return refuse("policy is missing; an example: " EXAMPLE);
    if (!strcmp(wish.kind, "paths") && !wish.paths && !wish.tables)
        return refuse("policy=paths: paths is missing, such as paths=net1+net2");
    if (!strcmp(wish.kind, "shared") && (wish.paths || wish.tables))
        return refuse("policy=shared has no paths of its own; choose policy=paths");
    if (strcmp(wish.kind, "isolated") && wish.services)
        return refuse("policy=%s has no services, only isolated has", wish.kind);
    if (wish.min_rate_bps && wish.max_rate_bps && wish.min_rate_bps > wish.max_rate_bps)
        return refuse("min-rate is above max-rate");
    return ESPANK_SUCCESS;
}

static int take_option(int value, const char *text, int remote)
{
    int result;

    (void)value;
    if (remote) /* on the node, the prolog has already acted on it */
        return ESPANK_SUCCESS;
    result = check_option(text);
    if (result == ESPANK_SUCCESS)
        strcpy(option_text, text);
    return result;
}

static struct spank_option option = {
    .name = "ri2n",
    .arginfo = "policy=KIND,...",
    .usage = "the job's own paths in the network: policy=shared|paths|exclusive|isolated,"
             " paths=A+B, table=DSCP=A+B, service=ADDRESS/tcp/PORT, min-rate=RATE, max-rate=RATE",
    .has_arg = 1,
    .val = 0,
    .cb = take_option,
};

int slurm_spank_init(spank_t spank, int count, char **words)
{
    spank_context_t context = spank_context();

    (void)count;
    (void)words;
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return ESPANK_SUCCESS;
    return spank_option_register(spank, &option);
}

/* Whether srun starts a step in a job that did not begin with this very option. In steps of a job
 * with the option, Slurm sets it anew from a variable of the job. */
static bool is_new_in_a_step(void)
{
    const char *of_job = getenv("SLURM_SPANK_RI2N");

    return spank_context() == S_CTX_LOCAL && getenv("SLURM_JOB_ID") &&
           (!of_job || strcmp(of_job, option_text));
}

/* After all options were read: give the option to the prolog. */
int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
    spank_context_t context = spank_context();

    (void)count;
    (void)words;
    if (!*option_text || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR))
        return ESPANK_SUCCESS;
    if (is_new_in_a_step()) {
        refuse("a step has the paths of its job; give the option to sbatch or salloc");
        return -1;
    }
    if (spank_job_control_setenv(spank, "RI2N", option_text, 1) != ESPANK_SUCCESS) {
        refuse("cannot be given to the prolog");
        return -1;
    }
    return ESPANK_SUCCESS;
}

/* The folder of the jobs of this node, as prolog and epilog know it. */
static const char *state_dir(int count, char **words)
{
    static const char key[] = "state-dir=";

    for (int i = 0; i < count; i++)
        if (!strncmp(words[i], key, strlen(key)))
            return words[i] + strlen(key);
    return DEFAULT_STATE_DIR;
}

/* Whether the prolog has refused the job, at a site that is closed on failure; with the reason. */
static bool is_refused(const char *folder, uint32_t job, char *reason, size_t size)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%u/refused", folder, job);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(reason, (int)size, file))
        snprintf(reason, size, "no reason was given");
    fclose(file);
    reason[strcspn(reason, "\n")] = 0;
    return true;
}

/* Whether Slurm itself tracks this process by a cgroup of the unified tree; with the path of the
 * cgroup of the whole job, from the root of the tree. Such a process must stay where it is: Slurm
 * would not find it to end it, and its limits would not hold. */
static bool is_tracked(uint32_t job, char *path, size_t size)
{
    char line[PATH_MAX], own[32];
    char *found = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");

    if (!file)
        return false;
    snprintf(own, sizeof(own), "/job_%u/", job);
    while (!found && fgets(line, sizeof(line), file))
        found = strncmp(line, "0::", 3) ? NULL : strstr(line, own);
    fclose(file);
    if (!found)
        return false;
    found[strlen(own) - 1] = 0;
    return (size_t)snprintf(path, size, "%s", line + 3) < size;
}

/* Run a program of ours to its end, with nothing of the task's environment. It ends soon by itself.
 * Returns whether it has succeeded. */
static bool run(const char *program, const char *first, const char *second)
{
    char *const words[] = {(char *)program, (char *)first, (char *)second, NULL};
    char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    int error, status = 0;
    pid_t child;

    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGCHLD);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none); /* slurmstepd blocks signals */
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&files);
    for (int number = 0; number < 3; number++)
        posix_spawn_file_actions_addopen(&files, number, "/dev/null", O_RDWR, 0);
    error = posix_spawn(&child, program, &files, &attributes, words, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error)
        return false;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Let Slurm's own cgroup of the job be marked, where the prolog has asked for that by a link to the
 * program that does it. Returns whether it has asked. */
static bool adopt(const char *folder, uint32_t job)
{
    char own[PATH_MAX], program[PATH_MAX], done[PATH_MAX], now[PATH_MAX];
    char cgroup[PATH_MAX] = "/sys/fs/cgroup";
    size_t mount = strlen(cgroup);
    ssize_t length;

    if ((size_t)snprintf(own, sizeof(own), "%s/%u", folder, job) >= sizeof(own) ||
        (size_t)snprintf(program, sizeof(program), "%s/adopt", own) >= sizeof(program) ||
        (size_t)snprintf(done, sizeof(done), "%s/adopted", own) >= sizeof(done) ||
        access(program, F_OK))
        return false;
    if (!is_tracked(job, cgroup + mount, sizeof(cgroup) - mount)) {
        slurm_error("ri2n: job %u runs on the common paths: Slurm has no cgroup for it in the "
                    "unified tree; set `mark-by cgroup` in ri2n.conf", job);
        return true;
    }
    length = readlink(done, now, sizeof(now) - 1);
    now[length > 0 ? length : 0] = 0;
    if (strcmp(now, cgroup) && !run(program, own, cgroup)) /* once for all tasks and steps */
        slurm_error("ri2n: job %u runs on the common paths: syslog of this node says why", job);
    return true;
}

/* As root, in each task of a job: batch script, steps of srun, daemons of mpirun. A task that
 * cannot be moved runs on the common paths, since the network is no reason to lose a job. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
    const char *folder = state_dir(count, words);
    char path[PATH_MAX], own[PATH_MAX], text[MAX_REASON_BYTES];
    uint32_t job = 0;
    int file;

    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return ESPANK_SUCCESS;
    if (is_refused(folder, job, text, sizeof(text))) {
        slurm_error("ri2n: job %u is refused: %s", job, text);
        return -1; /* only a negative number keeps Slurm from starting the task */
    }
    if (adopt(folder, job))
        return ESPANK_SUCCESS;
    snprintf(path, sizeof(path), "%s/%u/cgroup/cgroup.procs", folder, job);
    file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        if (errno != ENOENT) /* the usual case is a job without a class */
            slurm_error("ri2n: job %u runs on the common paths: %s: %m", job, path);
        return ESPANK_SUCCESS;
    }
    if (is_tracked(job, own, sizeof(own))) {
        slurm_error("ri2n: job %u runs on the common paths: Slurm's own cgroups are in the unified "
                    "tree; set `mark-by slurm-cgroup` in ri2n.conf", job);
    } else {
        int length = snprintf(text, sizeof(text), "%d\n", (int)getpid());

        if (write(file, text, (size_t)length) != length)
            slurm_error("ri2n: job %u runs on the common paths: %s: %m", job, path);
    }
    close(file);
    return ESPANK_SUCCESS;
}
