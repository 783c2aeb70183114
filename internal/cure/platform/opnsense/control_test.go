package opnsense_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/dnctl"
	"unbloat/testkit/opnsensefake"
	"unbloat/unit"
)

// Neighbour discovery, router advertisements, DHCP, DHCPv6 and the pings of a gateway's
// monitor go through a pipe that holds nothing back, by what the templates make of the
// saved items; an older plan is as it was applied; both go without a trace.
func TestControlPasses(t *testing.T) {
	for name, w := range map[string]plan.Preferences{
		"a FIFO": {AQM: plan.FIFO}, "upload": {Only: plan.DirectionUp}, "older": {},
		"classes": {Only: plan.DirectionDown, Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Bulk, DSCP: []string{"cs6"}}}}},
	} {
		p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan"}, w)
		if err != nil {
			t.Fatal(err)
		}
		p.Control = p.Control && name != "older"
		r := newRouter(t)
		before := r.Text()
		b := &opnsense.Backend{Runner: r}
		e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files, m := r.Files(), &dnctl.Machine{}
		for _, argv := range [][]string{{"dnctl", "-q", "/usr/local/etc/dnctl.conf"}, {"ipfw", "-q", "/usr/local/etc/ipfw.rules"}} {
			if x := m.Run(argv, func(path string) (string, bool) { text, ok := files[path]; return text, ok }); x.Exit != 0 {
				t.Fatalf("%s: %q: %s", name, argv, x.Stderr)
			}
		}
		pipe := "pipe 20003"
		if name == "older" {
			pipe = "queue 2000"
		} else if shown := m.Run([]string{"dnctl", "pipe", "show"}, nil).Stdout; !strings.Contains(shown, "20003:   4.000 Gbit/s") {
			t.Errorf("%s: there is no wide pipe in\n%s", name, shown)
		}
		for _, x := range []dnctl.Packet{
			{Proto: "ipv6-icmp"}, {Proto: "ipv6-icmp", Out: true}, {Proto: "icmp"}, {Proto: "icmp", Out: true},
			{Out: true, Proto: "udp", FromPort: 546, ToPort: 547}, {Proto: "udp", FromPort: 32768, ToPort: 546},
			{Out: true, Proto: "udp", FromPort: 68, ToPort: 67}, {Proto: "udp", FromPort: 67, ToPort: 68},
		} {
			if x.Interface = "igb0"; (p.Up != nil || !x.Out) && (p.Down != nil || x.Out) && !strings.HasPrefix(m.Takes(x), pipe) {
				t.Errorf("%s: %+v: %q", name, x, m.Takes(x))
			}
		}
		if got := m.Takes(dnctl.Packet{Interface: "igb0", Out: p.Up != nil, Proto: "udp", ToPort: 443}); !strings.HasPrefix(got, "queue ") && !strings.HasPrefix(got, "pipe 2000") || got == "pipe 20003" {
			t.Errorf("%s: everything else: %q", name, got)
		}
		now, err := b.Observe(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Desire(t.Context(), p, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, diffs, err := b.Compare(now, want); err != nil || len(diffs) > 0 {
			t.Errorf("%s: %v, %q", name, err, diffs)
		}
		shapers, err := b.Shapers(t.Context(), "wan")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shapers {
			if s.Device == "pipe 20003" && s.Rate != 0 {
				t.Errorf("%s: status takes it for a shaper: %+v", name, s)
			}
		}
		if i := slices.IndexFunc(r.Items(), func(x opnsensefake.Item) bool {
			return x.Fields["proto"] == "ipv6-icmp" && strings.HasPrefix(x.Fields["description"], "unbloat control")
		}); i >= 0 {
			post(t, r, "/api/trafficshaper/settings/delRule/"+r.Items()[i].UUID)
			if now, err = b.Observe(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
			if _, diffs, _ := b.Compare(now, want); len(diffs) == 0 {
				t.Errorf("%s: nobody misses a rule", name)
			}
		}
		if err := tr.Revert(t.Context()); err != nil || r.Text() != before {
			t.Errorf("%s: %v: undone, it is\n%s", name, err, r.Text())
		}
		tr.Close()
	}
}

// post sends a request without a body.
func post(t *testing.T, r router, path string) {
	t.Helper()
	if _, _, err := r.Run(t.Context(), []string{"POST", path}, []byte("{}")); err != nil {
		t.Fatal(err)
	}
}
