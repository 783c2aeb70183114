package remote_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/remote"
	"unbloat/unit"
)

// A foe is an SSH server that means harm. It answers `id -u` as a router does,
// and everything else by its mode.
type foe struct {
	mode atomic.Pointer[string]
	said atomic.Int64   // bytes that were taken of it
	wg   sync.WaitGroup // of all goroutines
}

func newFoe(t *testing.T, limit guard.Limit) (*foe, *remote.SSH) {
	t.Helper()
	dir := t.TempDir()
	user, host := newKey(t, filepath.Join(dir, "user")), filepath.Join(dir, "host")
	newKey(t, host)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(user.Marshal()) {
			return nil, errors.New("a stranger")
		}
		return nil, nil
	}}
	signer := signerOf(t, host)
	config.AddHostKey(signer)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &foe{}
	t.Cleanup(func() { l.Close(); f.wg.Wait() })
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { f.serve(c, config) })
		}
	})
	known := filepath.Join(dir, "known")
	write(t, known, knownhosts.Line([]string{knownhosts.Normalize(l.Addr().String())}, signer.PublicKey())+"\n")
	target := remote.Target{User: "root", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
	r, err := remote.DialSSH(t.Context(), target, remote.SSHOptions{KnownHosts: []string{known}, Identities: []string{filepath.Join(dir, "user")}, Agent: "-", Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return f, r
}

func (f *foe) serve(c net.Conn, config *ssh.ServerConfig) {
	defer c.Close()
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	f.wg.Go(func() {
		for r := range requests {
			_ = r.Reply(false, nil)
		}
	})
	for asked := range channels {
		if m := f.mode.Load(); m != nil && *m == "no channel" {
			continue
		}
		ch, requests, err := asked.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.session(ch, requests) })
	}
}

func (f *foe) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	for r := range requests {
		if r.Type != "exec" {
			continue
		}
		m := f.mode.Load()
		if strings.Contains(string(r.Payload), "'id'") || m == nil {
			_ = r.Reply(true, nil)
			_, _ = io.WriteString(ch, "0\n")
			f.exit(ch)
			continue
		}
		if *m == "no reply" {
			continue
		}
		_ = r.Reply(true, nil)
		switch *m {
		case "endless output":
			f.wg.Go(func() { f.chatter(ch) })
		case "endless errors":
			f.wg.Go(func() { f.chatter(ch.Stderr()) })
		case "a byte at a time":
			f.wg.Go(func() {
				for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
					if _, err := io.WriteString(ch, "."); err != nil {
						return
					}
				}
			})
		}
	}
}

func (f *foe) exit(ch ssh.Channel) {
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{}))
	ch.Close()
}

func (f *foe) chatter(w io.Writer) {
	b := make([]byte, 32<<10)
	for {
		n, err := w.Write(b)
		f.said.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// A router that means harm, or hangs, fills no memory and holds nobody up: its
// answers are bounded in bytes and in time, over SSH and over its API. What
// comes of it says so, and the next command has a connection of its own.
func TestHostileRouter(t *testing.T) {
	limit := guard.Limit{Size: unit.MB, Time: 300 * time.Millisecond}
	patient := guard.Limit{Size: unit.MB, Time: time.Minute}
	for mode, want := range map[string]error{
		"endless output": guard.ErrLong, "endless errors": guard.ErrLong,
		"no channel": guard.ErrLate, "no reply": guard.ErrLate, "no end": guard.ErrLate, "a byte at a time": guard.ErrLate,
	} {
		t.Run("SSH, "+mode, func(t *testing.T) {
			t.Parallel()
			l := limit
			if want == guard.ErrLong {
				l = patient
			}
			f, r := newFoe(t, l)
			f.mode.Store(&mode)
			ended := make(chan error, 1)
			go func() { // ends with the connection at the latest
				_, _, err := r.Run(context.WithoutCancel(t.Context()), []string{"tc", "qdisc", "show"}, nil)
				ended <- err
			}()
			select {
			case err := <-ended:
				var pre *platform.PreconditionError
				if !errors.Is(err, want) || !errors.Is(err, platform.ErrUnreachable) || !errors.As(err, &pre) || !strings.Contains(err.Error(), "tc qdisc show") {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it is still waited for")
			}
			if n := f.said.Load(); n > 16<<20 {
				t.Errorf("%d bytes were taken", n)
			}
			f.mode.Store(nil)
			if out, err := platform.Output(t.Context(), r, "true"); err != nil || string(out) != "0\n" {
				t.Errorf("afterwards: %q, %v", out, err)
			}
		})
	}
	for mode, want := range map[string]error{
		"endless answer": guard.ErrLong, "no answer": guard.ErrLate, "a byte at a time": guard.ErrLate,
		"endless head": nil, // package http's own bound
	} {
		t.Run("API, "+mode, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch mode {
				case "endless answer":
					for b := make([]byte, 32<<10); r.Context().Err() == nil; {
						_, _ = w.Write(b)
					}
				case "endless head":
					c, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					for _, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; {
						_, err = io.WriteString(c, "X: "+strings.Repeat("x", 32<<10)+"\r\n")
					}
				case "no answer":
					<-r.Context().Done()
				case "a byte at a time":
					for tick := time.NewTicker(10 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
						_, _ = io.WriteString(w, ".")
						_ = http.NewResponseController(w).Flush()
					}
				}
			}))
			defer s.Close()
			api, err := remote.NewREST(s.URL, "key", "secret", fmt.Sprintf("%x", sha256.Sum256(s.Certificate().Raw)))
			if err != nil {
				t.Fatal(err)
			}
			api.Limit = limit
			if want != guard.ErrLate {
				api.Limit = patient
			}
			if _, _, err = api.Run(t.Context(), []string{"GET", "/api/x"}, nil); !errors.Is(err, platform.ErrUnreachable) || want != nil && !errors.Is(err, want) {
				t.Error(err)
			}
		})
	}
}

// signerOf reads a private key.
func signerOf(t *testing.T, path string) ssh.Signer {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}
