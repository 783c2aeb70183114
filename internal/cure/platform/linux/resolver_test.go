package linux_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/reason"
	"unbloat/testkit/fake"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

const resolverFile = "/etc/dnsmasq.d/unbloat_wan.conf"

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

func domainPlan(t *testing.T, r platform.Runner) plan.Plan {
	t.Helper()
	return domainPlanFor(t, r, "zoom.us")
}

func domainPlanFor(t *testing.T, r platform.Runner, name string) plan.Plan {
	t.Helper()
	return domainPlanOn(t, r, "wan", "lan", name)
}

func domainPlanOn(t *testing.T, r platform.Runner, wan, lan, name string) plan.Plan {
	t.Helper()
	facts, err := linux.Detect(t.Context(), r, wan, lan)
	if err != nil {
		t.Fatal(err)
	}
	w := plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Domain: []string{name}}}}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, plan.Preferences{Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDomainsInTransaction: dnsmasq is configured for rules that name domains
// in the same transaction: the file is written and dnsmasq restarted, applying
// twice restarts it once, and revert removes both. If a foreign file is in the
// way, or dnsmasq does not restart, nothing has changed.
func TestDomainsInTransaction(t *testing.T) {
	f := fake.NewLinux()
	d := f.WithDnsmasq()
	p := domainPlan(t, f)
	if why, _ := p.Why("classes.domains"); why.Value.String() != resolverFile {
		t.Errorf("the plan names %q for its domains", why.Value)
	}
	e := &apply.Engine{Backend: &linux.Backend{Runner: f}, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
	before := f.Text()
	begin := func() error {
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			return err
		}
		defer tr.Close()
		return tr.Commit()
	}
	for range 2 {
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(d.Knows, "nftset=/zoom.us/4#inet#unbloat_wan#far4_1,6#inet#unbloat_wan#far6_1\n") || d.Starts != 1 {
			t.Fatalf("after %d starts dnsmasq knows %q", d.Starts, d.Knows)
		}
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil {
		t.Fatal(err)
	}
	if f.Text() != before || d.Starts != 2 {
		t.Errorf("reverted, with %d starts:\n%s", d.Starts, f.Text())
	}
	f.Files[resolverFile] = "server=9.9.9.9\n"
	var pre *platform.PreconditionError
	if err := begin(); !errors.As(err, &pre) || !strings.Contains(err.Error(), resolverFile) {
		t.Errorf("a file of somebody else's: %v", err)
	}
	delete(f.Files, resolverFile)
	died := false
	f.SetFail(func(argv []string) (bool, bool) {
		fails := argv[0] == "/etc/init.d/dnsmasq" && !died
		died = died || fails
		return fails, false
	})
	if err := begin(); err == nil || f.Text() != before {
		t.Errorf("dnsmasq did not start: %v, and this is left:\n%s", err, f.Text())
	}
}

// TestDomainsOfSeveralWANs: each WAN has a file of its own for dnsmasq, which a change of
// another leaves alone. A domain that another's file names, itself or one above or below, is
// refused. The file of an earlier version goes with its WAN's next change.
func TestDomainsOfSeveralWANs(t *testing.T) {
	f := fake.NewLinux()
	f.WithDnsmasq()
	for _, dev := range []string{"wan2", "lan2"} {
		f.Kernel.Devices = append(f.Kernel.Devices, &linuxfake.Device{Name: dev, Kind: "veth", Up: true, MTU: 1500})
	}
	const first, second, earlier = resolverFile, "/etc/dnsmasq.d/unbloat_wan2.conf", "/etc/dnsmasq.d/unbloat.conf"
	e := &apply.Engine{Backend: &linux.Backend{Runner: f}, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
	change := func(wan, name string) error {
		t.Helper()
		p := domainPlanOn(t, f, wan, strings.Replace(wan, "wan", "lan", 1), name)
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			return err
		}
		defer tr.Close()
		return tr.Commit()
	}
	start := f.Text()
	if err := change("wan", "eu.zoom.us"); err != nil {
		t.Fatal(err)
	}
	one := f.Text()
	for _, name := range []string{"eu.zoom.us", "zoom.us", "a.eu.zoom.us"} {
		var pre *platform.PreconditionError
		if err := change("wan2", name); !errors.As(err, &pre) || !strings.Contains(err.Error(), first) || f.Text() != one {
			t.Errorf("%s on both: %v", name, err)
		}
	}
	for _, name := range []string{"u.zoom.us", "meet.example"} {
		if err := change("wan2", name); err != nil || !strings.Contains(f.Files[second], "nftset=/"+name+"/4#inet#unbloat_wan2#far4_1,") {
			t.Fatalf("%s: %v\n%s", name, err, f.Text())
		}
	}
	for _, wan := range []string{"wan2", "wan"} {
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: wan}); err != nil {
			t.Fatal(err)
		}
		if wan == "wan2" && f.Text() != one {
			t.Errorf("the second is reverted:\n%s\nwant\n%s", f.Text(), one)
		}
	}
	if f.Text() != start {
		t.Errorf("both are reverted:\n%s", f.Text())
	}

	if err := change("wan", "zoom.us"); err != nil {
		t.Fatal(err)
	}
	f.Files[earlier] = strings.ReplaceAll(f.Files[first], "unbloat_wan", "unbloat")
	f.Kernel.Table = strings.ReplaceAll(f.Kernel.Table, "unbloat_wan", "unbloat")
	delete(f.Files, first)
	if err := change("wan2", "meet.example"); err != nil || f.Files[earlier] == "" || f.Files[second] == "" {
		t.Fatalf("beside an earlier version's: %v\n%s", err, f.Text())
	}
	if err := change("wan", "zoom.us"); err != nil || f.Files[earlier] != "" || f.Files[first] == "" || strings.Contains(f.Kernel.Table, "table inet unbloat {") {
		t.Fatalf("in place of an earlier version's: %v\n%s", err, f.Text())
	}
}

