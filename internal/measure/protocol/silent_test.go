package protocol_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/all"
	"unbloat/internal/serve"
)

// A tap carries connections to a server until it is shut. Then it carries
// nothing more, in neither direction, and takes every connection all the same.
type tap struct {
	net.Listener
	shut chan struct{}

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: l, shut: make(chan struct{})}
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, d)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{c, d}, {d, c}} {
				p.wg.Go(func() { p.carry(pair[0], pair[1]) })
			}
		}
	})
	return p
}

func (p *tap) carry(from, to net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-p.shut:
			return // both stay open
		default:
		}
		if _, e := to.Write(b[:n]); err != nil || e != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// A server that stops answering, at whatever step, is not waited for longer than
// a step may take: not by a load that runs, nor by one that is to be opened.
func TestServerFallsSilent(t *testing.T) {
	s := serving(t, serve.Options{Iperf3: "127.0.0.1:0", Web: "127.0.0.1:0"})
	for scheme, to := range map[string]string{
		"unbloat": s.Addr().String(), "iperf3": s.Iperf3().String(), "librespeed+http": s.Web().String(),
		"cloudflare+http": s.Web().String(), "rpm+http": s.Web().String(), "ndt7+ws": s.Web().String(),
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			p := newTap(t, to)
			o := protocol.Options{Agent: "test", Timeout: 10 * time.Second, Patience: 500 * time.Millisecond}
			if scheme == "iperf3" || scheme == "ndt7+ws" {
				o.Ping = "tcp://" + p.Addr().String()
			}
			c, err := all.Protocols().Dial(t.Context(), scheme+"://"+p.Addr().String(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			specs := []phases.FlowSpec{{Dir: phases.Down, Flows: 2}, {Dir: phases.Up, Flows: 2}}
			load, err := c.Open(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := load.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(p.shut)
			ended := make(chan error, 2)
			go func() {
				_, err := load.Stop(t.Context())
				if err != nil {
					load.Abandon()
				}
				ended <- nil
				_, err = c.Open(t.Context(), specs)
				ended <- err
			}()
			for _, what := range []string{"the load that runs", "another load"} {
				select {
				case err := <-ended:
					if what == "another load" && err == nil {
						t.Error("a load of a server that is silent was opened")
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("%s is still waited for", what)
				}
			}
		})
	}
}
