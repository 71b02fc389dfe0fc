// SPDX-License-Identifier: Apache-2.0
/*
 * The maps: how a plan is said to the programs. src/programs/layout.rs writes the same bytes.
 *
 * A plan changes under traffic, and the kernel replaces no value larger than some bytes at once.
 * So whole entries lie in arrays (`peers`, `sources`, `setups`), are written while nothing points
 * to them, and are pointed to by a number. A place in an array is written again only when no
 * program can still read it. Elements of a hash map are used again by the kernel at any time, so
 * what was found by a number is compared with what was looked for.
 */
#ifndef MAPS_H
#define MAPS_H

#include "bpf.h"
#include "shared.h"

#define SLOTS 64
#define MAX_PATHS 32
#define MAX_EXCEPTIONS 64

/* A path. ifindex 0: there is none. */
struct path {
    __u32 ifindex;
    __u32 counter; /* place in `counts` */
    __u8 macs[12]; /* destination and source on the wire */
    __u16 vlan;    /* 0: no tag */
    __u16 mtu;     /* of the NIC: what is longer goes through the bridge */
};

struct peer {
    __u8 mac[6];
    __u16 counter;     /* place in `slot_counts` and `steers` */
    __u8 slots[SLOTS]; /* places in `paths` */
    __u32 striped;     /* not 0: packets pass as `steers` says; slot and path of each link have its
                          number */
    struct path paths[MAX_PATHS];
};

/* Which packets to a striped peer pass, in `striped`. */
enum { STRIPED_TCP = 1, STRIPED_OTHERS = 2 };

/* What a frame from a peer's NIC looks like. */
struct arrival {
    __u32 ifindex;
    __u16 tag; /* TAGGED and the VLAN ID, or 0 */
    __u8 macs[12];
    __u16 zero;
};
#define TAGGED 0x1000

struct source {
    struct arrival arrival;
    __u8 macs[12]; /* the host's own and the peer's */
    __u8 open;     /* 0: `own` lets such frames pass, since the entry is about to go */
    __u8 lane;     /* the helper's link by which TCP comes without a header; LANES: none */
    __u16 steer;   /* the peer's place in `steers`, if it has a lane */
    __u32 counter; /* place in `counts` */
};

/* A flow is an exception if its protocol << 32 | source port << 16 | destination port, under the
   mask, is the value. */
struct exception {
    __u64 mask;
    __u64 value;
};

/* What all frames have in common. */
struct setup {
    __u8 own[6];
    __u16 exceptions;
    __u32 local;    /* ifindex of the bridge's local port */
    __u32 must_ask; /* 1: `rx` takes only what `own` refused, see there */
    __u32 first;    /* place of the first one in `exceptions` */
};

struct count {
    __u64 packets;
    __u64 bytes;
    __u64 asked; /* so many frames did `own` refuse that `rx` has not seen yet */
};

/* What was sent to a peer by slot, counted as in `struct count`. */
struct slot_count {
    __u64 bytes[SLOTS];
};

/* A flow of another protocol than TCP to a striped peer. Times by CLOCK_MONOTONIC. */
struct lone_flow {
    __u64 key;       /* its hash; 0: the place is free */
    __u64 seen_ns;   /* when its last packet came */
    __u64 until_ns;  /* until then it is the helper's */
    __u64 others_ns; /* until then, so are those that were turned away since the place was taken */
    __u64 start_ns;  /* of the window in which its packets are counted */
    __u64 links;     /* those among which `link` was chosen */
    __u32 packets;   /* of this window, since an answer came */
    __u32 link;
};
#define LONE_FLOWS 4096

/* Reasons for which frames are dropped, places in `drops`. */
enum { DROP_MEMORY, DROP_STRAY, DROP_REASONS };

/* What else frames meet, places in `events`. */
enum {
    EVENT_REFUSED,   /* every link has a queue: the socket shall send less */
    EVENT_TWICE,     /* TCP had no answer: a probe leaves by two links */
    EVENT_WOKEN,     /* the helper got a copy */
    EVENT_EARLY,     /* the helper puts it in order */
    EVENT_CROWDED,   /* not put in order, since another connection has the place */
    EVENT_FAR,       /* not put in order, since its sequence is far from what was expected */
    EVENT_FULL,      /* not put in order, since the helper holds very many */
    EVENT_CONTENDED, /* not put in order, since other CPUs changed the place all the time */
    EVENTS
};

/* The links that `stripe` has found for a frame so far. In a map, since the kernel's verifier would
   follow each value that a variable of the program's own may have. */
struct choice {
    __u32 best, second, heard; /* LANES: none */
    __u32 age;                 /* of what came by `heard` last, in units of 1,024 ns */
    __u64 best_finish, second_finish;
    __u64 best_start, second_start, heard_start;
    __u64 latest; /* when all of them have sent what they were given */
};
MAP(choices, PERCPU_ARRAY, __u32, struct choice, 1);

MAP(state, ARRAY, __u32, __u32, 1); /* which one of `setups` holds */
MAP(until_ns, ARRAY, __u32, __u64, 1); /* when the entries end, by CLOCK_MONOTONIC */
MAP(setups, ARRAY, __u32, struct setup, 2);
MAP(exceptions, ARRAY, __u32, struct exception, 2 * MAX_EXCEPTIONS);
MAP(by_mac, HASH, struct mac, __u32, 2048);
MAP(peers, ARRAY, __u32, struct peer, 1280);
MAP(by_arrival, HASH, struct arrival, __u32, 16384);
MAP(sources, ARRAY, __u32, struct source, 16384);
MAP(counts, PERCPU_ARRAY, __u32, struct count, 32768);
MAP(slot_counts, PERCPU_ARRAY, __u32, struct slot_count, 2048);
MAP(drops, PERCPU_ARRAY, __u32, __u64, DROP_REASONS);
MAP(events, PERCPU_ARRAY, __u32, __u64, EVENTS);
MAP(hold, ARRAY, __u32, __u32, 1); /* ifindex of the helper's device for TCP; 0: no order */
MAP(lone_flows, ARRAY, __u32, struct lone_flow, LONE_FLOWS);
SHARED_ARRAY(steers, struct steer, PEERS);
SHARED_ARRAY(nics, struct nic, NICS);
SHARED_ARRAY(flows, struct flow_state, FLOWS);

#endif