// TestNoResolver: without a suitable resolver the plan says why.
func TestNoResolver(t *testing.T) {
	for says, do := range map[string]func(*fake.Linux){
		"no dnsmasq runs":      func(f *fake.Linux) { f.WithDnsmasq().Runs = false },
		"unbound":              func(f *fake.Linux) { f.WithDnsmasq(); f.Tools["pidof"] = only("unbound") },
		"built without nftset": func(f *fake.Linux) { f.WithDnsmasq(); f.Tools["dnsmasq"] = fake.Tool{Run: only("").Run} },
		"reads no directory":   func(f *fake.Linux) { f.WithDnsmasq(); f.Files["/proc/77/cmdline"] = "dnsmasq\x00" },
		"starts dnsmasq again": func(f *fake.Linux) { f.WithDnsmasq(); delete(f.Files, "/etc/init.d/dnsmasq") },
		"reads no directory of ": func(f *fake.Linux) {
			f.WithDnsmasq()
			f.Files["/proc/77/cmdline"] = "dnsmasq\x00--conf-dir=/etc/NetworkManager/dnsmasq.d\x00"
		},
		// Any user can run a program of that name, with a directory or a FIFO of his.
		"may be somebody else's": func(f *fake.Linux) {
			f.WithDnsmasq()
			f.Files["/proc/77/cmdline"] = "dnsmasq\x00--conf-file=/tmp/fifo\x00--conf-dir=/tmp/theirs\x00"
			f.Whose["/tmp/theirs"], f.Whose["/tmp/fifo"] = "drwxr-xr-x 2 65534 65534", "prw-r--r-- 1 65534 65534"
			cat := f.Tools["cat"].Run
			f.Tools["cat"] = fake.Tool{Run: func(args []string, in []byte) (string, error) {
				if args[0] == "/tmp/fifo" {
					return "", errors.New("it waits")
				}
				return cat(args, in)
			}}
		},
	} {
		f := fake.NewLinux()
		do(f)
		p := domainPlan(t, f)
		if !strings.Contains(strings.Join(reason.Texts(p.Warnings), "\n"), says) {
			t.Errorf("%q is not said: %q", says, p.Warnings)
		}
	}
}

// only is a pidof(8) that finds a single program.
func only(program string) fake.Tool {
	return fake.Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] != program {
			return "", errors.New("")
		}
		return "78\n", nil
	}}
}
