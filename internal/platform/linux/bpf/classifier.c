//go:build ignore

// SPDX-License-Identifier: Apache-2.0
//
// The rules of internal/classify as a program on CAKE. A filter of CAKE's own
// returns CAKE's host and flow, and skb->priority names the tin.
//
// `up` runs on the WAN's CAKE, `down` on that of what arrives. Each has tables of
// its own, which it alone writes, under its qdisc's lock; it reads the other's.
// The tables are arrays of four-way buckets: nothing is allocated, and a table
// that is full has no room for newcomers.
//
// internal/classify.Own is the same in Go. A test walks packets through both.
// Built by `go generate` with clang 19; the objects are kept beside this file.

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
static u64 (*jiffies)(void) = (void *)118;
static u64 (*nanoseconds)(void) = (void *)5;

#define FROM_NETWORK_HEADER 1
#define MAP_ARRAY 2
#define NO_OVERRIDE (-1) // a filter that fits and says nothing of flow and host
#define DROPPED 0        // a filter that does not fit: the next one, which drops
#define NEXT_FILTER (-1) // of a filter that acts by itself (direct-action)
#define ACT_SHOT 2

#define TABLE(name, value_type, buckets)        \
	struct {                                \
		int (*type)[MAP_ARRAY];         \
		u32 *key;                       \
		value_type *value;              \
		int (*max_entries)[buckets];    \
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

// Bits of a connection, as in classify.go.
#define COUNTED 0x10000000u
#define IS_BULK 0x20000000u
#define KNOWN 0x40000000u
#define METERED 0x80000000u
#define TIN_SHIFT 24

#define ACK_BELOW 128
#define WAYS 4
#define MOST_HOSTS 1024 // of CAKE

enum lane { NO_LANE, VOICE, INTERACTIVE, NORMAL, BULK, ACKS, LANES };

// Codes of reasons, as in decide.go.
enum code {
	NO_CODE, BY_RULE, BY_DSCP, NAMES, MANY_NAMES, SWARM, UNANSWERED, ACKNOWLEDGES, FIRST, CROWD, BUSY, BUSY_SMALL,
	STEADY, TOOK_MORE, WAITS, SOUND, MIXED, CALM_TCP, CALM_SMALL, CALM_LARGE, WAS_BULK, LONG, ORDINARY, UNPROTECTED
};

// A rate is a bucket of tokens: what it gains in a tick, what a packet or a byte
// costs, and what it holds at most.
struct rate {
	u64 gain, cost, most;
};

// What a direction has of its own.
struct side {
	struct rate host, names, heavy, peers, starts;
	struct rate steady, steady_host, waiting; // cost 0: no flow is steady
	u64 first;              // bytes of a connection that are its first
	u32 priority[LANES + 2]; // by lane; 0 is none
	u8 lane_of_dscp[64];    // of trusted marks; 0 is none
	u8 lane_of_tin[16];     // that a rule of nftables' gave; 0 is none
};

struct constants {
	struct side up, down;
	struct rate packets, bytes, slow, acks; // a flow's, a connection's acknowledgements, those of all
	struct rate slow_acks;                  // those of slow connections, in moments
	struct rate speech;                     // a flow's small packets
	u64 most_first, heavy, lasting;         // bytes of a connection
	u64 busy_for, crowd_for, swarm_for;     // ticks
	u64 mixed_for, steady_for, speaks_for, full_for, trial_for, lost_for, struck_for, greedy_for;
	u64 unanswered_for, datagrams_for, stream_for, machine_for, port_for; // how long a place is kept
	u32 small, light_mask;                  // of a packet's length
	u32 flow_mask, machine_mask, port_mask; // of a hash
	u32 seed, major; // of hashes; of CAKE's handle
	u8 thins;      // acknowledgements are left out
	u8 numbered;   // the LAN's filter numbers the machines
	u8 test;       // the time is in clock_of_test, and cb[0] gets the reason
	u8 named;      // nftables' rules name traffic
	u8 varies;     // the line does: a call above the bound is out as others are
	u8 unused[7];
};

const volatile struct constants limits SEC(".rodata");

struct bucket {
	u64 tokens, at;
};

struct address {
	union {
		u32 word[4]; // IPv4 is the last one, after ffff
		u64 half[2];
	};
};

struct flow_key {
	struct address home, far;
	union {
		struct {
			u16 home_port, far_port;
			u32 protocol;
		};
		u64 ends; // all three
	};
};

struct flow {
	struct flow_key key;
	u64 keep; // until then it is there
	u64 bytes, packets;
	u64 busy; // until then it is
	u64 mixed, steady, lost, struck, greedy; // and these, as in steady.go
	struct bucket of_packets, of_bytes, of_acks, of_steady, of_small;
	u32 mark;
	u16 machine;             // its number; 0 is unknown
	u8 answered, lane, code; // what its last packet got, and why
	u8 zero; // always
	u8 unused[6];
};

struct machine {
	struct address key; // or 0, 0, 0 and its number
	u64 keep;
	u64 crowd; // until then it is one
	u64 speaker; // until then a flow of it speaks
	u64 trial;   // until then one that does not is tried
	u64 full;    // until then what waits is more than it may have
	u64 zero;    // always
	struct bucket calm, names, heavy, starts, steady, waiting;
};

struct port_key {
	struct address home;
	u32 port;
	u32 zero;
};

struct port {
	struct port_key key;
	u64 keep;
	u64 swarm; // until then it is one
	struct bucket partners;
};

// What all acknowledgements share.
struct shared {
	struct bucket all, slow;
	u64 turns;
	u64 made; // 1 once the buckets are full
};

struct flows { struct flow way[WAYS]; };
struct machines { struct machine way[WAYS]; };
struct ports { struct port way[WAYS]; };
struct sample { u64 jiffies, nanoseconds; };

TABLE(flows_up, struct flows, 64);
TABLE(flows_down, struct flows, 64);
TABLE(machines_up, struct machines, 64);
TABLE(machines_down, struct machines, 64);
TABLE(machines_lan, struct machines, 256);
TABLE(ports_up, struct ports, 64);
TABLE(ports_down, struct ports, 64);
TABLE(shared_up, struct shared, 1);
TABLE(clock_of_test, u64, 2); // ticks, moments
TABLE(clock_sample, struct sample, 1);

// Until then a port of this direction may be a swarm's: most homes have none, and
// then nobody looks for one.
static volatile u64 swarms_up, swarms_down;

// A packet, as far as the rules see it.
struct packet {
	struct flow_key key;
	u32 length;
	u32 options; // of TCP: where they begin, and their length above it
	u8 dscp, flags;
	u16 ends;
};

INLINE u64 tick(void)
{
	if (limits.test) {
		u32 zero = 0;
		u64 *at = map_lookup(&clock_of_test, &zero);
		return at ? *at : 0;
	}
	return jiffies();
}

// moment is the time in units of 1024 ns. In ticks the tokens of a limit come in lumps:
// so many acknowledgements pass at once, the next ones are all left out, and what a
// download's server sends comes in lumps too.
INLINE u64 moment(void)
{
	if (limits.test) {
		u32 one = 1;
		u64 *at = map_lookup(&clock_of_test, &one);
		return at ? *at : 0;
	}
	return nanoseconds() >> 10;
}

// The hashes: words are mixed in, and the end brings the upper bits down to those that
// the tables' masks take. Machines of one network differ in a word's upper bits only.
#define GOLDEN 0x9e3779b97f4a7c15ull

INLINE u64 mix(u64 h, u64 word)
{
	h = (h ^ word) * GOLDEN;
	return h ^ h >> 32;
}

INLINE u64 mixed(u64 h, const struct address *a)
{
	return mix(mix(h, a->half[0]), a->half[1]);
}

INLINE u32 hash_of(u64 h)
{
	return h * GOLDEN >> 32;
}

INLINE int same(const struct address *a, const struct address *b)
{
	return a->half[1] == b->half[1] && a->half[0] == b->half[0];
}

// exceeds takes a cost from a bucket, if that has it.
INLINE int exceeds(struct bucket *b, const volatile struct rate *r, u32 units, u64 now)
{
	u64 past = now > b->at ? now - b->at : 0, tokens, cost = r->cost * units;
	if (past > 1 << 24)
		past = 1 << 24;
	tokens = b->tokens + r->gain * past;
	if (tokens > r->most)
		tokens = r->most;
	b->at = now;
	if (tokens < cost) {
		b->tokens = tokens;
		return 1;
	}
	b->tokens = tokens - cost;
	return 0;
}

INLINE void fill(struct bucket *b, const volatile struct rate *r, u64 now)
{
	b->tokens = r->most;
	b->at = now;
}

// is_calm meters a packet of a connection.
INLINE int is_calm(struct flow *f, u32 length, u64 now)
{
	return !exceeds(&f->of_packets, &limits.packets, 1, now) && !exceeds(&f->of_bytes, &limits.bytes, length, now);
}

// What follows an IP header is read with it, as far as TCP's flags: most packets are
// so long, and a read costs as much as many comparisons.
#define PORTS_ON 16

// parse reads a packet; 0 if it is not one of IP. A fragment, or a header that is
// cut off, is of no protocol.
INLINE int parse(struct __sk_buff *skb, struct packet *p, int up)
{
	struct address *from = up ? &p->key.home : &p->key.far, *to = up ? &p->key.far : &p->key.home;
	union {
		u8 byte[40 + PORTS_ON];
		u16 half[20 + PORTS_ON / 2];
		u32 word[10 + PORTS_ON / 4];
	} h; // BPF reads bytes one by one where it does not know them for aligned
	u16 *ports;
	u32 at, protocol;
	int whole;

	if (skb->protocol == BE16(IPV4)) {
		whole = load_relative(skb, 0, &h, 20 + PORTS_ON, FROM_NETWORK_HEADER) >= 0;
		if (!whole && load_relative(skb, 0, &h, 20, FROM_NETWORK_HEADER) < 0)
			return 0;
		ports = h.half + 10;
		at = (h.byte[0] & 15) * 4;
		whole = whole && at == 20;
		p->length = BE16(h.half[1]);
		p->dscp = h.byte[1] >> 2;
		protocol = h.byte[9];
		if (h.half[3] & BE16(0x3fff)) // more fragments, or not the first
			protocol = 0;
		from->word[2] = to->word[2] = BE32(0xffffu);
		from->word[3] = h.word[3];
		to->word[3] = h.word[4];
	} else if (skb->protocol == BE16(IPV6)) {
		whole = load_relative(skb, 0, &h, 40 + PORTS_ON, FROM_NETWORK_HEADER) >= 0;
		if (!whole && load_relative(skb, 0, &h, 40, FROM_NETWORK_HEADER) < 0)
			return 0;
		ports = h.half + 20;
		at = 40;
		p->length = BE16(h.half[2]) + 40;
		p->dscp = (h.byte[0] & 15) << 2 | h.byte[1] >> 6;
		protocol = h.byte[6];
		__builtin_memcpy(from->word, h.word + 2, 16);
		__builtin_memcpy(to->word, h.word + 6, 16);
	} else {
		return 0;
	}
	if (p->length <= 40 && skb->len > 0xffff) // longer than the header can say
		p->length = skb->len;
	if (protocol == TCP) {
		if (!whole && load_relative(skb, at, ports, PORTS_ON, FROM_NETWORK_HEADER) < 0) {
			protocol = 0;
		} else {
			u32 flags = BE16(ports[6]); // below the header's length
			p->flags = flags & SIX_FLAGS;
			p->options = at + 20;
			p->ends = at + (flags >> 12) * 4;
		}
	} else if (protocol == UDP && !whole && load_relative(skb, at, ports, 4, FROM_NETWORK_HEADER) < 0) {
		protocol = 0;
	}
	p->key.protocol = protocol;
	if (protocol == TCP || protocol == UDP) {
		p->key.home_port = BE16(ports[up ? 0 : 1]);
		p->key.far_port = BE16(ports[up ? 1 : 0]);
	}
	return 1;
}

// sender reads who sent a packet; 0 if it is not one of IP.
INLINE int sender(struct __sk_buff *skb, struct address *from)
{
	if (skb->protocol == BE16(IPV4)) {
		from->word[2] = BE32(0xffffu);
		return load_relative(skb, 12, &from->word[3], 4, FROM_NETWORK_HEADER) >= 0;
	}
	return skb->protocol == BE16(IPV6) && load_relative(skb, 8, from, 16, FROM_NETWORK_HEADER) >= 0;
}

// has_sack reports whether a TCP segment has SACK blocks.
INLINE int has_sack(struct __sk_buff *skb, const struct packet *p)
{
	u32 at = p->options;
	for (int i = 0; i < MOST_OPTIONS; i++) {
		u8 option[2];
		if (at + 2 > p->ends || load_relative(skb, at, option, 2, FROM_NETWORK_HEADER) < 0 || option[0] == OPTION_END)
			return 0;
		if (option[0] == OPTION_SACK)
			return 1;
		if (option[0] == OPTION_NOP) {
			at++;
		} else {
			if (option[1] < 2)
				return 0;
			at += option[1];
		}
	}
	return 0;
}

// AT is a bucket's place. The verifier does not know that zero is, and so not which
// place it is: otherwise it would follow each of them to the program's end.
#define AT(b, j, zero)                                          \
	({                                                      \
		u64 at_ = (j);                                  \
		BARRIER(at_);                                   \
		&(b)->way[(at_ + (b)->way[0].zero) & (WAYS - 1)]; \
	})

// FIND is where a bucket has a key; WAYS if it has not.
#define FIND(b, is, key)                                      \
	({                                                    \
		u64 at_ = WAYS;                               \
		_Pragma("unroll")                             \
		for (int j = 0; j < WAYS; j++)                \
			if (at_ == WAYS && is(&(b)->way[j], key)) \
				at_ = j;                      \
		at_;                                          \
	})

// ROOM is the place w of a bucket that a newcomer may take: of those that meet the
// condition, the one that would be given up first. WAYS if none does.
#define ROOM(b, w, condition)                                 \
	({                                                    \
		u64 at_ = WAYS, keep_ = ~0ull;                \
		_Pragma("unroll")                             \
		for (int j = 0; j < WAYS; j++) {              \
			__typeof__(&(b)->way[j]) w = &(b)->way[j]; \
			if ((condition) && w->keep < keep_) { \
				keep_ = w->keep;              \
				at_ = j;                      \
			}                                     \
		}                                             \
		at_;                                          \
	})

INLINE int is_flow(const struct flow *f, const struct flow_key *k)
{
	return f->key.ends == k->ends && same(&f->key.far, &k->far) && same(&f->key.home, &k->home);
}

// find_flow returns a connection that a table has; 0 if it has not.
INLINE struct flow *find_flow(void *map, const struct flow_key *k, u32 hash, u64 now)
{
	u32 i = hash & limits.flow_mask;
	struct flows *b = map_lookup(map, &i);
	u64 at;
	struct flow *f;
	if (!b)
		return 0;
	at = FIND(b, is_flow, k);
	if (at == WAYS)
		return 0;
	f = AT(b, at, zero);
	return f->keep > now ? f : 0;
}

// take_flow returns a connection's place, a new one if it has none; 0 if there is
// no room. One that is answered takes the place of one that nobody answers.
INLINE struct flow *take_flow(void *map, const struct flow_key *k, const volatile struct side *s, u32 hash, u64 now, int answered)
{
	u32 i = hash & limits.flow_mask;
	struct flows *b = map_lookup(map, &i);
	u64 at;
	struct flow *f;
	if (!b)
		return 0;
	at = FIND(b, is_flow, k);
	if (at != WAYS) {
		f = AT(b, at, zero);
		if (f->keep > now)
			return f;
		goto fresh;
	}
	at = ROOM(b, w, w->keep <= now || (answered && !w->answered));
	if (at == WAYS)
		return 0;
	f = AT(b, at, zero);
fresh:
	f->key = *k;
	f->bytes = f->packets = f->busy = 0;
	f->mixed = f->steady = f->lost = f->struck = f->greedy = 0;
	f->mark = 0;
	f->machine = 0;
	f->answered = f->lane = 0;
	f->code = 0;
	fill(&f->of_packets, &limits.packets, now);
	fill(&f->of_bytes, &limits.bytes, now);
	fill(&f->of_acks, &limits.slow, now);
	fill(&f->of_steady, &s->steady, now);
	fill(&f->of_small, &limits.speech, now);
	return f;
}

INLINE int is_machine(const struct machine *m, const struct address *k)
{
	return same(&m->key, k);
}

// take_machine returns a machine's place; 0 if there is no room. number is where
// it is in its table, from 1.
INLINE struct machine *take_machine(void *map, const struct address *k, u32 hash, u32 mask, const volatile struct side *s, u64 now, u32 *number)
{
	u32 i = hash & mask;
	struct machines *b = map_lookup(map, &i);
	u64 at;
	struct machine *m;
	if (!b)
		return 0;
	at = FIND(b, is_machine, k);
	if (at == WAYS)
		at = ROOM(b, w, w->keep <= now);
	if (at == WAYS)
		return 0;
	*number = i * WAYS + at + 1;
	m = AT(b, at, zero);
	if (m->keep > now)
		goto found;
	m->key = *k;
	m->crowd = m->speaker = m->trial = m->full = 0;
	fill(&m->calm, &s->host, now);
	fill(&m->names, &s->names, now);
	fill(&m->heavy, &s->heavy, now);
	fill(&m->starts, &s->starts, now);
	fill(&m->steady, &s->steady_host, now);
	fill(&m->waiting, &s->waiting, now);
found:
	m->keep = now + limits.machine_for;
	return m;
}

INLINE int is_port(const struct port *p, const struct port_key *k)
{
	return p->key.port == k->port && same(&p->key.home, &k->home);
}

// is_swarm reports whether a table has a port as that of a swarm.
INLINE int is_swarm(void *map, const struct port_key *k, u32 hash, u64 now)
{
	u32 i = hash & limits.port_mask;
	struct ports *b = map_lookup(map, &i);
	if (!b)
		return 0;
#pragma unroll
	for (int j = 0; j < WAYS; j++)
		if (is_port(&b->way[j], k))
			return b->way[j].swarm > now;
	return 0;
}

// partner counts a port's new partner; beyond the allowed number it is a swarm's.
INLINE void partner(void *map, volatile u64 *swarms, const struct port_key *k, u32 hash, const volatile struct side *s, u64 now)
{
	u32 i = hash & limits.port_mask;
	struct ports *b = map_lookup(map, &i);
	u64 at;
	struct port *p;
	if (!b)
		return;
	at = FIND(b, is_port, k);
	if (at == WAYS)
		at = ROOM(b, w, w->keep <= now);
	if (at == WAYS)
		return;
	p = AT(b, at, key.zero);
	if (p->keep > now)
		goto found;
	p->key = *k;
	p->keep = p->swarm = 0;
	fill(&p->partners, &s->peers, now);
found:
	if (p->keep < now + limits.port_for)
		p->keep = now + limits.port_for;
	if (exceeds(&p->partners, &s->peers, 1, now)) {
		*swarms = p->swarm = now + limits.swarm_for;
		if (p->keep < p->swarm)
			p->keep = p->swarm;
	}
}

// thinned decides about an acknowledgement: whether it is left out.
INLINE int thinned(struct __sk_buff *skb, const struct packet *p, struct flow *f, u32 *mark, u64 now)
{
	u32 zero = 0;
	struct shared *s = map_lookup(&shared_up, &zero);
	if (!s)
		return 0;
	if (!s->made) {
		fill(&s->all, &limits.acks, now);
		fill(&s->slow, &limits.slow_acks, moment());
		s->made = 1;
	}
	if (exceeds(&s->all, &limits.acks, 1, now))
		*mark |= METERED;
	else if (!(*mark & METERED))
		return 0;
	if (f && exceeds(&f->of_acks, &limits.slow, 1, now))
		return 0;
	if (!exceeds(&s->slow, &limits.slow_acks, 1, moment()))
		return 0;
	return !(has_sack(skb, p) && s->turns++ % 2 == 0);
}

INLINE int classified(struct __sk_buff *skb, const int up)
{
	const volatile struct side *s = up ? &limits.up : &limits.down;
	void *own = up ? (void *)&flows_up : (void *)&flows_down, *others = up ? (void *)&flows_down : (void *)&flows_up;
	void *ports = up ? (void *)&ports_up : (void *)&ports_down, *other_ports = up ? (void *)&ports_down : (void *)&ports_up;
	struct packet p = {};
	struct flow *f = 0, *other = 0;
	struct machine *m;
	struct address who;
	u64 now, bytes = 0, packets = 0;
	u64 of_home, of_who; // what their addresses mix to
	u32 mark = 0, hash, number = 0, place = 0, protocol;
	enum lane lane = NORMAL;
	enum code code = NO_CODE;
	int answered = 0;

	if (!parse(skb, &p, up))
		return NO_OVERRIDE;
	now = tick();
	protocol = p.key.protocol;
	of_home = mixed(limits.seed, &p.key.home);
	hash = hash_of(mix(mixed(of_home, &p.key.far), (u64)protocol << 32 | (u32)p.key.home_port << 16 | p.key.far_port));
	if (up && limits.numbered) {
		number = skb->tc_index;
		BARRIER(number); // two reads, each at an offset that the verifier sees
		if (limits.test)
			number = skb->mark; // a run for a test has no tc_index
		if (number > MOST_HOSTS)
			number = 0;
	}
	if (protocol == TCP || protocol == UDP) {
		other = find_flow(others, &p.key, hash, now);
		f = take_flow(own, &p.key, s, hash, now, other != 0);
		if (!up && other)
			number = other->machine;
		if (f) {
			u64 most = now + (!other ? limits.unanswered_for : protocol == UDP ? limits.datagrams_for : limits.stream_for);
			bytes = f->bytes += p.length;
			packets = f->packets += 1;
			mark = f->mark;
			if (f->keep < most)
				f->keep = most;
			f->machine = number;
			if (other) {
				answered = 1;
				bytes += other->bytes;
				packets += other->packets;
				mark |= other->mark;
			}
			f->answered = answered;
		}
	}
	who = p.key.home;
	of_who = of_home;
	if (number) {
		who.word[0] = who.word[1] = who.word[2] = 0;
		who.word[3] = number;
		of_who = mixed(limits.seed, &who);
	}
#define MACHINE() take_machine(up ? (void *)&machines_up : (void *)&machines_down, &who, hash_of(of_who), limits.machine_mask, s, now, &place)
#define IS(l, c) do { lane = l; code = c; goto done; } while (0)

	if (limits.named) {
		u32 tin;
		if (up) {
			u32 given = skb->priority;
			tin = given >> 16 == limits.major ? given : 0;
		} else {
			tin = skb->mark >> TIN_SHIFT;
		}
		lane = s->lane_of_tin[BELOW(16, tin)];
		if (lane != NO_LANE) {
			code = BY_RULE;
			goto done;
		}
	}
	lane = s->lane_of_dscp[BELOW(64, p.dscp)];
	if (lane != NO_LANE) {
		code = BY_DSCP;
		goto done;
	}
	if (!(p.length & limits.light_mask)) {
		if (protocol != UDP)
			goto light;
		goto udp; // what is longer than a small one comes there too
	}
	if (mark & IS_BULK)
		IS(BULK, WAS_BULK);
full:
	if (protocol != TCP) {
		if (mark & IS_BULK)
			IS(BULK, WAS_BULK);
		if (protocol == UDP)
			goto udp;
		goto rest;
	}
	if (bytes && bytes <= s->first) {
		m = MACHINE();
		if (m && !exceeds(&m->starts, &s->starts, p.length, now))
			IS(INTERACTIVE, FIRST);
	}
	if (bytes && bytes <= limits.most_first && s->first < limits.most_first)
		IS(NORMAL, ORDINARY);
	mark |= KNOWN;
	if (f && !is_calm(f, p.length, now))
		f->busy = now + limits.busy_for;
	goto data;

light:
	if (protocol == TCP && p.length < ACK_BELOW && p.flags == ACK) {
		code = ACKNOWLEDGES;
		lane = ACKS;
		if (up && limits.thins && thinned(skb, &p, f, &mark, now))
			lane = NO_LANE;
		goto done;
	}
	if (p.length > limits.small && p.length >= ACK_BELOW)
		goto full;
	if (protocol != TCP)
		goto rest;
	if (p.key.far_port == 53 || p.key.far_port == 853)
		goto names;
	if (bytes && bytes <= s->first) {
		m = MACHINE();
		if (m && !exceeds(&m->starts, &s->starts, p.length, now))
			IS(INTERACTIVE, FIRST);
	}
	if (p.length <= limits.small)
		goto calm;
	goto data;

rest:
	if (protocol == ICMP || protocol == ICMPV6)
		goto names;
	IS(NORMAL, UNPROTECTED);

udp:
	if (mark & IS_BULK && p.length > limits.small)
		IS(BULK, WAS_BULK);
	if (p.key.far_port == 53 || p.key.far_port == 853)
		goto names;
	{
		struct port_key k = { p.key.home, p.key.home_port, 0 };
		u32 h = hash_of(mix(of_home, k.port));
		if (!answered && packets == 1)
			partner(ports, up ? &swarms_up : &swarms_down, &k, h, s, now);
		if ((swarms_up > now && is_swarm(up ? ports : other_ports, &k, h, now)) ||
		    (swarms_down > now && is_swarm(up ? other_ports : ports, &k, h, now)))
			IS(BULK, SWARM);
	}
	if (!answered)
		IS(NORMAL, UNANSWERED);
calm:
	if (protocol == TCP && f && f->busy > now) // it must not overtake its connection's large segments
		goto data;
	m = MACHINE();
	if (f && f->busy > now)
		goto busy;
	if (f && m && m->crowd > now) {
		if (is_calm(f, p.length, now))
			goto crowded;
		f->busy = now + limits.busy_for;
		goto busy;
	}
	if (m && exceeds(&m->calm, &s->host, p.length, now)) {
		m->crowd = now + limits.crowd_for;
		goto crowded;
	}
	if (f && is_calm(f, p.length, now)) {
		if (protocol == TCP)
			IS(INTERACTIVE, CALM_TCP);
		if (p.length <= limits.small) {
			if (f->mixed > now)
				IS(INTERACTIVE, MIXED);
			IS(VOICE, CALM_SMALL);
		}
		if (s->steady.cost)
			f->mixed = now + limits.mixed_for;
		IS(INTERACTIVE, CALM_LARGE);
	}
	if (f)
		f->busy = now + limits.busy_for;
busy:
	if (protocol == TCP)
		goto data;
	if (p.length < ACK_BELOW) {
		if (f && f->steady > now)
			goto judged;
		IS(ACKS, BUSY_SMALL);
	}
	if (!s->steady.cost)
		goto data;
	if (f && (f->lost > now || f->greedy > now)) {
		code = TOOK_MORE;
		if (!limits.varies || p.length > limits.small)
			goto rests;
		if (m) {
			m->speaker = now + limits.speaks_for;
			if (exceeds(&m->calm, &s->host, p.length, now)) {
				code = CROWD;
				goto rests;
			}
		}
		if (is_calm(f, p.length, now))
			IS(VOICE, SOUND);
		goto rests;
	}
	if (f && p.length <= limits.small && exceeds(&f->of_small, &limits.speech, 1, now) && m) {
		m->speaker = now + limits.speaks_for;
		if (!limits.varies)
			f->mixed = now + limits.mixed_for;
		goto judged;
	}
	if (f && f->steady > now)
		goto judged;
	code = WAITS;
	if (!m || m->speaker > now)
		goto rests;
	if (p.length > limits.small && exceeds(&m->waiting, &s->waiting, p.length, now))
		m->full = now + limits.full_for;
	if (bytes <= limits.heavy || m->full > now || m->trial > now)
		goto rests;
	m->trial = now + limits.trial_for;
	goto judged;

crowded:
	if (!f || f->steady <= now) {
		if (other && other->steady > now)
			IS(NORMAL, CROWD);
		goto data;
	}
judged:
	code = TOOK_MORE;
	if (f && f->lost > now)
		goto rests;
	mark &= ~KNOWN;
	if (!(m && m->speaker > now) && m && m->full > now) {
		code = WAITS;
		goto rests;
	}
	if (!f)
		goto rests;
	if (!exceeds(&f->of_steady, &s->steady, p.length, now) && m && !exceeds(&m->steady, &s->steady_host, p.length, now)) {
		f->steady = now + limits.steady_for;
		f->busy = now + limits.busy_for;
		IS(INTERACTIVE, STEADY);
	}
	if (!limits.varies && f->mixed > now)
		IS(NORMAL, code);
	f->lost = now + limits.lost_for;
	if (f->keep < f->lost)
		f->keep = f->lost;
	if (m && m->speaker > now)
		goto rests;
	if (f->struck > now)
		f->greedy = now + limits.greedy_for;
	f->struck = now + limits.struck_for;
	if (f->keep < f->struck)
		f->keep = f->struck;
rests:
	if (other && other->steady > now)
		IS(NORMAL, code);
	if (f && mark & KNOWN)
		f->busy = now + limits.busy_for;
	if (mark & IS_BULK)
		IS(BULK, WAS_BULK);
	if (f && bytes > limits.lasting && f->greedy > now) {
		mark |= IS_BULK;
		IS(BULK, LONG);
	}
	if (bytes > limits.heavy && !(mark & KNOWN)) {
		mark |= KNOWN;
		m = MACHINE();
		if (m && exceeds(&m->heavy, &s->heavy, 1, now))
			mark |= IS_BULK;
	}
	IS(NORMAL, code);

data:
	if (bytes <= limits.heavy)
		IS(NORMAL, ORDINARY);
	if (mark & IS_BULK)
		IS(BULK, WAS_BULK);
	if (bytes > limits.lasting) {
		mark |= IS_BULK;
		IS(BULK, LONG);
	}
	if (protocol == UDP ? !(mark & KNOWN) : !(mark & COUNTED)) {
		mark |= protocol == UDP ? KNOWN : COUNTED;
		m = MACHINE();
		if (m && exceeds(&m->heavy, &s->heavy, 1, now))
			mark |= IS_BULK;
	}
	IS(NORMAL, ORDINARY);

names:
	m = MACHINE();
	if (m && !exceeds(&m->names, &s->names, 1, now))
		IS(VOICE, NAMES);
	IS(NORMAL, MANY_NAMES);

done:
	if (f) {
		f->mark = mark;
		f->lane = lane;
		f->code = code;
	}
	if (limits.test)
		skb->cb[0] = code;
	if (lane == NO_LANE)
		return DROPPED;
	skb->priority = s->priority[BELOW(8, lane)];
	set_hash(skb, hash);
	if (number && number <= MOST_HOSTS)
		return number << 16 | 0xffff; // a flow that CAKE does not have: it takes the hash
	return NO_OVERRIDE;
}

// up classifies what leaves by the WAN.
SEC("tc/up") int up(struct __sk_buff *skb) { return classified(skb, 1); }

// down classifies what arrived from the WAN, on the device that shapes it.
SEC("tc/down") int down(struct __sk_buff *skb) { return classified(skb, 0); }

// lan numbers the machine that sent a packet, where it enters from the LAN: the
// WAN sees one address behind NAT.
SEC("tc/lan") int lan(struct __sk_buff *skb)
{
	struct address from = {};
	u32 number = 0;
	if (sender(skb, &from) && take_machine(&machines_lan, &from, hash_of(mixed(limits.seed, &from)), 255, &limits.up, tick(), &number))
		skb->tc_index = number;
	return NEXT_FILTER;
}

// out drops what `up` decided to drop.
SEC("tc/out") int out(struct __sk_buff *skb) { return ACT_SHOT; }

// sample_clock tells the loader how long a tick is.
SEC("tc/sample_clock") int sample_clock(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct sample *s = map_lookup(&clock_sample, &zero);
	if (s) {
		s->jiffies = jiffies();
		s->nanoseconds = nanoseconds();
	}
	return 0;
}

char licence[] SEC("license") = "Apache-2.0";
