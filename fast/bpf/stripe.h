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

/* When a lane can begin to send. */
INLINE __u64 begins(struct lane *lane, __u64 now) {
    struct nic *nic = nic_of(lane);
    __u64 start = later(now, READ(lane->free_ns));
    return nic ? later(start, READ(nic->free_ns)) : start;
}

/* What the helper says of a peer, if that holds now. */
INLINE struct steer *steer_of(struct peer *peer, __u64 now) {
    __u32 place = peer->counter;
    struct steer *steer = lookup(&steers, &place);
    return steer && same_mac(steer->mac, peer->mac) && now < READ(steer->until_ns) ? steer : 0;
}

/* A frame, or those for which it stands. */
struct load {
    __u32 packets;
    __u64 bytes; /* without tags */
};

INLINE struct load load_of(struct __sk_buff *skb, struct flow *flow) {
    struct load load = {.packets = segments(skb, flow)};
    load.bytes = skb->len + (__u64)(load.packets - 1) * flow->headers;
    return load;
}

/* Bytes on the medium. */
INLINE __u64 on_wire(struct load *load, struct steer *steer, struct path *path) {
    return load->bytes +
           load->packets * ((__u64)READ(steer->overhead) + (path->vlan ? TAG_BYTES : 0));
}

/* A helper that sleeps gets a copy of a frame that leaves. */
INLINE void wake(struct __sk_buff *skb, struct steer *steer, __u64 now) {
    __u32 to = the_hold();
    if (to && now >= READ(steer->awake_ns)) {
        WRITE(steer->awake_ns, now + WAKE_NS);
        send_copy(skb, to, 0);
        note(EVENT_WOKEN);
    }
}

/* Sends a frame over a link that begins with it at `start`. */
INLINE int leave(struct __sk_buff *skb, struct peer *peer, struct steer *steer, __u32 link,
                 struct load *load, __u64 start) {
    struct path *path = &peer->paths[link & (LANES - 1)];
    struct lane *lane = &steer->lanes[link & (LANES - 1)];
    struct count *count = lookup(&counts, &path->counter);
    __u64 wire = on_wire(load, steer, path);

    if (!count || !address(skb, path))
        return TC_ACT_OK;
    WRITE(lane->free_ns, start + duration(wire, READ(lane->ns_per_kib)));
    struct nic *nic = nic_of(lane);
    if (nic)
        WRITE(nic->free_ns, start + duration(wire, READ(nic->ns_per_kib)));
    count->packets += load->packets;
    count->bytes += load->bytes;
    ADD(lane->frames_out, load->packets);
    ADD(lane->bytes_out, load->bytes + (path->vlan ? load->packets * TAG_BYTES : 0));
    return redirect(path->ifindex, 0);
}

/* TCP to a striped peer, which is no exception. Where two CPUs choose at the same time, one frame's
   time may be missing in a lane: the rates are no promise, and TCP bears it. */
INLINE int stripe(struct __sk_buff *skb, struct peer *peer, struct flow *flow) {
    __u32 best = LANES;
    __u64 now = now_ns(), least = 0, best_start = 0;
    struct steer *steer = steer_of(peer, now);
    struct load load = load_of(skb, flow);
    struct segment segment;

    if (!steer || !is_whole_tcp(flow) || !read_segment(skb, flow, &segment))
        return TC_ACT_OK;
    __u64 links = READ(steer->links);
#pragma clang loop unroll(disable)
    for (__u32 link = 0; link < LANES; link++) {
        struct path *path = &peer->paths[link];
        struct lane *lane = &steer->lanes[link];
        if (!(links >> link & 1) || !path->ifindex || !fits(skb, flow, path))
            continue;
        __u32 ns_per_kib = READ(lane->ns_per_kib);
        if (!ns_per_kib)
            continue;
        __u64 start = begins(lane, now), wire = on_wire(&load, steer, path);
        __u64 finish = start + duration(wire, ns_per_kib) + READ(lane->skew_ns);
        if (best == LANES || finish < least) {
            /* The same number, but the kernel's verifier does not follow each one on its own. */
            best = peer->slots[link] & (LANES - 1);
            least = finish;
            best_start = start;
        }
    }
    if (best >= LANES)
        return TC_ACT_OK;
    wake(skb, steer, now);
    __u32 limit = READ(steer->limit_ns);
    if (limit && segment.end != segment.start && best_start - now > limit) {
        ADD(steer->refused, 1);
        note(EVENT_REFUSED);
        return TC_ACT_SHOT;
    }
    return leave(skb, peer, steer, best, &load, best_start);
}

#endif
