// SPDX-License-Identifier: Apache-2.0
//
// What a BPF program sees of the kernel: types, helpers, maps, and packets' numbers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

#define BARRIER(x) asm volatile("" : "+r"(x))

// BELOW is an index below n, a power of two. The compiler must not leave out the
// mask where it knows the value's bounds: Linux 6.1 forgets them on the stack.
#define BELOW(n, x)                       \
	({                                \
		u64 index_ = (x);         \
		BARRIER(index_);          \
		index_ & ((n) - 1);       \
	})

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) __builtin_bswap16(x)
#define BE32(x) __builtin_bswap32(x)
#else
#define BE16(x) (x)
#define BE32(x) (x)
#endif

// The kernel's interface: what a filter sees of a packet (struct __sk_buff), and
// numbers of helpers.
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
	u32 priority, ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid;
};

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static u32 (*set_hash)(struct __sk_buff *skb, u32 hash) = (void *)48;
static long (*load_relative)(const void *skb, u32 offset, void *to, u32 len, u32 start) = (void *)68;
static u64 (*nanoseconds)(void) = (void *)5;

#define FROM_NETWORK_HEADER 1
#define MAP_ARRAY 2
#define PIN_BY_NAME 1
#define NO_OVERRIDE (-1) // a filter that fits and says nothing of flow and host
#define DROPPED 0        // a filter that does not fit: the next one, which drops
#define NEXT_FILTER (-1) // of a filter that acts by itself (direct-action)
#define ACT_SHOT 2

// TABLE is a map that all programs of a WAN share: where tc(8) loads each for itself, it
// finds the table of the others by its name.
#define TABLE(name, value_type, buckets)        \
	struct {                                \
		int (*type)[MAP_ARRAY];         \
		u32 *key;                       \
		value_type *value;              \
		int (*max_entries)[buckets];    \
		int (*pinning)[PIN_BY_NAME];    \
	} name SEC(".maps")

// Protocols, flags and types of packets.
#define IPV4 0x0800
#define IPV6 0x86dd
#define ICMP 1
#define TCP 6
#define UDP 17
#define ICMPV6 58
#define ACK 0x10
#define SIX_FLAGS 0x3f // all but those of ECN
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_SACK 5
#define MOST_OPTIONS 16
