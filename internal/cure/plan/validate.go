package plan

import (
	"errors"
	"slices"
	"time"

	"unbloat/unit"
)

// MinRate is the lowest rate a plan may have: a full packet then takes 1.5 s.
const MinRate = 8 * unit.KbitPerSecond

// maxTime is the longest target and interval: dummynet accepts no longer ones.
const maxTime = 100 * time.Second

// In returns a plan that was read from JSON with the language of its platform,
// which JSON does not have. WithRates needs it.
func (p Plan) In(lang *Language) Plan {
	if p.Basis != nil {
		b := *p.Basis
		b.Capabilities.Language = lang
		p.Basis = &b
	}
	return p
}

// RuleLimits returns the limits of explicit rules on the plan's platform. They are
// known if the plan has its platform's language.
func (p Plan) RuleLimits() RuleLimits {
	if p.Basis == nil || p.Basis.Capabilities.Language == nil {
		return RuleLimits{}
	}
	return p.Basis.Capabilities.Language.Rules
}

// Validate reports everything in a plan that its platform cannot do, or in which it
// contradicts itself, so that a plan read from a file is as good as one from Make. Each
// problem is a *FieldError.
// lang is the language of the plan's platform.
func (p Plan) Validate(lang *Language) error {
	if p.Schema != Schema {
		return fieldError("schema", "is %q, not %q; is this a plan?", p.Schema, Schema)
	}
	if lang == nil || p.Platform != lang.Platform {
		return fieldError("platform", "is %q, which is not the platform of this router", p.Platform)
	}
	errs := []error{checkDevice("wan", p.WAN, lang)}
	if p.LAN != "" {
		errs = append(errs, checkDevice("lan", p.LAN, lang))
	}
	if p.Down == nil && p.Up == nil {
		errs = append(errs, ErrNothingToShape)
	}
	if p.Goal < 0 {
		errs = append(errs, fieldError("goal", "is negative"))
	}
	for _, o := range p.Offloads {
		errs = append(errs, checkDevice("offloads", o.Device, lang))
		if !slices.Contains([]string{"tso", "gso", "gro", "lro", "ufo"}, o.Feature) {
			errs = append(errs, fieldError("offloads", "%q is not an offload that unbloat switches off; it knows tso, gso, gro, lro and ufo", o.Feature))
		}
	}
	for _, d := range p.FlowTable {
		errs = append(errs, checkDevice("flow_table", d, lang))
	}
	if p.Control && lang.Control.IsZero() {
		errs = append(errs, fieldError("control", "%s has no rules before its shaper's", lang.Platform))
	}
	switch {
	case len(p.FlowTable) == 0:
	case !lang.FlowTable:
		errs = append(errs, fieldError("flow_table", "%s has none that a plan can set", lang.Platform))
	case p.Classes != nil:
		errs = append(errs, fieldError("flow_table", "its connections go past the rules that divide them into classes; leave out one of the two"))
	case p.Down != nil && p.Down.IngressOf != "":
		errs = append(errs, fieldError("flow_table", "what goes through an ifb does not take the short way; shape the download at the LAN (--side lan)"))
	}
	errs = append(errs, p.checkLimits(lang)...)
	errs = append(errs, p.agrees(lang), p.Classes.validate(p),
		p.Down.validate(DirectionDown, p.DownBps, lang),
		p.Up.validate(DirectionUp, p.UpBps, lang))
	if p.Down != nil && p.Up != nil && p.Down.Device == p.Up.Device && p.Down.IngressOf == "" {
		errs = append(errs, fieldError("down.device", "%q is shaped twice: the upload has it too", p.Down.Device))
	}
	return errors.Join(append(errs, p.checkWhole(lang))...)
}

// checkWhole refuses combinations of the two directions that the platform cannot do.
func (p Plan) checkWhole(lang *Language) error {
	switch {
	case !lang.NotAlone.IsZero() && p.Up == nil && p.Down != nil:
		return fieldError("up", "%s; give --up too", lang.NotAlone)
	case p.AQM != SFQ || lang.Engine == nil:
	case p.Up == nil || p.Down == nil:
		return fieldError("only", "%s %s; give both rates, or use fq_codel", lang.Engine.Name, lang.Engine.NotAlone)
	case !lettersAndDigits(p.WAN):
		return fieldError("wan", "%s cannot shape %q: %s; use fq_codel, which does not go through it", lang.Engine.Name, p.WAN, lang.Engine.Names)
	}
	return nil
}

