//go:build ignore

// SPDX-License-Identifier: Apache-2.0
//
// The decision table of internal/cure/classify as a program on a shaper. A filter of CAKE's own
// returns CAKE's host and flow, and skb->priority names the tin; one of HTB's returns
// the class.
//
// `up` runs on the WAN's CAKE, `down` on that of what arrives. Each has tables of
// its own, which it alone writes, under its qdisc's lock; it reads the other's.
// The tables are arrays of four-way buckets: nothing is allocated, and a table
// that is full has no room for newcomers.
//
// internal/cure/classify is the same in Go, row by row. A test walks packets through both.
// Built by `go generate` with clang 19; the objects are kept beside this file.

#include "kernel.h"

#define ACK_BELOW 128
#define WAYS 4
#define MOST_HOSTS 1024 // of CAKE
#define PACKET 65536    // what one counts in an estimate of packets
#define MOST_STRIKES 7
#define WINDOW 6 // logarithms of ticks: a quarter of a second, and a second
#define SECOND 8
// The upper byte of the minor number of a priority by which a rule names traffic. The
// lower one has the tins: what arrives, what leaves.
#define NAMED_MINOR 1

enum lane { NO_LANE, VOICE, INTERACTIVE, NORMAL, BULK, ACKS, LANES };

// Codes of reasons, as in decide.go.
enum code {
	NO_CODE, BY_RULE, BY_DSCP, NAMES, MANY_NAMES, ACKNOWLEDGES, FIRST, UNPROTECTED, SWARM, UNANSWERED, CROWD,
	LIGHT_TCP, LIGHT_SMALL, LIGHT_LARGE, LIGHT_MIXED, STEADY, TOOK_MORE, WAITS, SOUND, BUSY_SMALL, WAS_BULK, LONG, ORDINARY
};

// A row's verdict: a lane and a code, or 0: the next row.
#define IS(lane, code) ((lane) << 8 | (code))
#define NEXT 0

// The numbers of the table (constants.go): bytes and packets are those of a window.
struct rate { u64 gain, cost, most; };

struct side {
	u64 first_of_machine, light_of_machine, steady, steady_of_machine, patience;
	struct rate heavy, peers;
	u64 first_bytes;
	u32 priority[LANES + 2];
	u8 lane_of_dscp[64];
	u8 lane_of_tin[16];
};

struct constants {
	struct side up, down;
	struct rate slow_acks; // in moments
	u64 light_bytes, light_packets, speech, names, acks, acks_of_flow;
	u64 heavy_bytes, long_bytes;
	u64 busy_for, mixed_for, speaks_for, swarm_for, elastic_for, struck_for;
	u64 unanswered_for, datagrams_for, stream_for, machine_for, port_for;
	u32 small, flow_mask, machine_mask, port_mask, seed, major;
	u8 thins, numbered, test, named, varies, htb, unused[2];
};

const volatile struct constants limits SEC(".rodata");

#include "state.h"
#include "parse.h"

// begin finds the packet's flow, and counts it.
INLINE void begin(struct __sk_buff *skb, struct packet *p)
{
	void *own = p->up ? (void *)&flows_up : (void *)&flows_down, *others = p->up ? (void *)&flows_down : (void *)&flows_up;
	struct flow *f, *other;
	u64 other_bytes = 0;
	p->now = tick();
	p->s = p->up ? &limits.up : &limits.down;
	p->tcp = p->key.protocol == TCP;
	p->udp = p->key.protocol == UDP;
	p->small = p->length <= limits.small;
	p->of_home = mixed(limits.seed, &p->key.home);
	p->hash = hash_of(mix(mixed(p->of_home, &p->key.far), (u64)p->key.protocol << 32 | (u32)p->key.home_port << 16 | p->key.far_port));
	p->number = 0;
	if (p->up && limits.numbered) {
		p->number = skb->tc_index;
		BARRIER(p->number); // two reads, each at an offset that the verifier sees
		if (limits.test)
			p->number = skb->mark; // a run for a test has no tc_index
		p->number &= -less(p->number, MOST_HOSTS + 1);
	}
	other = find_flow(others, &p->key, p->hash);
	if (other) {
		u64 kept = -less(p->now, other->keep); // all bits, or none
		p->answered = kept & 1;
		other_bytes = other->bytes & kept;
		p->other_named = other->named & kept;
		p->other_bulk = other->bulk & kept;
		if (!p->up)
			p->number = other->machine & kept;
	}
	p->f = f = take_flow(own, p);
	if (f) {
		u64 most = p->now + (!p->answered ? limits.unanswered_for : p->tcp ? limits.stream_for : limits.datagrams_for);
		if (f->keep < most)
			f->keep = most;
		f->machine = p->number;
		f->answered = p->answered;
		p->bytes = (f->bytes += p->length) + other_bytes;
	}
}

