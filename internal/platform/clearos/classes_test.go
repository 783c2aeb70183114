package clearos_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/plan"
	"unbloat/internal/platform/clearos"
	"unbloat/internal/platform/fake"
	"unbloat/unit"
)

// classesPlan has classes by behaviour.
func classesPlan(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond},
		plan.Capabilities{Language: clearos.Language(), WAN: "wan", LAN: "lan", IFB: true, Offloads: []plan.Offload{}},
		plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOn}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestClassesByIptables: the firewall loads the rules of the classes, what runs is
// compared with them, a start of the firewall brings them back, and an undo leaves
// none of them.
func TestClassesByIptables(t *testing.T) {
	o := fake.NewClearOS()
	start := o.Text()
	b := &clearos.Backend{Runner: o}
	e := &apply.Engine{Backend: b, Runner: o, Dir: t.TempDir(), Watchdog: nobody{}}
	p := classesPlan(t)
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(o.Log, "\n"))
	}
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	list := o.Mangle.List()
	for _, want := range []string{"-A POSTROUTING -o wan -j ub_up_class\n", "-A POSTROUTING -o lan -j ub_down_class\n", "--set-class b10a:18\n", "-N ub_plan_"} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not there:\n%s", want, list)
		}
	}
	differs := func() int {
		t.Helper()
		now, err := b.Observe(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Settled(now)
		if err != nil {
			t.Fatal(err)
		}
		_, diffs, err := b.Compare(now, want)
		if err != nil {
			t.Fatal(err)
		}
		return len(diffs)
	}
	if n := differs(); n != 0 {
		t.Errorf("%d differences after the change", n)
	}
	o.Mangle.Flush()
	if n := differs(); n != 1 {
		t.Errorf("%d differences without the rules", n)
	}
	if _, _, err := o.Run(t.Context(), []string{"service", "firewall", "restart"}, nil); err != nil {
		t.Fatal(err)
	}
	if o.Mangle.List() != list || differs() != 0 {
		t.Errorf("after a start of the firewall:\n%s", o.Mangle.List())
	}
	if err := o.Mangle.Command([]string{"-A", "ub_up_voice", "-j", "RETURN"}); err != nil || differs() == 0 {
		t.Errorf("another rule in a chain is not seen: %v", err)
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil {
		t.Fatal(err)
	}
	if o.Text() != start {
		t.Errorf("reverted:\n%s\nat first:\n%s", o.Text(), start)
	}
}

// TestClassesInTheWay: beside rules that write whole marks of connections, and where
// the router's iptables does not take the rules, the plan is refused with a remedy
// and nothing is changed. Where neither can be asked, it is not.
func TestClassesInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(o *fake.ClearOS)
		says string
	}{
		"MultiWAN": {func(o *fake.ClearOS) {
			for _, words := range []string{"-N MULTIWAN_RESTORE", "-A MULTIWAN_RESTORE -j CONNMARK --restore-mark", "-A POSTROUTING -o wan -j CONNMARK --set-xmark 0x8000/0xffffffff"} {
				if err := o.Mangle.Command(strings.Fields(words)); err != nil {
					t.Fatal(err)
				}
			}
		}, "as MultiWAN does (iptables -t mangle -A POSTROUTING -o wan -j CONNMARK"},
		"no hashlimit": {func(o *fake.ClearOS) {
			o.Tools["unshare"] = fake.Tool{Run: func([]string, []byte) (string, error) {
				return "", errors.New("iptables-restore v1.4.21: Couldn't load match `hashlimit'")
			}}
		}, "Couldn't load match `hashlimit'"},
		"a mark with a mask": {func(o *fake.ClearOS) {
			if err := o.Mangle.Command(strings.Fields("-A PREROUTING -j CONNMARK --set-xmark 0x8000/0xffff")); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"no namespaces": {func(o *fake.ClearOS) {
			o.Tools["unshare"] = fake.Tool{Run: func([]string, []byte) (string, error) {
				return "", errors.New("unshare: unshare failed: Operation not permitted")
			}}
		}, ""},
	} {
		o := fake.NewClearOS()
		c.do(o)
		before, p, b := o.Text(), classesPlan(t), &clearos.Backend{Runner: o}
		now, err := b.Observe(t.Context(), p, nil)
		if err == nil {
			_, err = b.Desire(t.Context(), p, now, now)
		}
		switch {
		case o.Text() != before:
			t.Errorf("%s: it changed something", name)
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "without --classes on")):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
