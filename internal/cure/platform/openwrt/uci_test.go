package openwrt_test

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestUCIAsWritten: settings of other interfaces, as people and LuCI write them, stop neither an
// apply nor a status, and are as they were after a revert. One that shapes the WAN is found in
// whichever way it is written, and named as uci(1) calls it.
func TestUCIAsWritten(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", IFB: true},
		plan.Preferences{Only: plan.DirectionUp, Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
	if err != nil {
		t.Fatal(err)
	}
	const other = "config queue 'eth1'\n\toption enabled '0'\n\toption interface 'eth1'\n"
	for _, c := range []struct{ text, inTheWay string }{
		{"config queue 'eth1'\n\toption enabled '0'  # not yet\n\toption interface 'eth1'\n", ""},
		{"config queue 'eth1'\n\toption enabled '0'\n\toption interface \"the kids' line\"\n", ""},
		{"config queue 'eth1'; option enabled '0'; option interface 'eth1'; list more 'a b'; list more \"c'd\"\n", ""},
		{"package sqm\nconfig global 'all'\n\toption verbosity '5'\n" + other, ""},
		{"# B\xfcro\n" + other + "config queue\n\toption interface 'eth2'\nconfig queue\n\toption note 'two\nlines'", ""},
		{"config queue 'eth1'\n\toption enabled '1'\n\toption enabled '0'\n\toption interface wan\n", ""},
		{other + "config queue\n\toption enabled '1' # here\n\toption interface \"wan\"", "uci set 'sqm.@queue[1].enabled=0'; uci commit sqm"},
		{"config queue 'home'; option enabled '1'; option interface 'wan'\n", "uci set sqm.home.enabled=0; uci commit sqm"},
		{"config queue 'home'\n\toption interface 'wan'\nconfig queue 'home'\n\toption enabled '1'\n", "uci set sqm.home.enabled=0"},
		{"config queue 'home'\n\toption 'enabled '1'\n", "Parse error"},
	} {
		o := fake.NewOpenWrt()
		o.Files[fake.SQMConfig] = c.text
		before := o.Text()
		b := &openwrt.Backend{Runner: o}
		e := &apply.Engine{Backend: b, Runner: o, Dir: t.TempDir(), Watchdog: noWatchdog{}}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if c.inTheWay != "" {
			if err == nil || !strings.Contains(err.Error(), c.inTheWay) || o.Text() != before {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		shaped, err := b.Shapers(t.Context(), "wan")
		if err != nil || len(shaped) != 1 || !shaped[0].Ours {
			t.Errorf("%q: status: %v %+v", c.text, err, shaped)
		}
		if err := tr.Revert(t.Context()); err != nil || o.Text() != before {
			t.Errorf("%q: reverted, %v, it is\n%s\nbefore:\n%s", c.text, err, o.Text(), before)
		}
		tr.Close()
		if err := openwrt.Driver().OwnTC().Contends(t.Context(), o, "wan"); err != nil {
			t.Errorf("%q: beside the daemon: %v", c.text, err)
		}
	}
}
