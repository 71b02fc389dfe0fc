// SPDX-License-Identifier: Apache-2.0
/* Which flow a frame belongs to, as Open vSwitch reads it from the headers. */
#ifndef FLOW_H
#define FLOW_H

#include "bpf.h"

#define ETHERNET 14
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd

enum { HOP_OPTIONS = 0, TCP = 6, UDP = 17, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51 };
enum { ICMPV6 = 58, DESTINATION_OPTIONS = 60, SCTP = 132 };

/* So many extension headers of IPv6 are passed over. Frames with more go through the bridge. */
#define MAX_EXTENSIONS 6

struct ethernet {
    __u8 macs[12];
    __u16 type;
};

struct ipv4 {
    __u8 version, service;
    __u16 total, id, fragment;
    __u8 ttl, protocol;
    __u16 checksum;
    __u32 addresses[2];
};

struct ipv6 {
    __u32 flow;
    __u16 payload;
    __u8 next, limit;
    __u32 addresses[8];
};

struct flow {
    __u64 hash;     /* see docs/decisions/14-fast-path.md */
    __u64 whole;    /* the same without ports, as fragments of the flow have it */
    __u32 ports;    /* source port << 16 | destination port; 0: it has none */
    __u32 headers;  /* bytes before the payload, of frames that stand for several */
    __u32 upper;    /* where the uppermost header is */
    __u32 end;      /* of the packet; a short frame is longer */
    __u8 protocol;  /* of the uppermost header */
    __u8 is_fragment;
};

INLINE __u64 hash(__u64 hash, __u32 word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

INLINE int is_extension(__u8 protocol) {
    return protocol == HOP_OPTIONS || protocol == ROUTING || protocol == FRAGMENT ||
           protocol == AUTHENTICATION || protocol == DESTINATION_OPTIONS;
}

/* Reads the flow of a frame behind its Ethernet header. 0: the bridge must look at the frame,
   since it is not IP, is ICMPv6, says something wrong about its lengths, or hides its upper
   header. */
INLINE int read_flow(struct __sk_buff *skb, __u16 type, struct flow *flow) {
    __u32 at, end, fragment = 0, least;
    __u8 protocol;

    flow->hash = 0;
    if (type == NET16(TYPE_IPV4)) {
        struct ipv4 ip;
        if (load_bytes(skb, ETHERNET, &ip, sizeof ip))
            return 0;
        __u32 header = (ip.version & 15) * 4, total = NET16(ip.total);
        if (ip.version >> 4 != 4 || header < sizeof ip || total < header)
            return 0;
        at = ETHERNET + header;
        end = ETHERNET + total;
        protocol = ip.protocol;
        fragment = ip.fragment & NET16(0x3fff);
        flow->hash = hash(hash(0, NET32(ip.addresses[0])), NET32(ip.addresses[1]));
    } else if (type == NET16(TYPE_IPV6)) {
        struct ipv6 ip;
        if (load_bytes(skb, ETHERNET, &ip, sizeof ip) ||
            (ip.flow & NET32(0xf0000000)) != NET32(0x60000000))
            return 0;
        at = ETHERNET + sizeof ip;
        end = at + NET16(ip.payload);
        protocol = ip.next;
#pragma unroll
        for (int i = 0; i < 8; i++)
            flow->hash = hash(flow->hash, NET32(ip.addresses[i]));
#pragma unroll
        for (int i = 0; i < MAX_EXTENSIONS; i++) {
            struct {
                __u8 next, length;
                __u16 fragment;
                __u32 rest;
            } extension;
            if (!is_extension(protocol))
                break;
            if (at + sizeof extension > end || load_bytes(skb, at, &extension, sizeof extension))
                return 0;
            at += protocol == FRAGMENT         ? 8
                  : protocol == AUTHENTICATION ? (extension.length + 2) * 4
                                               : (extension.length + 1) * 8;
            fragment = protocol == FRAGMENT ? extension.fragment : 0;
            protocol = extension.next;
            if (fragment)
                break;
        }
        /* All fragments of a packet must look alike. So the header that they all name must be the
           upper one. */
        if (is_extension(protocol) || protocol == ICMPV6)
            return 0;
    } else
        return 0;
    if (at > end || end > skb->len)
        return 0;

    flow->protocol = protocol;
    flow->is_fragment = !!fragment;
    flow->ports = 0;
    flow->headers = flow->upper = at;
    flow->end = end;
    least = protocol == TCP ? 20 : protocol == UDP ? 8 : protocol == SCTP ? 12 : 0;
    if (least && !fragment) {
        if (at + least > end || load_bytes(skb, at, &flow->ports, sizeof flow->ports))
            return 0;
        flow->ports = NET32(flow->ports);
        if (protocol == TCP && skb->gso_size) {
            __u8 offset;
            if (load_bytes(skb, at + 12, &offset, sizeof offset))
                return 0;
            least = (offset >> 4) * 4;
        }
        flow->headers = at + least;
    }
    flow->whole = hash(hash(flow->hash, 0), protocol);
    flow->hash = hash(hash(flow->hash, flow->ports), protocol);
    return 1;
}

/* The hash of the flow in the other direction; 0: the addresses cannot be read. */
INLINE __u64 answers_to(struct __sk_buff *skb, struct flow *flow) {
    __u32 words[8], ports = flow->ports >> 16 | flow->ports << 16;
    __u64 answered = 0;

    if (skb->protocol == NET16(TYPE_IPV4)) {
        if (load_bytes(skb, ETHERNET + 12, words, 8))
            return 0;
        answered = hash(hash(0, NET32(words[1])), NET32(words[0]));
    } else {
        if (load_bytes(skb, ETHERNET + 8, words, sizeof words))
            return 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            answered = hash(answered, NET32(words[(i + 4) % 8]));
    }
    return hash(hash(answered, ports), flow->protocol);
}

/* So many frames will be on the wire. */
INLINE __u32 segments(struct __sk_buff *skb, struct flow *flow) {
    __u32 size = skb->gso_size;
    if (!size)
        return 1;
    /* A guest's own frames come without a count. */
    if (skb->gso_segs)
        return skb->gso_segs;
    if (skb->len <= flow->headers)
        return 1;
    return (skb->len - flow->headers + size - 1) / size;
}

#endif
