package openwrt_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestOwnTC: without sqm-scripts a plan survives as a procd init script. A real
// shell runs it twice, as procd does when the interface comes up again. Its
// commands apply the plan to a blank router, and stop removes everything.
func TestOwnTC(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	f := fake.NewLinux()
	enabled := ""
	f.Tools[openwrt.InitScript] = fake.Tool{Run: func(args []string, _ []byte) (string, error) { enabled = args[0]; return "", nil }}
	k := openwrt.Persister{Runner: f}
	if k.Persists() {
		t.Error("kept before anything was")
	}
	if err := k.Persist(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	script := f.Files[openwrt.InitScript]
	if enabled != "enable" || !k.Persists() || !strings.HasPrefix(script, "#!/bin/sh /etc/rc.common\n") || !strings.Contains(script, "\nUSE_PROCD=1\n") {
		t.Fatalf("%q\n%s", enabled, script)
	}
	blank := f.Kernel.Text()
	for range 2 {
		carryOut(t, f, p, shell(t, script, "start_service"))
	}
	for _, line := range shell(t, script, "stop_service") {
		_, _, _ = f.Run(t.Context(), strings.Fields(line), nil)
	}
	if f.Kernel.Text() != blank {
		t.Errorf("stopped, and this is left:\n%s", f.Kernel.Text())
	}
	if done, err := k.Forget(t.Context()); !done || err != nil || enabled != "disable" || f.Files[openwrt.InitScript] != "" {
		t.Errorf("forget: %v %v %q", done, err, enabled)
	}
}

// carryOut runs commands on a router and checks that the plan is then in force.
func carryOut(t *testing.T, f *fake.Linux, p plan.Plan, lines []string) {
	t.Helper()
	for _, line := range lines {
		argv := strings.Fields(line)
		var in []byte
		if argv[0] == "nft" && argv[1] == "-f" { // the shell's stand-in stores its input
			var err error
			if in, err = os.ReadFile(argv[len(argv)-1]); err != nil {
				t.Fatal(err)
			}
			argv = argv[:3]
		}
		if argv[0] == "unbloat" && argv[2] == "load" {
			var err error
			if in, err = os.ReadFile(argv[len(argv)-1]); err != nil {
				t.Fatal(err)
			}
			argv = argv[:4]
		}
		if _, errOut, err := f.Run(t.Context(), argv, in); err != nil && argv[2] != "del" && argv[1] != "delete" {
			t.Fatalf("%s: %s", line, errOut)
		}
	}
	if steps, diffs := missing(t, &linux.Backend{Runner: f}, p); len(steps)+len(diffs) > 0 {
		t.Fatalf("the script does not give the plan: %q %q", steps, diffs)
	}
}

// missing returns the steps to a plan and the differences from it.
func missing(t *testing.T, b platform.Backend, p plan.Plan) ([]platform.Step, []string) {
	t.Helper()
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), p, now, now)
	if err != nil {
		t.Fatal(err)
	}
	steps, diffs, err := b.Compare(now, want)
	if err != nil {
		t.Fatal(err)
	}
	return steps, diffs
}

// shell runs a function of the script with programs that only print their
// arguments, and returns the output.
func shell(t *testing.T, script, function string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"tc", "ip", "ethtool", "rm"} {
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\necho "+tool+" \"$@\" >> "+dir+"/log\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nft := "#!/bin/sh\nif [ \"$1\" = -f ]; then cat > " + dir + "/fed; set -- \"$@\" " + dir + "/fed; fi\necho nft \"$@\" >> " + dir + "/log\n"
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(nft), 0o755); err != nil {
		t.Fatal(err)
	}
	load := "#!/bin/sh\nif [ \"$2\" = load ]; then cat > " + dir + "/loaded; set -- \"$@\" " + dir + "/loaded; fi\necho unbloat \"$@\" >> " + dir + "/log\n"
	if err := os.WriteFile(filepath.Join(dir, "unbloat"), []byte(load), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", script+"\n"+function)
	c.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(log)), "\n")
}

// TestInTheWay: everything that prevents the use of sqm-scripts is reported
// with a remedy.
func TestInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(o *fake.OpenWrt)
		says string
	}{
		"not installed":   {func(o *fake.OpenWrt) { delete(o.Tools, openwrt.Service) }, "--own-tc"},
		"unsaved changes": {func(o *fake.OpenWrt) { o.Staged = "sqm.eth1.enabled='1'\n" }, "uci commit sqm"},
		"another section": {func(o *fake.OpenWrt) {
			o.Files[openwrt.Config] += "\nconfig queue 'mine'\n\toption enabled '1'\n\toption interface 'wan'\n"
		}, "the section mine"},
		"a broken file": {func(o *fake.OpenWrt) { o.Files[openwrt.Config] = "option x 'y'\n" }, "uci: Parse error"},
		"another program": {func(o *fake.OpenWrt) {
			run(o, "tc qdisc add dev wan root handle 7: cake bandwidth 1mbit")
		}, "not from /etc/config/sqm"},
		"its own init file": {func(o *fake.OpenWrt) { o.Files[openwrt.InitScript] = "#!/bin/sh\n" }, ""},
	} {
		o := fake.NewOpenWrt()
		c.do(o)
		before := o.Text()
		b := &openwrt.Backend{Runner: o}
		p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", IFB: true}, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		now, err := b.Observe(t.Context(), p, nil)
		if err == nil {
			_, err = b.Desire(t.Context(), p, now, now)
		}
		if c.says == "" {
			err = openwrt.Persister{Runner: o}.Persist(t.Context(), p)
			c.says = "was not made by unbloat"
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || o.Text() != before {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func run(r platform.Runner, line string) {
	if _, errOut, err := r.Run(context.Background(), strings.Fields(line), nil); err != nil {
		panic(line + ": " + string(errOut))
	}
}
