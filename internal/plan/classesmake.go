package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// How a flow behaves, where the line doesn't say otherwise. G.711 sends 50
// packets and 10 kB a second, games up to 128 packets of 100 bytes.
const (
	calmPackets = 160
	calmRate    = 200 * unit.KbitPerSecond
	calmOfHost  = 400 * unit.KbitPerSecond // at least; else an eighth of the line
	smallPacket = 320
	leastFirst  = 16 * unit.KB
	mostFirst   = 128 * unit.KB
	leastHeavy  = 512 * unit.KB
	leastLong   = 20 * unit.MB
	heavyOfHost = 48
	swarmPeers  = 20
	namesASec   = 60
	flowsKept   = 8192
	// Of the classes' queues: see patientClasses and patientTins.
	patientPackets = 128
	manyDownloads  = 32 // at once, which never slow down together
	leastWindow    = 2  // packets of a connection (RFC 5681)
	mostTins       = 100 * time.Millisecond
	cakeTargets    = 20 // CAKE's interval, in targets
	mostPatient    = 60 * time.Millisecond
	mostFlows      = 1 << 18
)

// wantClasses decides whether the plan divides traffic, and says why not where
// somebody could expect it.
func (m *maker) wantClasses() bool {
	w := m.wishes.Classes
	asked := w.Use == ClassesOn || len(w.Rules) > 0 || len(w.Shares) > 0 || w.DSCP != DSCPWish{}
	able := m.aqm == CAKE || m.aqm == FQCoDel
	switch {
	case w.Use == ClassesOff:
		return false
	case !asked && (m.wishes.Style == StyleSeed || m.wishes.Tins != "" || m.aqm == FQCoDel && m.wishes.AQM != ""):
		return false
	case m.platform.classesAsked == m.aqm:
		if !asked { // one queue does more for who names nothing
			m.because("classes", "none", "%s", m.platform.classesUnasked)
		}
		return asked
	case !m.platform.classes || !able:
		m.noClasses(asked)
		return false
	case m.facts.NoClasses != "":
		m.because("classes", "none", "%s", m.facts.NoClasses)
		if asked {
			m.warning("classes: what was asked of them is left out: %s", m.facts.NoClasses)
		}
		return false
	}
	return true
}

// classes divides the traffic of the plan, once its shapers are there.
func (m *maker) classes() error {
	c := &Classes{Rules: slices.Clone(m.wishes.Classes.Rules), DSCP: m.wishes.Classes.DSCP, Behaviour: m.behaviour()}
	for i, r := range c.Rules {
		home, err := m.resolve(fmt.Sprintf("rule[%d].home", i), r.Home)
		if err != nil {
			return err
		}
		c.Rules[i].Home = home
	}
	if m.platform.classesAsked != "" {
		m.explicitAlone(c)
	}
	if m.plan.Up != nil {
		c.Up = m.shares(DirectionUp, m.plan.Up)
	}
	switch {
	case m.plan.Down == nil:
	case m.side == SideIFB && m.facts.NoMarks:
		m.because("down.classes", "none", "this kernel has no ctinfo action (module act_ctinfo; OpenWrt: opkg install kmod-sched-ctinfo), so what arrives cannot be told its class before the shaper; shaping on the LAN's side would")
	default:
		c.Down = m.shares(DirectionDown, m.plan.Down)
	}
	if c.Up == nil && c.Down == nil {
		return nil
	}
	if err := m.checkReserve(c); err != nil {
		return err
	}
	m.wash(c)
	m.plan.Classes = c
	m.plan.Reasons = slices.DeleteFunc(m.plan.Reasons, func(r Reason) bool {
		return r.Field == "up.tins" && c.Up != nil || r.Field == "down.tins" && c.Down != nil
	})
	m.explainRules(c)
	m.explainClasses(c)
	return nil
}

