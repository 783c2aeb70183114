package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rc stands in for OpenWrt's rc.common and procd.sh: it says what it is asked to do.
const rc = `
rc_procd() { echo "service begin"; "$@"; local code=$?; service_triggers; echo "service end"; return $code; }
start() { rc_procd start_service; }
reload() { reload_service; }
procd_open_instance() { echo "open"; }
procd_close_instance() { echo "close"; }
procd_set_param() { echo "set $*"; }
procd_running() { [ "$1" = unbloatd ] && [ -n "$RUNNING" ]; }
procd_send_signal() { echo "signal $*"; }
procd_add_reload_trigger() { echo "trigger $*"; }
logger() { echo "log $*" >&2; }
`

// TestOpenWrtInit: busybox's shell runs the init script over stand-ins of rc.common and
// procd. Nothing starts with a wrong configuration, and a reload is a signal, or another
// try.
func TestOpenWrtInit(t *testing.T) {
	shell := ash(t)
	script := read(t, filepath.Join("..", "openwrt", "unbloatd.init"))
	if !strings.HasPrefix(script, "#!/bin/sh /etc/rc.common\n") || !strings.Contains(script, "\nUSE_PROCD=1\n") || !strings.Contains(script, "\nSTART=") {
		t.Error("it is no init script of procd")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "unbloat")
	text := "#!/bin/sh\n[ \"$*\" = 'daemon --check --config /etc/config/unbloat' ] || { echo \"asked $*\"; exit 9; }\n[ -z \"$WRONG\" ] || { echo \"$WRONG\" >&2; exit 2; }\necho 'eth0: down carries 50 Mbit/s'\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(what string, env ...string) (string, int) {
		t.Helper()
		c := exec.CommandContext(t.Context(), shell[0], shell[1], "-c", "set -u\n"+rc+strings.ReplaceAll(script, "PROG=/usr/bin/unbloat", "PROG="+program)+"\n"+what)
		c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "RUNNING=", "WRONG="}, env...)
		out, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), c.ProcessState.ExitCode()
	}
	const trigger = "trigger unbloat\nservice end\n"
	out, code := run("start")
	for _, want := range []string{"service begin\nopen\nset command " + program + " daemon --config /etc/config/unbloat\nset env GOMEMLIMIT=", "KiB\n", "set respawn 3600 5 5\n", "close\n" + trigger} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("start: exit code %d, no %q in\n%s", code, want, out)
		}
	}
	if out, code := run("start", "WRONG=/etc/config/unbloat:3: down: no rate"); code == 0 || strings.Contains(out, "open") || !strings.Contains(out, "unbloat:3: down: no rate") || !strings.HasSuffix(out, trigger) {
		t.Errorf("with a mistake: exit code %d\n%s", code, out)
	}
	// procd's lines are of the program's name, and so are the script's: what people are
	// told to look for finds both.
	if out, _ := run("start", "WRONG=x"); !strings.Contains(out, "log -s -t unbloat -p daemon.err not started: x") {
		t.Errorf("it logs %s", out)
	}
	named := 0
	for _, file := range []string{"openwrt.md", "daemon.md", "when-it-goes-wrong.md", "grafana/alerts.yml"} {
		for _, m := range regexp.MustCompile(`logread -e (\w+)`).FindAllStringSubmatch(read(t, filepath.Join("..", "..", "docs", file)), -1) {
			named++
			if m[1] != filepath.Base("/usr/bin/unbloat") {
				t.Errorf("docs/%s: %s finds nothing that procd logs", file, m[0])
			}
		}
	}
	if named == 0 {
		t.Error("no document says how to read the log")
	}
	if out, code := run("reload", "RUNNING=1"); code != 0 || out != "signal unbloatd * HUP\n" {
		t.Errorf("reload: exit code %d\n%s", code, out)
	}
	if out, code := run("reload"); code != 0 || !strings.Contains(out, "set respawn") {
		t.Errorf("reload of one that does not run: exit code %d\n%s", code, out)
	}
}

