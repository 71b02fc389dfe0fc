// SPDX-License-Identifier: Apache-2.0
/*
 * The maps that the helper changes together with the programs. wire/src/shared.rs has the same
 * fields, and says what they mean and who writes them. Whoever changes one changes the other, and
 * LAYOUT there.
 */
#ifndef SHARED_H
#define SHARED_H

#include "bpf.h"

#define LANES 32
#define PEERS 2048
#define NICS 64
#define FLOWS 4096

struct lane {
    __u64 free_ns;
    __u32 ns_per_kib;
    __u32 skew_ns;
    __u32 nic; /* place in `nics` */
    __u32 heard;
    __u64 frames_out;
    __u64 bytes_out;
    __u64 frames_in;
    __u64 bytes_in;
};

struct nic {
    __u64 free_ns;
    __u32 ns_per_kib;
    __u32 zero;
};

struct steer {
    __u8 mac[6];
    __u16 zero;
    __u64 until_ns;
    __u64 awake_ns;
    __u64 links;
    __u32 overhead;
    __u32 limit_ns;
    __u64 refused;
    struct lane lanes[LANES];
};

struct flow_state {
    __u64 key;
    __u64 word; /* held << 32 | expected */
    __u64 seen_ns;
    __u32 least;
    __u32 zero;
    __u64 lanes[LANES]; /* end << 32 | ms */
};

#endif
