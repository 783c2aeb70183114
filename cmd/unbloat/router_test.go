package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/testkit/opnsensefake"
)

// A laptop runs the program. Its router is an OPNsense elsewhere.
type laptop struct {
	t     *testing.T
	flags []string
	state string
	runs  string       // what the router with a shell has as its /run
	said  bytes.Buffer // everything that was printed

	mu     sync.Mutex
	router *opnsensefake.Router
	web    *httptest.Server
	cut    atomic.Bool  // the laptop's connection is cut; the router's own is not
	lost   atomic.Int64 // requests while the connection was cut
}

const apiSecret = "s3cr3t-w1th+all=sorts"

func newLaptop(t *testing.T) *laptop {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: what processes are called is read in /proc")
	}
	l := &laptop{t: t, state: t.TempDir(), router: opnsensefake.NewWithGuests()}
	l.router.Secret = apiSecret
	l.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.cut.Load() && !strings.HasPrefix(r.UserAgent(), "curl") {
			l.lost.Add(1)
			panic(http.ErrAbortHandler)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.router.ServeHTTP(w, r)
	}))
	t.Cleanup(l.web.Close)
	keys := filepath.Join(t.TempDir(), "apikey.txt")
	if err := os.WriteFile(keys, []byte("key=key\nsecret="+apiSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.flags = []string{"--router", "opnsense+" + l.web.URL, "--api-key-file", keys, "--state-dir", l.state,
		"--fingerprint", fmt.Sprintf("%X", sha256.Sum256(l.web.Certificate().Raw))}
	return l
}

func (l *laptop) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.router.Text()
}

// run runs the program, and expects an exit code and words in the output.
func (l *laptop) run(code int, says string, args ...string) {
	l.t.Helper()
	l.runWith(l.flags, code, says, args...)
}

func (l *laptop) runWith(flags []string, code int, says string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(os.Args[0], append(append([]string{args[0]}, flags...), args[1:]...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "OPNSENSE_KEY=", "OPNSENSE_SECRET=")
	out, err := cmd.CombinedOutput()
	l.said.Write(out)
	is := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		is = exit.ExitCode()
	} else if err != nil {
		l.t.Fatal(err)
	}
	if is != code || !strings.Contains(string(out), says) {
		l.t.Errorf("%v: exit %d, want %d with %q; it says %s", args, is, code, says, out)
	}
}

func (l *laptop) wait(what string, ok func() bool) {
	l.t.Helper()
	await.Until(l.t, 40*time.Second, what, ok)
}

// checkSecret fails if the secret was printed or saved, or is in the arguments
// of any process.
func (l *laptop) checkSecret() {
	l.t.Helper()
	if strings.Contains(l.said.String(), apiSecret) {
		l.t.Error("the secret was printed")
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) == 0 {
		l.t.Fatalf("no processes in /proc: %v", err)
	}
	watchdogs := 0
	for _, path := range lines {
		b, _ := os.ReadFile(path) // empty for a process that has ended
		if bytes.Contains(b, []byte(apiSecret)) {
			l.t.Errorf("the secret is among the arguments %q", b)
		}
		if bytes.Contains(b, []byte(l.state)) && bytes.Contains(b, []byte("watchdog")) {
			watchdogs++
		}
	}
	if watchdogs == 0 {
		l.t.Error("no watchdog is running, so nothing is proven of its arguments")
	}
	files := 0
	err = filepath.WalkDir(l.state, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // removed in the meantime
		}
		files++
		if b, _ := os.ReadFile(path); bytes.Contains(b, []byte(apiSecret)) {
			l.t.Errorf("the secret is in %s", path)
		}
		return nil
	})
	if err != nil || files == 0 {
		l.t.Errorf("%d files were looked at: %v", files, err)
	}
}

// TestOPNsenseFromLaptop: every command works on an OPNsense through its API.
// The watchdog on this machine undoes an unconfirmed change as soon as it can
// reach the router. The secret appears nowhere.
func TestOPNsenseFromLaptop(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	l := newLaptop(t)
	start := l.text()
	rates := []string{"--down", "30mbit", "--up", "5mbit"}
	l.run(cli.Done, "guests", "status")
	l.run(cli.Done, "", append([]string{"doctor"}, rates...)...)
	l.runWith(append(l.flags[:4:4], l.flags[6:]...), cli.Done, "fqcodel", append([]string{"plan", "--commands"}, rates...)...)
	l.run(cli.Done, "setPipe", append([]string{"apply", "--dry-run"}, rates...)...)
	if l.text() != start {
		t.Error("looking changed the router")
	}
	l.run(cli.Done, "read back and kept", append([]string{"apply", "--yes"}, rates...)...)
	kept := l.text()
	if kept == start {
		t.Error("nothing was changed")
	}
	l.run(cli.Done, "nothing was run", append([]string{"apply", "--yes"}, rates...)...)
	l.run(cli.Done, "unbloat's", "status")
	l.run(cli.Done, "as it was before", "revert")
	if got := l.text(); got != start {
		t.Errorf("reverted, it has %s\nbefore: %s", got, start)
	}

	l.run(cli.Done, "runs on this machine", append([]string{"apply", "--confirm", "30s"}, rates...)...)
	l.checkSecret()
	l.run(cli.Precondition, "confirm", append([]string{"apply", "--yes"}, rates...)...)
	l.run(cli.Done, "Kept", "confirm")
	l.run(cli.Done, "as it was before", "revert")

	l.run(cli.Done, "runs on this machine", append([]string{"apply", "--confirm", "6s"}, rates...)...)
	l.cut.Store(true)
	l.run(cli.Precondition, "check the address", "status")
	before := l.lost.Load()
	l.wait("the watchdog to try in vain, and again", func() bool { return l.lost.Load() >= before+2 })
	if l.text() != kept {
		t.Error("it was undone while nobody could reach it")
	}
	l.cut.Store(false)
	l.wait("the watchdog to undo", func() bool { return l.text() == start })
	l.run(cli.Precondition, "", "confirm")
}

