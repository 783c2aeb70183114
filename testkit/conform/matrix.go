// This part makes the plans with which every platform is tested: rates
// from slow ADSL to the platform's maximum, unbloat's own style and the
// articles', with and without classes, on several names of interfaces. The
// tests of the stand-ins render all of them. This package's own tests give the
// result to the real programs, if a person has them (`make verify-platforms`).

package conform

import (
	"fmt"
	"os"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// A MatrixCase is one plan of the matrix.
type MatrixCase struct {
	Name string // such as "29.1mbit-4.85mbit/own/rules/wan", for messages and -run
	Plan plan.Plan
}

// A pair has a line's rates; 0: that direction is not shaped.
type pair struct{ down, up unit.Rate }

// pairs are rates exact to the bit and in whole units, symmetric and
// asymmetric, with both directions and with one.
func pairs() []pair {
	const k, m, g = unit.KbitPerSecond, unit.MbitPerSecond, unit.GbitPerSecond
	return []pair{
		{64 * k, 64 * k}, {128 * k, 64 * k}, {512 * k, 128 * k}, {768 * k, 256 * k}, {1 * m, 1100 * k},
		{1500 * k, 384 * k}, {2 * m, 512 * k}, {3333333, 777777}, {6 * m, 640 * k}, {8 * m, 1 * m},
		{15 * m, 1 * m}, {16 * m, 2400 * k}, {25 * m, 5 * m}, {29100 * k, 4850 * k}, {50 * m, 10 * m},
		{100 * m, 40 * m}, {120 * m, 12 * m}, {250 * m, 25 * m}, {499999999, 99999999}, {500 * m, 500 * m},
		{940 * m, 35 * m}, {1 * g, 1 * g}, {2500 * m, 1 * g}, {4 * g, 4 * g}, {0, 5 * m}, {40 * m, 0},
	}
}

// rules name traffic in each way that a language may have to express: ports of
// either end, ranges and lists of them, IPv4 and IPv6 addresses, marks, a
// single direction.
func rules() []plan.Rule {
	port := func(from, to uint16) plan.PortRange { return plan.PortRange{From: from, To: to} }
	return []plan.Rule{
		{Name: "calls", Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{port(3478, 3481), port(19302, 19309)}},
		{Name: "SIP", Class: plan.Voice, Protocol: "udp", Port: []plan.PortRange{port(5060, 5061)}},
		{Name: "marked", Class: plan.Voice, DSCP: []string{"ef", "cs5"}},
		{Name: "terminals", Class: plan.Interactive, Protocol: "tcp", FarPort: []plan.PortRange{port(22, 22), port(3389, 3389)}},
		{Name: "web server", Class: plan.Interactive, Protocol: "tcp", HomePort: []plan.PortRange{port(443, 443)}, Direction: plan.DirectionUp},
		{Name: "backup", Class: plan.Bulk, Far: []string{"198.51.100.0/24", "192.0.2.9", "2001:db8:7::/48"}},
		{Name: "swarm", Class: plan.Bulk, Port: []plan.PortRange{port(6881, 6889)}},
	}
}

// shares give some classes other guarantees and limits than the defaults.
func shares() []plan.SharePreference {
	return []plan.SharePreference{{Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: 0.3}}, {Class: plan.Bulk, Limit: plan.RatePreference{Fraction: 0.8}}}
}

// A choice is one value of a dimension.
type choice struct {
	name string
	set  func(*plan.Preferences)
}

// styles are unbloat's own style and the article's, and all AQMs of the
// platform but its best.
func styles(l *plan.Language) []choice {
	out := []choice{
		{"own", func(*plan.Preferences) {}},
		{"article", func(w *plan.Preferences) { w.Style = plan.StyleArticle }},
	}
	for _, q := range l.AQMs[1:] {
		out = append(out, choice{string(q), func(w *plan.Preferences) { w.AQM = q }})
	}
	return out
}

func classes(l *plan.Language) []choice {
	return []choice{
		{"none", func(w *plan.Preferences) { w.Classes.Use = plan.ClassesOff }},
		{"behaviour", func(*plan.Preferences) {}}, // the default: by behaviour if the platform can
		{"rules", func(w *plan.Preferences) { w.Classes.Rules = rules() }},
		{"shares", func(w *plan.Preferences) { w.Classes.Rules, w.Classes.Shares = rules()[:2], shares() }},
	}
}

// interfaces are names that a WAN may have on the platform.
func interfaces(l *plan.Language) []string {
	switch {
	case l.OwnNames:
		return []string{"wan", "opt1", "opt2"}
	case l.HTB:
		return []string{l.WAN, "eth0.100", "pppoe-wan", "enp0s31f6np1.10"}
	default:
		return []string{l.WAN, "vlan0.100", "pppoe0"}
	}
}

// Matrix returns plans for one platform, always the same ones: so many that all
// rates, styles, kinds of classes and interfaces occur in all pairs, or with
// UNBLOAT_LONG=1 all. It returns an error if a plan that should be possible cannot
// be made.
func Matrix(platform string) ([]MatrixCase, error) {
	l, err := all.Language(platform)
	if err != nil {
		return nil, err
	}
	var out []MatrixCase
	met, whole := map[string]bool{}, os.Getenv("UNBLOAT_LONG") != ""
	for _, r := range pairs() {
		for _, style := range styles(l) {
			for _, class := range classes(l) {
				for _, wan := range interfaces(l) {
					parts := []string{rateName(r.down) + "-" + rateName(r.up), style.name, class.name, wan}
					name := strings.Join(parts, "/")
					w := plan.Preferences{Down: plan.RatePreference{Rate: r.down}, Up: plan.RatePreference{Rate: r.up}}
					style.set(&w)
					class.set(&w)
					switch {
					case r.down == 0:
						w.Only = plan.DirectionUp
					case r.up == 0:
						w.Only = plan.DirectionDown
					}
					if unmakeable(l, wan, w) {
						continue
					}
					if !meet(met, parts) && !whole {
						continue
					}
					p, err := plan.Make(plan.Line{}, l.Assume(wan, ""), w)
					if err != nil {
						return nil, fmt.Errorf("make %s for %s: %w", name, platform, err)
					}
					out = append(out, MatrixCase{name, p})
				}
			}
		}
	}
	return out, nil
}

// meet records the pairs of a case's parts, and reports whether any is new.
func meet(met map[string]bool, parts []string) (fresh bool) {
	for i, a := range parts {
		for j, b := range parts[:i] {
			key := fmt.Sprint(j, b, " ", i, a)
			fresh = fresh || !met[key]
			met[key] = true
		}
	}
	return fresh
}

// unmakeable reports whether a platform refuses these preferences: some cannot
// shape only the download, and a platform's own engine shapes both directions,
// and only interfaces with certain names.
func unmakeable(l *plan.Language, wan string, w plan.Preferences) bool {
	if !l.NotAlone.IsZero() && w.Only == plan.DirectionDown {
		return true
	}
	engine := l.Engine != nil && (w.AQM == plan.SFQ || w.Style == plan.StyleArticle && l.Article.AQM == plan.SFQ)
	return engine && (w.Only != "" || strings.ContainsAny(wan, ".-"))
}

func rateName(r unit.Rate) string {
	if r == 0 {
		return "none"
	}
	return strings.NewReplacer(" ", "", "/s", "").Replace(r.String())
}
