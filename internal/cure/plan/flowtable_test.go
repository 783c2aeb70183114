package plan_test

import (
	"slices"
	"strings"
	"testing"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
)

// A flow table goes with a download that is shaped at the LAN, and with no classes; what it
// cannot go with is refused.
func TestFlowTable(t *testing.T) {
	line := Line{Down: 30 * mbit, Up: 5 * mbit}
	capabilities := Capabilities{Language: linux.Language(), WAN: "eth0", LAN: "eth1", IFB: true}
	p := mustMake(t, line, capabilities, Preferences{FlowTable: true})
	if !slices.Equal(p.FlowTable, []string{"eth1", "eth0"}) || p.Down.Device != "eth1" || p.Down.IngressOf != "" || p.Classes != nil || len(p.Warnings) != 1 {
		t.Errorf("%+v", p)
	}
	if q := p.WithRates(10*mbit, mbit); !slices.Equal(q.FlowTable, p.FlowTable) || q.Classes != nil || q.DownBps != 10*mbit {
		t.Errorf("at other rates: %+v", q)
	}
	for name, c := range map[string]struct {
		capabilities Capabilities
		w            Preferences
		want         string
	}{
		"ifb":     {capabilities, Preferences{Side: SideIFB}, "--side lan"},
		"classes": {capabilities, Preferences{Classes: ClassPreferences{Use: ClassesOn}}, "leave out one"},
		"rules":   {capabilities, Preferences{Classes: ClassPreferences{Rules: []Rule{{Class: Voice, Protocol: "udp"}}}}, "leave out one"},
		"no LAN":  {Capabilities{Language: linux.Language(), WAN: "eth0", IFB: true}, Preferences{Only: DirectionUp}, "--lan"},
		"sqm":     {Capabilities{Language: openwrt.Language(), WAN: "wan", LAN: "br-lan", IFB: true}, Preferences{}, "openwrt has none"},
		"freebsd": {Capabilities{Language: freebsd.Language(), WAN: "igb0", LAN: "igb1"}, Preferences{}, "freebsd has none"},
		"article": {capabilities, Preferences{Style: StyleArticle}, "article"},
	} {
		c.w.FlowTable = true
		if _, err := Make(line, c.capabilities, c.w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", name, err, c.want)
		}
	}
	for name, spoil := range map[string]func(p *Plan){
		"classes too": func(p *Plan) { p.Classes = mustMake(t, line, capabilities, Preferences{}).Classes },
		"an ifb":      func(p *Plan) { p.Down = mustMake(t, line, capabilities, Preferences{}).Down },
		"no device":   func(p *Plan) { p.FlowTable = []string{"eth1", "a b"} },
	} {
		q := p
		spoil(&q)
		if err := q.Validate(linux.Language()); err == nil || !strings.Contains(err.Error(), "flow_table") {
			t.Errorf("a plan with %s: %v", name, err)
		}
	}
}
