// SPDX-License-Identifier: Apache-2.0
/* What every program for the kernel needs: helpers, sections, maps. */
#ifndef BPF_H
#define BPF_H

#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* A map in the form that needs no type information, which not all kernels have. */
struct map_definition {
    __u32 type, key_size, value_size, max_entries, flags;
};
#define MAP(name, kind, key, value, entries)                                                       \
    struct map_definition name SECTION("maps") = {BPF_MAP_TYPE_##kind, sizeof(key), sizeof(value), \
                                                  entries, 0}
/* An array that processes have in their memory. */
#define SHARED_ARRAY(name, value, entries)                                                         \
    struct map_definition name SECTION("maps") = {BPF_MAP_TYPE_ARRAY, sizeof(__u32),               \
                                                  sizeof(value), entries, BPF_F_MMAPABLE}

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const load_bytes)(const void *skb, __u32 offset, void *to, __u32 length) =
    (void *)BPF_FUNC_skb_load_bytes;
static long (*const store_bytes)(void *skb, __u32 offset, const void *from, __u32 length,
                                 __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const vlan_push)(void *skb, __u16 protocol, __u16 tci) =
    (void *)BPF_FUNC_skb_vlan_push;
static long (*const vlan_pop)(void *skb) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const send_copy)(void *skb, __u32 ifindex, __u64 flags) =
    (void *)BPF_FUNC_clone_redirect;
static struct bpf_sock *(*const full_socket)(struct bpf_sock *socket) =
    (void *)BPF_FUNC_sk_fullsock;
static struct bpf_tcp_sock *(*const tcp_socket)(struct bpf_sock *socket) =
    (void *)BPF_FUNC_tcp_sock;
/* CLOCK_MONOTONIC in ns, as of the last tick. */
static __u64 (*const tick_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
/* The same, exactly. */
static __u64 (*const now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

/* Units of 1,024 ns, of which 32 bits are enough for an hour. */
#define units(ns) ((__u32)((ns) >> 10))

/* Memory that others change at the same time is read and written once each. */
#define READ(place) (*(const volatile __typeof__(place) *)&(place))
#define WRITE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))
/* Writes a number where the old one still stands. Returns what stood there. */
#define SWAP(place, old, new) __sync_val_compare_and_swap(&(place), old, new)
#define ADD(place, number) ((void)__sync_fetch_and_add(&(place), number))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NET16(number) ((__u16)__builtin_bswap16(number))
#define NET32(number) ((__u32)__builtin_bswap32(number))
#else
#define NET16(number) ((__u16)(number))
#define NET32(number) ((__u32)(number))
#endif

/* A MAC as a key. */
struct mac {
    __u8 mac[6];
    __u16 zero;
};

INLINE int same_mac(const __u8 *one, const __u8 *other) {
    const __u16 *a = (const void *)one, *b = (const void *)other;
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

#endif
