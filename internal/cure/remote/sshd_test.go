package remote_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// A server is a real OpenSSH server on the loopback, behind a connection that
// can be cut.
type server struct {
	dir     string
	port    int // the server's own, behind the cable
	hostKey ssh.PublicKey
	target  remote.Target
	options remote.SSHOptions
	cable   *cable
}

// startServer runs sshd as a child on a free port, with its own keys and
// further lines of sshd_config.
func startServer(t *testing.T, more ...string) *server {
	t.Helper()
	return startServerBy(t, nil, append(more, "SetEnv SHLVL=2")...)
}

// startServerBy runs it by a command that is given its arguments, such as one that
// makes it a mount namespace.
func startServerBy(t *testing.T, by []string, more ...string) *server {
	t.Helper()
	labtest.NeedSeccomp(t)
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if _, e := os.Stat("/usr/sbin/sshd"); e != nil {
			t.Skip("SKIPPED: there is no sshd; install openssh-server")
		}
		sshd = "/usr/sbin/sshd"
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skipf("SKIPPED: sshd needs /run/sshd: %v", err)
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hostKey := newKey(t, filepath.Join(dir, "host"))
	userKey := newKey(t, filepath.Join(dir, "user"))
	write(t, filepath.Join(dir, "authorized"), string(ssh.MarshalAuthorizedKey(userKey)))
	port := freePort(t)
	write(t, filepath.Join(dir, "config"), fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n%s\n", port, dir, dir, strings.Join(more, "\n")))
	var log bytes.Buffer
	argv := append(slices.Clone(by), sshd, "-D", "-e", "-f", filepath.Join(dir, "config"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitFor(t, "sshd", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	s := &server{dir: dir, port: port, hostKey: hostKey}
	return s.beside(t)
}

// inNamespace returns a command that starts another in a mount namespace, where the
// programs at these paths are links to those of the same name in stage/bin, and those
// that the router lacks are not there.
func inNamespace(t *testing.T, paths, lacks []string, stage string) []string {
	t.Helper()
	if len(paths) == 0 {
		return nil
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: programs at fixed paths need a mount namespace, and that root")
	}
	script := "set -e; "
	for _, p := range paths { // a new directory over the one that may have it
		script += fmt.Sprintf("mkdir -p %[1]s; mount -t tmpfs stage %[1]s; ln -s %[2]s/bin/%[3]s %[4]s; ", filepath.Dir(p), stage, filepath.Base(p), p)
	}
	for _, name := range lacks { // what can't be run is not found
		if real, err := exec.LookPath(name); err == nil {
			script += "mount --bind /dev/null " + real + "; "
		}
	}
	return []string{"unshare", "--mount", "sh", "-c", script + `exec "$@"`, "sh"}
}

// beside returns the same server behind another cable.
func (s *server) beside(t *testing.T) *server {
	t.Helper()
	own := &server{dir: s.dir, port: s.port, hostKey: s.hostKey, cable: newCable(t, s.port)}
	user := "root"
	if u := os.Getenv("USER"); os.Getuid() != 0 && u != "" {
		user = u
	}
	own.target = remote.Target{User: user, Host: "127.0.0.1", Port: own.cable.port}
	known := filepath.Join(t.TempDir(), "known")
	write(t, known, knownhosts.Line([]string{knownhosts.Normalize("127.0.0.1:" + strconv.Itoa(own.cable.port))}, s.hostKey)+"\n")
	own.options = remote.SSHOptions{KnownHosts: []string{known}, Identities: []string{filepath.Join(s.dir, "user")}, Agent: "-"}
	return own
}

// newKey writes a private key, and returns the public one.
func newKey(t *testing.T, path string) ssh.PublicKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "unbloat's test")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// nextPort is where freePort continues. Processes begin at different ports.
var nextPort = func() *atomic.Int32 {
	n := &atomic.Int32{}
	n.Store(int32(os.Getpid() * 37))
	return n
}()

// freePort returns a port below the range that the kernel assigns, so that no
// connection of another test gets it before the server listens.
func freePort(t *testing.T) int {
	t.Helper()
	const first, last = 12000, 32000
	for range last - first {
		port := first + int(uint32(nextPort.Add(1))%(last-first))
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	await.Until(t, 2*time.Minute, what, ok) // a lost connection is tried again at longer and longer intervals
}

// A cable forwards connections to the server until it is cut. Then data on the
// way is lost, and nobody can connect.
type cable struct {
	port int
	mu   sync.Mutex
	cut  bool
	open []net.Conn
	live int // connections that both ends hold
}

func newCable(t *testing.T, to int) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{port: l.Addr().(*net.TCPAddr).Port}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			if c.cut {
				in.Close()
				c.mu.Unlock()
				continue
			}
			out, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(to))
			if err != nil {
				in.Close()
				c.mu.Unlock()
				continue
			}
			c.open = append(c.open, in, out)
			c.live++
			c.mu.Unlock()
			for i, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
					pair[1].Close()
					if i == 0 {
						c.mu.Lock()
						c.live--
						c.mu.Unlock()
					}
				})
			}
		}
	})
	t.Cleanup(func() { l.Close(); c.set(true); all.Wait() })
	return c
}

// set cuts the cable, or repairs it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	if cut {
		for _, x := range c.open {
			x.Close()
		}
		c.open = nil
	}
}

// carried returns how many connections there are now.
func (c *cable) carried() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

// dial connects to the server.
func (s *server) dial(t *testing.T) *remote.SSH {
	t.Helper()
	r, err := remote.DialSSH(context.Background(), s.target, s.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func contains(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("it says %v, without %q", err, says)
	}
}
