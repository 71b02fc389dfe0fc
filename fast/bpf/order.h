// SPDX-License-Identifier: Apache-2.0
/*
 * How TCP that comes over several links gets into order again. What is in order goes straight up.
 * What is early goes to the helper, and so does what ends a gap while the helper holds something:
 * the helper sends that up before what it holds. TCP itself bears what is not in order, so every
 * doubt ends with "straight up".
 */
#ifndef ORDER_H
#define ORDER_H

#include "segment.h"

/* A connection of which nothing came for so long gives its place up. */
#define IDLE_NS 1000000000ll
/* No window that hosts of a cluster use is wider. What is farther away is forged, or the connection
   went another way meanwhile. */
#define FAR_BYTES (4 << 20)
#define MOST_HELD 4096
#define TRIES 8
#define NS_PER_MS 1000000
/* After so long, what came over a link says nothing of what may still come. */
#define STALE_MS 1000

/* The first bytes of a frame for the helper, and those of a frame for the host. */
struct given {
    __u8 macs[12];
};

/* How far the first sequence number is ahead of the second one. */
INLINE __s32 ahead(__u32 one, __u32 other) {
    return (__s32)(one - other);
}

/* The peer's entry, if the frame is one of its lanes'. */
INLINE struct steer *lane_of(struct source *source) {
    __u32 place = source->steer;
    if (source->lane >= LANES)
        return 0;
    struct steer *steer = lookup(&steers, &place);
    return steer && same_mac(steer->mac, source->macs + 6) ? steer : 0;
}

INLINE int is_idle(struct flow_state *state, __u64 now) {
    /* Another CPU may have written a time that is later than ours. */
    return (__s64)(now - READ(state->seen_ns)) >= IDLE_NS;
}

/* A segment came over this lane. */
INLINE void mark(struct flow_state *state, __u32 lane, __u32 end, __u64 now) {
    __u64 *mark = &state->lanes[lane & (LANES - 1)], before = READ(*mark);
    __u32 ms = now / NS_PER_MS;
    if (ms - (__u32)before < STALE_MS && ahead(before >> 32, end) > 0)
        end = before >> 32;
    WRITE(*mark, (__u64)end << 32 | ms);
    WRITE(state->seen_ns, now);
}

/* A connection begins: what its lanes brought before was another one's. */
INLINE void begin(struct flow_state *state, __u32 expected) {
    __u64 word = READ(state->word);
    if (word >> 32 || SWAP(state->word, word, expected) != word)
        return;
#pragma clang loop unroll(disable)
    for (__u32 lane = 0; lane < LANES; lane++)
        WRITE(state->lanes[lane], 0);
}

/* Gives a place that nobody needs to this connection. */
INLINE int take(struct flow_state *state, __u64 key, __u32 end, __u64 now) {
    __u64 old = READ(state->key), word = READ(state->word);
    if (old && (word >> 32 || !is_idle(state, now))) {
        note(EVENT_CROWDED);
        return 0;
    }
    /* The word first: whoever finds the key finds what is expected. */
    if (SWAP(state->word, word, end) != word || SWAP(state->key, old, key) != old) {
        note(EVENT_CONTENDED);
        return 0;
    }
    return 1;
}

/* Whether a frame goes to the helper, with these MACs, and notes that in its connection's place. */
INLINE int is_early(struct __sk_buff *skb, struct source *source, struct flow *flow,
                    struct given *given) {
    __u32 place = flow->hash % FLOWS, lane = source->lane;
    __u64 now = now_ns(), key = flow->hash ? flow->hash : 1;
    struct flow_state *state = lookup(&flows, &place);
    struct segment segment;

    if (!state || !read_segment(skb, flow, &segment))
        return 0;
    __u32 start = segment.start, end = segment.end;
    if (segment.flags & (SYN | RST)) {
        if (segment.flags & SYN && READ(state->key) == key)
            begin(state, end + 1);
        return 0;
    }
    if (start == end)
        return 0;
    if (READ(state->key) != key) {
        if (take(state, key, end, now))
            mark(state, lane, end, now);
        return 0;
    }

    int early = 0, done = 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < TRIES; i++) {
        __u64 word = READ(state->word), held = word >> 32, next;
        __u32 expected = word;
        __s32 gap = ahead(start, expected);
        early = 0;
        if (gap > FAR_BYTES || gap < -FAR_BYTES) {
            if (held || !is_idle(state, now)) {
                note(EVENT_FAR);
                return 0;
            }
            next = end;
        } else if (ahead(end, expected) <= 0) {
            next = word;
        } else if (gap <= 0 && (!held || ahead(end, READ(state->least)) < 0)) {
            next = held << 32 | end;
        } else if (held >= MOST_HELD) {
            note(EVENT_FULL);
            next = word;
        } else {
            /* What is held comes after what is expected. The helper will say better. */
            if (!held)
                WRITE(state->least, expected);
            next = (held + 1) << 32 | expected;
            early = 1;
        }
        if (next == word || SWAP(state->word, word, next) == word) {
            done = 1;
            break;
        }
    }
    if (!done) {
        note(EVENT_CONTENDED);
        return 0;
    }
    mark(state, lane, end, now);
    if (!early)
        return 0;
    note(EVENT_EARLY);
    given->macs[0] = 2;
    given->macs[1] = lane;
    given->macs[2] = 0;
    given->macs[3] = 0;
    given->macs[4] = place >> 8;
    given->macs[5] = place;
    return 1;
}

#endif
