package linux_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"unbloat/testkit/labtest"
)

// TestReplacedRuleInLab, on a real kernel: a rule that names traffic is replaced,
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
	apply := []string{labtest.Unbloat(), "apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--rule", "class=bulk,protocol=udp,far_port=5004", "--yes"}
	// first is the first rule that names traffic, and its handle.
	first := func() (rule, handle string) {
		t.Helper()
		chain := run("nft", "-a", "list", "chain", "inet", "unbloat_wan", "up_class")
		m := regexp.MustCompile(`(?m)^\s+(.* 5004 .*) # handle (\d+)$`).FindStringSubmatch(chain)
		if m == nil {
			t.Fatalf("no rule names the port: %s", chain)
		}
		return m[1], m[2]
	}
	run(apply...)
	changes := []struct {
		what   string
		change func()
	}{
		{"replaced", func() {
			rule, handle := first()
			run("nft", "replace", "rule", "inet", "unbloat_wan", "up_class", "handle", handle, strings.Replace(rule, "5004", "5005", 1))
		}},
		{"moved", func() {
			rule, handle := first()
			run("nft", "delete", "rule", "inet", "unbloat_wan", "up_class", "handle", handle)
			run("nft", "add", "rule", "inet", "unbloat_wan", "up_class", rule)
		}},
		{"put in", func() { run("nft", "insert", "rule", "inet", "unbloat_wan", "up_class", "drop") }},
	}
	if !labtest.Long() {
		changes = changes[1:2] // nft lists as many rules, and the same ones
	}
	for _, x := range changes {
		if out := run(labtest.Unbloat(), "status"); strings.Contains(out, "WARNING: the classes of wan") {
			t.Fatalf("before %s: %s", x.what, out)
		}
		x.change()
		if out := run("sh", "-c", labtest.Unbloat()+" status; true"); !strings.Contains(out, "WARNING: the classes of wan") || !strings.Contains(out, "chain up_class") {
			t.Errorf("%s: status does not say it: %s", x.what, out)
		}
		run(apply...)
		if out := run(append(apply, "--dry-run")...); strings.Contains(out, "nft -f") {
			t.Errorf("%s: applied again, and there is something left to do:\n%s", x.what, out)
		}
	}
	run("nft", "insert", "rule", "inet", "unbloat_wan", "up_class", "drop")
	t.Log(run(labtest.Unbloat(), "revert"))
	if exec.Command("nft", "list", "table", "inet", "unbloat_wan").Run() == nil {
		t.Error("the table is still there")
	}
}
