package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openwrt"
	kept "unbloat/internal/keep/config"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// An openWrt is an OpenWrt router in memory, as commands open it.
type openWrt struct {
	*fake.OpenWrt
	state string
}

func newOpenWrt(t *testing.T) openWrt { return openWrt{fake.NewOpenWrt(), t.TempDir()} }

// open returns the router as a command without a daemon sees it.
func (o openWrt) open(t *testing.T, f routerFlags) *router {
	t.Helper()
	f.stateDir = o.state
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Tools[self] = o.Tools["unbloat"] // the engine calls the program by its path
	r := &router{driver: openwrt.Driver(), runner: o, Close: func() {}}
	if err := f.chooseWay(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// keep applies a plan and keeps it.
func (o openWrt) keep(t *testing.T, f routerFlags, wan string, up unit.Rate) {
	t.Helper()
	r := o.open(t, f)
	p, err := plan.Make(plan.Line{}, r.driver.Language.Assume(wan, ""), plan.Preferences{Only: plan.DirectionUp, Up: plan.RatePreference{Rate: up}, Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
	if err != nil {
		t.Fatal(err)
	}
	r.engine.Watchdog = nobody{}
	tr, err := r.engine.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
}

// revert runs the command, and returns what it prints.
func (o openWrt) revert(t *testing.T, f routerFlags, wan string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetOut(&out)
	r := o.open(t, f)
	f.stateDir = o.state
	err := f.revertThe(c, r, wan)
	return out.String(), err
}

// TestRevertWithoutDaemon: what the daemon keeps on OpenWrt is shaped with tc alone, and recorded so.
// When it has gone, revert finds that way by the record. Where there is no record, and something of
// ours remains, it fails; and it never claims what it did not compare.
func TestRevertWithoutDaemon(t *testing.T) {
	o := newOpenWrt(t)
	start := o.Text()
	own := routerFlags{targetFlags: targetFlags{ownTC: true}}
	is := func(what, want string) {
		t.Helper()
		if got := o.Text(); got != want {
			t.Errorf("%s, it is\n%s\nnot\n%s", what, got, want)
		}
	}
	for _, wan := range []string{"", "wan"} {
		o.keep(t, own, "wan", 5*unit.MbitPerSecond)
		out, err := o.revert(t, routerFlags{}, wan)
		if err != nil || !strings.Contains(out, "wan is as it was before, and read back") {
			t.Errorf("revert --wan %q: %v: %s", wan, err, out)
		}
		is("reverted", start)
	}
	if out, err := o.revert(t, routerFlags{}, "wan"); err != nil || out != "There is nothing to undo.\n" {
		t.Errorf("nothing is there: %v: %s", err, out)
	}
	var was reverted
	out, err := o.revert(t, routerFlags{json: true}, "wan")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &was)); err != nil || was.Reverted == nil || len(was.Reverted) > 0 {
		t.Errorf("%v: %s", err, out)
	}

	o.keep(t, own, "wan", 5*unit.MbitPerSecond)
	kept := o.Text()
	record := filepath.Join(o.state, "wan.committed.json")
	if err := os.Rename(record, record+".away"); err != nil {
		t.Fatal(err)
	}
	out, err = o.revert(t, routerFlags{}, "wan")
	if err == nil || !strings.Contains(err.Error(), "what leaves wan is held to 5.00 Mbit/s by cake (unbloat's); `unbloat revert --own-tc` takes it back if it was applied with tc alone") || out != "" {
		t.Errorf("revert without a record: %v: %s", err, out)
	}
	is("not reverted", kept)
	if err := os.Rename(record+".away", record); err != nil {
		t.Fatal(err)
	}

	// Each WAN in a way of its own: revert takes both back, and status knows both.
	o.keep(t, routerFlags{}, "lan", 4*unit.MbitPerSecond)
	status, err := (&routerFlags{stateDir: o.state}).status(t.Context(), o.open(t, routerFlags{}), "", 0)
	if err != nil || len(status.Committed) != 2 || len(status.Drift) != 0 {
		t.Errorf("status: %v %+v", err, status)
	}
	out, err = o.revert(t, routerFlags{}, "")
	if err != nil || !strings.Contains(out, "wan is as it was before") || !strings.Contains(out, "lan is as it was before") {
		t.Errorf("revert of both: %v: %s", err, out)
	}
	is("both reverted", start)
}

// TestMendBesideSQM: where sqm-scripts have taken over the line that was shaped with tc alone, the way
// back begins with handing it over; what is taken over from them comes back at their next start.
func TestMendBesideSQM(t *testing.T) {
	o := newOpenWrt(t)
	o.keep(t, routerFlags{targetFlags: targetFlags{ownTC: true}}, "wan", 5*unit.MbitPerSecond)
	o.Files[fake.SQMConfig] = "config queue\n\toption enabled '1'  # again\n\toption interface 'wan'; option upload '4000'\n\toption script 'piece_of_cake.qos'\n\toption qdisc 'cake'\n"
	if _, said, err := o.Run(t.Context(), []string{"/etc/init.d/sqm", "restart"}, nil); err != nil {
		t.Fatalf("%s", said)
	}
	f := routerFlags{stateDir: o.state}
	s, err := f.status(t.Context(), o.open(t, f), "", 0)
	if err != nil || len(s.Drift) != 1 {
		t.Fatalf("%v %+v", err, s)
	}
	mend := s.Drift[0].Mend
	if strings.Contains(mend, "--replace") || !strings.Contains(mend, "hand it over: uci set 'sqm.@queue[0].enabled=0'; uci commit sqm; /etc/init.d/sqm restart (sqm-scripts shapes it too (section @queue[0]))") {
		t.Errorf("to mend it: %s", mend)
	}
}

// TestWithoutUnshare: OpenWrt has no unshare(1) by default, so the kernel can't be tried. One that takes
// no BPF program gets no classes, and is shaped; the others need no nft(8) for them.
func TestWithoutUnshare(t *testing.T) {
	for _, c := range []struct {
		missing  []string
		up, down bool // classes
	}{{nil, true, true}, {[]string{"nft"}, true, true}, {[]string{"bpf"}, false, false}} {
		o := newOpenWrt(t)
		o.Kernel.Missing = c.missing
		r := o.open(t, routerFlags{targetFlags: targetFlags{ownTC: true}})
		r.engine.Watchdog = nobody{}
		p, err := planOf(t.Context(), r, kept.WAN{Interface: "wan", LAN: "lan", Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond})
		if err != nil {
			t.Fatal(err)
		}
		if p.Classes.Of(false) != nil != c.up || p.Classes.Of(true) != nil != c.down {
			t.Errorf("without %q: %+v", c.missing, p.Classes)
		}
		if _, err := r.engine.Mend(t.Context(), p); err != nil {
			t.Errorf("without %q it is not shaped: %v", c.missing, err)
		}
	}
}
