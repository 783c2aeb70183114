package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// debianLife is what happens on the machine, step by step. Each line that it prints
// begins with the step.
const debianLife = `#!/bin/sh
# How the daemon is: active or not, whether it is another process than before, and
# how the line is.
now() {
	step=$1
	i=0
	while [ $i -lt 100 ]; do
		pid=$(systemctl show -p MainPID --value unbloatd)
		state=$(unbloat status --json 2>/dev/null | sed -n 's/.*"daemon":{.*"wan":"wan"[^}]*"state":"\([a-z ]*\)".*/\1/p')
		[ "$2" = 0 ] || { [ "$state" = "in place" ] && [ "$pid" != "$3" ] && break; }
		[ "$2" != 0 ] || [ "$pid" != 0 ] || break
		sleep 0.1
		i=$((i + 1))
	done
	same=same
	[ "$pid" = "$last" ] || same=other
	[ "$pid" != 0 ] || same=no
	last=$pid
	queue=$(tc qdisc show dev wan | sed -n 's/^qdisc \([a-z_]*\) [0-9a-f]*: root.*/\1/p')
	echo "$step: $(systemctl is-active unbloatd), $(systemctl is-enabled unbloatd 2>/dev/null), $same process, line ${state:-not kept}, ${queue:-no queue} $(tc class show dev wan | sed -n 's/.* root .*rate \([^ ]*\) .*/\1/p')"
}
last=0
ip link add wan type veth peer name other
ip addr add 192.0.2.2/24 dev wan
ip link set wan up
ip link set other up
ip route add default via 192.0.2.1
dpkg --install /one.deb >/log 2>&1 || echo "install: failed"
now installed 0
sed -i -e 's/^#\[\[/[[/' -e 's/^#interface = "eth0"/interface = "wan"/' -e 's/^#up = .*/up = "10 Mbit\/s"\naqm = "fifo"/' /etc/unbloat/unbloat.toml
unbloat daemon --check >>/log 2>&1 || echo "check: failed"
systemctl enable --now unbloatd >>/log 2>&1 || echo "enable: failed"
now enabled 1
sed -i 's/^up = .*/up = "8 Mbit\/s"/' /etc/unbloat/unbloat.toml
systemctl reload unbloatd || echo "reload: failed"
i=0
until tc class show dev wan | grep -q 7600Kbit || [ $i = 100 ]; do sleep 0.1; i=$((i + 1)); done
now reloaded 1
handle=$(tc -s qdisc show dev wan)
kill -9 "$last"
sleep 0.2
[ "$(tc class show dev wan)" ] || echo "killed: the shaping is gone"
now killed 1 "$last"
systemctl restart unbloatd || echo "restart: failed"
now restarted 1
dpkg --install /two.deb >>/log 2>&1 </dev/null || echo "upgrade: failed"
now upgraded 1 "$last"
grep -q '8 Mbit' /etc/unbloat/unbloat.toml || echo "upgraded: the configuration is lost"
[ "$(unbloat version)" ] || echo "upgraded: it does not run"
dpkg --remove unbloat >>/log 2>&1 || echo "remove: failed"
now removed 0
[ -e /etc/unbloat/unbloat.toml ] || echo "removed: the configuration is lost"
dpkg --purge unbloat >>/log 2>&1 || echo "purge: failed"
ls -d /etc/unbloat /etc/systemd/system/*/unbloatd* /lib/systemd/system/unbloatd* /usr/bin/unbloat 2>/dev/null | sed 's/^/purged: it leaves /'
systemctl --failed --plain --no-legend --no-pager | sed 's/^/failed: /'
echo done
`

