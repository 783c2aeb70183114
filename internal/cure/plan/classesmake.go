package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// Limits by which a flow's behaviour is judged, unless the line requires others.
// G.711 sends 50 packets and 10 kB a second, games up to 128 packets of 100 bytes.
const (
	calmPackets = 160
	calmRate    = 200 * unit.KbitPerSecond
	calmOfHost  = 400 * unit.KbitPerSecond // at least; else an eighth of the line
	lowSteady   = 450 * unit.KbitPerSecond // for a steady flow, of a slow line
	mostSteady  = 50 * unit.MbitPerSecond  // and of a fast one: a game that is played elsewhere, in 4K
	smallPacket = 511
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
	manyDownloads  = 32 // at once; so many never slow down together
	leastWindow    = 2  // a TCP connection's smallest window in packets (RFC 5681)
	mostTins       = 100 * time.Millisecond
	cakeTargets    = 20 // CAKE's interval, in targets
	mostPatient    = 60 * time.Millisecond
	mostFlows      = 1 << 18
	picture        = 12_500 * unit.Byte     // of a video call of 3 Mbit/s, 30 a second
	pictureTargets = 3 * cakeTargets / 2    // CAKE's interval for one, in times that it takes
	mostPictures   = 250 * time.Millisecond // the longest
)

// A division says whether the plan has classes, and why not.
type division struct {
	on      bool
	why     reason.Reason // why there are none; zero if nobody expects any
	warning reason.Reason // the same, if they were asked for
}

// wantClasses decides whether the plan has classes.
func (m *maker) wantClasses() division {
	w := m.preferences.Classes
	asked := w.Use == ClassesOn || len(w.Rules) > 0 || len(w.Shares) > 0 || w.DSCP != DSCPPreference{}
	able := m.aqm == CAKE || m.aqm == FQCoDel
	switch {
	case w.Use == ClassesOff:
		return division{}
	case m.table():
		return division{why: say(reason.ClassesPast)}
	case m.way == WayLight:
		return division{why: m.tooMuch(reason.ClassesTooDear)}
	case !asked && (m.preferences.Style == StyleArticle || m.preferences.Tins != "" || m.aqm == FQCoDel && m.preferences.AQM != ""):
		return division{}
	case m.lang.ClassesAsked == m.aqm && asked:
		return division{on: true}
	case m.lang.ClassesAsked == m.aqm: // a single queue is better without rules
		return division{why: m.lang.ClassesUnasked}
	case !m.lang.Classes || !able:
		return m.noClasses(asked)
	}
	why := m.withoutBPF()
	if why.IsZero() {
		return division{on: true}
	}
	if len(w.Rules) == 0 && w.DSCP == (DSCPPreference{}) && len(w.Shares) == 0 {
		return division{why: why, warning: say(reason.BPFLeftOut).With(why)}
	}
	if m.capabilities.NoClasses != "" {
		return division{why: say(reason.ClassesUnable, "why", m.capabilities.NoClasses), warning: say(reason.ClassesLeftOut).With(say(reason.ClassesUnable, "why", m.capabilities.NoClasses))}
	}
	if len(m.capabilities.OthersMarks) > 0 && m.side == SideIFB && m.plan.DownBps > 0 {
		why := m.othersMarks()
		return division{why: why, warning: say(reason.ClassesNone).With(why)}
	}
	return division{on: true}
}

// mostNamed is how many rules of others are named at most.
const mostNamed = 4

// othersMarks says why nothing may take bits of marks.
func (m *maker) othersMarks() reason.Reason {
	var rules []reason.Reason
	for i, r := range m.capabilities.OthersMarks {
		if i == mostNamed {
			rules = append(rules, reason.Written("…"))
			break
		}
		rules = append(rules, reason.Written(r))
	}
	return say(reason.OthersMarks).With(rules...)
}

// divides reports whether a shaped direction has classes.
func (m *maker) divides(d Direction) bool {
	return m.division.on && !(d == DirectionDown && m.side == SideIFB && m.capabilities.NoMarks && !m.byBPF())
}

// sayUndivided says why there are no classes.
func (m *maker) sayUndivided() {
	if !m.division.why.IsZero() {
		m.because("classes", word("none"), m.division.why)
	}
	if !m.division.warning.IsZero() {
		m.warning(m.division.warning)
	}
	m.sayNFT()
}