// tins of CAKE's `precedence` by class. Each goes before those below it up to
// its share: 7/8 of the one below. So voice has two fifths of the line, bulk at
// least as much if nobody but ordinary traffic is there.
func tinOf(c Class) Tin {
	switch c {
	case Voice:
		return 8
	case Interactive:
		return 6
	case Normal:
		return 5
	}
	return 1
}

// AckTin returns the tin of acknowledgements without data: they are of the
// interactive class, but where there is a tin between that and voice it is
// theirs, so that a hundred connections that begin to send do not hold up the
// acknowledgements of others.
func AckTin(shares []Share) Tin {
	var voice, lane Tin
	for _, s := range shares {
		switch s.Class {
		case Voice:
			voice = s.Tin
		case Interactive:
			lane = s.Tin
		}
	}
	if voice > lane+1 {
		return voice - 1
	}
	return lane
}

// firstOf returns up to which rate a tin goes first.
func firstOf(r unit.Rate, t Tin) unit.Rate {
	for range t - 1 {
		r = r * 7 / 8
	}
	return r
}

// shares divides one direction.
func (m *maker) shares(d Direction, s *Shaper) []Share {
	var out []Share
	asked := map[Class]bool{}
	for _, c := range AllClasses() {
		sh := Share{Class: c, Tin: tinOf(c)}
		sh.First = firstOf(s.Rate, sh.Tin)
		if s.AQM != CAKE {
			// HTB serves what each is guaranteed first, and the rest by priority.
			sh.Guarantee = s.Rate * htbShare(c) / 100
			if (c == Voice || c == Interactive) && !m.platform.weights {
				sh.Limit = sh.First
			}
		}
		for _, w := range m.wishes.Classes.Shares {
			if w.Class != c || w.Direction != "" && w.Direction != d {
				continue
			}
			if !w.Guarantee.IsZero() {
				sh.Guarantee, asked[c] = min(w.Guarantee.of(s.Rate, 0), s.Rate), true
				if sh.Limit > 0 { // ours, which must not take from what is asked for
					sh.Limit = max(sh.Limit, sh.Guarantee)
				}
			}
			switch {
			case w.Limit.IsZero():
			case m.platform.weights && d == DirectionDown && m.plan.Up != nil && w.Direction == "": // said for the upload
			case m.platform.weights:
				m.warning("classes: the limit of %s is left out: dummynet's weights say what a class is sure of, and nothing bounds it", c)
			default:
				sh.Limit = min(w.Limit.of(s.Rate, 0), s.Rate)
				if !w.Guarantee.IsZero() && sh.Guarantee > sh.Limit {
					m.warning("classes: %s %s is guaranteed its limit of %s alone, not %s", d, c, sh.Limit.Short(), sh.Guarantee.Short())
				}
			}
		}
		if sh.Limit > 0 {
			sh.Guarantee = min(sh.Guarantee, sh.Limit)
			sh.First = min(sh.First, sh.Limit)
		}
		out = append(out, sh)
	}
	m.fit(d, out, s.Rate, asked)
	for i := range out {
		if m.platform.weights || s.AQM == FIFO {
			out[i].First = out[i].Guarantee
		}
	}
	switch {
	case s.AQM == CAKE:
		s.Tins, s.PacketRules = tinsForRules, nil
		if d == DirectionDown && m.wishes.Interval == 0 {
			m.patientTins(s)
		}
	case d == DirectionDown && m.platform.htb && m.wishes.Target == 0 && m.wishes.Interval == 0:
		m.patientClasses(s)
	}
	return out
}

// mostSure is what the classes are guaranteed together unless somebody asks for
// more, in per cent: what htbShare adds up to.
const mostSure = 95

