package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// Settings of another program are printed as ours, on standard output alone; what has no
// counterpart and what stops it is said beside it. Nothing is written.
func TestComeOver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sqm")
	if err := os.WriteFile(file, []byte("config queue 'a'\n\toption enabled '1'\n\toption interface 'eth1'\n\toption download '45000'\n\toption upload '9000'\n\toption squash_dscp '1'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (out, beside string, code int) {
		root := newRootCommand()
		var o, e bytes.Buffer
		root.SetOut(&o)
		root.SetErr(&e)
		root.SetArgs(append([]string{"import"}, args...))
		err := root.ExecuteContext(t.Context())
		if err != nil {
			e.WriteString(err.Error())
		}
		return o.String(), e.String(), cli.ExitCode(err)
	}
	out, beside, code := run("sqm", file)
	if code != cli.Done || !strings.Contains(out, `shape_down = "45 Mbit/s"`) || strings.Contains(out, "squash") || !strings.Contains(beside, "squash_dscp") || !strings.Contains(beside, "uci commit sqm") {
		t.Errorf("exit %d:\n%s\n%s", code, out, beside)
	}
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{"wondershaper", file}, "none of"}, {[]string{"qosmate", file}, "WAN"}, {[]string{"sqm", filepath.Join(dir, "none")}, "none"}, {[]string{"sqm", file, "more"}, "takes FILE"}} {
		if _, beside, code := run(c.args...); code != cli.Usage || !strings.Contains(beside, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, beside)
		}
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("%d files are there", len(all))
	}
}

// apply and the daemon refuse while a rival runs here, and name what stops it.
func TestRivalRuns(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/7/cmdline", "vi\x00/root/notes\x00cake-autorate.sh\x00")
	put("proc/x/cmdline", "")
	if err := rivalRuns(root, "apply"); err != nil {
		t.Errorf("nothing runs: %v", err)
	}
	put("proc/8/cmdline", "/usr/bin/bash\x00/root/cake-autorate/cake-autorate.sh\x00/root/cake-autorate/config.primary.sh\x00")
	if err := rivalRuns(root, "apply"); err == nil || !strings.Contains(err.Error(), "/etc/init.d/cake-autorate stop") {
		t.Errorf("cake-autorate runs: %v", err)
	}
	put("etc/rc.d/S99qosmate", "")
	if err := rivalRuns(root, "apply"); err == nil || !strings.Contains(err.Error(), "/etc/init.d/qosmate stop") {
		t.Errorf("qosmate is on: %v", err)
	}
}
