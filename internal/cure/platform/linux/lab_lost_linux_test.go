package linux_test

import (
	"os/exec"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/tc"
	"unbloat/testkit/labtest"
)

// TestClassesLostInLab, on a real kernel: flushing nftables' rules removes those that
// name traffic, and deleting a filter the program; status, why and doctor say so. Applying the same plan restores
// them, a second time changes nothing, and revert leaves nothing.
func TestClassesLostInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	unbloat := func(args ...string) string {
		out, _ := exec.Command(labtest.Unbloat(), args...).CombinedOutput()
		return string(out)
	}
	apply := []string{"apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--rule", "class=voice,protocol=udp,far_port=7000", "--yes"}
	const flow = "udp 10.1.0.2:5004 > 10.3.0.2:5004"
	said := func(when string, commands int, lost bool) {
		t.Helper()
		for _, x := range []struct {
			command []string
			says    string
		}{
			{[]string{"status"}, "WARNING: the classes of wan"}, {[]string{"status", "--json"}, "lost_classes"},
			{[]string{"why", flow}, "apply the plan again"}, {[]string{"doctor", "--wan", "wan", "--lan", "lan"}, "apply the plan again"},
		}[:commands] {
			if out := unbloat(x.command...); strings.Contains(out, x.says) != lost {
				t.Errorf("%s: %q said: %v\n%s", when, x.says, !lost, out)
			}
		}
	}
	const one, all = 1, 4
	unbloat(apply...)
	said("applied", one, false)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said("flushed", all, true)
	unbloat(apply...)
	said("applied again", all, false)
	if out := unbloat(append(apply, "--dry-run")...); strings.Contains(out, "nft -f") || strings.Contains(out, "tc qdisc") {
		t.Errorf("a third time there is something left to do:\n%s", out)
	}
	if out, err := exec.Command("tc", "filter", "del", "dev", "wan", "parent", tc.OurRoot).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said("without the program", all, true)
	t.Log(unbloat("revert"))
	if exec.Command("nft", "list", "table", "inet", "unbloat_wan").Run() == nil {
		t.Error("the table is still there")
	}
	if out, _ := exec.Command("tc", "qdisc", "show").Output(); strings.Contains(string(out), "cake") {
		t.Errorf("a queue of ours is still there: %s", out)
	}
}