func lettersAndDigits(name string) bool {
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}

// checkDevice is checkName, and also checks the platform's own interface names.
func checkDevice(field, name string, lang *Language) error {
	if err := checkName(field, name); err != nil {
		return err
	}
	if lang.OwnNames && name != "wan" && name != "lan" && !optN(name) {
		return fieldError(field, "%q: %s calls its interfaces wan, lan, opt1 …; give that name", name, lang.Platform)
	}
	return nil
}

func optN(name string) bool {
	if len(name) < 4 || name[:3] != "opt" {
		return false
	}
	for _, c := range []byte(name[3:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// validate checks one direction, nil if it is not shaped.
func (s *Shaper) validate(d Direction, rate unit.Rate, lang *Language) error {
	at := func(name string) string { return field(d, name) }
	if s == nil {
		if rate != 0 {
			return fieldError(at("rate"), "%s_bps is %d, but the direction has no shaper", d, int64(rate))
		}
		return nil
	}
	errs := []error{checkDevice(at("device"), s.Device, lang), checkRate(at("rate"), s.Rate, lang)}
	if s.IngressOf != "" {
		errs = append(errs, checkDevice(at("ingress_of"), s.IngressOf, lang))
	}
	if s.Rate != rate {
		errs = append(errs, fieldError(at("rate"), "is %d bit/s, but %s_bps says %d", int64(s.Rate), d, int64(rate)))
	}
	if !slices.Contains(lang.AQMs, s.AQM) {
		errs = append(errs, fieldError(at("aqm"), "%q is not one of %v, which %s can do", s.AQM, lang.AQMs, lang.Platform))
	}
	if !slices.Contains([]LinkLayer{"", Ethernet, DOCSIS, ATM, PTM}, s.LinkLayer) {
		errs = append(errs, fieldError(at("link_layer"), "%q is not one of ethernet, docsis, atm and ptm", s.LinkLayer))
	}
	if s.HeaderLen != 0 && s.HeaderLen != EthernetHeader {
		errs = append(errs, fieldError(at("header_len"), "is %d; a kernel counts 14 bytes or none", s.HeaderLen))
	}
	errs = append(errs,
		within(at("overhead"), s.Overhead, -64, 256), within(at("mpu"), s.MPU, 0, 256),
		within(at("flows"), s.Flows, 0, lang.Flows), within(at("limit"), s.Limit, 0, s.mostLimit(lang)),
		checkQuantum(at("quantum"), s.Quantum, lang),
		within(at("burst"), int64(s.Burst), 0, 1<<30), within(at("class_q"), int64(s.ClassQ), 0, 1<<30),
		checkTimes(at, s.Target, s.Interval), s.checkMost(at, lang), s.checkCake(at), s.checkRules(at), s.checkSettings(at, lang))
	return errors.Join(errs...)
}

// checkMost refuses times that the platform cuts, and a FIFO that it finds too short.
func (s *Shaper) checkMost(at func(string) string, lang *Language) error {
	switch {
	case lang.Target != 0 && s.Target > lang.Target:
		return fieldError(at("target"), "%v is above %v, the most that %s takes", s.Target, lang.Target, lang.Platform)
	case lang.Interval != 0 && s.Interval > lang.Interval:
		return fieldError(at("interval"), "%v is above %v, the most that %s takes", s.Interval, lang.Interval, lang.Platform)
	case s.AQM == FIFO && s.Limit != 0 && s.Limit < lang.FIFOLeast:
		return fieldError(at("limit"), "%d is below %d packets, the fewest that %s takes", s.Limit, lang.FIFOLeast, lang.Platform)
	}
	return nil
}

// mostLimit returns the largest packet limit of the queue.
func (s *Shaper) mostLimit(lang *Language) int {
	if s.AQM == FIFO {
		return lang.FIFOLimit
	}
	return lang.Limit
}

// checkCake checks the keywords for CAKE's command line.
func (s *Shaper) checkCake(at func(string) string) error {
	if !slices.Contains(cakeTins(), s.Tins) {
		return fieldError(at("tins"), "%q is not one of %q", s.Tins, cakeTins())
	}
	isolations := []string{"", "flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate"}
	if !slices.Contains(isolations, s.Isolation) {
		return fieldError(at("isolation"), "%q is not one of %q", s.Isolation, isolations)
	}
	return nil
}

func cakeTins() []string {
	return []string{"", "besteffort", "precedence", "diffserv3", "diffserv4", "diffserv8"}
}

// checkRate refuses rates that the platform's shaper cannot hold.
func checkRate(field string, r unit.Rate, lang *Language) error {
	switch {
	case r < MinRate:
		return fieldError(field, "%s is too low to shape with; the least is %s", r, MinRate)
	case r > lang.MaxRate:
		return fieldError(field, "%s is above %s, the most that %s can hold", r, lang.MaxRate, lang.Platform)
	case r%lang.Step != 0:
		return fieldError(field, "%s is not a multiple of %s, which is what %s takes", r, lang.Step, lang.Platform)
	}
	return nil
}

// checkQuantum refuses a quantum below 256 bytes, which Linux would silently raise
// to 256, and one that the platform cannot set.
func checkQuantum(field string, q unit.Size, lang *Language) error {
	if q == 0 {
		return nil
	}
	return within(field, q, 256, lang.Quantum)
}

func checkTimes(at func(string) string, target, interval time.Duration) error {
	switch {
	case target < 0 || target > maxTime:
		return fieldError(at("target"), "%v is not within 0…%v", target, maxTime)
	case interval < 0 || interval > maxTime:
		return fieldError(at("interval"), "%v is not within 0…%v", interval, maxTime)
	case target > 0 && interval > 0 && target > interval:
		return fieldError(at("target"), "%v is above the interval of %v; CoDel needs a target below its interval", target, interval)
	}
	return nil
}

func within[T int | int64 | unit.Size](field string, v, least, most T) error {
	if v < least || v > most {
		return fieldError(field, "%d is not within %d…%d", int64(v), int64(least), int64(most))
	}
	return nil
}

// checkInputs refuses inputs that no plan can be made from.
func checkInputs(l Line, f Capabilities, w Preferences, lang *Language) error {
	errs := []error{checkDevice("wan", f.WAN, lang)}
	if f.LAN != "" {
		errs = append(errs, checkDevice("lan", f.LAN, lang))
	}
	if f.LAN == f.WAN {
		errs = append(errs, fieldError("lan", "%q is the WAN too", f.LAN))
	}
	if f.MTU != 0 {
		errs = append(errs, within("mtu", f.MTU, 68, 65535))
	}
	for _, r := range []struct {
		field string
		rate  unit.Rate
	}{{"line.down", l.Down}, {"line.up", l.Up}, {"down", w.Down.Rate}, {"up", w.Up.Rate}} {
		if r.rate < 0 || r.rate > MaxRate {
			errs = append(errs, fieldError(r.field, "%d bit/s is not within 0…%s", int64(r.rate), MaxRate))
		}
	}
	for _, r := range []struct {
		field    string
		fraction float64
	}{{"down", w.Down.Fraction}, {"up", w.Up.Fraction}} {
		if !(r.fraction >= 0 && r.fraction <= 1) {
			errs = append(errs, fieldError(r.field, "%v of the measured rate is not within 0…1", r.fraction))
		}
	}
	if !slices.Contains([]LinkLayer{"", Ethernet, DOCSIS, ATM, PTM}, l.LinkLayer) {
		errs = append(errs, fieldError("link_layer", "%q is not one of ethernet, docsis, atm and ptm", l.LinkLayer))
	}
	errs = append(errs, within("overhead", l.Overhead, -64, 256), within("mpu", l.MPU, 0, 256))
	if l.RTT < 0 || l.RTT > maxTime {
		errs = append(errs, fieldError("rtt", "%v is not within 0…%v", l.RTT, maxTime))
	}
	return errors.Join(append(errs, checkPreferences(w))...)
}

// checkPreferences refuses preferences that are invalid on every platform.
func checkPreferences(w Preferences) error {
	errs := []error{w.Classes.validate()}
	if !slices.Contains([]Side{"", SideIFB, SideLAN, SideIn}, w.Side) {
		errs = append(errs, fieldError("side", "%q is not one of ifb, lan and in", w.Side))
	}
	if !slices.Contains([]Style{StyleDefault, StyleArticle}, w.Style) {
		errs = append(errs, fieldError("style", "%q is unknown; there is \"article\"", w.Style))
	}
	if !slices.Contains([]Direction{"", DirectionDown, DirectionUp}, w.Only) {
		errs = append(errs, fieldError("only", "%q is neither down nor up", w.Only))
	}
	if !slices.Contains(cakeTins(), w.Tins) {
		errs = append(errs, fieldError("tins", "%q is not one of %q", w.Tins, cakeTins()))
	}
	for _, d := range []struct {
		field string
		time  time.Duration
	}{{"goal", w.Goal}, {"latency", w.Latency}} {
		if d.time < 0 || d.time > maxTime {
			errs = append(errs, fieldError(d.field, "%v is not within 0…%v", d.time, maxTime))
		}
	}
	return errors.Join(append(errs, checkTimes(func(s string) string { return s }, w.Target, w.Interval))...)
}

// checkPreferencesFit refuses preferences that the chosen AQM has no setting for,
// and numbers that the platform would silently change.
func (m *maker) checkPreferencesFit() error {
	w, refuse := m.preferences, func(name, why string) error {
		return fieldError(name, "%s %s", m.aqm, why)
	}
	if err := m.checkFlowTable(); err != nil {
		return err
	}
	switch {
	case m.aqm != FQCoDel && w.Target != 0:
		return refuse("target", "takes no target; CAKE derives it from its rtt (interval), a FIFO has none")
	case m.aqm != FQCoDel && w.Quantum != 0:
		return refuse("quantum", "takes no quantum")
	case m.aqm != FQCoDel && w.Flows != 0:
		return refuse("flows", "has a fixed number of flows")
	case m.aqm != FQCoDel && m.aqm != CAKE && w.Interval != 0:
		return refuse("interval", "takes no interval")
	case m.aqm == CAKE && w.Limit != 0:
		return refuse("limit", "sets its own limit, in bytes")
	case m.aqm == CAKE && w.ECN != nil && !*w.ECN:
		return refuse("ecn", "always marks what can be marked")
	case m.aqm != CAKE && (w.Tins != "" || w.AckFilter != nil):
		return refuse("tins", "has no tins and no ACK filter; only CAKE has")
	}
	return errors.Join(
		within("flows_down", w.FlowsDown, 0, mostFlows),
		within("limit", w.Limit, 0, (&Shaper{AQM: m.aqm}).mostLimit(m.lang)),
		within("flows", w.Flows, 0, m.lang.Flows),
		checkQuantum("quantum", w.Quantum, m.lang))
}

// checkFlowTable refuses what a flow table cannot go with.
func (m *maker) checkFlowTable() error {
	w, c := m.preferences, m.preferences.Classes
	switch {
	case !w.FlowTable:
		return nil
	case !m.lang.FlowTable:
		return fieldError("flow_table", "%s has none that a plan can set", m.lang.Platform)
	case w.Style == StyleArticle:
		return fieldError("flow_table", "the article has none")
	case w.Side != "" && w.Side != SideLAN:
		return fieldError("flow_table", "what goes through an ifb does not take the short way; shape the download at the LAN (--side lan)")
	case m.capabilities.LAN == "":
		return fieldError("lan", "a flow table needs both interfaces; give --lan")
	case c.Use == ClassesOn || len(c.Rules) > 0 || len(c.Shares) > 0 || c.DSCP != DSCPPreference{}:
		return fieldError("flow_table", "its connections go past the rules that divide them into classes; leave out one of the two")
	}
	return nil
}
