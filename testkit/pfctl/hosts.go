package pfctl

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// An Interface is what pfctl(8) asks the kernel about a network interface.
type Interface struct {
	Name  string
	Speed uint64 // bit/s; 0: unknown
	MTU   int    // bytes
	// Addresses have the prefix lengths of their networks, such as
	// 192.168.1.1/24.
	Addresses []netip.Prefix
}

// A place is a kind of address in a rule.
type place int

const (
	masked  place = iota // an address and a mask; without both: any
	dynamic              // (em0): the address that the interface has when a packet arrives
	inTable
	noRoute
	noReverse // urpf-failed
	labelled
	spread // a range of addresses
)

// A host is one address in a rule.
type host struct {
	place place
	af    int // 4, 6; 0: both
	addr  netip.Addr
	bits  int
	last  netip.Addr
	name  string // of an interface, a table or a label
	mods  []string
	not   bool
}

// modifiers are the words that may follow an interface's name, in the order in
// which pfctl prints them.
func modifiers() []string { return []string{"network", "broadcast", "peer", "0"} }

// hostOrFail reads an address, and fails if it cannot.
func (p *parser) hostOrFail(s string) []host {
	h := p.host(s)
	if h == nil {
		p.fail("could not parse host specification")
	}
	return h
}

// host reads an address: the name of an interface, or a number. It looks no
// host names up.
func (p *parser) host(s string) []host {
	name, length, masked := s, "", false
	if i := strings.IndexByte(s, '/'); i >= 0 {
		name, length, masked = s[:i], s[i+1:], true
	}
	mask := -1
	if masked {
		n, err := strconv.Atoi(length)
		why := ""
		switch {
		case err != nil:
			why = "invalid"
		case n < 0:
			why = "too small"
		case n > 128:
			why = "too large"
		}
		if why != "" {
			if p.old {
				p.run.errln("invalid netmask '/%s'", length)
			} else {
				p.run.errln("netmask is %s: /%s", why, length)
			}
			return nil
		}
		mask = n
	}
	h := p.ofInterface(name, mask)
	if h == nil {
		h = p.numeric(name, mask)
	}
	if h == nil {
		p.run.errln("no IP address found for %s", s)
	}
	return h
}

// ofInterface returns the current addresses of an interface.
func (p *parser) ofInterface(name string, mask int) []host {
	base, mods, ok := splitModifiers(name)
	if !ok {
		return nil
	}
	modes := 0
	network := false
	for _, m := range mods {
		if m != "0" {
			modes++
		}
		network = network || m == "network" || m == "broadcast"
	}
	if modes > 1 {
		p.run.errln("illegal combination of interface modifiers")
		return nil
	}
	if network && mask > -1 {
		p.run.errln("network or broadcast lookup, but extra netmask given")
		return nil
	}
	var out []host
	for _, i := range p.run.Interfaces {
		if i.Name == base || base == "self" {
			out = append(out, i.hosts(mods)...)
		}
	}
	for n := range out {
		if mask > -1 {
			out[n].setMask(mask)
		}
	}
	return out
}

// splitModifiers splits :network and the like off a name. ok is false for an
// unknown modifier.
func splitModifiers(name string) (base string, mods []string, ok bool) {
	for {
		i := strings.LastIndexByte(name, ':')
		if i < 0 {
			return name, mods, true
		}
		switch m := name[i+1:]; m {
		case "network", "broadcast", "peer", "0":
			mods = append(mods, m)
		default:
			return "", nil, false
		}
		name = name[:i]
	}
}

// hosts returns an interface's addresses, its networks or its broadcast address.
func (i Interface) hosts(mods []string) (out []host) {
	want := map[string]bool{}
	for _, m := range mods {
		want[m] = true
	}
	got := map[int]bool{}
	for _, a := range i.Addresses {
		af := family(a.Addr())
		if want["peer"] || want["broadcast"] || want["0"] && got[af] {
			continue
		}
		got[af] = true
		h := host{af: af, addr: a.Addr(), bits: a.Addr().BitLen()}
		if want["network"] {
			h.setMask(a.Bits())
		}
		out = append(out, h)
	}
	return out
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// numeric reads an IPv4 or IPv6 address; 10/8 is 10.0.0.0/8.
func (p *parser) numeric(s string, mask int) []host {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		a = netip.Addr{}
		if mask < 0 {
			return nil
		}
		parts := strings.Split(s, ".")
		if len(parts) > 4 {
			return nil
		}
		for len(parts) < 4 {
			parts = append(parts, "0")
		}
		if a, err = netip.ParseAddr(strings.Join(parts, ".")); err != nil {
			return nil
		}
		if p.old && mask > 32 {
			return nil
		}
	}
	h := host{af: family(a), addr: a, bits: a.BitLen()}
	if p.old && h.af == 4 && mask > 32 {
		return nil
	}
	if mask > -1 {
		h.setMask(mask)
	}
	return []host{h}
}

