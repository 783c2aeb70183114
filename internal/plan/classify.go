package plan

import "unbloat/internal/classify"

// Types of package classify, which a plan uses for its classes.
type (
	Class          = classify.Class
	Behaviour      = classify.Limits
	Rule           = classify.Rule
	PortRange      = classify.PortRange
	EndPorts       = classify.EndPorts
	DSCPPreference = classify.Trust
	HostKind       = classify.HostKind
)

// The classes, first to last.
const (
	Voice       = classify.Voice
	Interactive = classify.Interactive
	Normal      = classify.Normal
	Bulk        = classify.Bulk
)

// Ways to name a machine.
const (
	HostName = classify.HostName
	HostAddr = classify.HostAddr
	HostMAC  = classify.HostMAC
)

// AllClasses returns the classes, first to last.
func AllClasses() []Class { return classify.AllClasses() }

// Protocols returns the protocols that a rule may name.
func Protocols() []string { return classify.Protocols() }

// KindOfHost returns how a machine is named; see classify.KindOfHost.
func KindOfHost(s string) (HostKind, string) { return classify.KindOfHost(s) }

// HiddenByNAT reports whether NAT hides an address or network of the home on the
// WAN.
func HiddenByNAT(home string) bool { return classify.HiddenByNAT(home) }

// IsIPv4 reports whether an address or network of a rule is IPv4.
func IsIPv4(s string) bool { return classify.IsIPv4(s) }

// ParseDSCP reads the name of a code point or its number; see classify.ParseDSCP.
func ParseDSCP(s string) (uint8, error) { return classify.ParseDSCP(s) }

// ByBehaviour reports whether the plan has classes by how flows behave, not by rules alone.
func (p Plan) ByBehaviour() bool { return p.Classes != nil && p.Classes.Behaviour != (Behaviour{}) }

// SetsMarks reports whether the classes take bits of connections' marks: all of Linux do
// but those that the BPF program gives alone.
func (p Plan) SetsMarks() bool {
	return p.Classes != nil && (!p.Classes.ByBPF() || len(p.Classes.Rules) > 0)
}

// Policy returns the rules and limits that classify the plan's traffic; it is zero
// if the plan has no classes. It does not contain what the shapers do with a class.
func (p Plan) Policy() classify.Policy {
	c := p.Classes
	if c == nil {
		return classify.Policy{}
	}
	lanes := func(shares []Share) []classify.Lane {
		var out []classify.Lane
		for _, s := range shares {
			out = append(out, classify.Lane{Name: string(s.Class), Class: s.Class, Tin: uint8(s.Tin)})
		}
		if out == nil {
			return nil
		}
		return append(out, classify.Lane{Name: classify.AcksLane, Class: Interactive, Tin: uint8(AckTin(shares))})
	}
	return classify.Policy{Up: lanes(c.Up), Down: lanes(c.Down), DownByMark: p.Down != nil && p.Down.IngressOf != "" && !c.ByBPF(),
		Apart: c.ByBPF(), EveryPacket: c.ByBPF(), Varies: c.Varies,
		Limits: c.Behaviour, Rules: c.Rules, Trust: c.DSCP}
}

// Parts divides the policy of a plan whose rules a BPF program applies: its own part,
// and that of nftables, which names traffic for it; ok is false if no rule names any.
func (p Plan) Parts() (program, names classify.Policy, ok bool) {
	program = p.Policy()
	names, program.Rules = program, nil
	if len(names.Rules) == 0 {
		return program, classify.Policy{}, false
	}
	program.Named = true
	names.Apart, names.RulesAlone, names.EveryPacket = false, true, false
	names.DownByMark = p.Down != nil && p.Down.IngressOf != ""
	return program, names, true
}
