package delay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A reflector is a host as RFC 792, RFC 4443 and unbloat's own protocol have it.
type reflector struct {
	addr     netip.Addr
	stamps   bool
	clock    time.Duration // its clock less ours
	hop      netip.Addr    // the router that answers when the hop limit ends
	nonsense bool          // its stamps are no times of day
}

// answer returns what comes back, and from where; nil: nothing.
func (r *reflector) answer(p Probe, arrives unit.Instant) (netip.Addr, []byte) {
	in := p.Data
	if p.Native {
		out := make([]byte, len(in))
		h, err := probe.ParseHeader(in)
		if err != nil {
			return r.addr, nil
		}
		n, err := probe.NewReflector(h.Token).Reflect(arrives.Add(r.clock), arrives.Add(r.clock), in, out)
		if err != nil {
			return r.addr, nil
		}
		return r.addr, out[:n]
	}
	six := !r.addr.Is4()
	if !six && sum(in) != 0xffff {
		return r.addr, nil
	}
	if p.Hops == 1 {
		packet := make([]byte, 20)
		packet[0], packet[9] = 0x45, 1
		kind := byte(icmpTimeExceeded)
		if six {
			packet = make([]byte, 40)
			packet[0], packet[6] = 0x60, 58
			kind = icmp6TimeExceeded
		}
		return r.hop, slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, packet, in)
	}
	out := slices.Clone(in)
	switch in[0] {
	case icmpEcho:
		out[0] = icmpEchoReply
	case icmp6Echo:
		out[0] = icmp6EchoReply
	case icmpStamp:
		if !r.stamps {
			return r.addr, nil
		}
		out[0] = icmpStampReply
		now := uint32(ofDay(arrives.Add(r.clock)) / ms)
		if r.nonsense {
			now |= 1 << 31
		}
		binary.BigEndian.PutUint32(out[12:], now)
		binary.BigEndian.PutUint32(out[16:], now)
	default:
		return r.addr, nil
	}
	return r.addr, out
}

func sum(b []byte) uint32 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	return s&0xffff + s>>16
}

// Law: each answer gives the round trip of its probe, whatever is lost and
// overtaken; each way's times grow by what its queue does, over midnight too; and
// nothing else is taken for an answer.
func TestProberLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		four, six, server := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.2")
		hosts := []*reflector{
			{addr: four, stamps: rapid.Bool().Draw(t, "stamps"), nonsense: rapid.Bool().Draw(t, "nonsense")},
			{addr: six},
			{addr: server},
			{addr: four, hop: netip.MustParseAddr("198.51.100.1")},
			{addr: six, hop: netip.MustParseAddr("2001:db8:1::1")},
		}
		for _, h := range hosts {
			h.clock = time.Duration(rapid.Int64Range(-int64(30*time.Hour), int64(30*time.Hour)).Draw(t, "clock"))
		}
		p := NewProber([]Target{{four, "a", Echo}, {six, "b", Echo}, {server, "c", Native}, {four, "", FirstHop}, {six, "", FirstHop}}, 0x4242, 77)
		if _, ok := p.Ask(1, 2); ok {
			t.Fatal("a server without a stream is asked")
		}
		p.Open(2, 99)
		now := unit.Instant(1.8e18)
		stamps, answered := 0, 0
		for range 400 {
			now = now.Add(time.Duration(rapid.IntRange(100, 1000).Draw(t, "apart")) * ms)
			p.Expire(now)
			i := rapid.IntRange(0, len(hosts)-1).Draw(t, "target")
			up := 10*ms + time.Duration(rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "up"))*ms
			down := 12*ms + time.Duration(rapid.SampledFrom([]int{0, 0, 70}).Draw(t, "down"))*ms
			q, ok := p.Ask(now, i)
			if !ok || q.To != hosts[i].addr {
				t.Fatalf("asks %+v %v", q, ok)
			}
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				continue
			}
			from, b := hosts[i].answer(q, now.Add(up))
			at := now.Add(up + down)
			take := func(b []byte) (Sample, bool) {
				if q.Native {
					return p.Native(at, i, b)
				}
				return p.ICMP(at, from, b)
			}
			if b != nil {
				spoilt := slices.Clone(b)
				spoilt[len(b)-1-rapid.IntRange(0, 3).Draw(t, "spoilt")] ^= 1
				if s, ok := take(spoilt); ok && s.Kind == Echo && q.Data[0] != icmpStamp {
					t.Fatalf("a strange answer gives %+v", s)
				} else if ok {
					continue // times, which can be anything; and what a router quotes
				}
			}
			s, ok := take(b)
			if ok != (b != nil) {
				t.Fatalf("%d: taken %v: %x to %x", i, ok, b, q.Data)
			}
			if !ok {
				continue
			}
			answered++
			if s.RTT != up+down || s.At != at || s.Index != i || s.Source != from {
				t.Fatalf("%+v, the round trip is %v", s, up+down)
			}
			if s.Kind == Stamp {
				stamps++
			}
			if s.OneWay != (s.Kind == Stamp || s.Kind == Native) {
				t.Fatalf("%+v", s)
			}
			if _, again := take(b); again {
				t.Fatal("an answer counts twice")
			}
		}
		if can := hosts[0].stamps && !hosts[0].nonsense; !can && stamps > 0 {
			t.Fatalf("%d stamps of a host that has none", stamps)
		}
		if answered == 0 {
			t.Fatal("no answer")
		}
	})
}

