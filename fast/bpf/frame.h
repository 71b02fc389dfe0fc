// SPDX-License-Identifier: Apache-2.0
/* What is done with frames wherever they come from. */
#ifndef FRAME_H
#define FRAME_H

#include "flow.h"
#include "maps.h"

#define TAG_BYTES 4
#define TYPE_TAG 0x8100

INLINE struct setup *the_setup(void) {
    __u32 zero = 0, *now = lookup(&state, &zero), place = now ? *now & 1 : 0;
    return lookup(&setups, &place);
}

/* Rows may have changed since somebody last looked at them. So what was told holds for a while, and
   then everything is the bridge's. */
INLINE int is_over(void) {
    __u32 zero = 0;
    __u64 *end_ns = lookup(&until_ns, &zero);
    return !end_ns || tick_ns() >= *end_ns;
}

INLINE int is_exception(struct setup *setup, struct flow *flow) {
    if (flow->protocol != TCP && flow->protocol != UDP)
        return 0;
    __u64 tuple = (__u64)flow->protocol << 32 | flow->ports;
#pragma clang loop unroll(disable)
    for (__u32 i = 0; i < MAX_EXCEPTIONS; i++) {
        __u32 place = setup->first + i;
        if (i >= setup->exceptions)
            break;
        struct exception *exception = lookup(&exceptions, &place);
        if (exception && (tuple & exception->mask) == exception->value)
            return 1;
    }
    return 0;
}

/* Counts a frame, or each one for which it stands, with so many bytes before the payload. Returns
   the bytes of all. */
INLINE __u64 add(struct count *count, __u32 packets, __u32 bytes, __u32 headers) {
    __u64 all = bytes + (__u64)(packets - 1) * headers;
    count->packets += packets;
    count->bytes += all;
    return all;
}

INLINE void drop(__u32 reason) {
    __u64 *count = lookup(&drops, &reason);
    if (count)
        ++*count;
}

INLINE void note(__u32 event) {
    __u64 *count = lookup(&events, &event);
    if (count)
        ++*count;
}

/* The device by which the helper gets frames; 0: it is not there. */
INLINE __u32 the_hold(void) {
    __u32 zero = 0, *ifindex = lookup(&hold, &zero);
    return ifindex ? READ(*ifindex) : 0;
}

/* The bridge drops what is too long for the NIC, and says so in its counters. */
INLINE int fits(struct __sk_buff *skb, struct flow *flow, struct path *path) {
    __u32 size = skb->gso_size, longest = size ? flow->headers + size : skb->len;
    return longest <= (__u32)path->mtu + ETHERNET;
}

/* Gives a frame the MACs and the tag of its path. 0: it is as it was. */
INLINE int address(struct __sk_buff *skb, struct path *path) {
    if (path->vlan && vlan_push(skb, NET16(TYPE_TAG), path->vlan))
        return 0;
    if (!store_bytes(skb, 0, path->macs, sizeof path->macs, 0))
        return 1;
    if (path->vlan)
        vlan_pop(skb);
    return 0;
}

#endif
