// Package sqm renders and parses OpenWrt's /etc/config/sqm, which sqm-scripts
// turns into tc(8) commands and LuCI shows. Source: sqm-scripts' defaults.sh,
// functions.sh and run.sh.
package sqm

import (
	"fmt"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/uci"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Scripts of sqm-scripts with a single class.
const (
	scriptCake    = "piece_of_cake.qos"
	scriptFQCoDel = "simplest.qos"
)

// SectionName is the usual name of our section.
const SectionName = "unbloat"

// An Option is one `option` of a section.
type Option struct{ Key, Value string }

// A Section is one `config queue`: the shaping of one interface.
type Section struct {
	Name    string
	Options []Option
}

// Get returns the option's value, "" if it is not set.
func (s Section) Get(key string) string {
	for _, o := range s.Options {
		if o.Key == key {
			return o.Value
		}
	}
	return ""
}

// Shapes reports whether sqm-scripts shape an interface as the section says, at every
// start and whenever it comes up.
func (s Section) Shapes(device string) bool {
	return s.Get("enabled") == "1" && s.Get("interface") == device
}

// SwitchOff returns the commands that switch the section off.
func (s Section) SwitchOff() string {
	set := "sqm." + s.Name + ".enabled=0"
	if strings.HasPrefix(s.Name, "@") { // a shell would look for files
		set = uci.Quote(set)
	}
	return "uci set " + set + "; uci commit sqm; /etc/init.d/sqm restart"
}

func (s *Section) set(key, value string) {
	if value != "" {
		s.Options = append(s.Options, Option{key, value})
	}
}

// Render makes the section of a plan under SectionName. Notes list what
// sqm-scripts cannot express.
func Render(p plan.Plan) (s Section, notes []string, err error) { return RenderAs(p, SectionName) }

// RenderAs makes the section of a plan under a name. It returns an error if the
// plan shapes the LAN side or a rate is not whole kbit/s.
func RenderAs(p plan.Plan, name string) (s Section, notes []string, err error) {
	if p.Down != nil && p.Down.IngressOf != p.WAN {
		return Section{}, nil, &plan.NoIngressError{Platform: "sqm-scripts", Side: plan.SideLAN, Why: "sqm-scripts shapes the download on the WAN's ifb"}
	}
	s = Section{Name: name}
	s.set("enabled", "1")
	s.set("interface", p.WAN)
	for _, d := range []struct {
		key string
		r   unit.Rate
	}{{"download", p.DownBps}, {"upload", p.UpBps}} {
		if d.r%unit.KbitPerSecond != 0 {
			return Section{}, nil, fmt.Errorf("%s: %s is not a whole number of kbit/s", d.key, d.r)
		}
		s.set(d.key, strconv.FormatInt(int64(d.r/unit.KbitPerSecond), 10)) // 0: not shaped
	}
	s.set("qdisc", string(p.AQM))
	switch {
	case Classed(p):
		s.set("script", ScriptName(name))
	case p.AQM == plan.CAKE:
		s.set("script", scriptCake)
	case p.AQM == plan.FQCoDel:
		s.set("script", scriptFQCoDel)
	default:
		return Section{}, nil, &plan.UnsupportedAQMError{AQM: p.AQM, Platform: "sqm-scripts", Have: []plan.AQM{plan.CAKE, plan.FQCoDel}}
	}
	any := p.Up
	if any == nil {
		any = p.Down
	}
	notes = s.linkLayer(*any)
	s.set("qdisc_advanced", "1")
	if p.AQM == plan.CAKE {
		s.set("squash_dscp", flag(wash(p)))
		s.set("squash_ingress", flag(wash(p)))
		s.set("qdisc_really_really_advanced", "1")
		s.set("iqdisc_opts", cakeOptions(p.Down, Classed(p)))
		s.set("eqdisc_opts", cakeOptions(p.Up, Classed(p)))
		return s, notes, nil
	}
	s.set("qdisc_really_really_advanced", "1")
	s.codel("i", "ingress_ecn", p.Down)
	s.codel("e", "egress_ecn", p.Up)
	return s, notes, nil
}

func wash(p plan.Plan) bool { return p.Down != nil && p.Down.Wash }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// linkLayer sets the per-packet overhead of the line. sqm-scripts passes
// `overhead` unchanged to CAKE, which adds it to the IP packet, and to
// tc-stab(8) for HTB, which adds it to the kernel's packet length.
func (s *Section) linkLayer(shaper plan.Shaper) (notes []string) {
	overhead := shaper.Overhead
	if shaper.AQM != plan.CAKE {
		overhead = shaper.StabOverhead()
	}
	layer := "ethernet"
	if shaper.LinkLayer == plan.ATM {
		layer = "atm"
	}
	if shaper.StabOverhead() == 0 && shaper.MPU == 0 && layer == "ethernet" && shaper.LinkLayer != plan.PTM {
		s.set("linklayer", "none")
		return nil
	}
	s.set("linklayer", layer)
	s.set("overhead", strconv.Itoa(overhead))
	s.set("tcMPU", strconv.Itoa(shaper.MPU))
	if shaper.LinkLayer == plan.PTM && shaper.AQM != plan.CAKE {
		notes = append(notes, "HTB cannot count PTM's 65 bytes for 64; leave 1.6 % more room in the rates")
	}
	if shaper.LinkLayer == plan.PTM && shaper.AQM == plan.CAKE {
		notes = append(notes, "`ptm` is among the CAKE options: sqm-scripts has no link layer of that name")
	}
	return notes
}

// cakeOptions returns the words that sqm-scripts appends to CAKE's command.
// With classes our own script has them already; then they only matter if the
// user switches back to piece_of_cake, and the diffserv tins are left out.
func cakeOptions(s *plan.Shaper, classed bool) string {
	if s == nil {
		return ""
	}
	var w []string
	add := func(set bool, word string) {
		if set {
			w = append(w, word)
		}
	}
	add(s.Tins != "" && s.Tins != "besteffort" && !classed, s.Tins) // piece_of_cake sets besteffort
	add(s.NAT, "nat")
	add(s.Isolation != "", s.Isolation)
	add(s.Ingress, "ingress")
	add(s.AckFilter, "ack-filter")
	add(s.Interval != 0, "rtt "+unit.MsOrUs(s.Interval))
	add(s.LinkLayer == plan.PTM, "ptm")
	return strings.Join(w, " ")
}

// codel sets one direction's fq_codel options. sqm-scripts derives the
// interval.
func (s *Section) codel(prefix, ecnKey string, shaper *plan.Shaper) {
	if shaper == nil {
		return
	}
	if shaper.Target != 0 {
		s.set(prefix+"target", unit.MsOrUs(shaper.Target))
	}
	if shaper.Limit != 0 {
		s.set(prefix+"limit", strconv.Itoa(shaper.Limit))
	}
	ecn := "NOECN"
	if shaper.ECN {
		ecn = "ECN"
	}
	s.set(ecnKey, ecn)
	var w []string
	if shaper.Quantum != 0 {
		w = append(w, "quantum "+strconv.Itoa(int(shaper.Quantum)))
	}
	if shaper.Flows != 0 {
		w = append(w, "flows "+strconv.Itoa(shaper.Flows))
	}
	if shaper.Interval != 0 {
		w = append(w, "interval "+unit.MsOrUs(shaper.Interval))
	}
	s.set(prefix+"qdisc_opts", strings.Join(w, " "))
}

// Rates returns the section's rates; 0 means not shaped. The error names a
// value that is not whole kbit/s.
func (s Section) Rates() (down, up unit.Rate, err error) {
	rate := func(key string) unit.Rate {
		v := s.Get(key)
		if v == "" {
			return 0
		}
		n, e := strconv.ParseInt(v, 10, 64)
		if e != nil || n < 0 || n > int64(plan.MaxRate/unit.KbitPerSecond) {
			err = fmt.Errorf("%s %q is not a whole number of kbit/s", key, v)
		}
		return unit.Rate(n) * unit.KbitPerSecond
	}
	down, up = rate("download"), rate("upload")
	return down, up, err
}

// String writes the section in the format of /etc/config/sqm.
func (s Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config queue %s\n", uci.Quote(s.Name))
	for _, o := range s.Options {
		fmt.Fprintf(&b, "\toption %s %s\n", o.Key, uci.Quote(o.Value))
	}
	return b.String()
}

// Parse reads /etc/config/sqm, or what `uci export sqm` prints. A section without a
// name has the one by which uci(1) calls it. Sections that are no queues are left out,
// as sqm-scripts leave them out.
func Parse(text string) ([]Section, error) {
	f, err := uci.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("sqm: %w", err)
	}
	var out []Section
	for i, s := range f.Sections {
		if s.Type != "queue" {
			continue
		}
		q := Section{Name: f.Ref(i)}
		for _, o := range s.Options {
			q.Options = append(q.Options, Option{o.Name, s.Get(o.Name)})
		}
		out = append(out, q)
	}
	return out, nil
}