// Each way's queue shows in its own time only, though the clocks differ by hours
// and a day ends; a host that answers echoes alone is soon asked for nothing else.
func TestOneWay(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name   string
		host   reflector
		stamps bool
	}{
		{"a good clock", reflector{addr: addr, stamps: true}, true},
		{"another zone's", reflector{addr: addr, stamps: true, clock: -5 * time.Hour}, true},
		{"the other half of the day", reflector{addr: addr, stamps: true, clock: 12*time.Hour - 3*ms}, true},
		{"echoes alone", reflector{addr: addr}, false},
		{"not since midnight", reflector{addr: addr, stamps: true, nonsense: true}, false},
	} {
		p := NewProber([]Target{{addr, "a", Echo}}, 1, 2)
		midnight := unit.Instant(20000 * day)
		stamps, lost := 0, 0
		for i := range 400 {
			now := midnight.Add(time.Duration(i-200) * 500 * ms)
			p.Expire(now)
			up, down := 10*ms, 10*ms
			if i > 150 && i%20 >= 10 {
				up += 40 * ms
			}
			if i > 150 && i%40 >= 20 {
				down += 80 * ms
			}
			q, _ := p.Ask(now, 0)
			from, b := c.host.answer(q, now.Add(up))
			s, ok := p.ICMP(now.Add(up+down), from, b)
			if !ok {
				lost++
				continue
			}
			if s.Kind != Stamp {
				continue
			}
			stamps++
			const grain = 2 * ms
			if (s.Up-(up-10*ms)).Abs() > grain || (s.Down-(down-10*ms)).Abs() > grain {
				t.Fatalf("%s, probe %d: up %v, down %v; the queues are %v and %v", c.name, i, s.Up, s.Down, up-10*ms, down-10*ms)
			}
		}
		if c.stamps != (stamps > 390) || !c.stamps && stamps > 0 || lost > 2*stampTries+2 {
			t.Errorf("%s: %d stamps, %d lost of 400", c.name, stamps, lost)
		}
	}
}

// When a firewall begins to block stamps, echoes take their place.
func TestStampsBlockedLater(t *testing.T) {
	host := reflector{addr: netip.MustParseAddr("192.0.2.1"), stamps: true}
	p := NewProber([]Target{{host.addr, "a", Echo}}, 1, 2)
	now := unit.Instant(time.Hour)
	answered := 0
	for i := range 200 {
		host.stamps = i < 100
		now = now.Add(time.Second)
		p.Expire(now)
		q, _ := p.Ask(now, 0)
		from, b := host.answer(q, now.Add(ms))
		if _, ok := p.ICMP(now.Add(2*ms), from, b); ok && i >= 100 {
			answered++
		}
	}
	if answered < 60 {
		t.Errorf("%d of 100 answers after stamps were blocked", answered)
	}
}

