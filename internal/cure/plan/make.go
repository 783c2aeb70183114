package plan

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// Fractions of the measured rates that a plan starts with; `unbloat tune` finds
// better ones. We control the upload's queue directly. The download's shrinks
// only when the senders slow down, so it needs more headroom.
const (
	StartUp   = 0.95
	StartDown = 0.90
)

// leastGoal is the default goal of a fast line.
const leastGoal = 5 * time.Millisecond

// DefaultGoal returns the p95 increase of the round trip to aim for: 1.5 times a
// full packet's time up plus 1.5 times its time down, and at least 5 ms. No
// scheduler can interrupt a packet that is being sent. A direction whose rate is
// not known adds nothing.
func DefaultGoal(l Line) time.Duration {
	full := l.Wire(fullIP)
	var sum time.Duration
	for _, r := range []unit.Rate{l.Down, l.Up} {
		if r > 0 {
			sum += r.Time(full) * 3 / 2
		}
	}
	return max(leastGoal, sum)
}

// Make plans the shaping of a line on a router with these capabilities. Every
// number in the plan has a Reason. Errors are *FieldError, *SwappedError,
// *AboveLineError, *NoAQMError, *UnsupportedAQMError, *NoIngressError or
// ErrNothingToShape.
func Make(line Line, capabilities Capabilities, preferences Preferences) (Plan, error) {
	m, err := newMaker(line, capabilities, preferences)
	if err != nil {
		return Plan{}, err
	}
	down, up := m.rates()
	if err := checkRates(line, preferences, down, up); err != nil {
		return Plan{}, err
	}
	return m.make(down, up)
}

// wide is a rate far above any line's, so that a shaper at it has no effect.
const wide = 10 * unit.GbitPerSecond

// WideOpen plans a shaper at the platform's highest rate, up to 10 Gbit/s, so that
// the line is the bottleneck. It switches off the offloads that a slow shaper
// needs off, so that WithRates changes no other device at any rate.
func WideOpen(capabilities Capabilities, preferences Preferences) (Plan, error) {
	capabilities.Work = Work{} // a rate that nothing waits for is no work
	m, err := newMaker(Line{}, capabilities, preferences)
	if err != nil {
		return Plan{}, err
	}
	at := func(rate unit.Rate) (Plan, error) {
		w := preferences
		w.Down, w.Up = RatePreference{Rate: rate}, RatePreference{Rate: rate}
		return Make(Line{}, capabilities, w)
	}
	slow, err := at(unit.MbitPerSecond)
	if err != nil {
		return Plan{}, err
	}
	p, err := at(min(wide, m.lang.MaxRate))
	p.Offloads = slow.Offloads
	return p, err
}

// WithInterfaces returns the plan with the name that named gives for each interface.
func (p Plan) WithInterfaces(named func(string) string) Plan {
	rename := func(names ...*string) {
		for _, n := range names {
			*n = named(*n)
		}
	}
	offloads := func(all []Offload) []Offload {
		all = slices.Clone(all)
		for i := range all {
			rename(&all[i].Device, &all[i].Below)
		}
		return all
	}
	ifb := IFBName(p.WAN)
	rename(&p.WAN, &p.LAN)
	for _, at := range []**Shaper{&p.Down, &p.Up} {
		if *at != nil {
			s := **at
			if s.Device == ifb {
				s.Device = IFBName(p.WAN)
			}
			rename(&s.Device, &s.IngressOf)
			*at = &s
		}
	}
	if p.Classes != nil {
		c := *p.Classes
		rename(&c.LAN)
		p.Classes = &c
	}
	p.Offloads, p.FlowTable = offloads(p.Offloads), slices.Clone(p.FlowTable)
	for i := range p.FlowTable {
		rename(&p.FlowTable[i])
	}
	if p.Basis != nil {
		b := *p.Basis
		rename(&b.Capabilities.WAN, &b.Capabilities.LAN)
		b.Capabilities.Offloads = offloads(b.Capabilities.Offloads)
		p.Basis = &b
	}
	return p
}

