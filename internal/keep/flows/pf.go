package flows

import (
	"net/netip"
	"strconv"
	"strings"

	"unbloat/unit"
)

// Protocols of pf's states, by IP's number.
func protocolOf(name string) (uint8, bool) {
	switch name {
	case "tcp":
		return 6, true
	case "udp":
		return 17, true
	case "icmp":
		return 1, true
	case "ipv6-icmp", "icmp6":
		return 58, true
	case "sctp":
		return 132, true
	}
	return 0, false
}

// States calls f for each state between home and elsewhere that `pfctl -ss -v`
// printed. A state is a line that is not indented, and lines that are.
//
//	all tcp 203.0.113.2:61234 (192.168.1.5:52345) -> 198.51.100.9:443       ESTABLISHED:ESTABLISHED
//	   [1234 + 65535] wscale 7  [5678 + 65535] wscale 7
//	   age 00:01:02, expires in 23:59:59, 10:8 pkts, 1234:5678 bytes, rule 12
func States(text string, home func(netip.Addr) bool, f func(Flow)) {
	var is Flow
	var begun, have bool
	flush := func() {
		if have {
			f(is)
		}
		have = false
	}
	for line := range strings.Lines(text) {
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			flush()
			is, begun, have = stateOf(line, home)
			continue
		}
		if !have {
			continue
		}
		for part := range strings.SplitSeq(line, ",") {
			numbers, what, _ := strings.Cut(strings.TrimSpace(part), " ")
			a, b, both := strings.Cut(numbers, ":")
			if !both || what != "pkts" && what != "bytes" {
				continue
			}
			x, errX := strconv.ParseUint(a, 10, 62)
			y, errY := strconv.ParseUint(b, 10, 62)
			switch {
			case errX != nil || errY != nil:
			case what == "pkts":
				is.Packets, is.Answered = x+y, y > 0
				if is.UpPackets, is.DownPackets = x, y; !begun {
					is.UpPackets, is.DownPackets = y, x
				}
			case begun:
				is.Up, is.Down = unit.Size(x), unit.Size(y)
			default:
				is.Up, is.Down = unit.Size(y), unit.Size(x)
			}
		}
	}
	flush()
}

// stateOf reads the first line of a state. With "->" the first end began, with "<-"
// the second did. Of a state that leaves, the first end is followed by what it was
// before NAT, in brackets; of one that arrives the first end is what a redirection
// made of it, and in brackets is what it was.
func stateOf(line string, home func(netip.Addr) bool) (f Flow, begun, ok bool) {
	w := strings.Fields(line)
	if len(w) < 5 {
		return f, false, false
	}
	if f.Protocol, ok = protocolOf(w[1]); !ok {
		return f, false, false
	}
	var ends [2]netip.AddrPort
	var before netip.AddrPort
	at, out := 0, false
	for _, x := range w[2:] {
		switch {
		case x == "->" || x == "<-":
			if at == 1 {
				return f, false, false
			}
			at, out = 1, x == "->"
		case strings.HasPrefix(x, "("):
			if at == 0 {
				before, _ = endOf(strings.Trim(x, "()"))
			}
		case !ends[at].IsValid():
			if ends[at], ok = endOf(x); !ok {
				return f, false, false
			}
		}
	}
	if !ends[0].IsValid() || !ends[1].IsValid() {
		return f, false, false
	}
	var translated netip.AddrPort
	switch {
	case out && before.IsValid():
		translated, ends[0] = ends[0], before
	case before.IsValid(): // a redirection: the WAN shows what it was before
		translated = before
	}
	const tcp, udp, sctp = 6, 17, 132
	if f.Protocol != tcp && f.Protocol != udp && f.Protocol != sctp { // of ICMP they are its kind
		ends[0], ends[1] = netip.AddrPortFrom(ends[0].Addr(), 0), netip.AddrPortFrom(ends[1].Addr(), 0)
	}
	first, second := ends[0], ends[1]
	if !out {
		first, second = second, first
	}
	f.Home, f.Far, begun, ok = HomeEnds(home, first, second, second)
	f.Begun, f.Shown = begun, translated
	return f, begun, ok
}

// endOf reads an end: 192.0.2.1:443, 2001:db8::1[443], or an address alone.
func endOf(s string) (netip.AddrPort, bool) {
	address, port, bracketed := strings.Cut(s, "[")
	switch {
	case bracketed:
		port = strings.TrimSuffix(port, "]")
	case strings.Count(s, ":") == 1:
		address, port, _ = strings.Cut(s, ":")
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, false
	}
	n := uint64(0)
	if port != "" {
		if n, err = strconv.ParseUint(port, 10, 16); err != nil {
			return netip.AddrPort{}, false
		}
	}
	return netip.AddrPortFrom(a.WithZone(""), uint16(n)), true
}
