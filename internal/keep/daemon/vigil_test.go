package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// An internet answers echoes as far as it works: from the far ends, and from the
// provider's first router where a hop limit ends.
type internet struct {
	clock *netio.Clock

	mu      sync.Mutex
	first   bool
	beyond  bool
	hostile bool           // answers with what nobody asked
	way     map[int]string // routers that answer where a hop limit ends; nil: the first alone
	sent    int
	back    []reply
}

type reply struct {
	at   unit.Instant
	from netip.Addr
	b    []byte
}

func (n *internet) Send(to netip.Addr, hops int, b []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	at := n.clock.Now().Add(20 * time.Millisecond)
	switch {
	case n.hostile:
		n.back = append(n.back, reply{at, netip.MustParseAddr("203.0.113.66"), []byte{0, 0, 0, 0, 1, 2, 3, 4}}, reply{at, to, nil})
	case n.way[hops] != "" || n.way == nil && hops == 1 && n.first:
		ip := append([]byte{0x45, 19: 0}, b...)
		ip[9] = 1
		copy(ip[16:], to.AsSlice())
		router := netip.MustParseAddr(cmp.Or(n.way[hops], "198.51.100.1"))
		n.back = append(n.back, reply{at, router, sum(append([]byte{11, 7: 0}, ip...))})
	case hops == 0 && n.first && n.beyond:
		echo := bytes.Clone(b)
		echo[0], echo[2], echo[3] = 0, 0, 0
		n.back = append(n.back, reply{at, to, sum(echo)})
	}
	return nil
}

