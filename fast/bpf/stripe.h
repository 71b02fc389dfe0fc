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

/* Puts a link's addresses on a frame, with which the link begins at `start`, and counts the frame.
   0: there is no memory for that, and the frame is as it was. */
INLINE int dress(struct __sk_buff *skb, struct peer *peer, struct steer *steer, __u32 link,
                 struct load *load, __u64 start) {
    struct path *path = &peer->paths[bounded(link, LANES)];
    struct lane *lane = &steer->lanes[bounded(link, LANES)];
    struct count *count = lookup(&counts, &path->counter);
    __u64 wire = on_wire(load, steer, path);

    if (!count || !address(skb, path))
        return 0;
    WRITE(lane->free_ns, start + duration(wire, READ(lane->ns_per_kib)));
    struct nic *nic = nic_of(lane);
    if (nic)
        WRITE(nic->free_ns, start + duration(wire, READ(nic->ns_per_kib)));
    count->packets += load->packets;
    count->bytes += load->bytes;
    ADD(lane->frames_out, load->packets);
    ADD(lane->bytes_out, load->bytes + (path->vlan ? load->packets * TAG_BYTES : 0));
    return 1;
}

/* Sends a frame over a link. */
INLINE int leave(struct __sk_buff *skb, struct peer *peer, struct steer *steer, __u32 link,
                 struct load *load, __u64 start) {
    if (!dress(skb, peer, steer, link, load, start))
        return TC_ACT_OK;
    return redirect(peer->paths[bounded(link, LANES)].ifindex, 0);
}

/* Sends a copy of a frame over a link. The frame has other addresses afterwards. */
INLINE int leave_twice(struct __sk_buff *skb, struct peer *peer, struct steer *steer, __u32 link,
                       struct load *load, __u64 start) {
    struct path *path = &peer->paths[bounded(link, LANES)];

    if (!dress(skb, peer, steer, link, load, start))
        return 0;
    note(EVENT_TWICE);
    send_copy(skb, path->ifindex, 0);
    if (path->vlan)
        vlan_pop(skb);
    return 1;
}

/* The connection of this host to which a frame belongs. */
INLINE struct bpf_tcp_sock *tcp_of(struct __sk_buff *skb) {
    struct bpf_sock *socket = skb->sk;

    if (!socket)
        return 0;
    socket = full_socket(socket);
    return socket ? tcp_socket(socket) : 0;
}

/* So many segments are acknowledged at once. A receiver that got fewer waits for more, up to 40
   ms. */
#define ACKNOWLEDGED 2

/* Whether the frame's connection is one of this host and has segments on their way, so that it
   will try again as soon as they are acknowledged. Without any, it would do so only after 200 ms;
   and what another machine sent would be lost.

   A connection that still has to repeat something would not wait for that. When it has enough in
   the queues of devices for what it repeats, but not for new segments, which may be longer, the
   memory of the refused one, which is free again, makes it try at once: over and over, until a
   device has sent something. */
INLINE int is_on_its_way(struct bpf_tcp_sock *tcp) {
    return tcp && tcp->packets_out >= ACKNOWLEDGED && tcp->lost_out <= tcp->retrans_out;
}

/* What a lane brought within so many units of 1,024 ns says that its link works. */
#define FRESH 20000
/* TCP sends a probe after twice its round trip, and after this at the earliest. */
#define PROBE_NS 2000000ull

/* Whether TCP has had no answer for so long that it tries whether one comes: nothing left by any of
   the links since `latest`. */
INLINE int is_probe(struct bpf_tcp_sock *tcp, int again, __u64 latest, __u64 now) {
    if (!tcp || !tcp->packets_out)
        return 0;
    if (again)
        return !tcp->sacked_out;
    /* srtt_us is in eighths. */
    return (__s64)(now - latest) > (__s64)later(PROBE_NS, (__u64)tcp->srtt_us * 250);
}

/* Finds the links for a frame: the two by which it would be there first, and the one by which
   something came last. */
