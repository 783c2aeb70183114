package apply_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/testkit/labtest"
)

// asOld turns what tc(8) 6.1 prints of u32 filters into what 5.10 does.
const asOld = `s/"fh":"([^"]*)","ht_divisor":([0-9]+)/fh \1 ht divisor \2 /g
s/"fh":"([^"]*)","order":([0-9]+),"key_ht":"([^"]*)","bkt":"([^"]*)"/fh \1 order \2 key ht \3 bkt \4 /g
s/,"flowid":"([^"]*)"/flowid \1 /g
s/,"not_in_hw":true/not_in_hw /g
s/,"match":\{"value":"([^"]*)","mask":"([^"]*)","offmask":"([^"]*)","off":([-0-9]+)\}/\n  match 0\1\/0\2 at \3\4/g
s/,"actions":/"actions":/g`

// TestFieldInLab, on a real kernel: routers as people have them. Each is shaped and as
// before after the revert, or what was changed is undone.
func TestFieldInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	dir := t.TempDir()
	paths := map[string]string{}
	for _, tool := range []string{"tc", "ip"} {
		var err error
		if paths[tool], err = exec.LookPath(tool); err != nil {
			t.Fatal(err)
		}
	}
	// with runs f with programs in front of the real ones; REAL stands for the real one's path.
	with := func(scripts map[string]string, f func()) {
		t.Helper()
		for tool, script := range scripts {
			if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/bash\n"+strings.ReplaceAll(script, "REAL", paths[tool])+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(dir, tool))
		}
		path := os.Getenv("PATH")
		t.Setenv("PATH", dir+":"+path)
		f()
		t.Setenv("PATH", path)
	}
	if err := os.WriteFile(filepath.Join(dir, "old.sed"), []byte(asOld), 0o644); err != nil {
		t.Fatal(err)
	}
	state := []string{"--state-dir", filepath.Join(dir, "state")}
	apply := append([]string{"apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes"}, state...)
	there := func(what, path string, apply []string) {
		t.Helper()
		before, usual := fullState(t), os.Getenv("PATH")
		t.Setenv("PATH", path)
		runUnbloat(t, 0, apply...)
		if out := runUnbloat(t, 0, append([]string{"status"}, state...)...); strings.Contains(out, "WARNING") || !strings.Contains(out, "unbloat's") {
			t.Errorf("%s: %s", what, out)
		}
		runUnbloat(t, 0, append([]string{"revert"}, state...)...)
		t.Setenv("PATH", usual)
		sameState(t, what, before, fullState(t))
	}
	old := map[string]string{
		"tc": "set -o pipefail; REAL \"$@\" | sed -E -f " + filepath.Join(dir, "old.sed"),
		"ip": `set -o pipefail; REAL "$@" | sed 's/"info_kind":"dummy"/"info_kind":"erspan","info_data":{"erspan_ver":2,"erspan_dir":"erspan_hwid":"0x11"}/'`,
	}
	ip(t, "link", "add", "tunnel", "type", "dummy")
	with(old, func() { there("with iproute2 5.10", os.Getenv("PATH"), apply) })

	// Once packets are redirected, tc(8) shows nothing any more.
	with(map[string]string{"tc": `out=$(REAL "$@"); code=$?
case "$* $(REAL filter show dev wan ingress)" in *add*|*del*|*unshare*) ;; *mirred*) exit 1 ;; esac; [ -z "$out" ] || echo "$out"; exit $code`}, func() {
		before := fullState(t)
		out := runUnbloat(t, 1, apply...)
		sameState(t, "after a change that can't be read: "+out, before, fullState(t))
		if journals, _ := filepath.Glob(filepath.Join(dir, "state", "*.journal.json")); journals != nil {
			t.Errorf("the journal is still there: %s", out)
		}
	})

	// A tc(8) whose output comes 7 s after its end.
	with(map[string]string{"tc": `(sleep 7; exec REAL "$@") & exit 0`}, func() { runUnbloat(t, 0, append([]string{"status"}, state...)...) })

	ip(t, "link", "add", "card", "numtxqueues", "4", "type", "dummy")
	ip(t, "link", "set", "card", "up")
	ip(t, "link", "property", "add", "dev", "card", "altname", "enp9s0f1")
	tcBatch := func(lines string) {
		t.Helper()
		c := exec.Command(paths["tc"], "-batch", "-")
		c.Stdin = strings.NewReader(lines)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	tcBatch("qdisc add dev card root handle 1: mq\nqdisc add dev card parent 1:2 handle 12: fq_codel quantum 300\n")
	there("a network card with four queues and two names", os.Getenv("PATH"), append([]string{"apply", "--wan", "enp9s0f1", "--shape-up", "4mbit", "--yes"}, state...))

	there("without sbin in PATH", "/usr/bin:/bin", apply)

	var classes strings.Builder
	fmt.Fprintln(&classes, "qdisc add dev tunnel root handle 1: htb")
	for i := 1; i <= 225; i++ {
		fmt.Fprintf(&classes, "class add dev tunnel parent 1: classid 1:%x htb rate 1mbit\nclass add dev tunnel parent 1:%x classid 1:%x htb rate 1mbit\n", i, i, 0x1000+i)
	}
	tcBatch(classes.String())
	calls := filepath.Join(dir, "calls")
	with(map[string]string{"tc": `echo "$@" >>` + calls + `; exec REAL "$@"`}, func() { runUnbloat(t, 0, append([]string{"status"}, state...)...) })
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	links, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	if n, most := strings.Count(string(text), "\n"), strings.Count(string(links), "\n")+6; n > most {
		t.Errorf("status ran tc %d times, more than %d", n, most)
	}
}
