package linux

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// Connections reads those of the home's machines, and the class of each, from connection
// tracking and the table's sets; nil if connection tracking can't be read.
func Connections(ctx context.Context, r platform.Runner, p plan.Plan) []platform.Connection {
	if p.Classes.ByBPF() {
		return programConnections(ctx, r, p)
	}
	out, err := tracking(ctx, r)
	if err != nil {
		return nil
	}
	home, sets := homeOf(ctx, r, p.WAN), setsOf(ctx, r, p.WAN)
	var all []platform.Connection
	for line := range strings.Lines(string(out)) {
		f, up, down, ok := listed(line, home)
		if !ok {
			continue
		}
		carried := func(d plan.Direction, h half) platform.Carried {
			f.Packet = h.bytes / max(h.packets, 1)
			class, ok := platform.ByRules(p, d, f, up.bytes+down.bytes, inSets(f, sets))
			if !ok {
				return platform.Carried{Bytes: h.bytes, Class: plan.Normal} // every flow is treated alike
			}
			return platform.Carried{Bytes: h.bytes, Class: class.Class, Why: class.Code.Name()}
		}
		all = append(all, platform.Connection{Protocol: f.Protocol, Home: f.Home, Far: f.Far, Up: carried(plan.DirectionUp, up), Down: carried(plan.DirectionDown, down)})
	}
	return all
}

// decided returns the classes of flows.
func decided(ctx context.Context, r platform.Runner, p plan.Plan) func(f classify.Flow, d plan.Direction, carried unit.Size) (platform.Decided, bool) {
	if p.Classes.ByBPF() {
		return decidedByProgram(ctx, r, p)
	}
	sets := setsOf(ctx, r, p.WAN)
	return func(f classify.Flow, d plan.Direction, carried unit.Size) (platform.Decided, bool) {
		return platform.ByRules(p, d, f, carried, inSets(f, sets))
	}
}

// tracking returns what connection tracking lists, from /proc or by conntrack(8).
func tracking(ctx context.Context, r platform.Runner) (out []byte, err error) {
	if out, err = platform.Output(ctx, r, "cat", "/proc/net/nf_conntrack"); err == nil {
		return out, nil
	}
	out = nil
	for _, family := range []string{"ipv4", "ipv6"} {
		text, err := platform.Output(ctx, r, "conntrack", "-L", "-f", family, "-o", "extended")
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	return out, nil
}

// homeOf returns a function that reports whether an address is in the home: in
// a network of any interface but the WAN, router included.
func homeOf(ctx context.Context, r platform.Runner, wan string) func(netip.Addr) bool {
	networks, err := networksOf(ctx, r)
	if err != nil {
		return func(netip.Addr) bool { return false }
	}
	var nets []netip.Prefix
	for dev, all := range networks {
		for _, n := range all {
			if dev == wan {
				nets = append(nets, netip.PrefixFrom(n.Addr(), n.Addr().BitLen()))
			} else {
				nets = append(nets, n.Masked())
			}
		}
	}
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) })
	}
}

// networksOf are the router's own addresses with their networks, by interface, but for
// those of the loopback and of the link alone.
func networksOf(ctx context.Context, r platform.Runner) (map[string][]netip.Prefix, error) {
	out, err := platform.Output(ctx, r, "ip", "-j", "addr", "show")
	if err != nil {
		return nil, toolError("read the addresses", "ip", "iproute2", err)
	}
	all, err := tc.ParseAddresses(out)
	if err != nil {
		return nil, fmt.Errorf("read the addresses: %w", err)
	}
	for dev, nets := range all {
		all[dev] = slices.DeleteFunc(nets, func(n netip.Prefix) bool { return n.Addr().IsLoopback() || n.Addr().IsLinkLocalUnicast() })
		if len(all[dev]) == 0 {
			delete(all, dev)
		}
	}
	return all, nil
}