// fit takes from the guarantees that nobody asked for what those that somebody
// did take too much, and then from these: behind HTB classes whose guarantees
// are more than the line send more than it holds, and elsewhere each has less
// than the plan says.
func (m *maker) fit(d Direction, shares []Share, r unit.Rate, asked map[Class]bool) {
	var sum [2]unit.Rate // of those that nobody asked for, and of the others
	of := func(sh Share) int {
		if asked[sh.Class] {
			return 1
		}
		return 0
	}
	for _, sh := range shares {
		sum[of(sh)] += sh.Guarantee
	}
	room := [2]unit.Rate{max(r*mostSure/100-sum[1], 0), r}
	if sum[1] > r {
		m.warning("classes: %s, %s are guaranteed of %s; each class has its part of what there is", d, sum[1].Short(), r.Short())
	}
	for i, sh := range shares {
		if k := of(sh); sum[k] > room[k] {
			shares[i].Guarantee = unit.Rate(float64(sh.Guarantee) * float64(room[k]) / float64(sum[k]))
		}
	}
}

// patientClasses lets the queues of a download's classes stand longer than
// fq_codel alone could afford. HTB does not charge what is dropped, which has
// crossed the line already: a hundred connections below their two packets lose
// so many that what arrives is more than the line carries, and a call waits in
// the provider's queue. Calm flows have queues of their own here, so they don't
// wait for those that stand.
func (m *maker) patientClasses(s *Shaper) {
	target := min(s.Rate.Time(s.WireSize(fullIP)*patientPackets), mostPatient).Truncate(time.Millisecond)
	if target <= s.Target {
		return
	}
	s.Target, s.Interval = target, max(usualInterval, m.line.RTT.Truncate(time.Millisecond))
	m.plan.Reasons = slices.DeleteFunc(m.plan.Reasons, func(r Reason) bool { return r.Field == "down.target" || r.Field == "down.interval" })
	m.because("down.target", ms(s.Target), "%d full packets, at most %s: what is dropped has crossed the line already, and with many connections too many drops would fill it; calm flows do not wait in these queues", patientPackets, ms(mostPatient))
	m.because("down.interval", ms(s.Interval), "a sender's round trip")
}

// patientTins suits a download's queue to many connections. One below a packet
// a round trip cannot slow down: its least window is two full packets, and a
// CoDel that wants a shorter queue than those of all drops what has crossed the
// line already. What an upload drops has not crossed it. With more than that
// each, senders do slow down, and never all at once: the patience that a single
// download needs would only keep their bursts in front of the line.
func (m *maker) patientTins(s *Shaper) {
	n := m.wishes.FlowsDown
	full := s.Rate.Time(s.WireSize(fullIP))
	if each := full * time.Duration(n); each <= m.line.RTT {
		if n >= manyDownloads && m.line.RTT <= usualInterval && s.Interval > usualInterval {
			s.Interval = 0
			m.interval("default", "CAKE's 100 ms: %d connections never slow down all at once, so the line stays busy without a single one's patience, which would keep their bursts in front of it", n)
		}
		return
	}
	target := min(full*time.Duration(n*leastWindow), mostTins)
	interval := (target * cakeTargets).Truncate(time.Millisecond)
	if interval <= max(s.Interval, usualInterval) {
		return
	}
	s.Interval = interval
	m.interval(ms(s.Interval), "its target is a twentieth, %s: two full packets of each of %d connections, which have no less on the way, at most %s; below that CoDel drops what has crossed the line already, and calm flows do not wait in these queues", ms(target), n, ms(mostTins))
}

// interval gives another reason for the download's interval.
func (m *maker) interval(value, why string, args ...any) {
	m.plan.Reasons = slices.DeleteFunc(m.plan.Reasons, func(r Reason) bool { return r.Field == "down.interval" })
	m.because("down.interval", value, why, args...)
}

// htbShare is what HTB guarantees each class, in per cent of the line.
func htbShare(c Class) unit.Rate {
	return map[Class]unit.Rate{Voice: 30, Interactive: 30, Normal: 25, Bulk: 10}[c]
}