// sum puts in the checksum of an ICMP message.
func sum(b []byte) []byte {
	var s uint32
	even := append(bytes.Clone(b), 0)
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(even[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(s))
	return b
}

func (n *internet) Drain(receive func(unit.Instant, netip.Addr, []byte)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.back {
		receive(r.at, r.from, r.b)
	}
	n.back = nil
	return nil
}

func (*internet) Steps() int   { return 0 }
func (*internet) Close() error { return nil }

func (n *internet) set(first, beyond bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.first, n.beyond = first, beyond
}

// online returns a daemon of a line to an internet.
func online(t *testing.T, net *internet, log io.Writer, line config.WAN) *Daemon {
	t.Helper()
	d, err := newDaemon(Options{Log: log, Getenv: func(string) string { return "" }, Memory: t.TempDir() + "/memory",
		Reflect: func(c *netio.Clock, _ string) (netio.ReflectorSocket, error) { net.clock = c; return net, nil }}, config.Config{WANs: []config.WAN{line}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The daemon asks far ends and the first hop, finds an outage beyond the first hop within
// seconds, tells of its end, keeps it on a disk once that has room, and shows its samples.
// Without `incidents` nothing is sent.
func TestIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &internet{first: true, beyond: true}
		disk := &shelf{full: true}
		var log, trouble bytes.Buffer
		line := config.WAN{Interface: "none0", Incidents: true, Down: 50e6, Up: 10e6}
		d, err := newDaemon(Options{Archive: disk, Log: &log, Trouble: &trouble, Getenv: func(string) string { return "" }, Memory: t.TempDir() + "/memory",
			Reflect: func(c *netio.Clock, device string) (netio.ReflectorSocket, error) {
				net.clock = c
				if device != "none0" {
					t.Errorf("it asks through %q", device)
				}
				return net, nil
			}}, config.Config{History: "/disk", WANs: []config.WAN{line}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d.loops.Go(func() { d.watchLines(ctx) })
		d.loops.Go(func() { d.keepIncidents(ctx) })
		ask := func(p IncidentsParams) Incidents {
			t.Helper()
			out, err := (&Caller{d: d}).Incidents(ctx, Name{}, p)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		time.Sleep(10 * time.Minute)
		if got := ask(IncidentsParams{}); len(got.Incidents) != 0 || len(got.Watched) != 1 || got.Watched[0].Down != 50e6 {
			t.Fatalf("of a line that is well: %+v", got)
		}
		broken := time.Now()
		net.set(true, false)
		time.Sleep(15 * time.Second)
		got := ask(IncidentsParams{}).Incidents
		if len(got) != 1 || got[0].Kind != incident.Outage || got[0].Part != incident.Provider || got[0].Over() || got[0].Begin.Sub(broken).Abs() > 2*time.Second {
			t.Fatalf("15 s after it broke: %+v\n%s", got, &log)
		}
		time.Sleep(time.Minute)
		net.set(true, true)
		time.Sleep(5 * time.Minute)
		got = ask(IncidentsParams{}).Incidents
		if len(got) != 1 || got[0].Lasted(time.Time{}).Seconds() < 73 || got[0].Lasted(time.Time{}).Seconds() > 78 {
			t.Fatalf("after it: %+v", got)
		}
		if strings.Count(trouble.String(), "no space") != 1 || len(disk.incidents) != 0 {
			t.Errorf("of a full disk: %q, %d on it", &trouble, len(disk.incidents))
		}
		disk.full = false
		time.Sleep(2 * time.Minute)
		if len(disk.incidents) != 1 {
			t.Errorf("%d incidents are on the disk", len(disk.incidents))
		}
		one := ask(IncidentsParams{ID: got[0].ID})
		if samples, _, err := incident.ParseCSV([]byte(one.Samples)); err != nil || len(samples) < 130 || incident.Digest([]byte(one.Samples)) != got[0].Digest {
			t.Errorf("%d samples, %v", len(samples), err)
		}
		if _, err := (&Caller{d: d}).Incidents(ctx, Name{}, IncidentsParams{ID: "x"}); err == nil {
			t.Error("an incident that is not there was found")
		}
		d.mu.Lock()
		d.config.WANs[0].Incidents = false
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		net.mu.Lock()
		before := net.sent
		net.mu.Unlock()
		time.Sleep(time.Minute)
		if net.mu.Lock(); net.sent != before {
			t.Errorf("%d questions were sent of a line that is not watched", net.sent-before)
		}
		net.mu.Unlock()
		cancel()
		d.loops.Wait()
	})
}

// Whoever answers with what was not asked for changes nothing: it is an outage.
func TestHostileAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &internet{first: true, beyond: true}
		var log bytes.Buffer
		line := config.WAN{Interface: "none0", Incidents: true, Down: 50e6, Up: 10e6}
		d := online(t, net, &log, line)
		ctx, cancel := context.WithCancel(t.Context())
		d.loops.Go(func() { d.watchLines(ctx) })
		time.Sleep(2 * time.Minute)
		net.mu.Lock()
		net.hostile = true
		net.mu.Unlock()
		time.Sleep(time.Minute)
		cancel()
		d.loops.Wait()
		got, err := (&Caller{d: d}).Incidents(t.Context(), Name{}, IncidentsParams{})
		if err != nil || len(got.Incidents) != 1 || got.Incidents[0].Kind != incident.Outage || !got.Incidents[0].Over() {
			t.Errorf("%+v, %v\n%s", got, err, &log)
		}
	})
}

// Where the provider's first router does not answer, or there is one far end alone, a walk at
// the incident's beginning decides: by the furthest router that is well. It is made once.
func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name string
		far  []netip.Addr
		way  map[int]string
		part incident.Part
	}{
		{"a router of the provider", nil, map[int]string{3: "203.0.113.9"}, incident.Provider},
		{"no router answers", nil, map[int]string{}, incident.Unsure},
		{"a router beside the only far end", []netip.Addr{netip.MustParseAddr("192.0.2.7")}, map[int]string{1: "198.51.100.1", 2: "203.0.113.9", 5: "192.0.2.1"}, incident.Far},
		{"none beside the only far end", []netip.Addr{netip.MustParseAddr("192.0.2.7")}, map[int]string{1: "198.51.100.1", 2: "203.0.113.9"}, incident.Provider},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := &internet{first: true, beyond: true, way: c.way}
				var log bytes.Buffer
				line := config.WAN{Interface: "none0", Incidents: true, Down: 50e6, Up: 10e6, Reflectors: c.far}
				d := online(t, net, &log, line)
				ctx, cancel := context.WithCancel(t.Context())
				d.loops.Go(func() { d.watchLines(ctx) })
				time.Sleep(5 * time.Minute)
				net.set(true, false)
				before := net.count()
				time.Sleep(2 * time.Minute)
				asked := net.count() - before
				got, err := (&Caller{d: d}).Incidents(t.Context(), Name{}, IncidentsParams{})
				if err != nil || len(got.Incidents) != 1 || got.Incidents[0].Part != c.part {
					t.Errorf("%+v, %v\n%s", got.Incidents, err, &log)
				}
				if most := 2*121 + walkRounds*walkHops; asked > most {
					t.Errorf("%d questions, more than %d", asked, most)
				}
				cancel()
				d.loops.Wait()
			})
		})
	}
}

