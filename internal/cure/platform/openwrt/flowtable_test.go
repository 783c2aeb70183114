package openwrt_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// noWatchdog is for a change that the test takes back itself.
type noWatchdog struct{}

func (noWatchdog) Arm(context.Context, *apply.Journal) error   { return nil }
func (noWatchdog) Alive(context.Context, *apply.Journal) bool  { return true }
func (noWatchdog) Renew(context.Context, *apply.Journal) error { return nil }
func (noWatchdog) Close(context.Context, *apply.Journal) error { return nil }

// Without sqm-scripts (--own-tc) OpenWrt has the flow table of Linux's plans: applied, read
// back without a difference, and gone after a revert.
func TestFlowTableOfOpenWrt(t *testing.T) {
	o := fake.NewOpenWrt()
	d := openwrt.Driver().OwnTC()
	b, err := d.Backend(platform.Options{Runner: o})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: d.Language, WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{FlowTable: true, Down: plan.RatePreference{Rate: 90 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 19 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	e := &apply.Engine{Backend: b, Runner: o, Dir: t.TempDir(), Watchdog: noWatchdog{}}
	before := o.Kernel.Text()
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if table := o.Kernel.Table; !(nft.Table{Text: table}).IsShortWay() || !strings.Contains(table, "devices = { lan, wan }") {
		t.Errorf("the table is %q", table)
	}
	if err := tr.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := o.Kernel.Text(); after != before {
		t.Errorf("after revert:\n%s\nbefore:\n%s", after, before)
	}
}