// setMask sets the prefix length, and clears the host bits of the address.
func (h *host) setMask(bits int) {
	h.bits = bits
	if h.place != masked || !h.addr.IsValid() || bits > h.addr.BitLen() {
		return
	}
	if pre, err := h.addr.Prefix(bits); err == nil {
		h.addr = pre.Addr()
	}
}

// any reports whether the host stands for every address.
func (h host) any() bool {
	return h.place == masked && h.bits == 0 && (!h.addr.IsValid() || h.addr.IsUnspecified())
}

// text prints the address.
func (h host) text(af int) string {
	s := ""
	switch h.place {
	case inTable:
		return "<" + h.name + ">"
	case noRoute:
		return "no-route"
	case noReverse:
		return "urpf-failed"
	case labelled:
		return fmt.Sprintf("route %q", h.name)
	case spread:
		return h.addr.String() + " - " + h.last.String()
	case dynamic:
		s = "(" + h.name
		for _, m := range modifiers() {
			for _, own := range h.mods {
				if own == m {
					s += ":" + m
					break
				}
			}
		}
		s += ")"
	case masked:
		if h.any() {
			return "any"
		}
		s = h.addr.String()
	}
	if full := 128; h.bits < full && (af != 4 || h.bits < 32) {
		s += "/" + strconv.Itoa(h.bits)
	}
	return s
}

// hostItem reads one address of a list or a rule; nil: any.
func (p *parser) hostItem() []host {
	if p.accept("any") {
		return nil
	}
	not := p.accept("!")
	out := p.oneHost()
	for i := range out {
		out[i].not = not
	}
	return out
}

// oneHost reads an address without `!`.
func (p *parser) oneHost() []host {
	t := p.peek()
	switch {
	case p.accept("no-route"):
		return []host{{place: noRoute}}
	case p.accept("urpf-failed"):
		return []host{{place: noReverse}}
	case p.accept("<"):
		name := p.name()
		p.expect(">")
		if len(name) > 31 {
			p.fail("table name '%s' too long", name)
		}
		return []host{{place: inTable, name: name}}
	case p.accept("route"):
		name := p.name()
		if len(name) > 31 {
			p.fail("route label too long, max 31 chars")
		}
		return []host{{place: labelled, name: name}}
	case p.accept("("):
		h := p.dynamicHost(p.name())
		p.expect(")")
		if p.accept("/") {
			n := p.number()
			if n < 0 || n > 128 {
				p.fail("bit number too big")
			}
			h.bits = int(n)
		}
		return []host{h}
	case t.kind == number:
		p.take()
		p.expect("/")
		return p.hostOrFail(fmt.Sprintf("%d/%d", t.number, p.number()))
	case t.kind != str:
		p.syntax()
	}
	p.take()
	switch {
	case p.accept("/"):
		return p.hostOrFail(fmt.Sprintf("%s/%d", t.text, p.number()))
	case p.accept("-"):
		return p.hostRange(p.host(t.text), p.host(p.name()))
	}
	return p.hostOrFail(t.text)
}

func (p *parser) hostRange(from, to []host) []host {
	if from == nil || to == nil {
		p.fail("could not parse host specification")
	}
	full := func(h []host) bool { return len(h) == 1 && h[0].bits == h[0].addr.BitLen() }
	if !full(from) || !full(to) || from[0].af != to[0].af {
		p.fail("invalid address range")
	}
	from[0].place, from[0].last = spread, to[0].addr
	return from
}

// dynamicHost reads the part inside ( ): an interface, with modifiers.
func (p *parser) dynamicHost(s string) host {
	if s == "" || !isAlnum(int(s[0])) || isDigit(int(s[0])) {
		p.fail("invalid interface name '%s'", s)
	}
	name, mods, ok := splitModifiers(s)
	if !ok {
		p.fail("interface %s has bad modifier", s)
	}
	modes := 0
	for _, m := range mods {
		if m != "0" {
			modes++
		}
	}
	if modes > 1 {
		p.fail("illegal combination of interface modifiers")
	}
	if len(name) > maxInterface {
		p.fail("interface name too long")
	}
	return host{place: dynamic, name: name, mods: mods, bits: 128}
}

// hosts reads an address, or a list in { }.
func (p *parser) hosts() []host {
	if !p.is("{") {
		return p.hostItem()
	}
	var out []host
	any, first := false, true
	p.list(func() {
		var h []host
		if p.is("{") {
			h = p.hosts()
		} else {
			h = p.hostItem()
		}
		switch {
		case h == nil && (p.old || first):
			any = any || !p.old
		case h == nil:
			any = true
		}
		out, first = append(out, h...), false
	})
	if any {
		return nil
	}
	return out
}