// rule: a rule of nftables' names the packet. What arrives comes here before nftables:
// what leaves says it for both.
INLINE u32 rule(struct __sk_buff *skb, struct packet *p)
{
	u32 lane = NO_LANE;
	if (!limits.named)
		return NEXT;
	if (p->up) {
		u32 given = skb->priority;
		if (given >> 8 != (limits.major << 8 | NAMED_MINOR))
			given = 0;
		lane = p->s->lane_of_tin[BELOW(16, given)];
		if (p->f)
			p->f->named = limits.down.lane_of_tin[BELOW(16, given >> 4)];
	} else {
		lane = p->other_named;
	}
	return lane ? IS(lane, BY_RULE) : NEXT;
}

INLINE int goes_first(u32 lane) { return lane == VOICE || lane == INTERACTIVE; }

// mark: its DSCP, where that is trusted. One that asks to go first is a hint.
INLINE u32 mark(const struct packet *p)
{
	u32 lane = p->s->lane_of_dscp[BELOW(64, p->dscp)];
	return lane && !goes_first(lane) ? IS(lane, BY_DSCP) : NEXT;
}

// hint is the lane that its mark asks for; 0 if none goes first, and of TCP. It is read anew
// each time: the verifier would follow a packet that has one and one that has none to the end.
INLINE u32 hint(const struct packet *p)
{
	u32 lane = p->s->lane_of_dscp[BELOW(64, p->dscp)];
	return !p->tcp && goes_first(lane) ? lane : 0;
}

INLINE int is_name(const struct packet *p)
{
	return ((p->udp || (p->tcp && p->small)) && (p->key.far_port == 53 || p->key.far_port == 853)) ||
	       p->key.protocol == ICMP || p->key.protocol == ICMPV6;
}

// name: DNS and ping.
INLINE u32 name(struct packet *p)
{
	if (!is_name(p))
		return NEXT;
	if (p->m && add(&p->m->names, PACKET, SECOND, p->now) <= limits.names)
		return IS(VOICE, NAMES);
	return IS(NORMAL, MANY_NAMES);
}

INLINE int is_ack(const struct packet *p) { return p->tcp && p->length < ACK_BELOW && p->flags == ACK; }

// thinned decides whether an acknowledgement is left out.
INLINE int thinned(struct __sk_buff *skb, struct packet *p)
{
	u32 zero = 0;
	struct shared *s = map_lookup(&shared_up, &zero);
	int fast = p->f && add(&p->f->small, PACKET, SECOND, p->now) > limits.acks_of_flow;
	if (!s)
		return 0;
	if (!s->made) {
		s->slow.tokens = limits.slow_acks.most;
		s->slow.at = moment();
		s->made = 1;
	}
	if (add(&s->all, PACKET, SECOND, p->now) <= limits.acks || fast || !exceeds(&s->slow, &limits.slow_acks, moment()))
		return 0;
	return !(has_sack(skb, p) && s->turns++ % 2 == 0);
}

// acknowledgement: TCP's without data.
INLINE u32 acknowledgement(struct __sk_buff *skb, struct packet *p)
{
	if (!is_ack(p))
		return NEXT;
	return p->up && limits.thins && thinned(skb, p) ? IS(NO_LANE, ACKNOWLEDGES) : IS(ACKS, ACKNOWLEDGES);
}

