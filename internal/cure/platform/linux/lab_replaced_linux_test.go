package linux_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"unbloat/testkit/labtest"
)

// TestReplacedRuleInLab, on a real kernel: a rule of the classes is replaced,
// moved or inserted. status says so and names the chain, applying the same plan
// restores it, and revert removes a changed table too.
func TestReplacedRuleInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
		return string(out)
	}
	apply := []string{labtest.Unbloat(), "apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--yes"}
	handle := func(rule string) string {
		t.Helper()
		m := regexp.MustCompile(regexp.QuoteMeta(rule) + ` # handle (\d+)`).FindStringSubmatch(run("nft", "-a", "list", "chain", "inet", "unbloat", "up_is_calm4"))
		if m == nil {
			t.Fatalf("no rule %q", rule)
		}
		return m[1]
	}
	run(apply...)
	changes := []struct {
		what   string
		change func()
	}{
		{"replaced", func() {
			run("nft", "replace", "rule", "inet", "unbloat", "up_is_calm4", "handle", handle("meta length <= 511 goto up_mixed4"), "meta length <= 511 goto up_bulk")
		}},
		{"moved", func() {
			run("nft", "delete", "rule", "inet", "unbloat", "up_is_calm4", "handle", handle("meta l4proto tcp goto up_interactive"))
			run("nft", "add", "rule", "inet", "unbloat", "up_is_calm4", "meta l4proto tcp goto up_interactive")
		}},
		{"put in", func() { run("nft", "insert", "rule", "inet", "unbloat", "up_is_calm4", "drop") }},
	}
	if !labtest.Long() {
		changes = changes[1:2] // nft lists as many rules, and the same ones
	}
	for _, x := range changes {
		if out := run(labtest.Unbloat(), "status"); strings.Contains(out, "WARNING: the classes of wan") {
			t.Fatalf("before %s: %s", x.what, out)
		}
		x.change()
		if out := run("sh", "-c", labtest.Unbloat()+" status; true"); !strings.Contains(out, "WARNING: the classes of wan") || !strings.Contains(out, "chain up_is_calm4") {
			t.Errorf("%s: status does not say it: %s", x.what, out)
		}
		run(apply...)
		if out := run(append(apply, "--dry-run")...); strings.Contains(out, "nft -f") {
			t.Errorf("%s: applied again, and there is something left to do:\n%s", x.what, out)
		}
	}
	run("nft", "insert", "rule", "inet", "unbloat", "up_is_calm4", "drop")
	t.Log(run(labtest.Unbloat(), "revert"))
	if exec.Command("nft", "list", "table", "inet", "unbloat").Run() == nil {
		t.Error("the table is still there")
	}
}
