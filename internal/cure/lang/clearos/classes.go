package clearos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/reason"
	"unbloat/unit"
)

// RulesKey is qos.conf's list of rules. Ours come before the user's.
const RulesKey = "QOS_PRIOMARK4"

// rulePrefix begins the names of our rules.
const rulePrefix = "unbloat-"

// bands are ClearOS's seven priorities.
const bands = 7

// OwnEngine returns what ClearOS's own engine supports.
func OwnEngine() *plan.Engine {
	return &plan.Engine{
		Name:     "ClearOS's own engine",
		NotAlone: reason.Of(reason.ClearOSNotAlone),
		Names:    reason.Of(reason.ClearOSNames),
		Bands:    bands,
		BandRate: unit.KbitPerSecond,
		BandWhy:  reason.Of(reason.ClearOSBands),
		NoIPv6:   reason.Of(reason.ClearOSBandsIPv6),
	}
}

// band returns the priority of a class; lower goes first. The last one takes
// what no rule marks.
func band(c plan.Class) int {
	return map[plan.Class]int{plan.Voice: 0, plan.Interactive: 1, plan.Normal: 3, plan.Bulk: 5}[c]
}

// reserve returns each band's guarantee and limit, in percent of the rate. A
// band without a class keeps the least that HTB accepts: HTB sends unmarked
// packets to one of them. It returns an error if the classes leave too little.
func reserve(shares []plan.Share, s plan.Shaper) (res, limit string, err error) {
	sure, most := make([]int, bands), make([]int, bands)
	sum, least := 0, OwnEngine().BandShare(s.Rate)
	for i := range bands {
		sure[i], most[i] = least, 100
		for _, sh := range shares {
			if band(sh.Class) != i {
				continue
			}
			sure[i] = max(int(sh.Guarantee*100/s.Rate), least)
			if sh.Limit > 0 {
				most[i] = min(max(int((sh.Limit*100+s.Rate-1)/s.Rate), sure[i]), 100)
			}
		}
		sum += sure[i]
	}
	if sum > 100 {
		return "", "", fmt.Errorf("the classes are guaranteed %d %% of the rate, and ClearOS has 100 to give, %d of them for bands without a class; guarantee less", sum, (bands-len(shares))*least)
	}
	sure[band(plan.Normal)] += 100 - sum // otherwise the engine distributes it from the first band on
	return percents(sure), percents(most), nil
}

func percents(list []int) string {
	out := "*"
	for _, n := range list {
		out += ":" + strconv.Itoa(n)
	}
	return out
}

// rules returns the rules of both directions in the order of ClearOS's engine.
// Each rule marks and the last match wins, so the default comes first and the
// plan's first rule last.
func rules(p plan.Plan) string {
	var out []string
	for _, d := range []struct {
		way    plan.Direction
		kind   string // of the rule: 0 up, 1 down
		shares []plan.Share
	}{{plan.DirectionUp, "0", p.Classes.Up}, {plan.DirectionDown, "1", p.Classes.Down}} {
		if d.shares == nil {
			continue
		}
		add := func(c plan.Class, proto, home, homePort, far, farPort string) {
			from, fromPort, to, toPort := home, homePort, far, farPort
			if d.way == plan.DirectionDown {
				from, fromPort, to, toPort = far, farPort, home, homePort
			}
			out = append(out, strings.Join([]string{fmt.Sprintf("%s%03d", rulePrefix, len(out)), p.WAN, "1", d.kind, strconv.Itoa(band(c)), proto, from, fromPort, to, toPort}, "|"))
		}
		add(plan.Normal, "-", "-", "-", "-", "-")
		add(plan.Voice, "icmp", "-", "-", "-", "-")
		add(plan.Voice, "tcp", "-", "-", "-", "53")
		add(plan.Voice, "udp", "-", "-", "-", "53")
		for _, r := range slices.Backward(p.Classes.Rules) {
			if r.Direction == "" || r.Direction == d.way {
				alternatives(r, d.way, add)
			}
		}
	}
	return strings.Join(out, " ")
}

// alternatives writes a rule once per protocol, address and port.
func alternatives(r plan.Rule, d plan.Direction, add func(c plan.Class, proto, home, homePort, far, farPort string)) {
	protocols := []string{r.Protocol}
	switch {
	case r.Protocol == "" && r.HasPorts():
		protocols = []string{"tcp", "udp"}
	case r.Protocol == "":
		protocols = []string{"-"}
	}
	for _, proto := range protocols {
		for _, home := range addresses(r.Home, d == plan.DirectionDown) {
			for _, far := range addresses(r.Far, false) {
				for _, e := range r.PortsByEnd() {
					for _, hp := range portWords(e.Home) {
						for _, fp := range portWords(e.Far) {
							add(r.Class, proto, home, hp, far, fp)
						}
					}
				}
			}
		}
	}
}

// addresses returns the IPv4 addresses, "-" for any. Download packets are
// marked before NAT sets the home address, so hidden ones can't be matched.
func addresses(list []string, hidden bool) (out []string) {
	if len(list) == 0 {
		return []string{"-"}
	}
	for _, a := range list {
		if plan.IsIPv4(a) && !(hidden && plan.HiddenByNAT(a)) {
			out = append(out, a)
		}
	}
	return out
}

// portWords writes ports as iptables(8) takes them.
func portWords(list []plan.PortRange) (out []string) {
	if len(list) == 0 {
		return []string{"-"}
	}
	for _, p := range list {
		out = append(out, strings.Replace(p.String(), "-", ":", 1))
	}
	return out
}

// HasRules reports whether a qos.conf has rules of ours.
func HasRules(text string) bool {
	set, err := Parse(text)
	return err == nil && strings.Contains(" "+Get(set, RulesKey), " "+rulePrefix)
}

// WithOthers returns the settings with the file's other rules after ours.
func WithOthers(set []Setting, old string) []Setting {
	out := slices.Clone(set)
	for i, s := range out {
		if s.Key != RulesKey {
			continue
		}
		for rule := range strings.FieldsSeq(old) {
			if !strings.HasPrefix(rule, rulePrefix) && strings.Contains(rule, "|") {
				out[i].Value += " " + rule
			}
		}
	}
	return out
}