// lanOf returns the interface towards the home, and whether every machine is behind it. One
// that is not named is found where this router forwards and no other interface but the
// WAN has a network.
func lanOf(ctx context.Context, r platform.Runner, wan, lan string) (name string, only bool) {
	networks, err := networksOf(ctx, r)
	delete(networks, wan)
	if err != nil || len(networks) != 1 {
		return lan, false
	}
	if lan != "" {
		return lan, networks[lan] != nil
	}
	if out, err := platform.Output(ctx, r, "cat", "/proc/sys/net/ipv4/ip_forward"); err != nil || strings.TrimSpace(string(out)) != "1" {
		return "", false
	}
	for name = range networks {
	}
	return name, true
}

// setsOf returns a function that looks up keys in the sets of a WAN's table. Each set is
// listed only once.
func setsOf(ctx context.Context, r platform.Runner, wan string) func(set, key string) bool {
	table := sync.OnceValue(func() string { return ReadTable(ctx, r, wan).Name() })
	sets := map[string]map[string]bool{}
	numbered := strings.NewReplacer("tcp . ", "6 . ", "udp . ", "17 . ") // nft -n lists protocols by number
	return func(set, key string) bool {
		keys, ok := sets[set]
		if !ok {
			out, _ := platform.Output(ctx, r, "nft", "-n", "list", "set", nft.Family, table(), set)
			keys = elementsOf(string(out))
			sets[set] = keys
		}
		return keys[numbered.Replace(key)]
	}
}

// elementsOf returns the keys in the listing of a set. What else is said of an element,
// such as when it expires, is taken for keys too, and no key looks like that.
func elementsOf(listing string) map[string]bool {
	keys := map[string]bool{}
	_, elements, _ := strings.Cut(listing, "elements = {")
	words := strings.Fields(strings.ReplaceAll(elements, ",", " "))
	for i := 0; i < len(words); i++ {
		from := i
		for i+2 < len(words) && words[i+1] == "." {
			i += 2
		}
		keys[strings.Join(words[from:i+1], " ")] = true
	}
	return keys
}

// A half holds a connection's counters in one direction.
type half struct {
	bytes   unit.Size
	packets unit.Size
}

// An entry is one line of connection tracking.
type entry struct {
	protocol           string
	from, to           netip.AddrPort // of the connection's first packet
	answers, answersTo netip.AddrPort // of its replies
	there, back        half
}

// entryOf reads one line of connection tracking; missing fields are zero.
func entryOf(line string) entry {
	var e entry
	values := map[string][]string{}
	for w := range strings.FieldsSeq(line) {
		if k, v, is := strings.Cut(w, "="); is {
			values[k] = append(values[k], v)
		} else if w == "tcp" || w == "udp" || w == "sctp" {
			e.protocol = w
		}
	}
	end := func(i int, which string) netip.AddrPort {
		if i >= len(values[which]) || i >= len(values[which[:1]+"port"]) {
			return netip.AddrPort{}
		}
		addr, err := netip.ParseAddr(values[which][i])
		n, _ := strconv.ParseUint(values[which[:1]+"port"][i], 10, 16)
		if err != nil {
			return netip.AddrPort{}
		}
		return netip.AddrPortFrom(addr, uint16(n))
	}
	e.from, e.to, e.answers, e.answersTo = end(0, "src"), end(0, "dst"), end(1, "src"), end(1, "dst")
	carried := func(i int) (h half) {
		if i < len(values["bytes"]) && i < len(values["packets"]) {
			n, _ := strconv.ParseInt(values["bytes"][i], 10, 64)
			k, _ := strconv.ParseInt(values["packets"][i], 10, 64)
			h = half{unit.Size(n), unit.Size(k)}
		}
		return h
	}
	e.there, e.back = carried(0), carried(1)
	return e
}

// listed reads one line of connection tracking; ok is false unless it is a TCP
// or UDP connection between home and internet.
func listed(line string, home func(netip.Addr) bool) (f classify.Flow, up, down half, ok bool) {
	e := entryOf(line)
	f.Protocol, up, down = e.protocol, e.there, e.back
	switch {
	case e.protocol != "tcp" && e.protocol != "udp":
		return
	case home(e.from.Addr()) && !home(e.answers.Addr()):
		f.Home, f.Far = e.from, e.to
	case home(e.answers.Addr()) && !home(e.from.Addr()):
		f.Home, f.Far = e.answers, e.from
		up, down = down, up
	default:
		return
	}
	return f, up, down, true
}
