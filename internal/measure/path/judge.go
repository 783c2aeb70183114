package path

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// Bounds of a judgement.
const (
	// MinAnswers is how many answers a hop needs, in each phase, to be compared.
	MinAnswers = 5
	// Threshold is the increase from which a hop counts as slower: the goal for the
	// whole line.
	Threshold = 5 * time.Millisecond
	// minLoad is the smallest load that is worth a judgement.
	minLoad = 100 * unit.KbitPerSecond
	// minLossRise is the smallest rise of loss that is reported.
	minLossRise = 0.05
)

// Capabilities have what Judge needs besides the hops.
type Capabilities struct {
	Time     time.Time
	Host     string
	Target   netip.Addr
	Source   netip.Addr // of this machine
	Method   string
	Size     unit.Size
	Interval time.Duration
	Reached  bool
	Load     *Load                 // nil: idle only
	HomeHops int                   // how many hops belong to the home; negative: guess
	Names    map[netip.Addr]string // reverse DNS, as far as it is known
	CPU      float64               // busiest share, 0–1
	Lateness []time.Duration
	Notes    []string
	Marked   bool         // marks were sent
	Server   []ServerMark // as the load's server saw them, idle
	Marks    []ServerMark // under load
}

// Judge finds where the increase starts, from the figures of the hops.
func Judge(hops []Hop, f Capabilities) *Result {
	r := &Result{
		Schema: Schema, Time: f.Time.UTC().Format(time.RFC3339), Host: f.Host, Address: f.Target.String(),
		Source: text(f.Source), Method: f.Method, PacketBytes: f.Size, IntervalMs: unit.Ms(f.Interval),
		InvalidReasons: []string{}, Notes: append([]string{}, f.Notes...), Reached: f.Reached,
		Load: f.Load, Hops: []HopFigures{}, CPU: f.CPU, HomeHops: f.HomeHops,
	}
	if r.HomeHops < 0 {
		r.HomeHops = GuessHome(f.Source, hops)
	}
	if n := len(f.Lateness); n > 0 {
		q := verdict.Summarise(append([]time.Duration(nil), f.Lateness...))
		r.LatenessMs = Lateness{q.P99, q.Max}
	}
	for _, h := range hops {
		r.Hops = append(r.Hops, r.hop(h, f.Names))
	}
	r.confirm()
	r.validate()
	if r.Load != nil {
		r.Begins = r.begins()
	}
	if f.Marked {
		r.Marks = judgeMarks(hops, f.Server, f.Marks)
	}
	r.Verdict = r.sentence()
	r.remark()
	return r
}

// text prints an address; the zero one is "".
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func (r *Result) hop(h Hop, names map[netip.Addr]string) HopFigures {
	out := HopFigures{
		Hop: h.TTL, Address: text(h.Addr()), Name: names[h.Addr()], Place: r.place(h.TTL),
		Destination: h.Destination, Refusal: h.Refusal, Idle: figures(h.Idle), Loaded: figures(h.Loaded),
	}
	for _, a := range h.Addrs[min(1, len(h.Addrs)):] {
		out.Others = append(out.Others, a.String())
	}
	if i, l := out.Idle, out.Loaded; i != nil && l != nil && i.Received >= MinAnswers && l.Received >= MinAnswers {
		base := i.RTTMs.P50
		out.Increase = &Increase{P50: round(l.RTTMs.P50 - base), P95: round(l.RTTMs.P95 - base)}
	}
	return out
}

// place returns the place of the link that leads to a hop.
func (r *Result) place(hop int) Place {
	switch {
	case hop <= r.HomeHops:
		return Home
	case hop == r.HomeHops+1:
		return Uplink
	}
	return Provider
}

// GuessHome guesses how many hops belong to the home: the first, which is the
// router, and hops after it with addresses of 192.168.0.0/16 or local IPv6
// addresses. Other private addresses beyond the first hop may be the provider's.
// If this machine's own address is not a home's, because it is the router itself or
// is connected to a modem, the home has no hop.
func GuessHome(source netip.Addr, hops []Hop) int {
	if s := source.Unmap(); s.Is4() && !s.IsPrivate() && !s.IsLoopback() && !s.IsLinkLocalUnicast() {
		return 0
	}
	last := len(hops)
	if last > 0 && hops[last-1].Destination {
		last-- // the destination may be in the home, but has no hop behind it
	}
	home := 1
	for home < last && inHome(hops[home].Addr()) {
		home++
	}
	return home
}

