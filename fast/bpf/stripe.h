// SPDX-License-Identifier: Apache-2.0
/*
 * How TCP is striped beside the bridge: each frame goes over the link on which it would be there
 * first. The helper says which links there are and how fast they are (`steers`), and for how long
 * that is so.
 */
#ifndef STRIPE_H
#define STRIPE_H

#include <linux/pkt_cls.h>

#include "segment.h"

/* The helper has so long to wake up before it gets another copy. */
#define WAKE_NS 20000000ull

/* What bytes take at this rate. */
INLINE __u64 duration(__u64 bytes, __u32 ns_per_kib) {
    return bytes * ns_per_kib >> 10;
}

INLINE __u64 later(__u64 one, __u64 other) {
    return one > other ? one : other;
}

/* The NIC of a lane, if its rate is known. */
INLINE struct nic *nic_of(struct lane *lane) {
    __u32 place = READ(lane->nic);
    struct nic *nic = lookup(&nics, &place);
    return nic && READ(nic->ns_per_kib) ? nic : 0;
}

/* So many segments are acknowledged at once. A receiver that got fewer waits for more, up to 40
   ms. */
#define ACKNOWLEDGED 2

/* Whether the frame's connection is one of this host and has segments on their way, so that it
   will try again as soon as they are acknowledged. Without any, it would do so only after 200 ms;
   and what another machine sent would be lost. */
INLINE int is_on_its_way(struct __sk_buff *skb) {
    struct bpf_sock *socket = skb->sk;

    if (!socket)
        return 0;
    socket = full_socket(socket);
    if (!socket)
        return 0;
    struct bpf_tcp_sock *tcp = tcp_socket(socket);
    return tcp && tcp->packets_out >= ACKNOWLEDGED;
}

/* A frame to a striped peer, which is no exception. Where two CPUs choose at the same time, one
   frame's time may be missing in a lane: the rates are no promise, and TCP bears it. */
INLINE int stripe(struct __sk_buff *skb, struct peer *peer, struct flow *flow) {
    __u32 place = peer->counter, best = LANES, packets = segments(skb, flow);
    __u64 now = now_ns(), least = 0, best_start = 0, best_wire = 0;
    struct steer *steer = lookup(&steers, &place);
    struct segment segment;

    if (!steer || !same_mac(steer->mac, peer->mac) || now >= READ(steer->until_ns) ||
        !is_whole_tcp(flow) || !read_segment(skb, flow, &segment))
        return TC_ACT_OK;
    __u64 links = READ(steer->links), bytes = skb->len + (__u64)(packets - 1) * flow->headers;
    __u64 more = READ(steer->overhead);
#pragma clang loop unroll(disable)
    for (__u32 link = 0; link < LANES; link++) {
        struct path *path = &peer->paths[link];
        struct lane *lane = &steer->lanes[link];
        if (!(links >> link & 1) || !path->ifindex || !fits(skb, flow, path))
            continue;
        __u32 ns_per_kib = READ(lane->ns_per_kib);
        if (!ns_per_kib)
            continue;
        struct nic *nic = nic_of(lane);
        __u64 start = later(now, READ(lane->free_ns));
        if (nic)
            start = later(start, READ(nic->free_ns));
        __u64 wire = bytes + packets * (more + (path->vlan ? TAG_BYTES : 0));
        __u64 finish = start + duration(wire, ns_per_kib) + READ(lane->skew_ns);
        if (best == LANES || finish < least) {
            /* The same number, but the kernel's verifier does not follow each one on its own. */
            best = peer->slots[link] & (LANES - 1);
            least = finish;
            best_start = start;
            best_wire = wire;
        }
    }
    if (best >= LANES)
        return TC_ACT_OK;

    struct path *path = &peer->paths[best];
    struct lane *lane = &steer->lanes[best];
    struct count *count = lookup(&counts, &path->counter);
    if (!count)
        return TC_ACT_OK;
    __u32 to = the_hold();
    if (to && now >= READ(steer->awake_ns)) {
        WRITE(steer->awake_ns, now + WAKE_NS);
        send_copy(skb, to, 0);
        note(EVENT_WOKEN);
    }
    __u32 limit = READ(steer->limit_ns);
    if (limit && segment.end != segment.start && best_start - now > limit && is_on_its_way(skb)) {
        ADD(steer->refused, 1);
        note(EVENT_REFUSED);
        return TC_ACT_SHOT;
    }
    if (!address(skb, path))
        return TC_ACT_OK;
    WRITE(lane->free_ns, best_start + duration(best_wire, READ(lane->ns_per_kib)));
    struct nic *nic = nic_of(lane);
    if (nic)
        WRITE(nic->free_ns, best_start + duration(best_wire, READ(nic->ns_per_kib)));
    count->packets += packets;
    count->bytes += bytes;
    ADD(lane->frames_out, packets);
    ADD(lane->bytes_out, bytes + (path->vlan ? packets * TAG_BYTES : 0));
    return redirect(path->ifindex, 0);
}

#endif
