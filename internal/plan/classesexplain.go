package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// explainClasses gives each class its sentence.
func (m *maker) explainClasses(c *Classes) {
	if m.lang.ClassesAsked != "" {
		m.explainExplicit(c)
		return
	}
	b := c.Behaviour
	thinned := ""
	if b.Acks > 0 {
		thinned = fmt.Sprintf(" (of slow connections up to %d a second; of more, those that tell of no loss are left out, and every second of the others, for the next one says the same)", b.Acks)
	}
	what := map[Class]string{
		Voice: fmt.Sprintf("small datagrams (up to %s) of flows that stay below %d a second and %s and are answered, until those of one machine together exceed %s down or %s up; DNS and ping, up to %d a second of each machine",
			b.SmallPacket, b.CalmPackets, b.CalmRate, b.CalmOfHost.Short(), b.CalmOfUp.Short(), b.Names),
		Interactive: fmt.Sprintf("acknowledgements without data%s and small packets of busy flows, ahead of the rest of the class; the first %s down and %s up of a TCP connection; small packets of calm ones; larger datagrams of calm flows",
			thinned, b.FirstBytes, b.FirstUp),
		Normal: "everything else; a flow that stops being calm comes here at once, and stays for 10 s",
		Bulk: fmt.Sprintf("connections beyond %s, those above %d heavy ones (%s) of one machine, and UDP ports with more than %d partners, as BitTorrent has",
			b.LongBytes, b.HeavyOfHost, b.HeavyBytes, b.Peers),
	}
	for _, class := range AllClasses() {
		m.because("classes."+string(class), c.bounds(class), "%s", what[class])
	}
	for i, r := range c.Rules {
		m.because("classes.rule "+strconv.Itoa(i+1), string(r.Class), "%s", r)
	}
	if d := c.DSCP; d != (DSCPPreference{}) {
		m.because("classes.dscp", "trusted", "home %s, far %s; washed: up %s, down %s", yes(d.TrustHome), yes(d.TrustFar), yes(d.WashUp), yes(d.WashDown))
	}
	m.explainDomains(c)
	if c.Up != nil && m.aqm == CAKE {
		m.because("up.tins", m.plan.Up.Tins, "a class is one of its tins, which goes first up to its share of the rate and no further")
	}
	if c.Down != nil && m.aqm == CAKE {
		m.because("down.tins", m.plan.Down.Tins, "a class is one of its tins, which goes first up to its share of the rate and no further")
	}
}

// explainDomains says who tells the rules that name domains of their addresses.
func (m *maker) explainDomains(c *Classes) {
	switch named := slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.Domain) > 0 }); {
	case !named:
	case m.facts.NoResolver != "":
		m.warning("classes: rules that name domains match nothing: %s", m.facts.NoResolver)
	case m.facts.Resolver != "":
		m.because("classes.domains", m.facts.Resolver, "the router's dnsmasq puts what it is answered into the rules' sets; it is started again when this file comes and goes")
	default:
		m.because("classes.domains", "dnsmasq", "it must be the resolver that the home asks, 2.87 or newer; `unbloat apply` writes its file, or follow the lines of this plan")
	}
}

// bounds says what a class may have.
func (c Classes) bounds(class Class) string {
	var parts []string
	for _, d := range []struct {
		name Direction
		list []Share
	}{{DirectionUp, c.Up}, {DirectionDown, c.Down}} {
		for _, s := range d.list {
			if s.Class != class {
				continue
			}
			text := fmt.Sprintf("%s first up to %s", d.name, s.First.Short())
			if s.Guarantee > 0 {
				text += ", at least " + s.Guarantee.Short()
			}
			if s.Limit > 0 {
				text += ", at most " + s.Limit.Short()
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}
