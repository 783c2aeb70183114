// SPDX-License-Identifier: Apache-2.0
//
// What is remembered of flows, machines and ports, and how it is found again: state.go in C.

// What is remembered (state.go).
struct estimate { u64 window, at, over; };
struct bucket { u64 tokens, at; };

struct address {
	union {
		u32 word[4]; // IPv4 is the last one, after ffff
		u64 half[2];
	};
};

struct flow_key {
	struct address home, far;
	union {
		struct { u16 home_port, far_port; u32 protocol; };
		u64 ends; // all three
	};
};

struct flow {
	struct flow_key key;
	u64 keep, bytes;
	struct estimate light, light_packets, rate, small;
	u64 busy, mixed, speaks, elastic, struck, strikes;
	u16 machine;
	u8 answered, heavy, bulk, named, lane, code; // the last two: of its last packet
	u64 zero; // always
};

struct machine {
	struct address key; // or 0, 0, 0 and its number
	u64 keep, crowd, speaks, zero;
	struct estimate first, light, steady, datagrams, names;
	struct bucket heavy;
};

struct port_key { struct address home; u32 port, zero; };

struct port {
	struct port_key key;
	u64 keep, swarm;
	struct bucket partners;
};

struct shared {
	struct estimate all;
	struct bucket slow;
	u64 turns, made;
};

struct flows { struct flow way[WAYS]; };
struct machines { struct machine way[WAYS]; };
struct ports { struct port way[WAYS]; };

// Room for 8192 flows, as plans have (classify.PlacesFor).
TABLE(flows_up, struct flows, 2048);
TABLE(flows_down, struct flows, 2048);
TABLE(machines_up, struct machines, 256);
TABLE(machines_down, struct machines, 256);
TABLE(machines_lan, struct machines, 256);
TABLE(ports_up, struct ports, 512);
TABLE(ports_down, struct ports, 512);
TABLE(shared_up, struct shared, 1);
TABLE(swarms, u64, 2);        // of what leaves, of what arrives: until then a port may be a swarm's
TABLE(clock_of_test, u64, 2); // ticks, moments

// A packet, as far as the table sees it, and what was found of it.
struct packet {
	struct flow_key key;
	u32 length;
	u32 options; // of TCP: where they begin, and their length above it
	u8 dscp, flags;
	u16 ends;
	u8 tcp, udp, small, up;
	u32 hash, number; // of the flow; of the machine
	u64 of_home;      // what its address mixes to
	u64 now, bytes;
	const volatile struct side *s;
	struct flow *f;
	struct machine *m;
	u64 answered; // the other direction has been seen
	u8 other_named, other_bulk;
	u32 why;
};

INLINE u64 clock(u32 which, u32 unit)
{
	u64 *at = limits.test ? map_lookup(&clock_of_test, &which) : 0;
	return at ? *at : nanoseconds() >> unit;
}

// tick is the time in units of 4.2 ms; moment in units of 1024 ns, as in ticks what a
// limit passes comes in lumps.
INLINE u64 tick(void) { return clock(0, 22); }
INLINE u64 moment(void) { return clock(1, 10); }

// The hashes: words are mixed in, and the end brings the upper bits down to those that
// the tables' masks take.
#define GOLDEN 0x9e3779b97f4a7c15ull

INLINE u64 mix(u64 h, u64 word)
{
	h = (h ^ word) * GOLDEN;
	return h ^ h >> 32;
}

INLINE u64 mixed(u64 h, const struct address *a) { return mix(mix(h, a->half[0]), a->half[1]); }

INLINE u32 hash_of(u64 h) { return (h ^ h >> 29) * GOLDEN >> 32; }

INLINE int same(const struct address *a, const struct address *b)
{
	return a->half[1] == b->half[1] && a->half[0] == b->half[0];
}

// The verifier follows each way of a branch to the program's end. What most packets pass
// has none: with branches here, loading takes five times as long.

// less is a < b, of numbers below 2^63.
INLINE u64 less(u64 a, u64 b)
{
	a -= b;
	BARRIER(a);
	return a >> 63;
}

// either is a if first is 1, and b if it is 0.
INLINE u64 either(u64 first, u64 a, u64 b) { return b ^ ((a ^ b) & -first); }

// add counts n more, and returns what came in the last window of 2^shift ticks.
INLINE u64 add(struct estimate *e, u64 n, u32 shift, u64 now)
{
	u64 window = e->window, past = (now - e->at) & -less(e->at, now);
	past = either(less(past, 1ull << shift), past, 1ull << shift);
	e->at = now;
	return e->window = window - (window * past >> shift) + n;
}

// above adds n more to the window, and reports whether more than patience bytes have come
// since it went above a bound.
INLINE int above(struct estimate *e, u64 n, u64 most, u64 patience, u64 now)
{
	if (add(e, n, WINDOW, now) <= most) {
		e->over = 0;
		return 0;
	}
	e->over += n;
	return e->over > patience;
}

