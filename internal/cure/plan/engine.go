package plan

import (
	"unbloat/reason"
	"unbloat/unit"
)

// A Work is the rate that a router's cores carry, both directions together, as it was measured.
type Work struct {
	Most   unit.Rate `json:"most_bps"`             // as the work is spread over the cores now
	Spread unit.Rate `json:"spread_bps,omitempty"` // if all cores did alike; 0: they do, or there is one
}

// A Way is how a router should shape.
type Way string

// Ways, each with less work for the cores than the one before.
const (
	WayUsual  Way = "usual"  // the best that the kernel has, with classes
	WaySpread Way = "spread" // the same, once more than one core carries packets
	WayLight  Way = "light"  // HTB with fq_codel, without classes
	WayShort  Way = "short"  // at the LAN's side, with a flow table, without classes
)

// light is the part of a packet's work that HTB with fq_codel leaves: 7449 of 8725
// instructions (docs/class-rules.md).
const light = 0.854

// Way chooses by a rate of both directions together; 0: not known.
func (w Work) Way(asked unit.Rate) Way {
	switch {
	case w.Most == 0 || asked == 0 || w.Most >= asked:
		return WayUsual
	case w.Spread >= asked:
		return WaySpread
	case w.Most.Scale(1/light) >= asked:
		return WayLight
	}
	return WayShort
}

// chooseWay goes by what the router carries, if that is known and nobody chose by hand. A
// line that a flow table can't be had for gets fq_codel.
func (m *maker) chooseWay() {
	w, c := m.preferences, m.preferences.Classes
	asked := w.Down.of(m.line.Down, 1) + w.Up.of(m.line.Up, 1)
	m.way = m.capabilities.Work.Way(asked)
	byHand := w.AQM != "" || w.Side != "" || w.Style != StyleDefault || w.FlowTable || w.Tins != "" || w.Only != "" || m.lang.Sides[0] != SideIFB ||
		c.Use == ClassesOn || len(c.Rules) > 0 || len(c.Shares) > 0 || c.DSCP != DSCPPreference{}
	switch {
	case byHand:
		m.way = WayUsual
	case m.way == WayShort && (!m.lang.FlowTable || !m.capabilities.OneLAN):
		m.way = WayLight
	}
	m.asked = asked
}

// warnOfWork says what lets the router carry what is asked for.
func (m *maker) warnOfWork() {
	if w := m.capabilities.Work; m.way == WaySpread {
		m.warning(say(reason.WorkUneven, "asked_bps", m.asked, "most_bps", w.Most, "spread_bps", w.Spread))
	}
}

// tooMuch says that the router does not carry what is asked of CAKE with classes.
func (m *maker) tooMuch(code reason.Code) reason.Reason {
	return say(code, "asked_bps", m.asked, "most_bps", m.capabilities.Work.Most)
}

// table reports whether connections take a flow table's way.
func (m *maker) table() bool { return m.preferences.FlowTable || m.way == WayShort }