func (n *internet) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// quiet is a follower that is asked for nothing but what it sees.
type quiet struct{ Follower }

func (quiet) View() steer.View { return steer.View{} }

// Where a line's delay is measured it is judged by that: no question is added while all is
// well, and one each second from when something is wrong. `incidents = false` ends it, and
// where nothing is measured nothing is asked.
func TestIncidentsByWhatIsAskedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &internet{first: true, beyond: true}
		line := config.WAN{Interface: "none0", Down: 50e6, Up: 10e6}
		d := online(t, net, io.Discard, line)
		w := &wan{d: d, key: "none0", name: "none0", config: line, supervisor: supervise.New(time.Now(), time.Minute, false, false)}
		d.wans["none0"] = w
		ctx, cancel := context.WithCancel(t.Context())
		d.loops.Go(func() { d.watchLines(ctx) })
		time.Sleep(time.Minute)
		if n := net.count(); n > 0 {
			t.Fatalf("%d questions were sent of a line that is not measured", n)
		}
		w.following.runs.Store(&pursuit{Follower: quiet{}, held: true})
		d.loops.Go(func() { // what measures it
			targets := delay.Few(steer.Targets("none0", nil))
			_, apart := delay.Pace(targets)
			tick := time.NewTicker(apart)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				to := targets[i%len(targets)]
				at := d.instant(d.now())
				w.following.overheard.ask(at, to)
				net.mu.Lock()
				answers := net.first && (net.beyond || to.Kind == delay.FirstHop)
				net.mu.Unlock()
				if rtt := 20 * time.Millisecond; answers {
					w.following.overheard.hear(delay.Sample{At: at.Add(rtt), Kind: to.Kind, Source: to.Addr, RTT: rtt})
				}
			}
		})
		time.Sleep(15 * time.Minute)
		if n := net.count(); n > 5 { // until it has begun
			t.Errorf("%d questions were added", n)
		}
		broken, before := time.Now(), net.count()
		net.set(true, false)
		time.Sleep(time.Minute)
		got, err := (&Caller{d: d}).Incidents(ctx, Name{}, IncidentsParams{})
		if err != nil || len(got.Incidents) != 1 || got.Incidents[0].Part != incident.Provider || got.Incidents[0].Begin.Sub(broken).Abs() > 5*time.Second {
			t.Errorf("%+v, %v", got.Incidents, err)
		}
		if n := net.count() - before; n < 80 {
			t.Errorf("%d questions in a minute of trouble", n)
		}
		net.set(true, true)
		time.Sleep(5 * time.Minute)
		d.mu.Lock()
		d.config.WANs[0].Untold = true
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		before = net.count()
		net.set(false, false)
		time.Sleep(time.Minute)
		if n := net.count() - before; n > 0 {
			t.Errorf("%d questions were sent with incidents = false", n)
		}
		cancel()
		d.loops.Wait()
	})
}
