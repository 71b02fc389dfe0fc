// SPDX-License-Identifier: Apache-2.0
/*
 * How a slow flow of another protocol than TCP, such as a ping, passes beside the bridge: over one
 * link, at once, while nothing waits there. Nobody puts such packets in order. So a flow of which a
 * packet went to the bridge, and so to the helper, which may hold it for a while, is the helper's
 * until it has been silent for longer than that.
 */
#ifndef LONE_H
#define LONE_H

#include "stripe.h"

/* So many packets may a slow flow have in a window of this length, and since an answer came. */
#define SLOW_PACKETS 8
#define WINDOW_NS 8000000ull
/* The helpers of both sides hold no packet for so long. */
#define SILENT_NS 100000000ull
/* So many times as long as on the fastest link may a packet take. */
#define NEAR 4

INLINE int is_ahead(__u64 time, __u64 now) {
    /* Another CPU may have written a time that is later than ours. */
    return (__s64)(time - now) > 0;
}

/* What 1,024 bytes take on a link; 0: it cannot be used. */
INLINE __u32 rate_of(struct peer *peer, struct steer *steer, __u64 links, __u32 link) {
    return links >> link & 1 && peer->paths[link].ifindex ? READ(steer->lanes[link].ns_per_kib) : 0;
}

/* One of the links that are not much slower than the fastest one: the one of the highest score, by
   the flow's hash. So all have the same share, and a link that goes takes no flow of the others
   along. LANES: there is none.

   What is compared comes from maps alone. A number that the kernel's verifier knows, such as a mask
   that the program makes, would be followed for each of its values. */
INLINE __u32 choose(struct peer *peer, struct steer *steer, __u64 links, __u64 flow) {
    __u64 most = 0;
    __u32 fastest = ~0u, chosen = LANES;

#pragma clang loop unroll(disable)
    for (__u32 link = 0; link < LANES; link++) {
        __u32 rate = rate_of(peer, steer, links, link);
        if (rate && rate < fastest)
            fastest = rate;
    }
#pragma clang loop unroll(disable)
    for (__u32 link = 0; link < LANES; link++) {
        __u32 rate = rate_of(peer, steer, links, link);
        __u64 score = hash(hash(flow, link), link);
        if (rate && rate <= (__u64)fastest * NEAR && score >= most) {
            /* See `stripe`. */
            chosen = peer->slots[link] & (LANES - 1);
            most = score;
        }
    }
    return chosen;
}

/* Fragments have no ports, and so a place of their own. What comes after them must not overtake
   them. */
INLINE int follows_fragments(struct flow *flow, __u64 now) {
    __u32 place = flow->whole % LONE_FLOWS;
    struct lone_flow *state = flow->ports ? lookup(&lone_flows, &place) : 0;
    __u64 key = flow->whole ? flow->whole : 1;
    if (!state)
        return 0;
    return is_ahead(READ(state->key) == key ? READ(state->until_ns) : READ(state->others_ns), now);
}

/* Counts a packet. 0: it is one too many. */
INLINE int is_slow(struct lone_flow *state, __u64 now) {
    __u32 packets = READ(state->packets);
    if (!is_ahead(READ(state->start_ns) + WINDOW_NS, now)) {
        WRITE(state->start_ns, now);
        packets = 0;
    }
    WRITE(state->packets, packets + 1);
    return packets < SLOW_PACKETS;
}

/* A packet of another protocol than TCP came beside the bridge. Who sent what it answers waited for
   it, and is slow whatever the window has: so questions and answers pass as fast as they can. */
INLINE void answer(struct __sk_buff *skb, struct flow *flow) {
    __u64 key = answers_to(skb, flow);
    __u32 place = key % LONE_FLOWS;
    struct lone_flow *state = lookup(&lone_flows, &place);
    if (state && READ(state->key) == (key ? key : 1))
        WRITE(state->packets, 0);
}

/* Sends a packet of a flow that has its place, if it may pass. */
INLINE int try_alone(struct __sk_buff *skb, struct peer *peer, struct flow *flow,
                     struct lone_flow *state, __u64 now) {
    struct steer *steer = steer_of(peer, now);

    if (is_ahead(READ(state->until_ns), now) || !steer || !(peer->striped & STRIPED_OTHERS) ||
        flow->is_fragment || skb->gso_size || follows_fragments(flow, now) || !is_slow(state, now))
        return TC_ACT_OK;
    __u64 links = READ(steer->links);
    __u32 link = READ(state->link) & (LANES - 1);
    if (READ(state->links) != links || !rate_of(peer, steer, links, link)) {
        link = choose(peer, steer, links, flow->hash);
        if (link >= LANES)
            return TC_ACT_OK;
        WRITE(state->link, link);
        WRITE(state->links, links);
    }
    if (!fits(skb, flow, &peer->paths[link]) || begins(&steer->lanes[link], now) != now)
        return TC_ACT_OK;
    struct load load = load_of(skb, flow);
    wake(skb, steer, now);
    return leave(skb, peer, steer, link, &load, now);
}

/* A frame of another protocol than TCP to a striped peer, which is no exception. */
INLINE int send_alone(struct __sk_buff *skb, struct peer *peer, struct flow *flow) {
    __u32 place = flow->hash % LONE_FLOWS;
    __u64 now = now_ns(), key = flow->hash ? flow->hash : 1;
    struct lone_flow *state = lookup(&lone_flows, &place);

    if (!state)
        return TC_ACT_OK;
    __u64 owner = READ(state->key);
    if (owner != key) {
        if (is_ahead(READ(state->seen_ns) + SILENT_NS, now) ||
            SWAP(state->key, owner, key) != owner) {
            WRITE(state->others_ns, now + SILENT_NS);
            return TC_ACT_OK;
        }
        /* What the flow of before had chosen and counted. It is not the helper's any more, since it
           was silent. */
        WRITE(state->links, 0);
        WRITE(state->start_ns, 0);
        /* This may be one that was turned away. */
        if (is_ahead(READ(state->others_ns), now))
            WRITE(state->until_ns, now + SILENT_NS);
    }
    WRITE(state->seen_ns, now);
    int verdict = try_alone(skb, peer, flow, state, now);
    if (verdict == TC_ACT_OK)
        WRITE(state->until_ns, now + SILENT_NS);
    return verdict;
}

#endif