// TestDebianLong: the package lives on a Debian of its own, under systemd: the
// service starts, reloads, survives kill -9 and an upgrade, and goes without a trace
// when it is purged. The shaping is never gone meanwhile.
func TestDebianLong(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it installs a Debian; UNBLOAT_LONG=1 runs it")
	}
	for _, p := range []string{"mmdebstrap", "systemd-nspawn", "dpkg"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: %v; install mmdebstrap and systemd-container", err)
		}
	}
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("SKIPPED: it takes root on Linux")
	}
	root := debian(t)
	t.Chdir(filepath.Join("..", ".."))
	program := small(t)
	for name, version := range map[string]string{"one.deb": "v1.2.3", "two.deb": "v1.2.4"} {
		r := made(t, release{make: []string{makeDeb}, program: program, lab: program, version: version})
		debs, err := filepath.Glob(filepath.Join(r.out, "unbloat_*.deb"))
		if err != nil || len(debs) != 1 {
			t.Fatal(debs, err)
		}
		if err := copied(filepath.Join(root, name), debs[0], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"life": debianLife, "etc/systemd/system/life.service": "[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c '/life >/said 2>&1; systemctl poweroff --no-block'\n[Install]\nWantedBy=multi-user.target\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../life.service", filepath.Join(root, "etc/systemd/system/multi-user.target.wants/life.service")); err != nil {
		t.Fatal(err)
	}
	// nspawn wants a directory for itself, which this machine's systemd would have.
	boot := exec.CommandContext(t.Context(), "timeout", "180", "unshare", "--mount", "sh", "-c", `mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && exec systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe -D "$0" -b`, root)
	began := time.Now()
	out, err := boot.CombinedOutput()
	said, readErr := os.ReadFile(filepath.Join(root, "said"))
	if errors.Is(readErr, fs.ErrNotExist) {
		t.Skipf("SKIPPED: systemd does not start in a container here: %v: %s", err, out)
	}
	t.Logf("it lived for %s", time.Since(began).Round(time.Second))
	want := `installed: inactive, disabled, no process, line not kept, noqueue
enabled: active, enabled, other process, line in place, htb 9500Kbit
reloaded: active, enabled, same process, line in place, htb 7600Kbit
killed: active, enabled, other process, line in place, htb 7600Kbit
restarted: active, enabled, other process, line in place, htb 7600Kbit
upgraded: active, enabled, other process, line in place, htb 7600Kbit
removed: inactive, masked, no process, line not kept, htb 7600Kbit
done
`
	if diff := cmp.Diff(want, regexp.MustCompile(` +\n`).ReplaceAllString(string(said), "\n")); diff != "" {
		log, _ := os.ReadFile(filepath.Join(root, "log"))
		t.Errorf("%s\n%s\n%s", diff, log, journal(t, root))
	}
}

// journal is what the machine's service said.
func journal(t *testing.T, root string) string {
	out, _ := exec.CommandContext(t.Context(), "journalctl", "--no-pager", "-D", filepath.Join(root, "var/log/journal"), "-u", "unbloatd").CombinedOutput()
	return string(out)
}

// debian installs a small Debian from where this machine's packages come from.
func debian(t *testing.T) string {
	t.Helper()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	suite := regexp.MustCompile(`(?m)^VERSION_CODENAME="?([a-z]+)"?$`).FindSubmatch(release)
	if suite == nil || !regexp.MustCompile(`(?m)^ID="?debian"?$`).Match(release) {
		t.Skip("SKIPPED: this machine is no Debian")
	}
	out, err := exec.CommandContext(t.Context(), "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	mirror := ""
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == string(suite[1]) && f[2] == "main" {
			mirror = f[0]
		}
	}
	if mirror == "" {
		t.Skip("SKIPPED: apt knows no packages of this Debian; run apt-get update")
	}
	root := filepath.Join(t.TempDir(), "debian")
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd-sysv,iproute2,init-system-helpers", string(suite[1]), root, mirror).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: Debian can't be installed: %v: %s", err, out)
	}
	for _, dir := range []string{"etc/systemd/system/multi-user.target.wants", "var/log/journal"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
