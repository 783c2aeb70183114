// SPDX-License-Identifier: Apache-2.0
//
// How a packet is read.

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

	// IPv6 first: to the verifier an address of IPv4 is then one that it has followed.
	if (skb->protocol == BE16(IPV6)) {
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
	} else if (skb->protocol == BE16(IPV4)) {
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
