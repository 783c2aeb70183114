//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A puppet answers on a daemon's socket what a test wants.
type puppet struct {
	dir       string
	decisions atomic.Int64
	asked     chan daemon.Request
}

// newPuppet listens until the test ends. answer returns a result.
func newPuppet(t *testing.T, answer func(p *puppet, r daemon.Request) any) *puppet {
	t.Helper()
	p := &puppet{dir: t.TempDir(), asked: make(chan daemon.Request, 100)}
	l, err := net.Listen("unix", filepath.Join(p.dir, daemon.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					var r daemon.Request
					if json.Unmarshal(in.Bytes(), &r) != nil {
						return
					}
					b, err := json.Marshal(answer(p, r))
					if err != nil {
						return
					}
					select {
					case p.asked <- r:
					default:
					}
					fmt.Fprintf(c, "{\"id\":1,\"result\":%s}\n", b)
				}
			}()
		}
	}()
	return p
}

// followed answers as a daemon that follows a line, whose rate changes each time it is
// asked.
func followed(p *puppet, r daemon.Request) any {
	why := func(i int64) follow.Why {
		return follow.Why{Cause: follow.Queue, From: 46 * unit.MbitPerSecond, To: 14*unit.MbitPerSecond + unit.Rate(i), Capacity: 15 * unit.MbitPerSecond, Delay: 78 * time.Millisecond}
	}
	n := p.decisions.Load()
	switch r.Method {
	case daemon.MethodStatus:
		line := &steer.View{Down: follow.Belief{Rate: 14 * unit.MbitPerSecond, Capacity: 15 * unit.MbitPerSecond, Delay: unit.Milliseconds(3500 * time.Microsecond), Floor: unit.Milliseconds(500 * time.Microsecond), Why: why(n)},
			Up: follow.Belief{Rate: 9 * unit.MbitPerSecond, Why: follow.Why{Cause: follow.Idle, Direction: follow.Up, To: 9 * unit.MbitPerSecond}}}
		return daemon.Status{Schema: daemon.StatusSchema, WANs: []daemon.WANStatus{{WAN: "wwan0", State: supervise.InPlace, Line: line}, {WAN: "igb0", Router: "ssh://root@192.0.2.1", State: supervise.InPlace}}}
	case daemon.MethodDecisions:
		out := daemon.Decisions{Decisions: []daemon.Decision{}, Last: uint64(n)}
		for i := range n {
			out.Decisions = append(out.Decisions, daemon.Decision{N: uint64(i + 1), Time: time.Now().UTC().Format(time.RFC3339), WAN: "wwan0", Direction: "down", Why: why(i).Reason()})
		}
		return out
	}
	return struct{}{}
}

// TestWatchLines: without a terminal `status --watch` prints a line for each change,
// each once, in the reader's language, until it is interrupted.
func TestWatchLines(t *testing.T) {
	await.NotShort(t)
	p := newPuppet(t, followed)
	p.decisions.Store(2) // those before the watch are not repeated
	for _, x := range []struct{ lang, says, decision string }{
		{"en", "wwan0: in place, followed", "down: the line queues for 78.0 ms"},
		{"de", "wwan0: eingerichtet, folgt der Leitung", "Download: auf der Leitung stauen sich 78,0 ms"},
	} {
		decided := false
		text, errs, code := interrupted(t, nil, func(out, _ string) bool {
			if !decided && strings.Contains(out, x.says) {
				decided = true
				p.decisions.Add(1)
			}
			return strings.Count(out, x.decision) >= 2 // that of the beginning, and the new one
		}, "status", "--watch", "--for", "linux", "--state-dir", p.dir, "--lang", x.lang)
		if code != 0 || strings.Count(text, x.says) != 1 || strings.Contains(text, "igb0") || strings.Count(text, x.decision) != 2 {
			t.Errorf("exit %d, it says\n%s%s", code, text, errs)
		}
	}
}
