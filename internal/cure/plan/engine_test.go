package plan_test

import (
	"testing"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/reason"
)

// What shapes follows from what the router carries: CAKE with classes as long as that is enough, HTB with
// fq_codel where a little is missing, the LAN's side with a flow table where more is. What a person
// asks for stays, and where nothing is known the plan is the usual one. Other rates change none of it.
func TestWay(t *testing.T) {
	line := Line{Down: 300 * mbit, Up: 40 * mbit}
	capabilities := Capabilities{Language: linux.Language(), WAN: "eth0", LAN: "eth1", OneLAN: true, IFB: true}
	sqm := Capabilities{Language: openwrt.Language(), WAN: "wan", LAN: "br-lan", OneLAN: true, IFB: true}
	two := capabilities
	two.OneLAN = false
	for name, c := range map[string]struct {
		capabilities  Capabilities
		work          Work
		w             Preferences
		aqm           AQM
		side          string // the download's device
		table, judged bool
		why           reason.Code // of the field, or a warning's
		field         string
	}{
		"not known":        {capabilities, Work{}, Preferences{}, CAKE, "ifb4eth0", false, true, reason.AQMCake, "aqm"},
		"enough":           {capabilities, Work{Most: 340 * mbit}, Preferences{}, CAKE, "ifb4eth0", false, true, reason.AQMCake, "aqm"},
		"one core of two":  {capabilities, Work{Most: 200 * mbit, Spread: 400 * mbit}, Preferences{}, CAKE, "ifb4eth0", false, true, reason.WorkUneven, ""},
		"a little less":    {capabilities, Work{Most: 300 * mbit}, Preferences{}, FQCoDel, "ifb4eth0", false, false, reason.AQMLight, "aqm"},
		"half":             {capabilities, Work{Most: 170 * mbit, Spread: 200 * mbit}, Preferences{}, CAKE, "eth1", true, false, reason.SideShort, "down.device"},
		"two LANs":         {two, Work{Most: 170 * mbit}, Preferences{}, FQCoDel, "ifb4eth0", false, false, reason.AQMLight, "aqm"},
		"sqm-scripts":      {sqm, Work{Most: 170 * mbit}, Preferences{}, FQCoDel, "ifb4wan", false, false, reason.AQMLight, "aqm"},
		"CAKE asked for":   {capabilities, Work{Most: 170 * mbit}, Preferences{AQM: CAKE}, CAKE, "ifb4eth0", false, true, reason.AsAsked, "aqm"},
		"ifb asked for":    {capabilities, Work{Most: 170 * mbit}, Preferences{Side: SideIFB}, CAKE, "ifb4eth0", false, true, reason.AQMCake, "aqm"},
		"classes asked":    {capabilities, Work{Most: 170 * mbit}, Preferences{Classes: ClassPreferences{Use: ClassesOn}}, CAKE, "ifb4eth0", false, true, reason.AQMCake, "aqm"},
		"a rate that fits": {capabilities, Work{Most: 170 * mbit}, Preferences{Down: RatePreference{Rate: 120 * mbit}}, CAKE, "ifb4eth0", false, true, reason.AQMCake, "aqm"},
	} {
		c.capabilities.Work = c.work
		p := mustMake(t, line, c.capabilities, c.w)
		if p.AQM != c.aqm || p.Down.Device != c.side || len(p.FlowTable) > 0 != c.table || (p.Classes != nil) != c.judged {
			t.Errorf("%s: %s on %s, flow table %q, classes %v", name, p.AQM, p.Down.Device, p.FlowTable, p.Classes != nil)
		}
		found := false
		for _, w := range p.Warnings {
			found = found || w.Code == c.why
		}
		if r, ok := p.Why(c.field); ok {
			found = found || r.Why.Code == c.why || len(r.Why.Causes) > 0 && r.Why.Causes[0].Code == c.why
		}
		if !found {
			t.Errorf("%s: nothing says %s: %+v", name, c.why, p.Reasons)
		}
		if q := p.WithRates(10*mbit, mbit); q.AQM != p.AQM || q.Down.Device != p.Down.Device || len(q.FlowTable) != len(p.FlowTable) || (q.Classes != nil) != c.judged {
			t.Errorf("%s: at other rates it is another plan: %+v", name, q)
		}
	}
}