INLINE void find_links(struct __sk_buff *skb, struct peer *peer, struct steer *steer,
                       struct flow *flow, struct load *load, struct choice *choice, __u64 now) {
    __u64 links = READ(steer->links);

    WRITE(choice->best, LANES);
    WRITE(choice->second, LANES);
    WRITE(choice->heard, LANES);
    WRITE(choice->age, FRESH);
    WRITE(choice->latest, 0);
#pragma clang loop unroll(disable)
    for (__u32 link = 0; link < LANES; link++) {
        struct path *path = &peer->paths[link];
        struct lane *lane = &steer->lanes[link];
        if (!(links >> link & 1) || !path->ifindex || !fits(skb, flow, path))
            continue;
        __u32 ns_per_kib = READ(lane->ns_per_kib);
        if (!ns_per_kib)
            continue;
        __u64 start = begins(lane, now), wire = on_wire(load, steer, path);
        __u64 finish = start + duration(wire, ns_per_kib) + READ(lane->skew_ns);
        __u32 age = units(now) - READ(lane->heard);
        if (READ(lane->free_ns) > READ(choice->latest))
            WRITE(choice->latest, READ(lane->free_ns));
        if (age < READ(choice->age)) {
            WRITE(choice->age, age);
            WRITE(choice->heard, link);
            WRITE(choice->heard_start, start);
        }
        if (READ(choice->best) == LANES || finish < READ(choice->best_finish)) {
            WRITE(choice->second, READ(choice->best));
            WRITE(choice->second_finish, READ(choice->best_finish));
            WRITE(choice->second_start, READ(choice->best_start));
            WRITE(choice->best, link);
            WRITE(choice->best_finish, finish);
            WRITE(choice->best_start, start);
        } else if (READ(choice->second) == LANES || finish < READ(choice->second_finish)) {
            WRITE(choice->second, link);
            WRITE(choice->second_finish, finish);
            WRITE(choice->second_start, start);
        }
    }
}

/*
 * TCP to a striped peer, which is no exception. Where two CPUs choose at the same time, one frame's
 * time may be missing in a lane: the rates are no promise, and TCP bears it.
 *
 * Until the helper finds that a link is dead, it looks like any other, and like a free one. So what
 * TCP needs to go on takes the link by which something came last: acknowledgements, and what is
 * sent again. A probe, which is sent when nothing came at all, takes two links, and so does what is
 * sent again where nothing came lately.
 */
INLINE int stripe(struct __sk_buff *skb, struct peer *peer, struct flow *flow) {
    __u32 zero = 0;
    __u64 now = now_ns();
    struct steer *steer = steer_of(peer, now);
    struct load load = load_of(skb, flow);
    struct choice *choice = lookup(&choices, &zero);
    struct segment segment;

    if (!steer || !choice || !is_whole_tcp(flow) || !read_segment(skb, flow, &segment))
        return TC_ACT_OK;
    find_links(skb, peer, steer, flow, &load, choice, now);
    __u32 link = READ(choice->best);
    __u64 start = READ(choice->best_start);
    if (link >= LANES)
        return TC_ACT_OK;
    wake(skb, steer, now);
    struct bpf_tcp_sock *tcp = tcp_of(skb);
    int carries = segment.end != segment.start, twice = 0;
    int again = carries && tcp && (__s32)(segment.start - tcp->snd_nxt) < 0;
    __u32 limit = READ(steer->limit_ns), second = READ(choice->second), heard = READ(choice->heard);
    if (limit && carries && !again && start - now > limit && is_on_its_way(tcp)) {
        ADD(steer->refused, 1);
        note(EVENT_REFUSED);
        return TC_ACT_SHOT;
    }
    /* No link is known to work. */
    int lost = again && heard >= LANES;
    if (carries && second < LANES &&
        (lost || is_probe(tcp, again, READ(choice->latest), now))) {
        twice = leave_twice(skb, peer, steer, second, &load, READ(choice->second_start));
    } else if (heard < LANES && (again || (!carries && !(segment.flags & (SYN | RST))))) {
        link = heard;
        start = READ(choice->heard_start);
    }
    int verdict = leave(skb, peer, steer, link, &load, start);
    if (twice && verdict == TC_ACT_OK) {
        drop(DROP_MEMORY);
        return TC_ACT_SHOT;
    }
    return verdict;
}

#endif
