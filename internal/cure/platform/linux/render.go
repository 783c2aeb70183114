package linux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// Render writes tc(8) and nft(8) commands; a plan in an article's style gives
// the article's own commands.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	if p.Basis != nil && p.Basis.Preferences.Style == plan.StyleArticle && likeArticle(p.Up) && likeArticle(p.Down) {
		return article(p), nil, nil
	}
	commands, err := UntouchedCommands(p)
	if err != nil {
		return nil, nil, err
	}
	var parts []platform.PlanPart
	if off := OffloadCommands(p); len(off) > 0 {
		parts = append(parts, platform.PlanPart{Where: "the shaper has to see packets as the line does:", Text: platform.PlanLines(off)})
	}
	if w := wantedPrograms(p); w != nil {
		parts = append(parts, platform.PlanPart{Where: "the classes, by a BPF program on the shaper, which unbloat itself loads on the router:",
			Text: "unbloat classifier load " + w.Keys[0] + " <<'END'\n" + asInput(*w.Load) + "END\n"})
	}
	parts = append(parts, platform.PlanPart{Where: "now, as root; `unbloat apply` does the same as one transaction that can be undone:", Text: platform.PlanLines(commands)})
	return append(parts, table(p)...), nil, nil
}

// table writes the nftables table of a plan's classes, and the resolver's
// configuration for rules that name domains.
func table(p plan.Plan) []platform.PlanPart {
	t := nft.Render(p, tc.OurRoot)
	if t.Text == "" {
		return nil
	}
	if t.IsShortWay() {
		return []platform.PlanPart{{Where: "the flow table, by nftables, which carries established connections the short way:", Text: "nft -f - <<'END'\n" + t.Load(nft.Table{}) + "END\n"}}
	}
	parts := []platform.PlanPart{{Where: "what rules name, by nftables:",
		Text: "nft -f - <<'END'\n" + t.Load(nft.Table{}) + "END\n"}}
	return append(parts, ResolverPart(p, "/etc/dnsmasq.d")...)
}

// ResolverPart writes dnsmasq's configuration, a file in dir, for rules that
// name domains; nil if no rule does.
func ResolverPart(p plan.Plan, dir string) []platform.PlanPart {
	text := nft.ResolverFile(p)
	if text == "" {
		return nil
	}
	return []platform.PlanPart{{Where: "domains: a file in " + dir + " (dnsmasq 2.87 or newer, built with nftset), so that their addresses come into the table's sets",
		Text: "cat > " + dir + "/" + nft.ResolverName(p.WAN) + " <<'END'\n" + text + "END\n"}}
}

// OffloadCommands returns a plan's ethtool(8) commands, one per device.
func OffloadCommands(p plan.Plan) (commands [][]string) {
	for _, o := range p.Offloads {
		i := slices.IndexFunc(commands, func(c []string) bool { return c[2] == o.Device })
		if i < 0 {
			i, commands = len(commands), append(commands, []string{"ethtool", "-K", o.Device})
		}
		commands[i] = append(commands[i], o.Feature, "off")
	}
	return commands
}

// states returns an untouched router, and the router that the plan wants.
func states(p plan.Plan) (now, want tc.State, err error) {
	mtu := 1500
	if p.Basis != nil && p.Basis.Capabilities.MTU != 0 {
		mtu = p.Basis.Capabilities.MTU
	}
	ifb := ""
	if p.Down != nil && p.Down.IngressOf != "" {
		ifb = p.Down.Device
	}
	for _, name := range tc.Scope(p) {
		d := tc.Device{Name: name}
		if name != ifb {
			d.Exists, d.Up, d.MTU = true, true, mtu
		}
		now.Devices = append(now.Devices, d)
	}
	if want, err = tc.Desire(p, now, false); err == nil {
		err = attachPrograms(&want, p, wantedPrograms(p))
	}
	return now, want, err
}

// UntouchedCommands returns the tc(8) commands that apply a plan to an
// untouched router. The error says what tc cannot do.
func UntouchedCommands(p plan.Plan) ([][]string, error) {
	now, want, err := states(p)
	if err != nil {
		return nil, err
	}
	commands := tc.Commands(now, want)
	out := make([][]string, len(commands))
	for i, c := range commands {
		out[i] = c
	}
	return out, nil
}

// likeArticle reports whether the tc article's three commands can express the
// shaper.
func likeArticle(s *plan.Shaper) bool {
	return s == nil || s.IngressOf == "" && (s.AQM == plan.FQCoDel || s.AQM == plan.FIFO)
}

// article writes the tc article's three commands for each direction, with its
// reasons.
func article(p plan.Plan) []platform.PlanPart {
	var parts []platform.PlanPart
	for _, s := range []*plan.Shaper{p.Up, p.Down} {
		if s == nil {
			continue
		}
		parts = append(parts,
			platform.PlanPart{Where: "one bucket for all traffic; classid 1:1 is its default",
				Text: fmt.Sprintf("tc qdisc add dev %s root handle 1: htb default 1\n", s.Device)},
			platform.PlanPart{Where: "the rate must be lower than the available bandwidth, so that packets are not buffered by the modem",
				Text: fmt.Sprintf("tc class add dev %s parent 1: classid 1:1 htb rate %s quantum %d\n", s.Device, tcRate(s.Rate), s.ClassQ)},
			platform.PlanPart{Where: leafWhy(s), Text: fmt.Sprintf("tc qdisc add dev %s parent 1:1 %s\n", s.Device, leaf(s))})
	}
	return parts
}

// leafWhy returns the article's reason for the queue below the shaper.
func leafWhy(s *plan.Shaper) string {
	if s.AQM == plan.FIFO {
		return "a FIFO that is short enough"
	}
	if s.Target == 0 {
		return "drops by delay, not by length, and shares the rate between flows; its defaults fit this rate"
	}
	why := fmt.Sprintf("a 1500-byte packet takes about %.0f ms at %s, so the target is more than the default of 5 ms",
		unit.Ms(s.Rate.Time(1500)), s.Rate)
	if !s.ECN {
		why += "; ECN is off, as recommended for uplinks of less than 4 Mbit/s"
	}
	return why
}

// leaf writes the queue as the article does: without options that are not set.
func leaf(s *plan.Shaper) string {
	w := []string{"fq_codel"}
	if s.AQM == plan.FIFO {
		return "pfifo limit " + strconv.Itoa(s.Limit)
	}
	add := func(set bool, words ...string) {
		if set {
			w = append(w, words...)
		}
	}
	add(s.Limit != 0, "limit", strconv.Itoa(s.Limit))
	add(s.Flows != 0, "flows", strconv.Itoa(s.Flows))
	add(s.Quantum != 0, "quantum", strconv.FormatInt(int64(s.Quantum), 10))
	add(s.Target != 0, "target", strconv.FormatFloat(unit.Ms(s.Target), 'f', -1, 64)+"ms")
	add(s.Interval != 0, "interval", strconv.FormatFloat(unit.Ms(s.Interval), 'f', -1, 64)+"ms")
	add(!s.ECN, "noecn")
	return strings.Join(w, " ")
}

// tcRate formats a rate as people write it: 13mbit, 950kbit.
func tcRate(r unit.Rate) string {
	if r%unit.MbitPerSecond == 0 {
		return strconv.FormatInt(int64(r/unit.MbitPerSecond), 10) + "mbit"
	}
	return r.Tc()
}