// TestOPNsenseRefused: each missing or wrong part of the access to the router
// is reported.
func TestOPNsenseRefused(t *testing.T) {
	l := newLaptop(t)
	without := func(name string) []string {
		for i := range l.flags {
			if l.flags[i] == name {
				return append(append([]string{}, l.flags[:i]...), l.flags[i+2:]...)
			}
		}
		t.Fatal(name)
		return nil
	}
	l.runWith(without("--fingerprint"), cli.Precondition, "--fingerprint", "status")
	l.runWith(without("--api-key-file"), cli.Precondition, "--api-key-file", "status")
	l.runWith(append(without("--fingerprint"), "--fingerprint", strings.Repeat("00", 32)), cli.Precondition, "not the one that was given", "status")
	l.runWith(append(without("--router"), "--router", "opnsense+https://key:"+apiSecret+"@router"), cli.Usage, "elsewhere", "status")
	l.runWith(append(without("--router"), "--router", "ssh://root:"+apiSecret+"@router"), cli.Usage, "must not contain a password", "status")
	l.run(cli.Usage, "opnsense", "status", "--for", "linux")
	l.run(cli.Usage, "ssh://", "status", "--watchdog", "router")
	if strings.Contains(l.said.String(), apiSecret) {
		t.Error("the secret was printed")
	}
}

// withShell gives the router an SSH server, and the laptop the flags for it.
func (l *laptop) withShell() (address string) {
	l.t.Helper()
	labtest.NeedSeccomp(l.t)
	const sshd = "/usr/sbin/sshd"
	for _, need := range []string{sshd, "ssh-keygen", "curl", "unshare"} {
		if _, err := exec.LookPath(need); err != nil {
			l.t.Skipf("SKIPPED: there is no %s; install openssh-server, curl and util-linux", need)
		}
	}
	if os.Getuid() != 0 {
		l.t.Skip("SKIPPED: the watchdog's shell is root's")
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		l.t.Fatal(err)
	}
	dir := l.t.TempDir()
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			l.t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	public, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		l.t.Fatal(err)
	}
	for name, text := range map[string]string{"known": "[127.0.0.1]:" + port + " " + string(public),
		"config": fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %[2]s/host\nAuthorizedKeysFile %[2]s/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nSetEnv SHLVL=2\n", port, dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	l.runs = filepath.Join(dir, "run")
	if err := os.Mkdir(l.runs, 0o755); err != nil {
		l.t.Fatal(err)
	}
	argv := labtest.Own("/run", l.runs, []string{"/run/sshd"}, sshd, "-D", "-f", filepath.Join(dir, "config"))
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	l.wait("sshd", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	l.flags = append(l.flags, "--identity", filepath.Join(dir, "user"), "--known-hosts", filepath.Join(dir, "known"))
	return "ssh://root@127.0.0.1:" + port
}

// TestOPNsenseWatchdog: with --watchdog the router itself undoes an unconfirmed
// change while the laptop is away. A confirmation finds that watchdog by the
// journal.
func TestOPNsenseWatchdog(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	l := newLaptop(t)
	watchdog := l.withShell()
	start := l.text()
	rates := []string{"--down", "30mbit", "--up", "5mbit"}
	l.run(cli.Done, "undone in 2 seconds", append([]string{"apply", "--confirm", "2s", "--watchdog", watchdog}, rates...)...)
	l.cut.Store(true)
	l.wait("the router to undo", func() bool { return l.text() == start })
	l.cut.Store(false)
	l.run(cli.Precondition, "", "confirm")
	l.run(cli.Done, "undone in 40 seconds", append([]string{"apply", "--confirm", "40s", "--watchdog", watchdog}, rates...)...)
	kept := l.text()
	l.run(cli.Done, "Kept", "confirm")
	if left, _ := filepath.Glob(l.runs + "/unbloat-watchdog-*"); len(left) > 0 {
		t.Errorf("watchdogs are left: %v", left)
	}
	if l.text() != kept || kept == start {
		t.Error("what was confirmed is not there")
	}
	l.run(cli.Done, "as it was before", "revert")
	if l.text() != start {
		t.Error("reverted, it is not as before")
	}
	if strings.Contains(l.said.String(), apiSecret) {
		t.Error("the secret was printed")
	}
}