// behaviour derives the meters from the line, not from the shaper's rate: a
// tuner that tries rates then leaves the meters, and what they know, alone.
func (m *maker) behaviour() Behaviour {
	down, up := m.line.Down, m.line.Up
	if down == 0 {
		down = m.wishes.Down.Rate
	}
	if up == 0 {
		up = m.wishes.Up.Rate
	}
	line := max(down, up)
	b := Behaviour{
		CalmPackets: calmPackets, CalmRate: calmRate, SmallPacket: smallPacket,
		CalmOfHost: max(down/8, calmOfHost), CalmOfUp: max(up/8, calmOfHost),
		FirstBytes:  whole(min(max(line.Bytes(20*time.Millisecond), leastFirst), mostFirst)),
		FirstUp:     whole(min(max(up.Bytes(20*time.Millisecond), leastFirst), mostFirst)),
		HeavyBytes:  leastHeavy,
		LongBytes:   whole(max(line.Bytes(20*time.Second), leastLong)),
		HeavyOfHost: heavyOfHost, Peers: swarmPeers, Names: namesASec, Flows: flowsKept,
		Acks: acknowledgements(down, up),
	}
	if w := m.wishes.Classes.FirstBytes; w > 0 {
		b.FirstBytes, b.FirstUp = w, w
		b.HeavyBytes = max(b.HeavyBytes, w)
		b.LongBytes = max(b.LongBytes, w)
	}
	return b
}

// Sizes on an Ethernet line of a TCP segment that is full, and of one that only
// acknowledges, with timestamps.
const (
	fullSegment = 1514
	ackSegment  = 66
)

// acknowledgements returns how many a second may go up of TCP connections that
// acknowledge each packet by itself, as they do where their packets come far
// apart; 0 means all. RFC 9293 asks for one for every two packets. A hundred
// downloads that share a line send one for each, which takes a fifth of an
// upload of a sixth of the download's rate. They get a ninth of it, but never
// less than one for every four full packets of the download.
func acknowledgements(down, up unit.Rate) int {
	most := int(down / (8 * fullSegment))
	allowed := max(int(up/(9*8*ackSegment)), most/4)
	if allowed >= most {
		return 0
	}
	return allowed
}

// whole rounds up to whole kB, for people.
func whole(n unit.Size) unit.Size { return (n + unit.KB - 1) / unit.KB * unit.KB }

// resolve replaces names of machines by what the router knows of them.
func (m *maker) resolve(field string, home []string) ([]string, error) {
	var out []string
	for _, h := range home {
		kind, name := KindOfHost(h)
		if kind != HostName {
			out = append(out, name)
			continue
		}
		known := m.facts.Hosts[strings.ToLower(name)]
		if len(known) == 0 {
			return nil, fieldError(field, "the router knows no machine named %q; give its address or MAC address", h)
		}
		out = append(out, known...)
	}
	return out, nil
}

