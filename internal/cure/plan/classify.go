package plan

import "unbloat/internal/cure/classify"

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

// SetsMarks reports whether the classes take bits of connections' marks: rules of
// nftables' do for what arrives at an ifb, where no BPF program goes by them.
func (p Plan) SetsMarks() bool {
	return p.Classes != nil && !p.Classes.ByBPF() && p.Classes.Down != nil && p.Down != nil && p.Down.IngressOf != ""
}

// Policy returns what the BPF program of a plan judges by.
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
	return classify.Policy{Up: lanes(c.Up), Down: lanes(c.Down), Varies: c.Varies, Named: len(c.Rules) > 0, Limits: c.Behaviour, Trust: c.DSCP}
}

// judged makes a plan of an older unbloat one of this, where rules of nftables' or a daemon
// judged how flows behave: a BPF program does where one can, or nothing.
func (p *Plan) judged() {
	c := p.Classes
	if c == nil || c.ByBPF() || c.Behaviour == (Behaviour{}) {
		return
	}
	if able := p.AQM == CAKE || p.AQM == FQCoDel; able && c.Up != nil && c.Down != nil && p.Down != nil && p.Down.side() == SideIFB && p.LAN != "" {
		c.Classifier, c.LAN = ByBPF, p.LAN
		return
	}
	c.Behaviour = Behaviour{}
}
