package delay

import "net/netip"

// A Target is what a Prober asks.
type Target struct {
	Addr     netip.Addr // of FirstHop: towards where the echo is sent that ends at the first hop
	Operator string     // targets of one operator tend to fail together
	Kind     Kind       // Echo: ICMP, with timestamps where they are answered; FirstHop; Native
}

// Resolvers returns the built-in reflectors: public name servers that are
// announced from many places, so that one is near everywhere. Each is documented
// by its operator as an address for the public. The first of an operator is its
// main one.
func Resolvers() []Target {
	var out []Target
	for _, o := range []struct {
		name  string
		addrs []string
	}{
		{"Cloudflare", []string{"1.1.1.1", "1.0.0.1", "2606:4700:4700::1111", "2606:4700:4700::1001"}},
		{"Google", []string{"8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844"}},
		{"Quad9", []string{"9.9.9.9", "149.112.112.112", "2620:fe::fe", "2620:fe::9"}},
		{"OpenDNS", []string{"208.67.222.222", "208.67.220.220", "2620:119:35::35", "2620:119:53::53"}},
		{"AdGuard", []string{"94.140.14.14", "94.140.15.15", "2a10:50c0::ad1:ff", "2a10:50c0::ad2:ff"}},
		{"CleanBrowsing", []string{"185.228.168.9", "185.228.169.9", "2a0d:2a00:1::2", "2a0d:2a00:2::2"}},
	} {
		for _, a := range o.addrs {
			out = append(out, Target{Addr: netip.MustParseAddr(a), Operator: o.name, Kind: Echo})
		}
	}
	return out
}

// Choose returns one target of each operator, of a family that the WAN has; IPv4
// goes before IPv6, because it has one-way times. The first hop is added, by way
// of the first target. What is not Echo stays as it is.
func Choose(of []Target, four, six bool) []Target {
	var out []Target
	best := map[string]int{}
	for _, t := range of {
		if t.Kind != Echo {
			out = append(out, t)
			continue
		}
		is4 := t.Addr.Unmap().Is4()
		if is4 && !four || !is4 && !six {
			continue
		}
		i, have := best[t.Operator]
		switch {
		case !have:
			best[t.Operator] = len(out)
			out = append(out, t)
		case is4 && !out[i].Addr.Unmap().Is4():
			out[i] = t
		}
	}
	return WithFirstHop(out)
}

// WithFirstHop adds the first hop on the way to the first of the reflectors.
func WithFirstHop(of []Target) []Target {
	for _, t := range of {
		if t.Kind == Echo {
			return append(of, Target{Addr: t.Addr, Kind: FirstHop})
		}
	}
	return of
}

// Few returns the first three reflectors, and the first hop: enough to tell how a line does
// whose rates are held, and each is asked three times a minute.
func Few(of []Target) (out []Target) {
	const few = 3
	for _, t := range of {
		if t.Kind != Echo || len(out) < few {
			out = append(out, t)
		}
	}
	return out
}

// Configured returns targets for addresses that the user named. Who operates
// them is not known: addresses of one network are taken for one operator's.
func Configured(addrs []netip.Addr) []Target {
	var out []Target
	for _, a := range addrs {
		out = append(out, Target{Addr: a.Unmap(), Operator: Network(a).String(), Kind: Echo})
	}
	return out
}