// explainClasses gives each class its sentence.
func (m *maker) explainClasses(c *Classes) {
	if m.platform.classesAsked != "" {
		m.explainExplicit(c)
		return
	}
	b := c.Behaviour
	thinned := ""
	if b.Acks > 0 {
		thinned = fmt.Sprintf(" (of slow connections up to %d a second; of more, those that tell of no loss are left out, for the next one says the same)", b.Acks)
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
	if d := c.DSCP; d != (DSCPWish{}) {
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

// Share returns what a class has of a direction.
func (c *Classes) Share(d Direction, class Class) (Share, bool) {
	if c == nil {
		return Share{}, false
	}
	list := c.Up
	if d == DirectionDown {
		list = c.Down
	}
	i := slices.IndexFunc(list, func(s Share) bool { return s.Class == class })
	if i < 0 {
		return Share{}, false
	}
	return list[i], true
}

// CalmOf returns what the calm flows of one machine may have together in a direction.
func (b Behaviour) CalmOf(d Direction) unit.Rate {
	if d == DirectionUp {
		return b.CalmOfUp
	}
	return b.CalmOfHost
}

// Of returns the shares of one direction; nil if it has no classes.
func (c *Classes) Of(down bool) []Share {
	switch {
	case c == nil:
		return nil
	case down:
		return c.Down
	}
	return c.Up
}

// validate checks the classes of a plan that was read from somewhere.
func (c *Classes) validate(p Plan) error {
	if c == nil {
		return nil
	}
	b := c.Behaviour
	if b == (Behaviour{}) { // the platform goes by rules alone
		b = (&maker{}).behaviour()
	}
	errs := []error{
		within("classes.behaviour.calm_packets", b.CalmPackets, 1, 100_000),
		within("classes.behaviour.calm_bps", int64(b.CalmRate), 8000, int64(MaxRate)),
		within("classes.behaviour.calm_of_host_bps", int64(b.CalmOfHost), 8000, int64(MaxRate)),
		within("classes.behaviour.calm_of_host_up_bps", int64(b.CalmOfUp), 8000, int64(MaxRate)),
		within("classes.behaviour.small_packet", b.SmallPacket, 64, 1500),
		within("classes.behaviour.first_bytes", b.FirstBytes, 0, 1<<40),
		within("classes.behaviour.first_bytes_up", b.FirstUp, 0, 1<<40),
		within("classes.behaviour.heavy_bytes", b.HeavyBytes, b.FirstBytes, 1<<50),
		within("classes.behaviour.long_bytes", b.LongBytes, b.HeavyBytes, 1<<50),
		within("classes.behaviour.heavy_connections", b.HeavyOfHost, 1, 100_000),
		within("classes.behaviour.peers", b.Peers, 1, 100_000),
		within("classes.behaviour.names_per_second", b.Names, 1, 100_000),
		within("classes.behaviour.acks_per_second", b.Acks, 0, 100_000_000),
		within("classes.behaviour.flows", b.Flows, 16, mostFlows),
		ClassWishes{Rules: c.Rules}.validate(),
	}
	for i, r := range c.Rules {
		for _, h := range r.Home {
			if kind, _ := KindOfHost(h); kind == HostName {
				errs = append(errs, fieldError(fmt.Sprintf("classes.rules[%d].home", i), "%q is a name, which only `unbloat plan` looks up", h))
			}
		}
	}
	for _, d := range []struct {
		name   Direction
		shares []Share
		s      *Shaper
	}{{DirectionUp, c.Up, p.Up}, {DirectionDown, c.Down, p.Down}} {
		errs = append(errs, validShares(field("classes", string(d.name)), d.shares, d.s))
	}
	return errors.Join(errs...)
}

func validShares(at string, shares []Share, s *Shaper) error {
	if shares == nil {
		return nil
	}
	if s == nil {
		return fieldError(at, "the direction is not shaped")
	}
	if len(shares) != len(AllClasses()) {
		return fieldError(at, "has %d classes, not %d", len(shares), len(AllClasses()))
	}
	var errs []error
	var sure unit.Rate
	for i, sh := range shares {
		sure += min(sh.Guarantee, s.Rate)
		if sh.Class != AllClasses()[i] {
			errs = append(errs, fieldError(at, "class %d is %q, not %q", i+1, sh.Class, AllClasses()[i]))
		}
		if i > 0 && sh.Tin >= shares[i-1].Tin {
			errs = append(errs, fieldError(at, "the tin of %s is not below that of %s", sh.Class, shares[i-1].Class))
		}
		errs = append(errs, within(at+".tin", int(sh.Tin), 1, 8),
			within(at+".guarantee_bps", int64(sh.Guarantee), 0, int64(s.Rate)), within(at+".limit_bps", int64(sh.Limit), 0, int64(s.Rate)))
	}
	if sure > s.Rate {
		errs = append(errs, fieldError(at, "the classes are guaranteed %s together, more than the %s that there are; guarantee less", sure.Short(), s.Rate.Short()))
	}
	if s.AQM == CAKE && s.Tins != tinsForRules {
		errs = append(errs, fieldError(at, "need cake with %s", tinsForRules))
	}
	return errors.Join(errs...)
}