INLINE int is_first(const struct packet *p) { return p->tcp && p->bytes && p->bytes <= p->s->first_bytes; }

// first: the first bytes of a TCP connection; those of one machine are bounded.
INLINE u32 first(struct packet *p)
{
	if (is_first(p) && p->m && add(&p->m->first, p->length, SECOND, p->now) <= p->s->first_of_machine)
		return IS(INTERACTIVE, FIRST);
	return NEXT;
}

// swarm: UDP of a port with many partners, as either direction found it.
INLINE u32 swarm(struct packet *p)
{
	struct port_key k = { p->key.home, p->key.home_port, 0 };
	u32 h = hash_of(mix(p->of_home, k.port));
	if (!p->udp)
		return NEXT;
	if (p->f && !p->answered && p->f->bytes == p->length)
		partner(p->up ? (void *)&ports_up : (void *)&ports_down, p->up, &k, h, p->s, p->now);
	if (is_swarm(&ports_up, 0, &k, h, p->now) || is_swarm(&ports_down, 1, &k, h, p->now))
		return IS(BULK, SWARM);
	return NEXT;
}

// light: a flow below a small rate; of TCP small segments alone. A machine whose light
// flows have too much together has none.
INLINE u32 light(struct packet *p)
{
	struct flow *f = p->f;
	struct machine *m = p->m;
	u64 bytes, packets;
	if (!f)
		return NEXT;
	bytes = add(&f->light, p->length, SECOND, p->now);
	packets = add(&f->light_packets, PACKET, SECOND, p->now);
	if (bytes > limits.light_bytes || packets > limits.light_packets)
		f->busy = p->now + limits.busy_for;
	if (f->busy > p->now || (p->tcp && !p->small) || !m)
		return NEXT;
	if (m->crowd > p->now)
		return IS(NORMAL, CROWD);
	if (add(&m->light, p->length, SECOND, p->now) > p->s->light_of_machine) {
		m->crowd = p->now + limits.busy_for;
		return IS(NORMAL, CROWD);
	}
	if (p->tcp)
		return IS(INTERACTIVE, LIGHT_TCP);
	if (!p->small) {
		f->mixed = p->now + limits.mixed_for;
		return IS(INTERACTIVE, LIGHT_LARGE);
	}
	return f->mixed > p->now ? IS(INTERACTIVE, LIGHT_MIXED) : IS(VOICE, LIGHT_SMALL);
}

// elastic is a packet of a flow that does not go first. Its smallest ones do, as
// acknowledgements, and on a line that varies a call's sound does.
INLINE u32 elastic(struct packet *p, int speaks)
{
	if (p->length < ACK_BELOW)
		return IS(ACKS, BUSY_SMALL);
	if (limits.varies && speaks && p->small && p->m && add(&p->m->light, p->length, SECOND, p->now) <= p->s->light_of_machine)
		return IS(VOICE, SOUND);
	return NEXT;
}