// TestOpenWrtDefaults: the first time the interfaces are taken from the network's
// configuration; lines that are there stay.
func TestOpenWrtDefaults(t *testing.T) {
	shell := ash(t)
	script := read(t, filepath.Join("..", "openwrt", "unbloat.defaults"))
	// uci answers from its environment, and says what it is to write.
	const uci = `uci() { [ "$1" = -q ] && shift
case "$1 ${2-}" in
"get unbloat.@wan[0]") echo "$THERE" ;;
"get network.wan.device") [ -n "$DEVICE" ] && echo "$DEVICE" ;;
"get network.wan.ifname") [ -n "$IFNAME" ] && echo "$IFNAME" ;;
"get network.wan.proto") echo "$PROTO" ;;
"get network.lan.device") echo br-lan ;;
"batch ") cat ;;
*) echo "uci $*"; return 1 ;;
esac; }
`
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"cable":      {[]string{"DEVICE=eth1", "PROTO=dhcp"}, "set unbloat.wan=wan\nset unbloat.wan.interface='eth1'\nset unbloat.wan.lan='br-lan'\ncommit unbloat\n"},
		"DSL":        {[]string{"DEVICE=dsl0.7", "PROTO=pppoe"}, "set unbloat.wan=wan\nset unbloat.wan.interface='pppoe-wan'\nset unbloat.wan.lan='br-lan'\ncommit unbloat\n"},
		"old":        {[]string{"IFNAME=eth0.2", "PROTO=dhcp"}, "set unbloat.wan=wan\nset unbloat.wan.interface='eth0.2'\nset unbloat.wan.lan='br-lan'\ncommit unbloat\n"},
		"there":      {[]string{"THERE=wan", "DEVICE=eth1", "PROTO=dhcp"}, ""},
		"no network": {nil, ""},
	} {
		e := exec.CommandContext(t.Context(), shell[0], shell[1], "-c", uci+script)
		e.Env = append([]string{"PATH=" + os.Getenv("PATH"), "THERE=", "DEVICE=", "IFNAME=", "PROTO="}, c.env...)
		out, err := e.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %v\n%s\nnot\n%s", name, err, out, c.want)
		}
	}
}

// TestOpenWrtConfiguration: the daemon takes the lines that the configuration has as an
// example; as it comes it says what is missing.
func TestOpenWrtConfiguration(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program")
	}
	text := read(t, filepath.Join("..", "openwrt", "unbloat.config"))
	written := strings.NewReplacer("#config", "config", "#\toption", "\toption").Replace(text)
	t.Chdir(filepath.Join("..", ".."))
	program := small(t)
	for name, c := range map[string]struct {
		text string
		code int
		says string
	}{"as it comes": {text, 2, "there is no config wan"}, "written": {written, 0, "pppoe-wan"}} {
		dir := t.TempDir()
		if err := lay(dir, []file{{"etc/config/unbloat", 0o600, []byte(c.text)}}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "daemon", "--check", "--config", filepath.Join(dir, "etc/config/unbloat"))
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit code %d, not %d with %q: %s", name, code, c.code, c.says, out)
		}
	}
}

// TestLuciGone: when LuCI's page is gone, rpcd looks for its programs again, or it would
// offer what is not there any more; not while an image is made.
func TestLuciGone(t *testing.T) {
	shell := ash(t)
	t.Chdir(filepath.Join("..", ".."))
	p, err := luciPackage()
	if err != nil {
		t.Fatal(err)
	}
	init := filepath.Join(t.TempDir(), "rpcd")
	if err := os.WriteFile(init, []byte("#!/bin/sh\necho rpcd $*\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{kindIPK, kindAPK} {
		scripts := map[string]string{}
		for _, f := range p.scripts(kind) {
			scripts[f.name] = strings.NewReplacer("/etc/init.d/rpcd", init, "rm -f /tmp/", "echo gone /nowhere/").Replace(string(f.text))
		}
		for root, want := range map[string]string{"": "gone /nowhere/luci-indexcache*\nrpcd reload\n", "/image": ""} {
			c := exec.CommandContext(t.Context(), shell[0], shell[1], "-c", scripts["postrm"])
			c.Env = []string{"PATH=" + os.Getenv("PATH"), "IPKG_INSTROOT=" + root}
			if out, err := c.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("%s, root %q: %v: %q", kind, root, err, out)
			}
		}
	}
}