// Stamps are refused where later echoes are answered and they are not. An outage, in
// which both come late or not at all, says nothing; and what is refused is asked for
// again after some minutes.
func TestStampsAfterOutage(t *testing.T) {
	r := &reflector{addr: netip.MustParseAddr("192.0.2.1"), stamps: true}
	p := NewProber([]Target{{r.addr, "a", Echo}}, 1, 2)
	now := unit.Instant(1.8e18)
	// ask asks twice a second, for so long; answers take rtt, 0: none comes.
	ask := func(long, rtt time.Duration) (ways, trips int) {
		type answer struct {
			at unit.Instant
			b  []byte
		}
		var way []answer
		for until := now.Add(long); now < until; now = now.Add(time.Second / 2) {
			for len(way) > 0 && way[0].at <= now {
				if s, ok := p.ICMP(way[0].at, r.addr, way[0].b); ok && s.Kind == Stamp {
					ways++
				} else if ok {
					trips++
				}
				way = way[1:]
			}
			p.Expire(now)
			if q, ok := p.Ask(now, 0); ok && rtt > 0 {
				if _, b := r.answer(q, now.Add(rtt/2)); b != nil {
					way = append(way, answer{now.Add(rtt), b})
				}
			}
		}
		return ways, trips
	}
	if ways, _ := ask(20*time.Second, 40*ms); ways < 20 {
		t.Fatalf("%d ways in 20 s", ways)
	}
	ask(30*time.Second, 0)
	ask(20*time.Second, 5*time.Second)
	if ways, trips := ask(20*time.Second, 40*ms); ways < 20 {
		t.Errorf("after an outage %d ways and %d round trips in 20 s", ways, trips)
	}
	r.stamps = false
	ask(time.Minute, 40*ms)
	if _, trips := ask(20*time.Second, 40*ms); trips < 35 {
		t.Errorf("%d round trips in 20 s where stamps are blocked", trips)
	}
	r.stamps = true
	ask(5*time.Minute, 40*ms)
	if ways, _ := ask(20*time.Second, 40*ms); ways < 35 {
		t.Errorf("%d ways in 20 s where stamps were blocked some minutes ago", ways)
	}
}

// A day of probes at the pace costs what it may, whichever families there are: the
// bytes are those of Ethernet frames, of questions and answers, none lost.
func TestBudget(t *testing.T) {
	server := Target{Addr: netip.MustParseAddr("192.0.2.2"), Operator: "own", Kind: Native}
	for _, c := range []struct {
		name      string
		of        []Target
		four, six bool
	}{
		{"IPv4", Resolvers(), true, false},
		{"IPv6", Resolvers(), false, true},
		{"both, and a server", append(Resolvers(), server), true, true},
		{"one server alone", []Target{server}, true, false},
	} {
		of := Choose(c.of, c.four, c.six)
		busy, idle := Pace(of)
		var hosts []*reflector
		for i, t := range of {
			hosts = append(hosts, &reflector{addr: t.Addr, stamps: i%2 == 0, hop: netip.MustParseAddr("198.51.100.1")})
			if !t.Addr.Is4() {
				hosts[i].hop = netip.MustParseAddr("2001:db8::1")
			}
		}
		spend := func(loaded time.Duration) uint64 {
			p := NewProber(of, 1, 2)
			for i := range of {
				p.Open(i, 5)
			}
			n := 0
			for at := time.Duration(0); at < day; n++ {
				if at < loaded {
					at += busy
				} else {
					at += idle
				}
				now := unit.Instant(at)
				p.Expire(now)
				i := n % len(of)
				q, ok := p.Ask(now, i)
				if !ok {
					t.Fatalf("%s: target %d is not asked", c.name, i)
				}
				from, b := hosts[i].answer(q, now.Add(ms))
				if q.Native {
					_, ok = p.Native(now.Add(2*ms), i, b)
				} else {
					_, ok = p.ICMP(now.Add(2*ms), from, b)
				}
				if !ok && b != nil {
					t.Fatalf("%s: no answer of %+v", c.name, of[i])
				}
			}
			_, bytes := p.Sent()
			return bytes
		}
		resting, working := spend(0), spend(LoadedADay)
		t.Logf("%s: every %v with load, %v without: %d bytes in a day without load, %d with four hours", c.name, busy, idle, resting, working)
		if resting > BudgetIdle || working > BudgetLoaded {
			t.Errorf("%s: %d and %d bytes a day, at most %d and %d", c.name, resting, working, BudgetIdle, BudgetLoaded)
		}
		if resting < BudgetIdle*8/10 || working < BudgetLoaded*8/10 {
			t.Errorf("%s: %d and %d bytes a day leave much of the budget unused", c.name, resting, working)
		}
	}
}