// sayNFT says that nftables no longer judges how flows behave, to who asked for it.
func (m *maker) sayNFT() {
	if m.preferences.Classes.Classifier == ByNFT {
		m.warning(say(reason.NFTNotChosen))
	}
}

// classes adds the classes to a plan that has its shapers.
func (m *maker) classes() error {
	c := &Classes{Rules: slices.Clone(m.preferences.Classes.Rules), DSCP: m.preferences.Classes.DSCP, Behaviour: m.behaviour(), Varies: m.line.Varies}
	if m.byBPF() && m.capabilities.NoClasses != "" && len(c.Rules) > 0 { // the rules alone need nftables
		c.Rules = nil
		m.warning(say(reason.ClassesLeftOut).With(say(reason.ClassesUnable, "why", m.capabilities.NoClasses)))
	}
	for i, r := range c.Rules {
		home, err := m.resolve(fmt.Sprintf("rule[%d].home", i), r.Home)
		if err != nil {
			return err
		}
		c.Rules[i].Home = home
	}
	if m.lang.ClassesAsked != "" {
		m.explicitAlone(c)
	}
	if !m.byBPF() {
		c.Behaviour = Behaviour{}
	}
	if m.plan.Up != nil {
		c.Up = m.shares(DirectionUp, m.plan.Up)
	}
	switch {
	case m.plan.Down == nil:
	case !m.divides(DirectionDown):
		m.because("down.classes", word("none"), say(reason.ClassesNoMarks))
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
	m.classifier(c)
	m.plan.Classes = c
	m.explainRules(c)
	m.explainClasses(c)
	return nil
}

// classifier says what judges how flows behave, and why where nothing does.
func (m *maker) classifier(c *Classes) {
	if m.lang.Classes {
		m.sayNFT()
	}
	why := m.withoutBPF()
	switch {
	case !m.lang.Classes:
		return
	case !why.IsZero():
		m.because("classes.classifier", word("none"), why)
		m.warning(say(reason.BPFLeftOut).With(why))
		return
	}
	c.Classifier, c.LAN = ByBPF, m.capabilities.LAN
	code := reason.BPFClassifies
	if len(c.Rules) > 0 {
		code = reason.BPFBesideNFT
	}
	m.because("classes.classifier", word(string(ByBPF)), say(code, "lan", c.LAN))
	for _, r := range c.Rules {
		if len(r.DSCP) > 0 && r.Direction != DirectionUp {
			m.warning(say(reason.RuleUploadAlone, "rule", r).With(say(reason.ArrivesFirst)))
		}
	}
	m.withoutNAT(c)
}

// withoutNAT has CAKE look at no connections where the program numbers every machine.
// Then CAKE takes machine and flow from the program, and does not look for them itself.
func (m *maker) withoutNAT(c *Classes) {
	if m.aqm != CAKE {
		return
	}
	value, code := word("no"), reason.NATNumbered
	if !m.capabilities.OneLAN {
		value, code = word("yes"), reason.NATUnnumbered
	} else {
		m.plan.Up.NAT, m.plan.Down.NAT = false, false
	}
	for _, d := range []Direction{DirectionUp, DirectionDown} {
		i := slices.IndexFunc(m.plan.Reasons, func(r Reason) bool { return r.Field == field(d, "nat") })
		m.plan.Reasons[i].Value, m.plan.Reasons[i].Why = value, say(code, "lan", c.LAN)
	}
}

// byBPF reports whether a BPF program will judge how flows behave.
func (m *maker) byBPF() bool { return m.withoutBPF().IsZero() }

// withoutBPF says why no BPF program can judge how flows behave in such a plan; zero: one can.
func (m *maker) withoutBPF() reason.Reason {
	switch {
	case !m.lang.BPF || m.lang.BPFOmitted:
		return say(reason.BPFNotThere, "platform", m.lang.Platform)
	case m.capabilities.NoBPF != "":
		return say(reason.ClassesUnable, "why", m.capabilities.NoBPF)
	case m.capabilities.SlowBPF != "" && m.preferences.Classes.Classifier != ByBPF:
		return say(reason.BPFSlow, "why", m.capabilities.SlowBPF)
	case m.aqm != CAKE && m.aqm != FQCoDel:
		return say(reason.BPFNeedsClasses)
	case m.plan.UpBps == 0 || m.plan.DownBps == 0 || m.side != SideIFB:
		return say(reason.BPFNeedsBoth)
	case m.capabilities.LAN == "":
		return say(reason.BPFNeedsLAN)
	}
	return reason.Reason{}
}

// behaviour derives the meters from the line, not from the shaper's rate, so that
// a tuner that tries rates does not reset them.
func (m *maker) behaviour() Behaviour {
	down, up := cmp.Or(m.line.Down, m.preferences.Down.Rate), cmp.Or(m.line.Up, m.preferences.Up.Rate)
	line := max(down, up)
	b := Behaviour{
		CalmPackets: calmPackets, CalmRate: calmRate, SmallPacket: smallPacket,
		CalmOfHost: max(down/8, calmOfHost), CalmOfUp: max(up/8, calmOfHost),
		FirstBytes:  whole(min(max(line.Bytes(20*time.Millisecond), leastFirst), mostFirst)),
		FirstUp:     whole(min(max(up.Bytes(20*time.Millisecond), leastFirst), mostFirst)),
		HeavyBytes:  leastHeavy,
		LongBytes:   whole(max(line.Bytes(20*time.Second), leastLong)),
		HeavyOfHost: heavyOfHost, Peers: swarmPeers, Names: namesASec, Flows: flowsKept,
		Acks: m.line.acknowledgements(down, up),
	}
	b.Steady, b.SteadyOfHost = steady(down)
	b.SteadyUp, b.SteadyOfHostUp = steady(up)
	if w := m.preferences.Classes.FirstBytes; w > 0 {
		b.FirstBytes, b.FirstUp = w, w
		b.HeavyBytes = max(b.HeavyBytes, w)
		b.LongBytes = max(b.LongBytes, w)
	}
	return b
}

// steady returns what a steady flow may have of a direction, and those of one
// machine together; 0 where that would be no more than what is calm. It is less
// than class interactive's share of the line. A call needs the same on a slow line,
// so there it may have more of it; and none needs more than mostSteady.
func steady(line unit.Rate) (flow, machine unit.Rate) {
	flow = min(max(line*3/8, min(lowSteady, line*9/20)), mostSteady)
	if flow <= calmRate {
		return 0, 0
	}
	return flow, min(flow*6/5, line/2)
}

// acknowledgements limits the ACKs per second of TCP connections that acknowledge
// every packet, as receivers do when packets arrive far apart; 0 means no limit.
// RFC 9293 requires one for every two packets. A hundred downloads that share a
// line send one for each packet: a fifth of the upload, if that has a sixth of the
// download's rate. The limit is a ninth of the upload, but at least one ACK for
// every four full packets of the download.
func (l Line) acknowledgements(down, up unit.Rate) int {
	most := int(down / (8 * unit.Rate(l.Wire(fullIP))))
	allowed := max(int(up/(9*8*unit.Rate(l.Wire(ackIP)))), most/4)
	if allowed >= most {
		return 0
	}
	return allowed
}

// whole rounds up to whole kB, which reads better.
func whole(n unit.Size) unit.Size { return (n + unit.KB - 1) / unit.KB * unit.KB }

// resolve replaces names of machines by the addresses that the router knows.
func (m *maker) resolve(field string, home []string) ([]string, error) {
	var out []string
	for _, h := range home {
		kind, name := KindOfHost(h)
		if kind != HostName {
			out = append(out, name)
			continue
		}
		known := m.capabilities.Hosts[strings.ToLower(name)]
		if len(known) == 0 {
			return nil, fieldError(field, "the router knows no machine named %q; give its address or MAC address", h)
		}
		out = append(out, known...)
	}
	return out, nil
}

// Share returns what a class gets of a direction.
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

// Unjudged says why nothing judges how flows behave, where a plan of this platform usually
// does; zero: it does, or nobody expects it.
func (p Plan) Unjudged() reason.Reason {
	for _, w := range p.Warnings {
		if w.Code == reason.BPFLeftOut {
			return w
		}
	}
	return reason.Reason{}
}
