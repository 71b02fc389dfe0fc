// SPDX-License-Identifier: Apache-2.0
/* What a TCP header says of the sequence. */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "frame.h"

enum { FIN = 1, SYN = 2, RST = 4 };

struct tcp {
    __u32 ports, sequence, acknowledged;
    __u8 offset, flags;
};

/* A TCP segment, or several that came as one frame. */
struct segment {
    __u32 start, end; /* of the payload, as sequence numbers */
    __u8 flags;
};

INLINE int is_whole_tcp(struct flow *flow) {
    return flow->protocol == TCP && !flow->is_fragment;
}

/* Of whole TCP. 0: the header's length cannot be. */
INLINE int read_segment(struct __sk_buff *skb, struct flow *flow, struct segment *segment) {
    struct tcp tcp;

    if (load_bytes(skb, flow->upper, &tcp, 14))
        return 0;
    __u32 header = (tcp.offset >> 4) * 4, rest = flow->end - flow->upper;
    if (header < 20 || header > rest)
        return 0;
    segment->start = NET32(tcp.sequence);
    segment->end = segment->start + (rest - header);
    segment->flags = tcp.flags;
    return 1;
}

#endif
