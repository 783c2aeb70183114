package linux

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"unbloat/internal/cure/platform"
)

// Flows implements platform.Backend.
func (b *Backend) Flows(ctx context.Context) ([]platform.Flow, error) { return Carried(ctx, b.Runner) }

// Answers implements platform.Backend.
func (b *Backend) Answers(ctx context.Context, iface string, addresses []netip.Addr) []netip.Addr {
	return Answers(ctx, b.Runner, iface, addresses)
}

// Carried reads the connections that begin, end or are translated at an address of the router's
// own, by the interface that has it, with the packets of either direction. A forwarded
// connection that is not translated, as of IPv6, does not show by which interface it
// goes, and is left out. Where connection tracking counts no packets, an interface that has
// such connections is one flow, of all that it carries. None where connections can't be read.
func Carried(ctx context.Context, r platform.Runner) ([]platform.Flow, error) {
	text, err := tracking(ctx, r)
	if err != nil {
		return nil, err
	}
	networks, err := networksOf(ctx, r)
	if err != nil {
		return nil, err
	}
	own := map[netip.Addr]string{}
	for iface, all := range networks {
		for _, n := range all {
			own[n.Addr()] = iface
		}
	}
	var out []platform.Flow
	counted := map[string]bool{} // of each interface with connections
	for line := range strings.Lines(string(text)) {
		e := entryOf(line)
		f := platform.Flow{Key: e.protocol + " " + e.from.String() + " " + e.to.String(), Far: e.to.Addr(), Out: int64(e.there.packets), In: int64(e.back.packets)}
		from, to, back := own[e.from.Addr()], own[e.to.Addr()], own[e.answersTo.Addr()]
		switch {
		case !e.from.IsValid() || !e.to.IsValid() || from != "" && to != "":
			continue
		case back != "": // it went out, perhaps translated
			f.Interface = back
		case to != "": // it came in
			f.Interface, f.Far, f.Out, f.In = to, e.from.Addr(), f.In, f.Out
		default:
			continue
		}
		counted[f.Interface] = counted[f.Interface] || f.Out+f.In > 0
		out = append(out, f)
	}
	return append(out, uncounted(ctx, r, counted)...), nil
}

// uncounted returns a flow for each interface of whose connections no packets are counted.
func uncounted(ctx context.Context, r platform.Runner, counted map[string]bool) (out []platform.Flow) {
	text, err := platform.Output(ctx, r, "cat", "/proc/net/dev")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		end := strings.LastIndexByte(line, ':') // a name may have one too
		if end < 0 {
			continue
		}
		iface, n := strings.TrimSpace(line[:end]), strings.Fields(line[end+1:])
		if has, known := counted[iface]; has || !known || len(n) < 10 {
			continue
		}
		const received, sent = 1, 9 // fields: packets
		in, errIn := strconv.ParseInt(n[received], 10, 64)
		gone, errOut := strconv.ParseInt(n[sent], 10, 64)
		if errIn == nil && errOut == nil {
			out = append(out, platform.Flow{Interface: iface, In: in, Out: gone})
		}
	}
	return out
}

// Answers returns those addresses that answer one ping(8) out of the interface within a second.
// All are asked at once.
func Answers(ctx context.Context, r platform.Runner, iface string, addresses []netip.Addr) []netip.Addr {
	heard := make([]bool, len(addresses))
	var asking sync.WaitGroup
	for i, a := range addresses {
		asking.Go(func() {
			_, err := platform.Output(ctx, r, "ping", "-c", "1", "-W", "1", "-I", iface, a.String())
			heard[i] = err == nil
		})
	}
	asking.Wait()
	var out []netip.Addr
	for i, a := range addresses {
		if heard[i] {
			out = append(out, a)
		}
	}
	return out
}
