package household

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
)

// Timeouts and tries of a stub resolver, as in glibc.
const (
	askTimeout = 5 * time.Second
	askTries   = 2
)

// Of the names that a home asks for, most were asked for before.
const (
	popularNames = 50
	freshShare   = 0.3
)

// sites is how many names and addresses of its own a load has.
const sites = 6

// siteName returns the k-th name, from 1, of a load's own.
func (t Task) siteName(k int) string { return fmt.Sprintf("h%d.w%d.lab.", k, t.Index) }

// names asks the router's resolver for a name now and then.
type names struct{ task Task }

func (n *names) prepare(ctx context.Context) error { return n.task.Home.resolver(ctx) }

func (n *names) close() {}

func (n *names) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	random := rand.New(rand.NewPCG(uint64(n.task.Index), 1))
	popular := rand.NewZipf(random, 1.2, 1, popularNames-1)
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		result DNSResult
		times  []time.Duration
	)
	ask := func(name string) {
		start := time.Now()
		_, err := resolve(ctx, n.task.Home.RouterAddr, name, askTries, askTimeout)
		took := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		result.Queries++
		if err != nil {
			result.Failed++
			return
		}
		times = append(times, took)
	}
	end := time.Now().Add(d)
	for k := 0; time.Now().Before(end); k++ {
		for range n.task.Load.Flows {
			name := fmt.Sprintf("p%d.lab.", popular.Uint64())
			if random.Float64() < freshShare {
				name = fmt.Sprintf("f%d-%d-%d.lab.", n.task.Index, k, random.Uint32())
			}
			wg.Go(func() { ask(name) })
		}
		if err := phases.Sleep(ctx, n.task.Load.Interval); err != nil {
			return nil, err
		}
	}
	wg.Wait()
	result.AnswerMs = verdict.Summarise(times)
	return &Outcome{QoE: QoE{DNS: &result}}, nil
}

// resolve asks a resolver for a name's IPv4 address, as a stub resolver does.
func resolve(ctx context.Context, server, name string, tries int, timeout time.Duration) (netip.Addr, error) {
	id := uint16(rand.Uint32())
	q, err := dnsmessage.NewName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("resolve %s: %w", name, err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: q, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	question, err := m.Pack()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("resolve %s: %w", name, err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp4", net.JoinHostPort(server, "53"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("resolve %s: %w", name, err)
	}
	defer c.Close()
	for range tries {
		if _, err = c.Write(question); err != nil {
			return netip.Addr{}, fmt.Errorf("resolve %s: %w", name, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(timeout))
		var a netip.Addr
		if a, err = readAnswer(c, id); err == nil {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("resolve %s at %s: %w", name, server, err)
}

// readAnswer returns the first address of the answer to the question id.
func readAnswer(c net.Conn, id uint16) (netip.Addr, error) {
	var buf [1500]byte
	for {
		n, err := c.Read(buf[:])
		if err != nil {
			return netip.Addr{}, err
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || m.ID != id {
			continue
		}
		for _, r := range m.Answers {
			if a, ok := r.Body.(*dnsmessage.AResource); ok {
				return netip.AddrFrom4(a.A), nil
			}
		}
		return netip.Addr{}, fmt.Errorf("no address (%v)", m.RCode)
	}
}

// resolver makes sure that the router resolves names: dnsmasq there forwards to
// another on the server node, which knows every name under lab. A resolver that
// answers already is left as it is. It runs until the guest ends, because other
// loads use it too.
func (h Home) resolver(ctx context.Context) error {
	const known = "there.lab."
	if _, err := resolve(ctx, h.RouterAddr, known, 1, time.Second); err == nil {
		return nil
	}
	dnsmasq, err := need("dnsmasq", "dnsmasq-base")
	if err != nil {
		return err
	}
	upstream := internetPrefix + ".255.53"
	if err := ipBatch(ctx, h.ServerNode, "addr add "+upstream+"/32 dev eth0\n"); err != nil {
		return err
	}
	var zone strings.Builder
	zone.WriteString("local-ttl=300\ncache-size=0\naddress=/lab/" + internetPrefix + ".255.80\n")
	for w := range 64 {
		for k := 1; k <= sites; k++ {
			fmt.Fprintf(&zone, "address=/%s/%s\n", strings.TrimSuffix(Task{Index: w}.siteName(k), "."), Task{Index: w}.address(k))
		}
	}
	for _, side := range []struct{ node, addr, conf string }{
		{h.ServerNode, upstream, zone.String()},
		{h.RouterNode, h.RouterAddr, "cache-size=1000\nserver=" + upstream + "\n"},
	} {
		dir, err := os.MkdirTemp("/dev/shm", "dnsmasq-")
		if err != nil {
			return err
		}
		conf := filepath.Join(dir, "dnsmasq.conf")
		text := "no-resolv\nno-hosts\nbind-interfaces\nuser=root\npid-file=\nlisten-address=" + side.addr + "\n" + side.conf
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return err
		}
		if out, err := in(ctx, side.node, dnsmasq, "--conf-file="+conf).CombinedOutput(); err != nil {
			return fmt.Errorf("start dnsmasq in %s: %w: %s", side.node, err, out)
		}
	}
	for range 50 {
		if _, err = resolve(ctx, h.RouterAddr, known, 1, time.Second); err == nil {
			return nil
		}
		if e := phases.Sleep(ctx, 100*time.Millisecond); e != nil {
			return e
		}
	}
	return err
}
