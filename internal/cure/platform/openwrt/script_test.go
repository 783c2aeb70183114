package openwrt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestSQMClasses: by default OpenWrt with sqm-scripts gets classes by
// behaviour, with CAKE and with HTB. The script, run by a real shell as
// sqm-scripts does, makes the same as a plan for Linux. CAKE uses a rate
// changed in LuCI, and stop leaves nothing.
func TestSQMClasses(t *testing.T) {
	lib := t.TempDir()
	if err := os.WriteFile(filepath.Join(lib, "defaults.sh"), []byte("SQM_LIB_READ=yes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, aqms := range [][]plan.AQM{nil, {plan.FQCoDel}} {
		facts := plan.Capabilities{Language: openwrt.Language(), WAN: "wan", LAN: "lan", IFB: true, AQMs: aqms}
		line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
		p, err := plan.Make(line, facts, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Classes.Of(false) == nil || p.Classes.Of(true) == nil || p.Classes.Behaviour.CalmPackets == 0 {
			t.Fatalf("%v: %+v", aqms, p.Classes)
		}
		o := fake.NewOpenWrt()
		give(t, o, &openwrt.Backend{Runner: o}, p)
		at := sqm.ScriptDir + "/" + sqm.ScriptName(plan.OwnName("wan"))
		script := o.Files[at]
		if !strings.Contains(o.Files[openwrt.Config], "option script '"+sqm.ScriptName(plan.OwnName("wan"))+"'") || script == "" {
			t.Fatalf("%s\n%q", o.Files[openwrt.Config], script)
		}
		run := func(up, down, function string) []string {
			before := "SQM_LIB_DIR=" + lib + "\nUPLINK=" + up + "\nDOWNLINK=" + down + "\ndo_modules() { :; }\n"
			return shell(t, before+script+"\n[ $SQM_LIB_READ = yes ] || exit 1\n", "INSMOD=true; sqm_prepare_script && "+function)
		}
		f := fake.NewLinux()
		blank := f.Kernel.Text()
		facts.Language, facts.Offloads = linux.Language(), []plan.Offload{} // sqm-scripts leaves offloads alone
		same, err := plan.Make(line, facts, plan.Preferences{Down: plan.RatePreference{Rate: p.DownBps}, Up: plan.RatePreference{Rate: p.UpBps}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			carryOut(t, f, same, run("4750", "27000", "sqm_start"))
		}
		changed := strings.Join(run("4000", "20000", "sqm_start"), "\n")
		if luci := strings.Contains(changed, "bandwidth 4000kbit") && strings.Contains(changed, "bandwidth 20000kbit"); luci != (p.AQM == plan.CAKE) {
			t.Errorf("%s: LuCI's rates: %v\n%s", p.AQM, luci, changed)
		}
		for _, line := range run("4750", "27000", "sqm_stop") {
			_, _, _ = f.Run(t.Context(), strings.Fields(line), nil)
		}
		if f.Kernel.Text() != blank {
			t.Errorf("stopped, and this is left:\n%s", f.Kernel.Text())
		}
	}
}

// TestSQMClassesInTheWay: a missing or too old nft(8) and a foreign script are
// reported before anything is changed.
func TestSQMClassesInTheWay(t *testing.T) {
	at := sqm.ScriptDir + "/" + sqm.ScriptName(plan.OwnName("wan"))
	for name, c := range map[string]struct {
		do   func(o *fake.OpenWrt)
		says string
	}{
		"no nft":         {func(o *fake.OpenWrt) { delete(o.Tools, "nft") }, "--classes off"},
		"an old kernel":  {func(o *fake.OpenWrt) { o.Kernel.Missing = []string{"nft"} }, "--classes off"},
		"another script": {func(o *fake.OpenWrt) { o.Files[at] = "# mine\n" }, "was not made by unbloat"},
	} {
		o := fake.NewOpenWrt()
		c.do(o)
		before := o.Text()
		p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", IFB: true}, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		e := &apply.Engine{Backend: &openwrt.Backend{Runner: o}, Runner: o, Dir: t.TempDir()}
		_, err = e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if !strings.Contains(errorText(err), c.says) || o.Text() != before {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestSQMOtherDirections: sqm-scripts stops an earlier plan with the script of
// the next one, which may shape one direction only. Still nothing of the
// earlier plan is left.
func TestSQMOtherDirections(t *testing.T) {
	o := fake.NewOpenWrt()
	b := &openwrt.Backend{Runner: o}
	for _, only := range []plan.Direction{"", plan.DirectionUp, plan.DirectionDown} {
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{Only: only, Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		give(t, o, b, p)
		if _, diffs := missing(t, b, p); len(diffs) > 0 {
			t.Errorf("only %q: %q", only, diffs)
		}
		if has := strings.Contains(o.Kernel.Text(), "ifb4wan"); has != (p.Down != nil) {
			t.Errorf("only %q: the download's ifb is there: %v\n%s", only, has, o.Kernel.Text())
		}
	}
}

// TestSQMWithoutCtinfo: if the router lacks the ctinfo action and that could
// not be tested before, the download is shaped without classes, and the log
// says so.
func TestSQMWithoutCtinfo(t *testing.T) {
	o := fake.NewOpenWrt()
	o.Kernel.Missing = []string{"ctinfo"}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", IFB: true}, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	b := &openwrt.Backend{Runner: o}
	give(t, o, b, p)
	if _, diffs := missing(t, b, p); len(diffs) > 0 || strings.Contains(o.Kernel.Text(), "ctinfo") {
		t.Errorf("%q\n%s", diffs, o.Kernel.Text())
	}
	script := o.Files[sqm.ScriptDir+"/"+sqm.ScriptName(plan.OwnName("wan"))]
	said := shell(t, "tc() { [ \"$*\" = \"${*#*ctinfo}\" ] && command tc \"$@\"; }\nsqm_warn() { command tc warned \"$@\"; }\ndo_modules() { :; }\nUPLINK=1\nDOWNLINK=1\nSQM_LIB_DIR=/dev\n"+
		strings.Replace(script, ". ${SQM_LIB_DIR}/defaults.sh", "INSMOD=true", 1), "sqm_start")
	if all := strings.Join(said, "\n"); !strings.Contains(all, "tc warned no action ctinfo") || !strings.Contains(all, "at 0 action skbedit priority b10a:5 action mirred egress redirect dev ifb4wan") {
		t.Errorf("%s", all)
	}
}

// TestSQMDomains: the script writes a file of its WAN's own for dnsmasq, beside the one that
// an earlier version had for all WANs. That goes where the table that it is for is not there.
func TestSQMDomains(t *testing.T) {
	dir := t.TempDir()
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", IFB: true, Resolver: dir + "/unbloat.conf"},
		plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Domain: []string{"zoom.us"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	commands, err := linux.FirstCommands(p)
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(". ${SQM_LIB_DIR}/defaults.sh", "INSMOD=true", "/etc/init.d/dnsmasq", "tc dnsmasq").Replace(sqm.Script(p, linux.Programs(p), commands))
	for _, there := range []bool{true, false} {
		found := map[bool]string{true: "0", false: "1"}[there]
		said := strings.Join(shell(t, "nft() { [ \"$1\" = list ] && return "+found+"; command nft \"$@\"; }\ndo_modules() { :; }\nUPLINK=1\nDOWNLINK=1\n"+script, "sqm_start"), "\n")
		if gone := strings.Contains(said, "rm -f "+dir+"/unbloat.conf\n"); gone == there || !strings.HasSuffix(said, "tc dnsmasq restart") {
			t.Errorf("the table is there: %v\n%s", there, said)
		}
	}
	o := fake.NewOpenWrt()
	d := o.WithDnsmasq()
	p.Basis.Capabilities.Resolver = "/etc/dnsmasq.d/unbloat.conf"
	o.Files[p.Basis.Capabilities.Resolver] = "server=9.9.9.9\n"
	give(t, o, &openwrt.Backend{Runner: o}, p)
	if !strings.Contains(d.Knows, "#inet#unbloat_wan#far4_1,") || strings.Contains(d.Knows, "9.9.9.9") {
		t.Errorf("dnsmasq knows %q", d.Knows)
	}
	if text, err := os.ReadFile(dir + "/unbloat_wan.conf"); err != nil || !strings.Contains(string(text), "\nnftset=/zoom.us/4#inet#unbloat_wan#far4_1,6#inet#unbloat_wan#far6_1\n") {
		t.Errorf("%v: %s", err, text)
	}
}

// give runs the steps to a plan.
func give(t *testing.T, o *fake.OpenWrt, b platform.Backend, p plan.Plan) {
	t.Helper()
	steps, _ := missing(t, b, p)
	for _, s := range steps {
		if _, errOut, err := o.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
			t.Fatalf("%q: %s", s.Argv, errOut)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