// The built-in reflectors are of several operators, each with both families.
func TestResolvers(t *testing.T) {
	for _, c := range []struct{ four, six bool }{{true, false}, {false, true}, {true, true}} {
		operators := map[string]bool{}
		of := Choose(Resolvers(), c.four, c.six)
		for _, r := range of {
			if r.Kind == Echo {
				if operators[r.Operator] {
					t.Errorf("two of %s", r.Operator)
				}
				operators[r.Operator] = true
				if r.Addr.Is4() != c.four {
					t.Errorf("%v on a WAN with %+v", r, c)
				}
			}
			if !r.Addr.IsGlobalUnicast() || r.Addr.IsPrivate() {
				t.Errorf("%v is no public address", r.Addr)
			}
		}
		if len(operators) < 5 || of[len(of)-1].Kind != FirstHop {
			t.Errorf("%+v: %v", c, of)
		}
	}
	if got := Choose(Resolvers(), false, false); len(got) != 0 {
		t.Errorf("a WAN without addresses: %v", got)
	}
	mine := Configured([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::1")})
	if mine[0].Operator != mine[1].Operator || mine[0].Operator == mine[2].Operator {
		t.Errorf("%v", mine)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1}, false)
	f.Add([]byte{11, 0, 0, 0, 0, 0, 0, 0, 0x45}, false)
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 0x60}, true)
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		four, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
		p := NewProber([]Target{{four, "", Echo}, {other, "", Echo}, {four, "", FirstHop}, {four, "", Native}}, 1, 2)
		p.Open(3, 5)
		for i := range 4 {
			p.Ask(1, i)
		}
		from := four
		if six {
			from = other
		}
		for range 2 {
			if s, ok := p.ICMP(5, from, b); ok && s.RTT != 4 {
				t.Fatalf("%+v", s)
			}
		}
		_, _ = p.Native(5, 3, b)
	})
}

func BenchmarkAnswer(b *testing.B) {
	host := reflector{addr: netip.MustParseAddr("192.0.2.1"), stamps: true}
	p := NewProber([]Target{{host.addr, "a", Echo}}, 1, 2)
	now := unit.Instant(time.Hour)
	q, _ := p.Ask(now, 0)
	_, answer := host.answer(q, now)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(130 * ms)
		q, _ := p.Ask(now, 0)
		copy(answer[4:12], q.Data[4:12])
		p.ICMP(now.Add(ms), host.addr, answer)
	}
}

// A queue of a slow line may be longer than half a minute, and meanwhile probes go on as
// often as with a queue they do: every answer is heard.
func TestAnswersOfALongQueue(t *testing.T) {
	const apart, queue = 60 * time.Millisecond, 50 * time.Second
	r := reflector{addr: netip.MustParseAddr("192.0.2.1"), stamps: true}
	p := NewProber([]Target{{Addr: r.addr, Operator: "a", Kind: Echo}}, 7, 9)
	p.targets[0].stamps, p.targets[0].refused = stampsRefused, unit.Instant(time.Hour) // echoes
	type answer struct {
		at   unit.Instant
		data []byte
	}
	var under []answer
	asked, heard := 0, 0
	now := unit.Instant(time.Hour)
	for end := now.Add(2 * time.Minute); now < end; now = now.Add(apart) {
		for len(under) > 0 && under[0].at <= now {
			if s, ok := p.ICMP(under[0].at, r.addr, under[0].data); ok && s.RTT == queue {
				heard++
			}
			under = under[1:]
		}
		p.Expire(now)
		if out, ok := p.Ask(now, 0); ok {
			asked++
			_, data := r.answer(out, now.Add(queue/2))
			under = append(under, answer{now.Add(queue), slices.Clone(data)})
		}
	}
	if asked-heard != len(under) || heard < 1000 {
		t.Errorf("of %d probes %d were heard, %d are under way", asked, heard, len(under))
	}
}
