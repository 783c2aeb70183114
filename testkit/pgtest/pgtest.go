//go:build unix

// Package pgtest runs a PostgreSQL server on this machine for a test: in a
// temporary directory, on a Unix socket and a port of the loopback. If the test
// is root, it runs as another user, since PostgreSQL refuses to run as root. A
// test says SKIPPED if PostgreSQL is not installed.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is a PostgreSQL server that a test owns.
type Server struct {
	t        testing.TB
	bin, dir string
	as       *syscall.Credential // nil: as the test
	port     int
	settings []string

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// Start creates a database in a temporary directory and runs the server until
// the test ends. Settings are those of postgresql.conf, such as "fsync=off".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("", "unbloat-pg-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, bin: filepath.Dir(found[len(found)-1]), dir: dir, port: freePort(t), settings: settings}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skipf("SKIPPED: PostgreSQL does not run as root, and there is no other user for it: %v", err)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command prepares one of PostgreSQL's programs.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + s.bin + ":/usr/bin:/bin", "HOME=" + s.dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true}
	return cmd
}

// Restart runs the server again after Kill, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1", "-k", s.dir}
	for _, c := range s.settings {
		args = append(args, "-c", c)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.process, s.ended = cmd, ended
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			_ = conn.Close(ctx)
			cancel()
			return
		}
		cancel()
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("PostgreSQL does not run: %s", lastLines(string(text)))
		default:
		}
		if time.Now().After(end) {
			s.t.Fatalf("PostgreSQL does not answer: %v", err)
		}
	}
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-10, 0):], "\n")
}

// Kill ends all processes of the server at once, like a power failure. After a
// restart everything committed is still there.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	pid := s.process.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it starts no more backends
	backends := childrenOf(pid)            // each has its own process group
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for _, b := range backends {
		_ = syscall.Kill(b, syscall.SIGKILL)
	}
	<-s.ended
	s.process = nil
	// They hold the shared memory until they have ended, and PostgreSQL does
	// not start before that.
	for end := time.Now().Add(30 * time.Second); slices.ContainsFunc(backends, runs); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("PostgreSQL's processes do not end: %v", backends)
		}
	}
}

// Freeze stops all processes of the server until Thaw: its connections stay
// open, new ones are made, and nothing is answered.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(to syscall.Signal) {
	pid := s.process.Process.Pid
	for _, p := range append(childrenOf(pid), pid) {
		_ = syscall.Kill(p, to)
	}
}

// runs reports whether a process has not ended yet.
func runs(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, ok := strings.Cut(string(text), ") ")
	return err == nil && ok && !strings.HasPrefix(rest, "Z")
}

// childrenOf returns the children of a process (proc_pid_stat(5)).
func childrenOf(pid int) []int {
	var out []int
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// URL is the database "postgres" over TCP, as --store takes it.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres", s.Addr())
}

// Addr is the port on the loopback.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Database makes a new, empty database and returns its URL.
func (s *Server) Database(name string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("postgres://postgres@%s/%s", s.Addr(), name)
}
