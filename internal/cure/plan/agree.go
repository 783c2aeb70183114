package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// agrees refuses a plan that says two things. A transaction's lock, journal and record
// go by WAN, the commands by the shapers' devices, and the summary by AQM: where these
// differ, it would be another WAN's change, or another change, than it looks.
func (p Plan) agrees(lang *Language) error {
	var errs []error
	must := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, fieldError(field, format, args...))
		}
	}
	same := func(field, is, other, want string) { must(is == want, field, "is %q, but %s is %q", is, other, want) }

	must(p.LAN != p.WAN, "lan", "%q is the WAN too", p.LAN)
	if s := p.Up; s != nil {
		same("up.aqm", string(s.AQM), "aqm", string(p.AQM))
		same("up.device", s.Device, "wan", p.WAN)
		must(s.IngressOf == "", "up.ingress_of", "is %q, but nothing is redirected for the upload", s.IngressOf)
	}
	if s := p.Down; s != nil {
		same("down.aqm", string(s.AQM), "aqm", string(p.AQM))
		sides := lang.Sides
		if p.AQM == SFQ {
			sides = []Side{SideIn} // the platform's own engine
		}
		side := s.side()
		must(slices.Contains(sides, side), "down.device", "%q shapes on side %s, which is not one of %v on %s", s.Device, side, sides, p.Platform)
		switch side {
		case SideLAN:
			same("down.device", s.Device, "lan", p.LAN)
		case SideIFB: // another name may be another WAN's
			must(s.Device == IFBName(p.WAN), "down.device", "is %q, but the ifb of %s is %s", s.Device, p.WAN, IFBName(p.WAN))
			fallthrough
		case SideIn:
			same("down.ingress_of", s.IngressOf, "wan", p.WAN)
		}
	}
	must(len(p.Offloads) == 0 || lang.HTB, "offloads", "%s has none that a plan can switch off", lang.Platform)
	for _, o := range p.Offloads {
		top := cmp.Or(o.Below, o.Device)
		must(top == p.WAN || top == p.LAN, "offloads", "%q is neither the WAN nor the LAN", top)
	}
	if ends := []string{p.LAN, p.WAN}; len(p.FlowTable) > 0 {
		must(slices.Equal(p.FlowTable, ends), "flow_table", "is between %q, but LAN and WAN are %q", p.FlowTable, ends)
	}
	if b := p.Basis; b != nil {
		same("basis.facts.platform", b.Capabilities.Platform, "platform", p.Platform)
		same("basis.facts.wan", b.Capabilities.WAN, "wan", p.WAN)
		same("basis.facts.lan", b.Capabilities.LAN, "lan", p.LAN)
	}
	return errors.Join(append(errs, p.Classes.agree(p, lang))...)
}

// agree refuses classes that the plan cannot have, or that contradict its devices.
func (c *Classes) agree(p Plan, lang *Language) error {
	if c == nil {
		return nil
	}
	can := lang.Classes && (p.AQM == CAKE || p.AQM == FQCoDel) || lang.ClassesAsked == p.AQM
	switch {
	case !can:
		return fieldError("classes", "%s has none with %s", lang.Platform, p.AQM)
	case c.Up == nil && c.Down == nil:
		return fieldError("classes", "neither direction has shares")
	case !slices.Contains([]Classifier{"", ByNFT, ByBPF}, c.Classifier):
		return fieldError("classes.classifier", "%q is neither %s nor %s", c.Classifier, ByNFT, ByBPF)
	case !c.ByBPF() && c.LAN != "":
		return fieldError("classes.lan", "is %q, but only the BPF program numbers the machines there", c.LAN)
	case !c.ByBPF():
		return nil
	case c.LAN != p.LAN:
		return fieldError("classes.lan", "is %q, but lan is %q", c.LAN, p.LAN)
	case !lang.BPF || p.AQM != CAKE && p.AQM != FQCoDel || p.LAN == "" || c.Up == nil || c.Down == nil || p.Down == nil || p.Down.IngressOf == "":
		return fieldError("classes.classifier", "%s needs a platform that has it, cake or fq_codel, a lan, and classes in both directions with the download on an ifb", ByBPF)
	}
	return nil
}

// side returns where a download is shaped.
func (s *Shaper) side() Side {
	switch s.IngressOf {
	case "":
		return SideLAN
	case s.Device:
		return SideIn
	}
	return SideIFB
}

// checkSettings refuses a setting that the queue discipline or the platform does not
// have: what runs would not be what the plan says.
func (s *Shaper) checkSettings(at func(string) string, lang *Language) error {
	cake, codel, htb := s.AQM == CAKE, s.AQM == FQCoDel, lang.HTB && s.AQM != CAKE
	timed := codel && lang.NoCoDel.IsZero()
	var errs []error
	for _, x := range []struct {
		name     string
		set, has bool
	}{
		{"target", s.Target != 0, timed},
		{"interval", s.Interval != 0, timed || cake},
		{"ecn", s.ECN, cake || codel && lang.NoECN.IsZero()},
		{"limit", s.Limit != 0, codel || s.AQM == FIFO},
		{"flows", s.Flows != 0, codel},
		{"quantum", s.Quantum != 0, codel},
		{"burst", s.Burst != 0, htb},
		{"class_q", s.ClassQ != 0, htb},
		{"tins", s.Tins != "", cake},
		{"isolation", s.Isolation != "", cake},
		{"nat", s.NAT, cake},
		{"wash", s.Wash, cake},
		{"ingress", s.Ingress, cake},
		{"ack_filter", s.AckFilter, cake},
		{"packet_rules", len(s.PacketRules) > 0, cake && lang.PacketRules},
		{"overhead", s.Overhead != s.HeaderLen || s.MPU != 0 || s.LinkLayer != Ethernet, lang.NoOverhead.IsZero()},
	} {
		if x.set && !x.has {
			errs = append(errs, fieldError(at(x.name), "is set, but %s on %s has no such setting", s.AQM, lang.Platform))
		}
	}
	if cake && !s.ECN {
		errs = append(errs, fieldError(at("ecn"), "is false, but cake always marks what can be marked"))
	}
	return errors.Join(errs...)
}

// twice returns a member that an object of the plan's JSON has twice, as in "up.device";
// "" if there is none. Readers of JSON disagree which of the two counts, and Go's takes
// names that differ in case for the same. Reasons are words, which decide nothing.
func twice(d *json.Decoder) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", err
	}
	open, is := t.(json.Delim)
	if !is {
		return "", nil
	}
	seen := map[string]bool{}
	for d.More() {
		name := ""
		if open == '{' {
			t, err := d.Token()
			if err != nil {
				return "", err
			}
			name = strings.ToLower(strings.ToUpper(t.(string))) // as encoding/json folds them: ſ is s, and K is k
			if seen[name] {
				return name, nil
			}
			seen[name] = true
		}
		if name == "reasons" || name == "warning_reasons" {
			var words json.RawMessage
			if err := d.Decode(&words); err != nil {
				return "", err
			}
			continue
		}
		if inner, err := twice(d); err != nil || inner != "" {
			return strings.TrimPrefix(name+"."+inner, "."), err
		}
	}
	_, err = d.Token()
	return "", err
}
