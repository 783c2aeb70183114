package linux_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestOthersMarks: wherever rules of others take the bits of marks, the router's own plan sets
// none, and is applied; a plan from elsewhere is refused, which names the rule, and
// changes nothing; so is one that is in place when such rules come, and it can be undone.
func TestOthersMarks(t *testing.T) {
	saved := func(text string) fake.Tool {
		return fake.Tool{Run: func([]string, []byte) (string, error) { return text, nil }}
	}
	line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
	for name, x := range map[string]struct {
		come func(f *fake.Linux)
		says string
	}{
		"nftables, as wg-quick": {func(f *fake.Linux) {
			f.Kernel.Others = "table ip v {\n\tchain a {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n\t\tmeta l4proto udp meta mark set ct mark\n\t}\n}\n"
		}, "table ip v: meta l4proto udp meta mark set ct mark"},
		"iptables": {func(f *fake.Linux) {
			f.Tools["iptables-save"] = saved("*mangle\n-A PREROUTING -j CONNMARK --restore-mark\n")
		}, "iptables -t mangle -A PREROUTING"},
		"ip6tables": {func(f *fake.Linux) {
			f.Tools["ip6tables-save"] = saved("*mangle\n-A PREROUTING -j CONNMARK --restore-mark\n")
		}, "ip6tables -t mangle -A PREROUTING"},
		"iptables's older": {func(f *fake.Linux) {
			f.Tools["iptables-legacy-save"] = saved("*raw\n-A PREROUTING -m connmark --mark 0x1 -j ACCEPT\n")
		}, "iptables -t raw -A PREROUTING"},
		"policy routing": {func(f *fake.Linux) {
			f.Kernel.Policies = "0:\tfrom all lookup local\n32765:\tfrom all fwmark 0x1 lookup 1\n"
		}, "ip rule: from all fwmark 0x1 lookup 1"},
	} {
		f := fake.NewLinux()
		f.Kernel.Missing = []string{"bpf"} // with a program no mark is set
		e := &apply.Engine{Backend: &linux.Backend{Runner: f}, Runner: f, Dir: t.TempDir(), Watchdog: quiet{}}
		made := func() plan.Plan {
			facts, err := linux.Detect(t.Context(), f, "wan", "lan")
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Make(line, facts, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		keeps := func(p plan.Plan) error {
			_, err := e.Mend(t.Context(), p)
			return err
		}
		before := f.Text()
		classed := made()
		if err := keeps(classed); err != nil || !classed.SetsMarks() {
			t.Fatalf("%s: nothing is in the way: %v", name, err)
		}
		x.come(f)
		f.Commands()
		var refused *platform.PreconditionError
		if err := keeps(classed); !errors.As(err, &refused) || !strings.Contains(refused.What, x.says) || !strings.Contains(err.Error(), "--classes off") {
			t.Errorf("%s: it is in place, and then: %v", name, err)
		}
		if ran := f.Commands(); len(ran) > 0 {
			t.Errorf("%s: refused, it ran %q", name, ran)
		}
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || f.Text() != before {
			t.Errorf("%s: revert: %v:\n%s", name, err, f.Text())
		}
		if _, err := e.Begin(t.Context(), classed, apply.Options{Confirm: time.Minute}); !errors.As(err, &refused) || f.Text() != before {
			t.Errorf("%s: a plan from elsewhere: %v", name, err)
		}
		p := made()
		if why, _ := p.Why("classes"); p.SetsMarks() || p.Up == nil || p.Down == nil || !strings.Contains(why.Why.String(), x.says) {
			t.Errorf("%s: planned as\n%s", name, p.Explain())
		}
		if err := keeps(p); err != nil || f.Kernel.Table != "" {
			t.Errorf("%s: without classes: %v", name, err)
		}
	}
}