// WithRates returns the plan for other rates: everything that depends on a rate is
// derived again, with its reason, as Make does. A rate of 0 leaves the direction
// unshaped. The rates are not compared with the measured ones, so that a tuner
// can try any; Validate refuses rates that no shaper can hold. In a plan that was
// written or edited by hand only the rates change, and a target or a burst that
// is too small for them.
func (p Plan) WithRates(down, up unit.Rate) Plan {
	if now, err := p.remake(p.DownBps, p.UpBps); err == nil && reflect.DeepEqual(now.Down, p.Down) && reflect.DeepEqual(now.Up, p.Up) {
		if q, err := p.remake(down, up); err == nil {
			return q
		}
	}
	return p.withRatesByHand(down, up)
}

// remake makes the plan again from its basis.
func (p Plan) remake(down, up unit.Rate) (Plan, error) {
	if p.Basis == nil {
		return Plan{}, fieldError("basis", "is missing")
	}
	m, err := newMaker(p.Basis.Line, p.Basis.Capabilities, p.Basis.Preferences)
	if err != nil {
		return Plan{}, err
	}
	m.older = !p.Control
	return m.make(down, up)
}

// withRatesByHand is WithRates for a plan that cannot be made again.
func (p Plan) withRatesByHand(down, up unit.Rate) Plan {
	retune := func(s *Shaper, r unit.Rate) *Shaper {
		if s == nil || r == 0 {
			return nil
		}
		c := *s
		c.Rate = r
		if c.Target != 0 {
			c.Target = max(c.Target, codelTarget(r, c.WireSize(fullIP)))
			c.Interval = max(c.Interval, codelInterval(c.Target))
		}
		if c.Burst != 0 {
			c.Burst = max(c.Burst, htbBurst(r, int(fullIP)))
		}
		return &c
	}
	p.DownBps, p.UpBps = down, up
	p.Down, p.Up = retune(p.Down, down), retune(p.Up, up)
	p.Reasons = slices.DeleteFunc(slices.Clone(p.Reasons), func(r Reason) bool { return r.Field == "down.rate" || r.Field == "up.rate" })
	return p
}

// A maker makes one plan.
type maker struct {
	line         Line
	capabilities Capabilities
	preferences  Preferences
	lang         *Language
	aqm          AQM
	aqmWhy       reason.Reason
	side         Side
	sideWhy      reason.Reason
	framing      framing
	plan         Plan
	older        bool // the plan is of a time when control traffic was shaped too
	way          Way
	asked        unit.Rate // of both directions together; 0: not known

	division division
	patient  map[Direction][]Reason // why the queues of its classes are longer than a single queue; given with the classes
}

// newMaker checks the inputs and chooses the AQM.
func newMaker(line Line, capabilities Capabilities, preferences Preferences) (*maker, error) {
	lang := capabilities.Language
	if lang == nil {
		return nil, fieldError("platform", "%q is unknown: nothing says what its configuration can express", capabilities.Platform)
	}
	capabilities.Platform, preferences.Style = lang.Platform, preferences.Style.current()
	if err := checkInputs(line, capabilities, preferences, lang); err != nil {
		return nil, err
	}
	m := &maker{line: line, capabilities: capabilities, preferences: preferences, lang: lang}
	m.framing = line.framing(m.headerLen(), capabilities.PointToPoint && isPPP(capabilities.WAN))
	m.chooseWay()
	if err := m.chooseAQM(); err != nil {
		return nil, err
	}
	return m, m.checkPreferencesFit()
}

func isPPP(device string) bool {
	return len(device) > 3 && device[:3] == "ppp" || len(device) > 5 && device[:5] == "pppoe"
}

// headerLen is the number of bytes that the router's kernel counts besides the IP packet.
func (m *maker) headerLen() int {
	if m.capabilities.PointToPoint || m.lang.Sides[0] == SideIn {
		return 0 // dummynet sees IP packets alone
	}
	return EthernetHeader
}