// steady: a flow below its bound that was not found elastic: of datagrams, or by its mark.
INLINE u32 steady(struct packet *p)
{
	struct flow *f = p->f;
	struct machine *m = p->m;
	u64 now = p->now, length = p->length;
	int speaks, call, room, over;
	if (p->tcp || !f || !p->s->steady || !m)
		return NEXT;
	if (p->small && length >= ACK_BELOW && add(&f->small, PACKET, SECOND, now) > limits.speech) {
		f->speaks = now + limits.mixed_for;
		m->speaks = now + limits.speaks_for;
	}
	speaks = less(now, f->speaks);
	call = less(now, m->speaks) & ~speaks;
	room = !less(p->s->steady_of_machine, add(&m->datagrams, length, WINDOW, now));
	p->why = TOOK_MORE;
	if (f->elastic > now) {
		if (!speaks || limits.varies)
			return elastic(p, speaks);
		if (add(&f->rate, 0, WINDOW, now) + length > p->s->steady ||
		    add(&m->steady, 0, WINDOW, now) + length > p->s->steady_of_machine)
			return IS(NORMAL, TOOK_MORE);
		add(&f->rate, length, WINDOW, now);
		add(&m->steady, length, WINDOW, now);
		return IS(INTERACTIVE, STEADY);
	}
	if (f->struck > now && !speaks && (call || !room)) {
		p->why = WAITS;
		return elastic(p, speaks);
	}
	over = above(&f->rate, length, p->s->steady, p->s->patience, now);
	if (!over) // one that is above its own bound goes before the others of its machine
		over = above(&m->steady, length, p->s->steady_of_machine,
			     f->struck > now || m->crowd > now || call ? 0 : 3 * p->s->patience, now);
	if (!over)
		return IS(INTERACTIVE, STEADY);
	if (f->struck <= now || speaks)
		f->strikes = 0;
	f->elastic = now + (limits.elastic_for << (f->strikes & 7));
	if (f->strikes < MOST_STRIKES)
		f->strikes++;
	f->struck = now + limits.struck_for;
	if (f->answered && f->keep < f->struck) // others keep no place
		f->keep = f->struck;
	return elastic(p, speaks);
}

INLINE int is_heavy(const struct packet *p) { return p->f && p->bytes > limits.heavy_bytes && !p->f->heavy; }

// heavy: after much, or as one of many.
INLINE u32 heavy(struct packet *p)
{
	struct flow *f = p->f;
	if (!f)
		return NEXT;
	if (f->bulk | p->other_bulk) {
		f->bulk = 1;
		return IS(BULK, WAS_BULK);
	}
	if (p->bytes > limits.long_bytes) {
		f->bulk = 1;
		return IS(BULK, LONG);
	}
	if (is_heavy(p)) {
		f->heavy = 1;
		if (p->m && exceeds(&p->m->heavy, &p->s->heavy, p->now))
			f->bulk = 1;
	}
	return NEXT;
}

// decide walks a packet through the table's rows, of which the first that fits decides.
INLINE u32 decide(struct __sk_buff *skb, struct packet *p)
{
	u32 v = rule(skb, p);
	if (!v)
		v = mark(p);
	if (v)
		return v;
	if (is_name(p) || is_first(p) || p->udp || (p->tcp && p->small && !is_ack(p)) || is_heavy(p) || hint(p))
		find_machine(p);
	v = name(p);
	if (!v)
		v = acknowledgement(skb, p);
	if (!v)
		v = first(p);
	if (!v && !p->tcp && !p->udp && !hint(p))
		v = IS(NORMAL, UNPROTECTED);
	if (!v)
		v = swarm(p);
	if (!v && p->udp && !p->answered && !hint(p))
		v = IS(NORMAL, UNANSWERED);
	if (!v)
		v = light(p);
	if (!v)
		v = steady(p);
	if (!v)
		v = heavy(p);
	if (goes_first(v >> 8) && hint(p)) // all of a flow in one lane
		v = IS(hint(p), BY_DSCP);
	return v ? v : IS(NORMAL, p->why ? p->why : ORDINARY);
}

INLINE int classified(struct __sk_buff *skb, const int up)
{
	struct packet p = {};
	u32 v, lane;
	p.up = up;
	if (!parse(skb, &p, up))
		return NO_OVERRIDE;
	begin(skb, &p);
	v = decide(skb, &p);
	lane = v >> 8;
	if (p.f) {
		p.f->lane = lane;
		p.f->code = v;
	}
	if (limits.test)
		skb->cb[0] = v & 255;
	if (lane == NO_LANE)
		return DROPPED;
	skb->priority = p.s->priority[BELOW(8, lane)];
	if (limits.htb)
		return p.s->priority[BELOW(8, lane)];
	set_hash(skb, p.hash);
	if (p.number && p.number <= MOST_HOSTS)
		return p.number << 16 | 0xffff; // a flow that CAKE does not have: it takes the hash
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

char licence[] SEC("license") = "Apache-2.0";
