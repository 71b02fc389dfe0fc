// SPDX-License-Identifier: Apache-2.0
/*
 * Carries frames of known peers past Open vSwitch.
 *
 * `tx` stands at the egress of the bridge's local port, `rx` at the ingress of each NIC, and `own`
 * in front of Open vSwitch's packet sockets on the NICs. `inj` stands at the ingress of the device
 * by which the helper gets TCP that came early, and gives it back. What no map names, or what looks
 * in any way odd, is left to the bridge, which treats everything right. Nothing is written into a
 * frame before it is sure that it is taken.
 */
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "frame.h"
#include "lone.h"
#include "order.h"
#include "stripe.h"

SECTION("classifier/tx") int tx(struct __sk_buff *skb) {
    struct ethernet ethernet;
    struct mac destination = {};
    struct flow flow;

    if (skb->vlan_present || load_bytes(skb, 0, &ethernet, sizeof ethernet))
        return TC_ACT_OK;
    __builtin_memcpy(destination.mac, ethernet.macs, 6);
    __u32 *place = lookup(&by_mac, &destination);
    if (!place)
        return TC_ACT_OK;
    struct peer *peer = lookup(&peers, place);
    struct setup *setup = the_setup();
    if (!peer || !setup || !same_mac(peer->mac, destination.mac) ||
        !same_mac(setup->own, ethernet.macs + 6) || is_over())
        return TC_ACT_OK;
    if (!read_flow(skb, ethernet.type, &flow) || is_exception(setup, &flow))
        return TC_ACT_OK;
    if (peer->striped)
        return flow.protocol == TCP ? stripe(skb, peer, &flow) : send_alone(skb, peer, &flow);

    __u32 slot = flow.hash >> 58, peer_counter = peer->counter;
    struct path *path = &peer->paths[peer->slots[slot] & (MAX_PATHS - 1)];
    struct count *count = lookup(&counts, &path->counter);
    struct slot_count *by_slot = lookup(&slot_counts, &peer_counter);
    if (!path->ifindex || !count || !by_slot)
        return TC_ACT_OK;
    __u64 *slot_bytes = &by_slot->bytes[slot];
    __u32 packets = segments(skb, &flow), bytes = skb->len;
    if (!fits(skb, &flow, path) || !address(skb, path))
        return TC_ACT_OK;
    *slot_bytes += add(count, packets, bytes, flow.headers);
    return redirect(path->ifindex, 0);
}

/* The entry for a frame that came in by a NIC; 0: it is the bridge's. */
INLINE struct source *find(struct __sk_buff *skb, struct flow *flow) {
    struct ethernet ethernet;
    struct arrival arrival = {.ifindex = skb->ifindex};

    if (load_bytes(skb, 0, &ethernet, sizeof ethernet))
        return 0;
    if (skb->vlan_present) {
        __u32 vlan = skb->vlan_tci & 0xfff;
        if (skb->vlan_proto != NET16(TYPE_TAG) || !vlan)
            return 0;
        arrival.tag = TAGGED | vlan;
    }
    __builtin_memcpy(arrival.macs, ethernet.macs, sizeof arrival.macs);
    __u32 *place = lookup(&by_arrival, &arrival);
    if (!place)
        return 0;
    struct source *source = lookup(&sources, place);
    if (!source || source->arrival.ifindex != arrival.ifindex ||
        source->arrival.tag != arrival.tag ||
        !same_mac(source->arrival.macs, arrival.macs) ||
        !same_mac(source->arrival.macs + 6, arrival.macs + 6))
        return 0;
    return read_flow(skb, ethernet.type, flow) ? source : 0;
}

/*
 * On the netdev datapath Open vSwitch has a packet socket on each NIC, which gets every frame
 * before `rx` does. Exactly one of the two may keep it. So `own` counts what it refuses, and `rx`
 * takes only what is counted. The same frame meets both on the same CPU, one right after the other.
 * So whether `own` is there or not, as after a restart of ovs-vswitchd, no frame comes twice, and
 * none is lost.
 */
SECTION("classifier/rx") int rx(struct __sk_buff *skb) {
    struct flow flow;
    int over = is_over();
    struct setup *setup = the_setup();
    struct source *source = setup ? find(skb, &flow) : 0;
    struct count *count = source ? lookup(&counts, &source->counter) : 0;

    if (!count)
        return TC_ACT_OK;
    if (setup->must_ask) {
        if (!count->asked)
            return TC_ACT_OK;
        count->asked = 0;
    } else if (over || is_exception(setup, &flow))
        return TC_ACT_OK;

    __u32 tag = skb->vlan_present ? TAG_BYTES : 0;
    __u32 packets = segments(skb, &flow), bytes = skb->len + tag;
    if (tag && vlan_pop(skb)) {
        drop(DROP_MEMORY);
        return TC_ACT_SHOT;
    }
    struct steer *steer = lane_of(source);
    __u32 target = steer && is_whole_tcp(&flow) ? the_hold() : 0;
    struct given given;
    __builtin_memcpy(given.macs, source->macs, sizeof given.macs);
    if (!target || !is_early(skb, source, &flow, &given))
        target = 0;
    if (store_bytes(skb, 0, given.macs, sizeof given.macs, 0)) {
        drop(DROP_MEMORY);
        return TC_ACT_SHOT;
    }
    __u64 all = add(count, packets, bytes, flow.headers + tag);
    if (steer) {
        struct lane *lane = &steer->lanes[source->lane & (LANES - 1)];
        ADD(lane->frames_in, packets);
        ADD(lane->bytes_in, all);
        WRITE(lane->heard, units(now_ns()));
        if (flow.protocol != TCP)
            answer(skb, &flow);
    }
    return target ? redirect(target, 0) : redirect(setup->local, BPF_F_INGRESS);
}

/* What the helper held comes back by its device, and nothing else does. */
SECTION("classifier/inj") int inj(struct __sk_buff *skb) {
    struct setup *setup = the_setup();
    struct ethernet ethernet;

    if (!setup || !setup->local || load_bytes(skb, 0, &ethernet, sizeof ethernet) ||
        !same_mac(setup->own, ethernet.macs)) {
        drop(DROP_STRAY);
        return TC_ACT_SHOT;
    }
    return redirect(setup->local, BPF_F_INGRESS);
}

/* So many frames in a row may be refused without that `rx` sees one. Then it is not there, and
   frames pass again. */
#define MOST_ASKED 8
#define ALL_BYTES 0xffff

/* In the place of the filter that Open vSwitch gave its socket: that one refuses what the host
   itself sends, and nothing else. */
SECTION("socket/own") int own(struct __sk_buff *skb) {
    struct flow flow;

    if (skb->pkt_type == PACKET_OUTGOING)
        return 0;
    if (is_over())
        return ALL_BYTES;
    struct setup *setup = the_setup();
    struct source *source = setup && setup->must_ask ? find(skb, &flow) : 0;
    struct count *count = source && source->open ? lookup(&counts, &source->counter) : 0;
    if (!count || count->asked >= MOST_ASKED || is_exception(setup, &flow))
        return ALL_BYTES;
    count->asked++;
    return 0;
}

char permission[] SECTION("license") = "Apache-2.0";
