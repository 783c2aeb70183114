package linux_test

import (
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// merging lists what merges packets on a router, as in "wan tso".
func merging(k *linuxfake.Kernel) (out []string) {
	for _, d := range k.Devices {
		for _, f := range features() {
			if d.Kind != "ifb" && d.Features[f[1]] {
				out = append(out, d.Name+" "+f[0])
			}
		}
	}
	return out
}

// features are those that each device has, as short as in a plan and as ethtool(8) has them.
func features() [][2]string {
	return [][2]string{{"tso", "tx-tcp-segmentation"}, {"gso", "generic-segmentation-offload"}, {"gro", "generic-receive-offload"}}
}

// TestOffloadsBelow: packets are merged by the devices that receive them, which may be
// far below the WAN and the LAN. It is switched off there, and the undo switches it on;
// the doctor finds each that is on.
func TestOffloadsBelow(t *testing.T) {
	vlan := func(name, of string) *linuxfake.Device { return &linuxfake.Device{Name: name, Kind: "vlan", Link: of} }
	of := func(master string, names ...string) (out []*linuxfake.Device) {
		for _, name := range names {
			out = append(out, &linuxfake.Device{Name: name, Master: master})
		}
		return out
	}
	top := func(kind, name string) *linuxfake.Device { return &linuxfake.Device{Name: name, Kind: kind} }
	for _, c := range []struct {
		name, wan, lan, off string // off: what is switched off
		devices             []*linuxfake.Device
		pppoe               string
	}{
		{"a VLAN and a bridge", "eth0.7", "br-lan", "eth0 gro, lan0 gro, eth0.7 tso, eth0.7 gso", append(of("", "eth0"), append(of("br-lan", "lan0"), vlan("eth0.7", "eth0"), top("bridge", "br-lan"))...), ""},
		{"PPPoE on a VLAN, the home on another of the same port", "ppp0", "br-lan", "eth0 gro, ppp0 tso, ppp0 gso",
			append(of("", "eth0"), vlan("eth0.7", "eth0"), &linuxfake.Device{Name: "eth0.1", Kind: "vlan", Link: "eth0", Master: "br-lan"}, top("ppp", "ppp0"), top("bridge", "br-lan")), "eth0.7"},
		{"bonds", "bond0.7", "bond1", "eth0 gro, eth1 gro, eth2 gro, eth3 gro, bond0.7 tso, bond0.7 gso",
			append(of("bond0", "eth0", "eth1"), append(of("bond1", "eth2", "eth3"), top("bond", "bond0"), top("bond", "bond1"), vlan("bond0.7", "bond0"))...), ""},
		{"macvlans", "mac0", "mac1", "eth0 gro, eth1 gro, mac0 tso, mac0 gso",
			append(of("", "eth0", "eth1"), &linuxfake.Device{Name: "mac0", Kind: "macvlan", Link: "eth0"}, &linuxfake.Device{Name: "mac1", Kind: "macvlan", Link: "eth1"}), ""},
		{"ports of a switch", "wan0", "br-lan", "conduit gro, wan0 tso, wan0 gso, wan0 gro, lan1 gro",
			append(of("", "conduit"), &linuxfake.Device{Name: "wan0", Kind: "dsa", Link: "conduit"}, &linuxfake.Device{Name: "lan1", Kind: "dsa", Link: "conduit", Master: "br-lan"}, top("bridge", "br-lan")), ""},
		{"veths", "v0", "v1", "v0 tso, v0 gso, v0 gro, v1 gro", []*linuxfake.Device{{Name: "v0", Kind: "veth", Link: "v9"}, {Name: "v1", Kind: "veth"}, {Name: "v9", Kind: "veth", Link: "v0"}}, ""},
	} {
		k := linuxfake.New()
		k.Devices = k.Devices[:1]
		for _, d := range c.devices {
			d.Up, d.MTU = true, 1500
			d.Features = map[string]bool{}
			for _, f := range features() {
				d.Features[f[1]] = true
			}
			k.Devices = append(k.Devices, d)
		}
		if c.pppoe != "" {
			k.PPPoE = "Id Address Device\n00000001 02:00:00:00:00:01 " + c.pppoe + "\n"
		}
		before := merging(k)
		facts, err := linux.Detect(t.Context(), k, c.wan, c.lan)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Line{}, facts, plan.Preferences{AQM: plan.FQCoDel, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 9 * unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		b := &linux.Backend{Runner: k}
		now, err := b.Observe(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Desire(t.Context(), p, now, now)
		if err != nil {
			t.Fatal(err)
		}
		run := func(from, to platform.State) {
			t.Helper()
			steps, _, err := b.Compare(from, to)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				if _, said, err := k.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
					t.Errorf("%s: %s: %s", c.name, s, said)
				}
			}
		}
		run(now, want)
		after := merging(k)
		off := slices.DeleteFunc(slices.Clone(before), func(f string) bool { return slices.Contains(after, f) })
		if got := strings.Join(off, ", "); got != c.off {
			t.Errorf("%s: switched off %s, want %s", c.name, got, c.off)
		}
		findings := func() (out []string) {
			e := &platform.Examination{Ctx: t.Context(), Runner: k, WAN: c.wan, LAN: c.lan}
			e.Each(linux.Checks(linux.Examined{})(e))
			for _, f := range e.Findings {
				if f.ID == "offloads" {
					out = append(out, f.What)
				}
			}
			return out
		}
		if found := findings(); found != nil {
			t.Errorf("%s: the doctor finds %q", c.name, found)
		}
		then, err := b.Observe(t.Context(), p, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range k.Devices { // each is switched on alone
			for _, f := range features() {
				if !slices.Contains(off, d.Name+" "+f[0]) {
					continue
				}
				d.Features[f[1]] = true
				if found := findings(); len(found) == 0 || !strings.HasPrefix(found[0], d.Name+" merges packets ("+f[0]+")") {
					t.Errorf("%s: %s on %s: the doctor finds %q", c.name, f[0], d.Name, found)
				}
				d.Features[f[1]] = false
			}
		}
		run(then, now)
		if after := merging(k); !slices.Equal(after, before) {
			t.Errorf("%s: undone: %q, was %q", c.name, after, before)
		}
	}
}

// TestTwoWANsOfOnePort: a WAN on a VLAN changes no more of the port below than its
// offloads, if the port is a WAN too.
func TestTwoWANsOfOnePort(t *testing.T) {
	k := linuxfake.New()
	k.Devices[1].Name = "eth0"
	k.Devices = append(k.Devices, &linuxfake.Device{Name: "eth0.7", Kind: "vlan", Link: "eth0", Up: true, MTU: 1500})
	b := &linux.Backend{Runner: k}
	run := func(from, to platform.State) {
		t.Helper()
		steps, _, err := b.Compare(from, to)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if _, said, err := k.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%s: %s", s, said)
			}
		}
	}
	apply := func(wan string, aqm plan.AQM, classes string) (p plan.Plan, before platform.State) {
		t.Helper()
		facts, err := linux.Detect(t.Context(), k, wan, "lan")
		if err != nil {
			t.Fatal(err)
		}
		p, err = plan.Make(plan.Line{}, facts, plan.Preferences{AQM: aqm, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 9 * unit.MbitPerSecond},
			Classes: plan.ClassPreferences{Use: classes}})
		if err != nil {
			t.Fatal(err)
		}
		if before, err = b.Observe(t.Context(), p, nil); err != nil {
			t.Fatal(err)
		}
		want, err := b.Desire(t.Context(), p, before, before)
		if err != nil {
			t.Fatal(err)
		}
		run(before, want)
		return p, before
	}
	apply("eth0", plan.CAKE, "")
	start := k.Text()
	p, before := apply("eth0.7", plan.FQCoDel, plan.ClassesOff)
	if k.Devices[1].Features["generic-receive-offload"] || k.Text() == start {
		t.Errorf("nothing was done:\n%s", k.Text())
	}
	now, err := b.Observe(t.Context(), p, before)
	if err != nil {
		t.Fatal(err)
	}
	back, err := b.Baseline(t.Context(), now, before)
	if err != nil {
		t.Fatal(err)
	}
	run(now, back)
	if k.Text() != start {
		t.Errorf("reverted, it is\n%s\nwas\n%s", k.Text(), start)
	}
	steps, err := b.Restore(before, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		_, _, _ = k.Run(t.Context(), s.Argv, []byte(s.Stdin)) // some remove what is not there
	}
	if k.Text() != start {
		t.Errorf("restored, it is\n%s\nwas\n%s", k.Text(), start)
	}
}

