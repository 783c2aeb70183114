// Package ports checks the services of the ports for FreeBSD and OpenBSD, with
// stand-ins of their rc.subr.
package ports

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/testkit/await"
)

// A home is a directory in which a service runs: bin/unbloat is a stand-in that
// notes what it is asked, and refuses a configuration that says "bad".
type home struct{ dir string }

func newHome(t *testing.T) home {
	t.Helper()
	h := home{t.TempDir()}
	h.write(t, "bin/unbloat", "#!/bin/sh\necho \"$@\" >>'"+h.dir+"/asked'\nfor f; do case $f in *.toml) ! grep -q bad \"$f\" || { echo \"$f:1: bad\" >&2; exit 2; } ;; esac; done\n")
	h.write(t, "etc/unbloat/unbloat.toml", "good\n")
	return h
}

func (h home) path(name string) string { return filepath.Join(h.dir, name) }

func (h home) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs a shell's script, and returns what it printed and its exit code.
func run(t *testing.T, argv ...string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// freebsdSubr is what the script takes of FreeBSD's rc.subr: variables of rc.conf,
// the commands that it has itself, and the start of a program with its precmd. As
// there, NAME_flags go to the command.
const freebsdSubr = `load_rc_config() { . "$RC_CONF"; }
run_rc_command() {
	eval enabled=\$$rcvar
	case $1 in
	start)
		[ "$enabled" = YES ] || { echo "$name is not enabled"; return 1; }
		for f in $required_files; do [ -r "$f" ] || { echo "$f is missing"; return 1; }; done
		if [ -n "$start_precmd" ]; then $start_precmd || return 1; fi
		eval flags=\$${name}_flags
		echo "$command $flags $command_args"
		;;
	stop) echo "TERM to $command of $pidfile" ;;
	*)
		case " $extra_commands " in *" $1 "*) ;; *) echo "unknown: $1"; return 1 ;; esac
		eval cmd=\$${1}_cmd
		$cmd
		;;
	esac
}
`

// TestFreeBSD: the service starts the program under daemon(8) with its
// configuration, not with a wrong one, and hands SIGHUP to the program.
func TestFreeBSD(t *testing.T) {
	// Where this runs under nohup(1) the shell could not trap what it finds ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := os.ReadFile("freebsd/files/unbloatd.in")
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range [][]string{{"sh"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			t.Logf("%s: SKIPPED: %v", shell, err)
			continue
		}
		h := newHome(t)
		h.write(t, "rc.subr", freebsdSubr)
		h.write(t, "rc.conf", "")
		script := strings.NewReplacer("%%PREFIX%%", h.dir, ". /etc/rc.subr", "RC_CONF='"+h.path("rc.conf")+"'; . '"+h.path("rc.subr")+"'", "/var/run/", h.dir+"/").Replace(string(text))
		h.write(t, "unbloatd", script)
		if out, code := run(t, append(shell, "-n", h.path("unbloatd"))...); code != 0 {
			t.Fatalf("%s: %s", shell, out)
		}
		do := func(command string) (string, int) { return run(t, append(shell, h.path("unbloatd"), command)...) }
		if out, code := do("start"); code == 0 || !strings.Contains(out, "not enabled") {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		h.write(t, "rc.conf", "unbloatd_enable=YES\nunbloatd_args='--state-dir /x'\n")
		config := h.path("etc/unbloat/unbloat.toml")
		want := "/usr/sbin/daemon  -c -S -T unbloatd -R 5 -p " + h.dir + "/unbloatd.pid -P " + h.dir + "/unbloatd-supervisor.pid " + h.dir + "/bin/unbloat daemon --config " + config + " --state-dir /x\n"
		if out, code := do("start"); code != 0 || out != want {
			t.Errorf("%s: %d\n%s%s", shell, code, out, want)
		}
		if asked, err := os.ReadFile(h.path("asked")); err != nil || string(asked) != "daemon --check --config "+config+"\n" {
			t.Errorf("%s: before the start: %s%v", shell, asked, err)
		}
		if out, code := do("stop"); code != 0 || out != "TERM to /usr/sbin/daemon of "+h.dir+"/unbloatd-supervisor.pid\n" {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		if out, code := do("reload"); code == 0 || !strings.Contains(out, "not running") {
			t.Errorf("%s: reload of nothing: %d %s", shell, code, out)
		}
		child := exec.CommandContext(ctx, "sh", "-c", "trap 'echo heard >\""+h.path("heard")+"\"; exit' HUP; : >\""+h.path("ready")+"\"; while :; do sleep 0.05; done")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		await.Until(t, 10*time.Second, "the program is ready", func() bool { _, err := os.Stat(h.path("ready")); return err == nil })
		h.write(t, "unbloatd.pid", strconv.Itoa(child.Process.Pid)+"\n")
		h.write(t, "etc/unbloat/unbloat.toml", "bad\n")
		for _, command := range []string{"start", "reload", "configtest"} {
			if out, code := do(command); code == 0 || !strings.Contains(out, "unbloat.toml:1: bad") {
				t.Errorf("%s: %s with a wrong configuration: %d %s", shell, command, code, out)
			}
		}
		if _, err := os.Stat(h.path("heard")); err == nil {
			t.Errorf("%s: a wrong configuration is read again", shell)
		}
		h.write(t, "etc/unbloat/unbloat.toml", "good\n")
		if out, code := do("reload"); code != 0 {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(h.path("heard")); err != nil {
			t.Errorf("%s: the program does not hear SIGHUP: %v", shell, err)
		}
		if err := os.Remove(config); err != nil {
			t.Fatal(err)
		}
		if out, code := do("start"); code == 0 || !strings.Contains(out, "is missing") {
			t.Errorf("%s: %d %s", shell, code, out)
		}
	}
}

// openbsdSubr is what the script takes of OpenBSD's rc.subr.
const openbsdSubr = `rc_exec() { echo "exec $* bg=$rc_bg logger=$daemon_logger"; }
rc_start() { rc_exec "$daemon $daemon_flags"; }
rc_cmd() {
	case $1 in
	start) rc_pre && rc_start ;;
	configtest) rc_configtest ;;
	reload) rc_configtest && echo "HUP to $daemon${daemon_flags:+ $daemon_flags}" ;;
	esac
}
`

// TestOpenBSD: the service starts the program in the background with its
// configuration, and not with a wrong one.
func TestOpenBSD(t *testing.T) {
	text, err := os.ReadFile("openbsd/pkg/unbloatd.rc")
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"mksh", "sh"} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s: SKIPPED: %v", shell, err)
			continue
		}
		h := newHome(t)
		h.write(t, "rc.subr", openbsdSubr)
		h.write(t, "unbloatd", strings.NewReplacer("${TRUEPREFIX}", h.dir, "${SYSCONFDIR}", h.path("etc"), ". /etc/rc.d/rc.subr", ". '"+h.path("rc.subr")+"'").Replace(string(text)))
		if out, code := run(t, shell, "-n", h.path("unbloatd")); code != 0 {
			t.Fatalf("%s: %s", shell, out)
		}
		command := h.dir + "/bin/unbloat daemon --config " + h.path("etc/unbloat/unbloat.toml")
		if out, code := run(t, shell, h.path("unbloatd"), "start"); code != 0 || out != "exec "+command+" bg=YES logger=daemon.info\n" {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		if out, code := run(t, shell, h.path("unbloatd"), "reload"); code != 0 || out != "HUP to "+command+"\n" {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		h.write(t, "etc/unbloat/unbloat.toml", "bad\n")
		for _, c := range []string{"start", "reload", "configtest"} {
			if out, code := run(t, shell, h.path("unbloatd"), c); code == 0 || !strings.Contains(out, "unbloat.toml:1: bad") || strings.Contains(out, "exec") || strings.Contains(out, "HUP") {
				t.Errorf("%s: %s with a wrong configuration: %d %s", shell, c, code, out)
			}
		}
	}
}

// TestFreeBSDDevd: devd's action for the interface of an event tells the daemon. The
// system's own actions for other events of interfaces are not taken over: devd runs
// one for each.
func TestFreeBSDDevd(t *testing.T) {
	text, err := os.ReadFile("freebsd/files/devd-unbloat.conf.in")
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	var types, action string
	for line := range strings.Lines(string(text)) {
		w := strings.Split(strings.TrimSpace(line), `"`)
		switch {
		case len(w) > 3 && w[1] == "type":
			types = w[3]
		case len(w) > 1 && w[0] == "action ":
			action = w[1]
		}
	}
	for _, of := range []string{"ATTACH", "DETACH", "LINK_UP"} {
		if strings.Contains(types, of) || types == "" {
			t.Errorf("%q takes %s from the system's devd.conf", types, of)
		}
	}
	command := strings.NewReplacer("%%PREFIX%%", h.dir, "$subsystem", "ng0").Replace(action)
	if out, code := run(t, "sh", "-c", command); code != 0 {
		t.Fatalf("%q: %d %s", command, code, out)
	}
	h.asked(t, "daemon --look --changed ng0\n")
}

// TestOpenBSDHotplug: the script tells the daemon of interfaces, and of nothing else.
func TestOpenBSDHotplug(t *testing.T) {
	text, err := os.ReadFile("openbsd/files/hotplug-attach")
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	h.write(t, "attach", strings.ReplaceAll(string(text), "@PREFIX@", h.dir))
	if out, code := run(t, "sh", "-n", h.path("attach")); code != 0 {
		t.Fatal(out)
	}
	for _, argv := range [][]string{{"2", "sd1"}, {"3", "pppoe0"}, {}} {
		if out, code := run(t, append([]string{"sh", h.path("attach")}, argv...)...); code != 0 || out != "" {
			t.Errorf("%q: %d %s", argv, code, out)
		}
	}
	h.asked(t, "daemon --look --changed pppoe0\n")
}

// asked checks what the program was asked.
func (h home) asked(t *testing.T, want string) {
	t.Helper()
	if asked, err := os.ReadFile(h.path("asked")); err != nil || string(asked) != want {
		t.Errorf("it was asked %q, not %q: %v", asked, want, err)
	}
}
