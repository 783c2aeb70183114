package freebsd_test

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/testkit/dnctl"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// controlPlans are plans of each kind in which control traffic must pass.
func controlPlans(t *testing.T) map[string]plan.Plan {
	t.Helper()
	voice := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 500, To: 600}}}
	out := map[string]plan.Plan{}
	for name, w := range map[string]plan.Preferences{
		"no classes": {}, "a FIFO": {AQM: plan.FIFO}, "upload": {Only: plan.DirectionUp}, "download": {Only: plan.DirectionDown},
		"classes":      {Classes: plan.ClassPreferences{Rules: []plan.Rule{voice, {Class: plan.Bulk, DSCP: []string{"cs6"}}}}},
		"by behaviour": {Classes: plan.ClassPreferences{Use: plan.ClassesOn, Rules: []plan.Rule{voice}}},
	} {
		p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"}, w)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = p
	}
	return out
}

// Neighbour discovery, router advertisements, DHCP, DHCPv6 and the pings of a gateway's
// monitor go through a pipe that holds nothing back, whatever the plan, and nothing
// else does; the plan says why, and the pipe goes with the rest.
func TestControlPasses(t *testing.T) {
	for name, p := range controlPlans(t) {
		f := fake.NewFreeBSD()
		b := &freebsd.Backend{Runner: f}
		before := f.Text()
		e := &apply.Engine{Backend: b, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if shown := f.Dnctl.Run([]string{"dnctl", "pipe", "show"}, nil).Stdout; !strings.Contains(shown, "00003:   4.000 Gbit/s") {
			t.Errorf("%s: there is no wide pipe in\n%s", name, shown)
		}
		for what, x := range map[string]dnctl.Packet{
			"neighbour discovery": {Proto: "ipv6-icmp"}, "the monitor's pings": {Proto: "icmp"},
			"DHCPv6, sent": {Out: true, Proto: "udp", FromPort: 546, ToPort: 547}, "DHCPv6, answered": {Proto: "udp", FromPort: 32768, ToPort: 546},
			"DHCP, sent": {Out: true, Proto: "udp", FromPort: 68, ToPort: 67}, "DHCP, answered": {Proto: "udp", FromPort: 67, ToPort: 68},
		} {
			x.Interface = "igb0"
			for _, out := range []bool{true, false} {
				if x.Proto == "udp" && x.Out != out || out && p.Up == nil || !out && p.Down == nil {
					continue
				}
				if x.Out = out; f.Dnctl.Takes(x) != "pipe 3" {
					t.Errorf("%s: %s (out %v): %q", name, what, out, f.Dnctl.Takes(x))
				}
			}
		}
		for _, x := range []dnctl.Packet{{Proto: "tcp", FromPort: 40000, ToPort: 443}, {Proto: "udp", FromPort: 40000, ToPort: 443}, {Proto: "esp"}} {
			x.Interface, x.Out = "igb0", p.Up != nil
			if got := f.Dnctl.Takes(x); got == "pipe 3" || got == "deny" {
				t.Errorf("%s: %+v: %q", name, x, got)
			}
		}
		if why, ok := p.Why("control"); !ok || why.Why.Code == "" {
			t.Errorf("%s: the plan doesn't say why: %+v", name, p.Reasons)
		}
		shapers, err := b.Shapers(t.Context(), "igb0")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shapers {
			if s.Device == "pipe 3" && (!s.Ours || s.Rate != 0) {
				t.Errorf("%s: status takes it for a shaper: %+v", name, s)
			}
		}
		if _, _, err := f.Run(t.Context(), []string{"ipfw", "delete", "59002"}, nil); err != nil {
			t.Fatal(err)
		}
		if now, err := b.Observe(t.Context(), p, nil); err != nil {
			t.Fatal(err)
		} else if want, err := b.Desire(t.Context(), p, now, nil); err != nil {
			t.Fatal(err)
		} else if _, diffs, _ := b.Compare(now, want); len(diffs) == 0 {
			t.Errorf("%s: nobody misses a rule", name)
		}
		if err := tr.Revert(t.Context()); err != nil || f.Text() != before {
			t.Errorf("%s: %v: undone, it is\n%s", name, err, f.Text())
		}
		tr.Close()
	}
}

// What was applied when control traffic was shaped too is as it was applied, also
// beside somebody's pipe of the new one's number, and is undone without touching that.
// A rate alone doesn't change that; a plan that is made anew does.
func TestControlOfOlderPlan(t *testing.T) {
	f := fake.NewFreeBSD()
	run(t, f, "dnctl pipe 3 config bw 5Mbit/s")
	b := &freebsd.Backend{Runner: f}
	before := f.Text()
	p := controlPlans(t)["no classes"]
	older := p
	older.Control = false
	if older = older.WithRates(older.DownBps, older.UpBps/2); older.Control {
		t.Error("with another rate it is another plan")
	}
	if q := p.WithRates(p.DownBps, p.UpBps/2); !q.Control {
		t.Error("with another rate control traffic is shaped")
	}
	e := &apply.Engine{Backend: b, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
	tr, err := e.Begin(t.Context(), older, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	now, err := b.Observe(t.Context(), older, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), older, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, diffs, err := b.Compare(now, want); err != nil || len(diffs) > 0 || strings.Contains(f.Dnctl.State(), "icmp") {
		t.Errorf("%v, %q", err, diffs)
	}
	if _, err := b.Desire(t.Context(), p, now, nil); err == nil {
		t.Error("somebody's pipe is taken over")
	}
	if err := tr.Revert(t.Context()); err != nil || f.Text() != before {
		t.Errorf("%v: undone, it is\n%s", err, f.Text())
	}
	tr.Close()
	run(t, f, "dnctl pipe 3 delete")
	before = f.Text()
	for _, x := range []plan.Plan{older, p} {
		if tr, err = e.Begin(t.Context(), x, apply.Options{Confirm: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := tr.Commit(); err != nil {
			t.Fatal(err)
		}
		tr.Close()
	}
	if !strings.Contains(f.Dnctl.State(), "icmp") {
		t.Error("applied anew, it is as it was")
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "igb0"}); err != nil || f.Text() != before {
		t.Errorf("%v: reverted, it is\n%s", err, f.Text())
	}
}
