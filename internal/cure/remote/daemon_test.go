package remote_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/remote"
	"unbloat/internal/keep/config"
	resident "unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
)

// TestDaemonOverSSH: the daemon keeps routers elsewhere: it puts back what somebody
// took away, waits while the connection is lost, in the middle of a change too, and
// goes on when it is there again, over one connection.
func TestDaemonOverSSH(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	for _, p := range platforms() {
		if os.Getenv("UNBLOAT_LONG") == "" && p.name != "openwrt" && p.name != "freebsd" {
			continue // the others in `make test-long`
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, _ := staged(t, p)
			keepsOverSSH(t, p, s)
		})
	}
}

func keepsOverSSH(t *testing.T, p fakeRouter, s *server) {
	dir := t.TempDir()
	file := filepath.Join(dir, "unbloat.toml")
	address := s.target.String()
	write(t, file, fmt.Sprintf("[[wan]]\ninterface = %q\nrouter = %q\ndown = \"30 Mbit/s\"\nup = \"5 Mbit/s\"\n", p.wan, address))
	driver, err := all.Find(p.name)
	if err != nil {
		t.Fatal(err)
	}
	start := p.text()
	var mu sync.Mutex
	var cutAt string // a command at which the connection is lost; "": none
	opened := 0
	o := resident.Options{
		File: file, Dir: filepath.Join(dir, "run"), Memory: filepath.Join(dir, "state.json"), Getenv: func(string) string { return "" }, Log: t.Output(),
		Watch: func(context.Context, func(resident.Event)) (<-chan struct{}, error) { return nil, nil },
		Open: func(ctx context.Context, w config.WAN) (*resident.Router, error) {
			ssh, err := remote.DialSSH(ctx, s.target, s.options)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			opened++
			mu.Unlock()
			b := p.backend(ssh)
			e := &apply.Engine{Backend: b, Runner: ssh, Dir: filepath.Join(dir, "journal"),
				OnStep: func(step platform.Step) {
					mu.Lock()
					defer mu.Unlock()
					if cutAt != "" && strings.Contains(step.String(), cutAt) {
						cutAt = ""
						s.cable.set(true)
					}
				},
				Watchdog: &remote.Watchdog{Runner: ssh, Backend: b, Uptime: apply.Uptime, Path: s.options.Path, Folder: watchdogFolder(t), Patience: 5 * time.Second}}
			return &resident.Router{Driver: driver, Engine: e, Taking: e, Here: platform.Local{}, Close: func() { ssh.Close() },
				Plan: func(_ context.Context, w config.WAN) (plan.Plan, error) {
					return plan.Make(w.PlanLine(), driver.Language.Assume(w.Interface, map[string]string{"wan": "lan", "igb0": "igb1", "em0": "em1"}[p.wan]), w.Preferences())
				}}, nil
		},
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- resident.Run(ctx, o) }()
	defer end()
	ask := func(method string) (st resident.WANStatus) {
		c, err := resident.Dial(t.Context(), resident.Socket(o.Dir))
		if err != nil {
			return st
		}
		defer c.Close()
		var is resident.Status
		if method != resident.MethodStatus {
			_ = c.Call(t.Context(), method, "", "", nil, nil)
		}
		if err := c.Call(t.Context(), resident.MethodStatus, "", "", nil, &is); err == nil && len(is.WANs) == 1 {
			st = is.WANs[0]
		}
		return st
	}
	becomes := func(what string, is func(resident.WANStatus) bool) {
		t.Helper()
		waitFor(t, what, func() bool { return is(ask(resident.MethodStatus)) })
	}
	inPlace := func(st resident.WANStatus) bool { return st.State == supervise.InPlace }
	becomes("the shaping", inPlace)
	kept := p.text()
	if kept == start {
		t.Fatal("nothing was applied")
	}
	takeAway := func() { // as somebody does on the router
		b := p.backend(locked{p})
		now, err := b.Observe(t.Context(), plan.Plan{WAN: p.wan}, nil)
		if err != nil {
			t.Fatal(err)
		}
		to, err := b.Baseline(t.Context(), now, nil)
		if err != nil {
			t.Fatal(err)
		}
		steps, _, err := b.Compare(now, to)
		if err != nil || len(steps) == 0 {
			t.Fatal(steps, err)
		}
		for _, step := range steps {
			_, _, _ = locked{p}.Run(t.Context(), step.Argv, []byte(step.Stdin))
		}
	}
	takeAway()
	ask(resident.MethodLook)
	becomes("it to be put back", func(st resident.WANStatus) bool { return st.Mends == 1 && inPlace(st) })

	// The connection is lost in the middle of mending.
	mu.Lock()
	cutAt = " "
	mu.Unlock()
	takeAway()
	ask(resident.MethodLook)
	becomes("the lost connection", func(st resident.WANStatus) bool { return st.State != supervise.InPlace && st.Why != "" })
	s.cable.set(false)
	becomes("the connection to be there again", inPlace)
	if now := p.text(); len(now) < len(start) {
		t.Errorf("in place again, it is\n%s", now)
	}
	mu.Lock()
	again := opened
	mu.Unlock()
	if again < 2 {
		t.Errorf("it connected %d times", again)
	}
	// What is dialed and lost is closed: there is one connection, whatever happened.
	waitFor(t, "one connection alone", func() bool { return s.cable.carried() == 1 })
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waitFor(t, "the connection to be closed", func() bool { return s.cable.carried() == 0 })
}

// A locked runner runs commands on the router itself.
type locked struct{ p fakeRouter }

func (l locked) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	l.p.lock.Lock()
	defer l.p.lock.Unlock()
	return l.p.machine.Run(ctx, argv, stdin)
}
