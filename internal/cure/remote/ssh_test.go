package remote_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
	"pgregory.net/rapid"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/remote"
)

// TestSSHRun: arguments, standard input, output, errors and the exit code
// arrive unchanged. A missing program is named.
func TestSSHRun(t *testing.T) {
	s := startServer(t)
	r := s.dial(t)
	odd := []string{"a b", "c'd", `e"f`, "$HOME", "`id`", "*", "", "g\\h", "é", "x\ny", "!1", ";", "&&"}
	out, err := platform.Output(t.Context(), r, append([]string{"printf", "%s|"}, odd...)...)
	if err != nil || string(out) != strings.Join(odd, "|")+"|" {
		t.Errorf("the words arrive as %q (%v)", out, err)
	}
	binary := "\x00\xff\xfe\n\r'"
	out, _, err = r.Run(t.Context(), []string{"cat"}, []byte(binary))
	if err != nil || string(out) != binary {
		t.Errorf("standard input arrives as %q (%v)", out, err)
	}
	_, errOut, err := r.Run(t.Context(), []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, nil)
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 3 || string(errOut) != "err\n" {
		t.Errorf("exit code and errors: %v, %q", err, errOut)
	}
	var missing *platform.MissingToolError
	if _, _, err := r.Run(t.Context(), []string{"no-such-tool"}, nil); !errors.As(err, &missing) || missing.Tool != "no-such-tool" {
		t.Errorf("a missing tool: %v", err)
	}
	// A program that is there, and does not find another one, is none that is missing.
	if _, _, err := r.Run(t.Context(), []string{"sh", "-c", "exec no-such-environment"}, nil); !errors.As(err, &exit) || exit.ExitStatus() != 127 || errors.As(err, &missing) {
		t.Errorf("a program without what it needs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Run(ctx, []string{"sleep", "60"}, nil); err == nil {
		t.Error("a cancelled command went on")
	}
}

// TestQuote: a shell turns quoted words into the original words.
func TestQuote(t *testing.T) {
	s := startServer(t)
	r := s.dial(t)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[ -~\n\t]{0,12}`), 1, 4).Draw(t, "words")
		out, err := platform.Output(context.Background(), r, append([]string{"printf", "%s\\036"}, words...)...)
		if err != nil || string(out) != strings.Join(words, "\x1e")+"\x1e" {
			t.Fatalf("%q arrive as %q (%v)", words, out, err)
		}
	})
}

// TestHostKeys: an unknown host key and a changed one are refused, and the
// error says what to do; so are a user's key that the server refuses, and no
// key at all.
func TestHostKeys(t *testing.T) {
	s := startServer(t)
	try := func(change func(o *remote.SSHOptions, target *remote.Target)) error {
		o, target := s.options, s.target
		change(&o, &target)
		r, err := remote.DialSSH(t.Context(), target, o)
		if err == nil {
			r.Close()
		}
		return err
	}
	empty, other := filepath.Join(s.dir, "empty"), filepath.Join(s.dir, "other")
	write(t, empty, "")
	changed := newKey(t, filepath.Join(s.dir, "changed"))
	newKey(t, filepath.Join(s.dir, "stranger"))
	write(t, other, knownhosts.Line([]string{knownhosts.Normalize("127.0.0.1:" + strconv.Itoa(s.target.Port))}, changed)+"\n")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) { o.KnownHosts = []string{empty} }), "its host key is not known")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) { o.KnownHosts = []string{other} }), "NOT the one that is known")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) {
		o.Identities = []string{filepath.Join(s.dir, "stranger")}
	}), "accepts none of our keys")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) { o.Identities = []string{"/nowhere"} }), "ssh-keygen")
	revoked, torn := filepath.Join(s.dir, "revoked"), filepath.Join(s.dir, "torn")
	write(t, revoked, "@revoked * "+string(ssh.MarshalAuthorizedKey(s.hostKey)))
	write(t, torn, "gate ssh-ed25519 AAAA!\n")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) { o.KnownHosts = []string{revoked} }), "revoked")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) { o.KnownHosts = []string{torn} }), "known_hosts can't be read")
	contains(t, try(func(o *remote.SSHOptions, _ *remote.Target) {
		o.Identities = []string{lockedKey(t, filepath.Join(s.dir, "locked"), "pa55word")}
	}), "ssh-add")
	contains(t, try(func(_ *remote.SSHOptions, x *remote.Target) { x.Port = freePort(t) }), "connection refused")
	if err := try(func(*remote.SSHOptions, *remote.Target) {}); err != nil {
		t.Error(err)
	}
}

// lockedKey writes a private key with a passphrase.
func lockedKey(t *testing.T, path, passphrase string) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "unbloat's test", []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgent: a key that only the agent has is sufficient.
func TestAgent(t *testing.T) {
	s := startServer(t)
	b, err := os.ReadFile(filepath.Join(s.dir, "user"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(s.dir, "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(ring, c)
		}
	}()
	o := s.options
	o.Agent, o.Identities = socket, []string{"/nowhere"}
	r, err := remote.DialSSH(t.Context(), s.target, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// TestTarget: addresses are parsed or refused. A password is never repeated.
func TestTarget(t *testing.T) {
	for in, want := range map[string]string{
		"ssh://root@192.0.2.1": "ssh://root@192.0.2.1:22", "ssh://gate": "ssh://root@gate:22", "ssh://me@[2001:db8::1]:2222": "ssh://me@[2001:db8::1]:2222",
		"ssh://root@[fe80::1%eth0]": "ssh://root@[fe80::1%25eth0]:22", "ssh://[fe80::1%25br-lan.7]:23": "ssh://root@[fe80::1%25br-lan.7]:23",
		"ssh://me:s3cr3t@gate": "", "ssh://": "", "http://gate": "", "gate": "", "ssh://gate/x": "", "ssh://me:s3cr3t@gate:x": "", "ssh://gate:99999": "",
	} {
		got, err := remote.ParseTarget(in)
		if want == "" {
			if err == nil {
				t.Errorf("%s was taken", in)
			} else if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the password is in %v", err)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
}

// TestPlainHost: what people write for ssh(1) is answered with the address that is meant,
// and a router that lets nobody in with every command that it takes.
func TestPlainHost(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.0.1": "do you mean ssh://root@10.1.0.1?", "admin@gate:2222": "do you mean ssh://admin@gate:2222?",
		"me:s3cr3t@gate": "write ssh://user@host", "gate/x": "write ssh://user@host",
	} {
		if _, err := remote.ParseTarget(in); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", in, err)
		}
	}
	s := startServer(t)
	o := s.options
	empty := filepath.Join(s.dir, "empty")
	write(t, empty, "")
	o.KnownHosts = []string{empty}
	_, err := remote.DialSSH(t.Context(), s.target, o)
	contains(t, err, "ssh-keygen -t ed25519")
	contains(t, err, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
	contains(t, err, "ssh-copy-id -p "+strconv.Itoa(s.target.Port)+" "+s.target.User+"@"+s.target.Host)
}

// TestReconnect: after the connection was cut, the next command connects again.
func TestReconnect(t *testing.T) {
	s := startServer(t)
	r := s.dial(t)
	s.cable.set(true)
	_, err := platform.Output(t.Context(), r, "true")
	var pre *platform.PreconditionError
	if !errors.As(err, &pre) || !errors.Is(err, platform.ErrUnreachable) || !strings.Contains(err.Error(), "the connection was lost at `true`") {
		t.Errorf("cut: %v", err)
	}
	s.cable.set(false)
	if _, err := platform.Output(t.Context(), r, "true"); err != nil {
		t.Errorf("mended: %v", err)
	}
}