// chooseAQM walks down the ladder to what the router has.
func (m *maker) chooseAQM() error {
	have := m.capabilities.AQMs
	if have == nil {
		have = m.lang.AQMs
	}
	usable := func(a AQM) bool { return slices.Contains(have, a) && slices.Contains(m.lang.AQMs, a) }
	bounded := len(m.preferences.Classes.Shares) > 0 && m.preferences.Classes.Use != ClassesOff
	noWord := fieldError("class", "CAKE has no word for the guarantee or limit of a class; let HTB with fq_codel do it (--aqm fq_codel, modules sch_htb and sch_fq_codel), or leave them out")
	if a := m.preferences.AQM; a != "" {
		if !usable(a) {
			return &UnsupportedAQMError{AQM: a, Platform: m.lang.Platform, Have: have, Module: m.lang.Modules && a != SFQ}
		}
		if a == CAKE && bounded {
			return noWord
		}
		m.aqm, m.aqmWhy = a, say(reason.AsAsked)
		return nil
	}
	if m.way == WayLight && usable(FQCoDel) && usable(CAKE) {
		m.aqm, m.aqmWhy = FQCoDel, m.tooMuch(reason.AQMLight)
		return nil
	}
	ladder := m.lang.AQMs
	if m.preferences.Style == StyleArticle {
		ladder = append([]AQM{m.lang.Article.AQM}, ladder...)
	}
	for _, a := range ladder {
		// A FIFO delays all flows, so a better AQM is never replaced by it unasked.
		if !usable(a) || a == CAKE && bounded || a == FIFO && m.lang.AQMs[0] != FIFO {
			continue
		}
		m.aqm, m.aqmWhy = a, m.whyAQM(a)
		return nil
	}
	if bounded && usable(CAKE) {
		return noWord
	}
	lacks := slices.DeleteFunc(slices.Clone(m.lang.AQMs), func(a AQM) bool { return a == FIFO || a == SFQ || usable(a) })
	return &NoAQMError{Platform: m.lang.Platform, Lacks: lacks, Have: have}
}

func (m *maker) whyAQM(a AQM) reason.Reason {
	switch {
	case m.preferences.Style == StyleArticle:
		return say(reason.AQMOfArticle)
	case m.capabilities.Untried != "":
		return say(reason.AQMAssumed, "why", m.capabilities.Untried)
	case a == CAKE && m.capabilities.Assumed:
		return say(reason.AQMCakeAssumed, "platform", m.lang.Platform)
	case a == CAKE:
		return say(reason.AQMCake)
	case a == FQCoDel:
		return say(reason.AQMFQCodel, "platform", m.lang.Platform)
	case a == SFQ:
		return say(reason.AQMOfEngine, "engine", m.lang.Engine.Name)
	default:
		return say(reason.AQMFIFO)
	}
}

// chooseSide decides where the download is shaped.
func (m *maker) chooseSide() error {
	side, why := m.preferences.Side, say(reason.AsAsked)
	if m.aqm == SFQ {
		m.side, m.sideWhy = SideIn, say(reason.SideOfEngine, "engine", m.lang.Engine.Name)
		return nil
	}
	if side == "" {
		side, why = m.lang.Sides[0], say(reason.SideUsual)
		if m.preferences.Style == StyleArticle && slices.Contains(m.lang.Sides, SideLAN) {
			side, why = SideLAN, say(reason.SideOfArticle)
		} else if m.way == WayShort {
			side, why = SideLAN, m.tooMuch(reason.SideShort)
		} else if m.table() {
			side, why = SideLAN, say(reason.SideFlowTable)
		} else if side == SideIFB && !m.capabilities.IFB && m.capabilities.LAN != "" {
			side, why = SideLAN, say(reason.SideNoIFB)
		}
	}
	fail := func(why string) error { return &NoIngressError{Platform: m.lang.Platform, Side: side, Why: why} }
	if side == SideIn {
		why = say(reason.SideDummynet)
	}
	switch {
	case !slices.Contains(m.lang.Sides, side):
		return fail(fmt.Sprintf("not possible there; use one of %v", m.lang.Sides))
	case side == SideIFB && !m.capabilities.IFB:
		return fail("the kernel has no ifb device (module ifb, package kmod-ifb on OpenWrt); load it, or name the LAN interface and use side lan")
	case side == SideLAN && m.capabilities.LAN == "":
		return fail("the LAN's interface is not known; give --lan")
	}
	m.side, m.sideWhy = side, why
	return nil
}

