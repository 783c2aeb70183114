package plan

import (
	"fmt"
	"strings"

	"unbloat/reason"
	"unbloat/unit"
)

// A HardLimit is what a machine of the home may carry at most, whatever is free. What is above
// it is dropped: it has no queue of its own.
type HardLimit struct {
	Machine string    `json:"machine"`            // address or network
	Down    unit.Rate `json:"down_bps,omitempty"` // 0: not limited
	Up      unit.Rate `json:"up_bps,omitempty"`
}

// mostLimits bounds those of a plan: every packet is compared with each.
const mostLimits = 64

// ParseHardLimit reads "192.168.1.7 5 Mbit/s", or "192.168.1.7 20 Mbit/s / 2 Mbit/s" where
// down and up differ.
func ParseHardLimit(text string) (l HardLimit, err error) {
	machine, rates, _ := strings.Cut(text, " ")
	l.Machine = machine
	if kind, _ := KindOfHost(machine); kind != HostAddr || strings.Join(strings.Fields(text), " ") != text {
		return l, fmt.Errorf("%q: begins with the address of a machine, as in 192.168.1.7 5 Mbit/s", text)
	}
	down, up, two := strings.Cut(rates, " / ")
	if l.Down, err = unit.ParseRate(down); err == nil {
		if l.Up = l.Down; two {
			l.Up, err = unit.ParseRate(up)
		}
	}
	if err != nil {
		return l, fmt.Errorf("%q: %w; write down and up as in 192.168.1.7 20 Mbit/s / 2 Mbit/s", text, err)
	}
	return l, l.check(text)
}

// check refuses what no shaper could hold.
func (l HardLimit) check(text string) error {
	const least = 64 * unit.KbitPerSecond
	for _, r := range []unit.Rate{l.Down, l.Up} {
		if r != 0 && (r < least || r > MaxRate) {
			return fmt.Errorf("%q: %s is not between %s and %s", text, r, least, unit.Rate(MaxRate))
		}
	}
	return nil
}

// String is what ParseHardLimit reads.
func (l HardLimit) String() string {
	if l.Up == l.Down {
		return fmt.Sprintf("%s %s", l.Machine, l.Down)
	}
	return fmt.Sprintf("%s %s / %s", l.Machine, l.Down, l.Up)
}

// checkLimits refuses limits that a plan can't hold.
func (p Plan) checkLimits(lang *Language) (errs []error) {
	switch {
	case len(p.Limits) == 0:
		return nil
	case !lang.HardLimits:
		return []error{fieldError("limits", "%s has none for a single machine that a plan can set", lang.Platform)}
	case len(p.FlowTable) > 0:
		return []error{fieldError("limits", "connections that take the short way of a flow table go past them; leave out one of the two")}
	case len(p.Limits) > mostLimits:
		return []error{fieldError("limits", "has %d entries, more than %d", len(p.Limits), mostLimits)}
	}
	seen := map[string]bool{}
	for _, l := range p.Limits {
		kind, machine := KindOfHost(l.Machine)
		switch {
		case kind != HostAddr:
			errs = append(errs, fieldError("limits", "%q is not the address of a machine", l.Machine))
		case seen[machine]:
			errs = append(errs, fieldError("limits", "%s is there twice", l.Machine))
		}
		seen[machine] = true
		if err := l.check(l.String()); err != nil {
			errs = append(errs, fieldError("limits", "%v", err))
		}
	}
	return errs
}

// limits takes in those that are asked for.
func (m *maker) limits() {
	if m.plan.Limits = m.preferences.Limits; len(m.plan.Limits) > 0 {
		m.because("limits", count(len(m.plan.Limits)), say(reason.HardLimits))
	}
}
