package linux_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A breaker is this machine, where somebody takes away the way to the internet as soon as
// a queue is made.
type breaker struct {
	platform.Local
	t      *testing.T
	breaks string // the command that does; "": nobody
}

func (b *breaker) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	out, said, err := b.Local.Run(ctx, argv, stdin)
	if strings.HasPrefix(strings.Join(argv, " "), "tc qdisc add ") && b.breaks != "" {
		sh(b.t, b.breaks)
		b.breaks = ""
	}
	return out, said, err
}

// TestConnectionsGoOnInLab, on a real kernel behind NAT, with two calls of a machine of the home:
// a change after which nothing comes through the WAN any more is undone, whether connection
// tracking counts packets or only the interface does; one after which they go on is kept.
func TestConnectionsGoOnInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	t.Setenv("PATH", filepath.Dir(labtest.Unbloat())+":"+os.Getenv("PATH")) // a breaker is not Local: it calls unbloat by its name
	sh(t, "nft 'table ip home { chain out { type nat hook postrouting priority 100; oifname \"wan\" masquerade; }; }'")
	servers := []string{lab.ServerAddr, "10.3.0.7"}
	within(t, lab.NodeServer, func() { sh(t, "ip addr add "+servers[1]+"/24 dev eth0") })
	defer within(t, lab.NodeServer, func() { sh(t, "ip addr del "+servers[1]+"/24 dev eth0") })
	for _, s := range servers {
		echo(t, lab.NodeServer, s)
	}
	call := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		for _, s := range servers {
			within(t, lab.Host(1), func() {
				c, err := net.Dial("udp4", s+":5004")
				if err != nil {
					t.Error(err)
					return
				}
				context.AfterFunc(ctx, func() { c.Close() })
				if _, answered := talk(t, c, 1); answered != 1 {
					t.Errorf("%s does not answer", s)
				}
				go func() {
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					for range tick.C {
						if _, err := c.Write(make([]byte, 172)); errors.Is(err, net.ErrClosed) {
							return
						}
					}
				}()
			})
		}
		return cancel
	}
	state := func() string {
		return sh(t, "tc qdisc show; tc filter show dev wan ingress || true; ip -br link; nft list tables")
	}
	before := state()
	for _, x := range []struct {
		name, counts, breaks string
	}{
		{"packets are counted", "1", "ip route add blackhole 10.3.0.0/24"},
		{"the interface alone counts", "0", "ip route add blackhole 10.3.0.0/24"},
		{"all is well", "1", ""},
	} {
		sh(t, "conntrack -F; sysctl -qw net.netfilter.nf_conntrack_acct="+x.counts)
		end := call()
		facts, err := linux.Detect(t.Context(), here(), "wan", "lan")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		r := &breaker{Local: here(), t: t, breaks: x.breaks}
		e := &apply.Engine{Backend: &linux.Backend{Runner: r, Exe: r.Self}, Runner: r, Dir: t.TempDir(), Watchdog: quiet{}}
		begun := time.Now()
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Second, Hold: true})
		t.Logf("%s: %v after %v", x.name, err, time.Since(begun))
		end()
		var stopped *apply.StoppedError
		switch {
		case x.breaks != "":
			if !errors.As(err, &stopped) || stopped.Interface != "wan" {
				t.Fatalf("%s: %v", x.name, err)
			}
			sh(t, "ip route del blackhole 10.3.0.0/24")
		case err != nil:
			t.Fatalf("%s: %v", x.name, err)
		default:
			if err := tr.Revert(t.Context()); err != nil {
				t.Errorf("%s: %v", x.name, err)
			}
			tr.Close()
		}
		if now := state(); now != before {
			t.Errorf("%s: it is\n%s\nand was\n%s", x.name, now, before)
		}
	}
}
