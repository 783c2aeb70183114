package openwrt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// TestSQMScriptInLab, on a real kernel with a real shell, tc and nft: the
// script of a plan with classes makes the same qdiscs, filters and table as a
// plan for Linux, with CAKE and HTB, twice in a row, and removes all of it.
func TestSQMScriptInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	t.Setenv("PATH", filepath.Dir(labtest.Unbloat())+":"+os.Getenv("PATH")) // the script calls it by its name
	ctx, router := t.Context(), platform.Local{Self: labtest.Unbloat()}
	for _, aqm := range []plan.AQM{plan.CAKE, plan.FQCoDel} {
		facts := plan.Capabilities{Language: openwrt.Language(), WAN: lab.RouterWAN, LAN: lab.RouterLAN, IFB: true, AQMs: []plan.AQM{aqm}, Offloads: []plan.Offload{}}
		line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
		p, err := plan.Make(line, facts, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		commands, err := linux.FirstCommands(p)
		if err != nil {
			t.Fatal(err)
		}
		script := strings.Replace(sqm.Script(p, linux.Programs(p), commands), ". ${SQM_LIB_DIR}/defaults.sh", "INSMOD=true", 1)
		run := func(function string) {
			t.Helper()
			c := exec.CommandContext(ctx, "sh", "-c", "UPLINK=4750\nDOWNLINK=27000\ndo_modules() { :; }\nsqm_warn() { echo \"$@\"; }\n"+script+"\nsqm_prepare_script && "+function)
			if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%s, %s: %v\n%s", aqm, function, err, out)
			}
		}
		facts.Language = linux.Language()
		same, err := plan.Make(line, facts, plan.Preferences{Down: plan.RatePreference{Rate: p.DownBps}, Up: plan.RatePreference{Rate: p.UpBps}})
		if err != nil {
			t.Fatal(err)
		}
		b := &linux.Backend{Runner: router, Exe: router.Self}
		for range 2 {
			run("sqm_start")
			now, err := b.Observe(ctx, same, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := b.Desire(ctx, same, now, now)
			if err != nil {
				t.Fatal(err)
			}
			if steps, diffs, err := b.Compare(now, want); len(steps)+len(diffs) > 0 || err != nil {
				t.Fatalf("%s: %q %q %v", aqm, steps, diffs, err)
			}
		}
		run("sqm_stop")
		held, err := linux.HeldBy(ctx, router, lab.RouterWAN)
		if err != nil || len(held) > 0 || linux.ReadTable(ctx, router, lab.RouterWAN).Text != "" {
			t.Errorf("%s: stopped, and this is left: %v %v", aqm, held, err)
		}
	}
}