// TestTwoWANsOfOneLAN: each WAN's filter on the LAN that they share is its own, also where one
// is of an earlier version, and what changes, drops or blindly restores one leaves the other.
func TestTwoWANsOfOneLAN(t *testing.T) {
	k := linuxfake.New()
	k.Devices = append(k.Devices, &linuxfake.Device{Name: "wan2", Kind: "veth", Up: true, MTU: 1500})
	untouched, b := k.Text(), &linux.Backend{Runner: k}
	observe := func(p plan.Plan, earlier platform.State) platform.State {
		t.Helper()
		s, err := b.Observe(t.Context(), p, earlier)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	run := func(steps []platform.Step, blindly bool) {
		t.Helper()
		for _, s := range steps {
			if _, said, err := k.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil && !blindly {
				t.Fatalf("%s: %s", s, said)
			}
		}
	}
	to := func(p plan.Plan, target platform.State) {
		t.Helper()
		steps, _, err := b.Compare(observe(p, target), target)
		if err != nil {
			t.Fatal(err)
		}
		run(steps, false)
		if _, diffs, _ := b.Compare(observe(p, target), target); len(diffs) > 0 {
			t.Fatalf("%s, read back: %q", p.WAN, diffs)
		}
	}
	type applied struct {
		plan         plan.Plan
		before, want platform.State
	}
	apply := func(wan string, down unit.Rate) (a applied) {
		t.Helper()
		facts, err := linux.Detect(t.Context(), k, wan, "lan")
		if err != nil {
			t.Fatal(err)
		}
		if a.plan, err = plan.Make(plan.Line{Down: down, Up: 9 * unit.MbitPerSecond}, facts, plan.Preferences{}); err != nil {
			t.Fatal(err)
		}
		a.before = observe(a.plan, nil)
		if a.want, err = b.Desire(t.Context(), a.plan, a.before, a.before); err != nil {
			t.Fatal(err)
		}
		to(a.plan, a.want)
		return a
	}
	holds := func(when string, a applied) {
		t.Helper()
		if diffs, err := b.Drift(a.plan, observe(a.plan, a.want), a.want); len(diffs) > 0 || err != nil {
			t.Errorf("%s: %s has drifted: %q %v", when, a.plan.WAN, diffs, err)
		}
	}
	revert := func(a applied) {
		t.Helper()
		without, err := b.Baseline(t.Context(), observe(a.plan, a.want), a.before)
		if err != nil {
			t.Fatal(err)
		}
		to(a.plan, without)
	}
	for _, earlier := range []bool{false, true} {
		one := apply("wan", 30*unit.MbitPerSecond)
		if earlier {
			k.AttachedBefore()
			one.want = observe(one.plan, nil)
		}
		alone := k.Text()
		two := apply("wan2", 30*unit.MbitPerSecond)
		holds("both", one)
		holds("both", two)
		steps, err := b.Restore(two.before, two.want)
		if err != nil {
			t.Fatal(err)
		}
		if run(steps, true); k.Text() != alone {
			t.Errorf("the second is undone blindly, and it is\n%s\nwas\n%s", k.Text(), alone)
		}
		two = apply("wan2", 40*unit.MbitPerSecond)
		holds("the second again", one)
		origin := one.before
		one = apply("wan", 30*unit.MbitPerSecond) // an earlier version's is replaced
		one.before = origin
		if strings.Contains(k.Text(), `"handle":"0x1",`+`"bpf_name":"lan`) {
			t.Errorf("the filter of the earlier version is still there:\n%s", k.Text())
		}
		holds("the first again", two)
		holds("the first again", one)
		shapers, err := linux.Shapers(t.Context(), k)
		if err != nil || slices.ContainsFunc(shapers, func(s linux.Shaped) bool { return s.Device == "lan" }) {
			t.Errorf("the LAN counts as shaped: %+v %v", shapers, err)
		}
		revert(two)
		holds("without the second", one)
		two = apply("wan2", 30*unit.MbitPerSecond)
		revert(one)
		holds("without the first", two)
		if revert(two); k.Text() != untouched {
			t.Errorf("both are reverted, and it is\n%s\nwas\n%s", k.Text(), untouched)
		}
	}
}
