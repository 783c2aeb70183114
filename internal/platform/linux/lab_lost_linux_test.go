package linux_test

import (
	"os/exec"
	"strings"
	"testing"

	"unbloat/internal/lab/labtest"
)

// TestClassesLostInLab, on a real kernel: flushing nftables' rules removes the
// classes, and status, why and doctor say so. Applying the same plan restores
// them, a second time changes nothing, and revert leaves nothing.
func TestClassesLostInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	unbloat := func(args ...string) string {
		out, _ := exec.Command(labtest.Unbloat(), args...).CombinedOutput()
		return string(out)
	}
	apply := []string{"apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--yes"}
	const flow = "udp 10.1.0.2:5004 > 10.3.0.2:5004"
	said := func(when string, lost bool) {
		t.Helper()
		for _, x := range []struct{ out, says string }{
			{unbloat("status"), "WARNING: the classes of wan"}, {unbloat("status", "--json"), "lost_classes"},
			{unbloat("why", flow), "apply the plan again"}, {unbloat("doctor", "--wan", "wan", "--lan", "lan"), "apply the plan again"},
		} {
			if strings.Contains(x.out, x.says) != lost {
				t.Errorf("%s: %q said: %v\n%s", when, x.says, !lost, x.out)
			}
		}
	}
	unbloat(apply...)
	said("applied", false)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said("flushed", true)
	unbloat(apply...)
	said("applied again", false)
	if out := unbloat(append(apply, "--dry-run")...); strings.Contains(out, "nft -f") || strings.Contains(out, "tc qdisc") {
		t.Errorf("a third time there is something left to do:\n%s", out)
	}
	if out, err := exec.Command("nft", "delete", "chain", "inet", "unbloat", "forwarded").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said("without its hook", true)
	t.Log(unbloat("revert"))
	if exec.Command("nft", "list", "table", "inet", "unbloat").Run() == nil {
		t.Error("the table is still there")
	}
	if out, _ := exec.Command("tc", "qdisc", "show").Output(); strings.Contains(string(out), "cake") {
		t.Errorf("a queue of ours is still there: %s", out)
	}
}