// rates returns the rates to shape to; 0 leaves a direction unshaped.
func (m *maker) rates() (down, up unit.Rate) {
	startDown, startUp := StartDown, StartUp
	if m.preferences.Style == StyleArticle {
		startDown, startUp = m.lang.Article.Down, m.lang.Article.Up
	}
	rate := func(w RatePreference, measured unit.Rate, start float64) unit.Rate {
		r := w.of(measured, start)
		if w.IsZero() && m.uncounted() {
			r = r.Scale(1 / m.line.Uncounted(m.headerLen()))
		}
		if w.IsZero() && m.preferences.Style == StyleArticle && m.lang.Article.Rounds {
			return twoDigits(r)
		}
		return r
	}
	if m.preferences.Only != DirectionUp {
		down = rate(m.preferences.Down, m.line.Down, startDown)
	}
	if m.preferences.Only != DirectionDown {
		up = rate(m.preferences.Up, m.line.Up, startUp)
	}
	return down, up
}

// uncounted reports whether the line's framing was measured and the platform's shaper cannot count it.
func (m *maker) uncounted() bool { return m.line.Measured && !m.lang.NoOverhead.IsZero() }

// twoDigits rounds to the nearest rate of two digits, as people write rates:
// 12.75 Mbit/s becomes 13. That adds at most 4.8 %.
func twoDigits(r unit.Rate) unit.Rate {
	of := unit.Rate(1)
	for r/of >= 100 {
		of *= 10
	}
	return (r + of/2) / of * of
}

// wholeSteps rounds a rate down to a multiple of the platform's step. A rate below
// one step stays as it is, and Validate refuses it.
func (m *maker) wholeSteps(r unit.Rate) unit.Rate {
	if r < m.lang.Step {
		return r
	}
	return r - r%m.lang.Step
}

// checkRates compares the rates with the measured ones.
func checkRates(line Line, preferences Preferences, down, up unit.Rate) error {
	if preferences.Down.Fraction != 0 && line.Down == 0 {
		return fieldError("down", "%s of a rate that was not measured", preferences.Down)
	}
	if preferences.Up.Fraction != 0 && line.Up == 0 {
		return fieldError("up", "%s of a rate that was not measured", preferences.Up)
	}
	if line.Down > 0 && line.Up > 0 && preferences.Down.Rate > 0 && preferences.Up.Rate > 0 {
		a, b := preferences.Down.Rate, preferences.Up.Rate
		if fitsSwapped(line.Down, line.Up, a, b) || fitsSwapped(line.Up, line.Down, b, a) {
			return &SwappedError{MeasuredDown: line.Down, MeasuredUp: line.Up, PreferredDown: a, PreferredUp: b}
		}
	}
	if line.Down > 0 && down > 2*line.Down {
		return &AboveLineError{Direction: DirectionDown, Asked: down, Measured: line.Down}
	}
	if line.Up > 0 && up > 2*line.Up {
		return &AboveLineError{Direction: DirectionUp, Asked: up, Measured: line.Up}
	}
	return nil
}

// fitsSwapped reports whether the rates asked for on an asymmetric line look
// swapped: the one for the fast direction would fit the slow one, and the one for
// the slow direction is far above what it carries.
func fitsSwapped(fast, slow, askedFast, askedSlow unit.Rate) bool {
	return fast > slow+slow/2 && askedFast <= slow+slow/20 && askedSlow > slow+slow/2
}