// inHome reports whether an address is used in homes only.
func inHome(a netip.Addr) bool {
	if a.Is6() {
		return a.IsPrivate() || a.IsLinkLocalUnicast()
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168}), 16).Contains(a)
}

// confirm computes the part of each hop's increase that all hops behind it have too.
// A router that answers slowly but forwards quickly does not delay traffic.
func (r *Result) confirm() {
	least := Increase{math.Inf(1), math.Inf(1)}
	for i := len(r.Hops) - 1; i >= 0; i-- {
		h := &r.Hops[i]
		if h.Increase == nil {
			continue
		}
		least = Increase{min(least.P50, h.Increase.P50), min(least.P95, h.Increase.P95)}
		h.Confirmed = &Increase{least.P50, least.P95}
	}
}

// validate lists the reasons why the trace is invalid.
func (r *Result) validate() {
	bad := func(format string, args ...any) {
		r.InvalidReasons = append(r.InvalidReasons, fmt.Sprintf(format, args...))
	}
	answered, compared := 0, 0
	for _, h := range r.Hops {
		if h.Idle != nil && h.Idle.Received > 0 || h.Loaded != nil && h.Loaded.Received > 0 {
			answered++
		}
		if h.Increase != nil {
			compared++
		}
	}
	switch {
	case answered == 0:
		bad("nothing on the way answered (a firewall may drop what routers answer)")
	case r.Hops[0].Refusal != "":
		bad("the path ends at once: %s says %s", r.Hops[0].Address, r.Hops[0].Refusal)
	case r.Load != nil && compared == 0:
		bad("no hop answered %d probes both idle and under load; measure for longer", MinAnswers)
	}
	if l := r.Load; l != nil {
		if l.Direction != "up" && l.GoodputDownBps < float64(minLoad) {
			bad("the download moved next to nothing")
		}
		if l.Direction != "down" && l.GoodputUpBps < float64(minLoad) {
			bad("the upload moved next to nothing")
		}
	}
	if r.Load != nil && r.CPU > verdict.MaxCPU {
		bad("this machine's processor was %.0f %% busy: its own delays may be in the figures", 100*r.CPU)
	}
	r.Valid = len(r.InvalidReasons) == 0
}

// begins finds the link that adds most: by the medians if they rise, else by the p95,
// which shows a queue that comes and goes.
func (r *Result) begins() *Beginning {
	for _, s := range statistics() {
		if b := r.largestStep(s); b != nil {
			return b
		}
	}
	return nil
}

// A statistic is a measure of increases. An idle path may have peaks of its own, so
// a p95 counts only above twice the idle p95.
type statistic struct {
	name string
	of   func(Increase) float64
	idle func(*Figures) float64 // what the idle hop itself varies by
}

func statistics() []statistic {
	return []statistic{
		{"p50", func(i Increase) float64 { return i.P50 }, func(*Figures) float64 { return 0 }},
		{"p95", func(i Increase) float64 { return i.P95 }, func(f *Figures) float64 { return 2 * (f.RTTMs.P95 - f.RTTMs.P50) }},
	}
}

// largestStep returns the link over which the confirmed increase grows most,
// if the whole of it counts.
func (r *Result) largestStep(s statistic) *Beginning {
	var best *Beginning
	before, after, afterAddr, biggest := 0.0, 0, "", 0.0
	last := -1
	for i, h := range r.Hops {
		if h.Confirmed == nil {
			continue
		}
		last = i
		v := s.of(*h.Confirmed)
		if step := v - before; step > biggest {
			biggest = step
			best = &Beginning{Hop: h.Hop, After: after, Statistic: s.name, Address: h.Address, AfterAddr: afterAddr}
		}
		before, after, afterAddr = max(before, v), h.Hop, h.Address
	}
	if best == nil {
		return nil
	}
	end := r.Hops[last]
	best.IncreaseMs = round(s.of(*end.Confirmed))
	if best.IncreaseMs < max(unit.Ms(Threshold), s.idle(end.Idle)) {
		return nil
	}
	best.Unconfirmed = best.Hop == end.Hop && !end.Destination
	best.Place = r.linkPlace(best.After, best.Hop)
	return best
}

// linkPlace returns the place of a link that may span silent hops. It is in the home
// only if all of it is, and the provider's only if the uplink is not part of it.
func (r *Result) linkPlace(after, hop int) Place {
	switch {
	case hop <= r.HomeHops:
		return Home
	case after > r.HomeHops:
		return Provider
	}
	return Uplink
}