// exceeds takes the cost of one from a bucket, if that has it.
INLINE int exceeds(struct bucket *b, const volatile struct rate *r, u64 now)
{
	u64 past = (now - b->at) & -less(b->at, now), tokens, lacks;
	past = either(less(past, 1 << 24), past, 1 << 24);
	tokens = b->tokens + r->gain * past;
	tokens = either(less(tokens, r->most), tokens, r->most);
	lacks = less(tokens, r->cost);
	b->at = now;
	b->tokens = tokens - (r->cost & (lacks - 1));
	return lacks;
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

// ROOM is the place w of a bucket that a newcomer may take: of those that are not taken
// (0 or 1), the one that would be given up first. WAYS if all are.
#define ROOM(b, w, taken)                                     \
	({                                                    \
		u64 at_ = WAYS, keep_ = 1ull << 62;           \
		_Pragma("unroll")                             \
		for (int j = 0; j < WAYS; j++) {              \
			__typeof__(&(b)->way[j]) w = &(b)->way[j]; \
			u64 until_ = w->keep | (u64)(taken) << 62, first_ = less(until_, keep_); \
			at_ = either(first_, j, at_);         \
			keep_ = either(first_, until_, keep_); \
		}                                             \
		at_;                                          \
	})

INLINE int is_flow(const struct flow *f, const struct flow_key *k)
{
	return f->key.ends == k->ends && same(&f->key.far, &k->far) && same(&f->key.home, &k->home);
}

INLINE struct flow *find_flow(void *map, const struct flow_key *k, u32 hash)
{
	u32 i = hash & limits.flow_mask;
	struct flows *b = map_lookup(map, &i);
	u64 at = b ? FIND(b, is_flow, k) : WAYS;
	return b && at != WAYS ? AT(b, at, zero) : 0;
}

// take_flow returns a flow's place, a new one if it has none; 0 if there is no room. One
// that is answered takes the place of one that nobody answers.
INLINE struct flow *take_flow(void *map, const struct packet *p)
{
	u32 i = p->hash & limits.flow_mask;
	u64 now = p->now, at;
	struct flows *b = map_lookup(map, &i);
	struct flow *f;
	if (!b)
		return 0;
	at = FIND(b, is_flow, &p->key);
	if (at == WAYS)
		at = ROOM(b, w, less(now, w->keep) & (w->answered | (p->answered ^ 1)));
	if (at == WAYS)
		return 0;
	f = AT(b, at, zero);
	if (f->keep <= now || !is_flow(f, &p->key)) {
		__builtin_memset(f, 0, sizeof(*f));
		f->key = p->key;
	}
	return f;
}

INLINE int is_machine(const struct machine *m, const struct address *k) { return same(&m->key, k); }

// take_machine returns a machine's place; 0 if there is no room. number is where it is in
// its table, from 1.
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
		at = ROOM(b, w, less(now, w->keep));
	if (at == WAYS)
		return 0;
	*number = i * WAYS + at + 1;
	m = AT(b, at, zero);
	if (m->keep <= now) {
		__builtin_memset(m, 0, sizeof(*m));
		m->key = *k;
		m->heavy.tokens = s->heavy.most;
		m->heavy.at = now;
	}
	m->keep = now + limits.machine_for;
	return m;
}

// find_machine finds the packet's machine, for the rows that need it.
INLINE void find_machine(struct packet *p)
{
	struct address who = p->key.home;
	u64 h = p->of_home;
	u32 place;
	if (p->number) {
		who.word[0] = who.word[1] = who.word[2] = 0;
		who.word[3] = p->number;
		h = mixed(limits.seed, &who);
	}
	p->m = take_machine(p->up ? (void *)&machines_up : (void *)&machines_down, &who, hash_of(h), limits.machine_mask, p->s, p->now, &place);
}

INLINE int is_port(const struct port *p, const struct port_key *k)
{
	return p->key.port == k->port && same(&p->key.home, &k->home);
}

// is_swarm: most homes have none, and then nobody looks for the port.
INLINE int is_swarm(void *map, u32 side, const struct port_key *k, u32 hash, u64 now)
{
	u32 i = hash & limits.port_mask;
	u64 *until = map_lookup(&swarms, &side), at;
	struct ports *b = until && *until > now ? map_lookup(map, &i) : 0;
	at = b ? FIND(b, is_port, k) : WAYS;
	return b && at != WAYS && AT(b, at, key.zero)->swarm > now;
}

// partner counts a port's new partner; beyond the allowed number it is a swarm's.
INLINE void partner(void *map, u32 up, const struct port_key *k, u32 hash, const volatile struct side *s, u64 now)
{
	u32 i = hash & limits.port_mask;
	struct ports *b = map_lookup(map, &i);
	u64 at;
	struct port *p;
	if (!b)
		return;
	at = FIND(b, is_port, k);
	if (at == WAYS)
		at = ROOM(b, w, less(now, w->keep));
	if (at == WAYS)
		return;
	p = AT(b, at, key.zero);
	if (p->keep <= now) {
		p->key = *k;
		p->keep = p->swarm = 0;
		p->partners.tokens = s->peers.most;
		p->partners.at = now;
	}
	if (p->keep < now + limits.port_for)
		p->keep = now + limits.port_for;
	if (exceeds(&p->partners, &s->peers, now)) {
		u32 side = !up;
		u64 *until = map_lookup(&swarms, &side);
		p->swarm = now + limits.swarm_for;
		if (until)
			*until = p->swarm;
		if (p->keep < p->swarm)
			p->keep = p->swarm;
	}
}
