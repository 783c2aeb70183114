package simlab

import (
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// aClassifier returns the classes of a plan for 30/5 Mbit/s.
func aClassifier(t *testing.T) (*classifier, plan.Plan) {
	t.Helper()
	s := &scenario.Scenario{Line: scenario.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond}}
	p, err := fix(s, "linux", &scenario.Fix{AQM: "cake", Down: 28 * unit.MbitPerSecond, Up: 4800 * unit.KbitPerSecond})
	if err != nil {
		t.Fatal(err)
	}
	k := newClassifier(p)
	if k.mark(sim.Up) == nil || k.mark(sim.Down) == nil {
		t.Fatalf("the plan has no classes: %+v", p.Classes)
	}
	return k, p
}

// aSecond is the time at which tests begin.
const aSecond = unit.Instant(time.Second)

// A connection goes through the classes that docs/classes.md describes.
func TestClassesOfConnections(t *testing.T) {
	k, p := aClassifier(t)
	b, up, down := p.Classes.Behaviour, k.mark(sim.Up), k.mark(sim.Down)
	data := sim.Seen{Flow: 1, Host: 7, Size: 1514, Opened: sim.Up}
	sent := unit.Size(0)
	send := func(to unit.Size) (class uint8) {
		for ; sent < to; sent += 1500 {
			class = up(aSecond, data)
		}
		return class
	}
	for _, want := range []struct {
		what  string
		at    unit.Size
		class plan.Class
	}{
		{"its first packet", 1500, plan.Interactive}, {"the last of its first bytes", b.FirstUp/1500*1500 - 1, plan.Interactive},
		{"what follows", b.FirstUp + 1500, plan.Normal}, {"half of a long one", b.LongBytes / 2, plan.Normal}, {"what has run long", b.LongBytes + 3000, plan.Bulk},
	} {
		if got := send(want.at); got != k.tins[sim.Up][want.class] {
			t.Errorf("%s: code point %d, not %d of %s", want.what, got, k.tins[sim.Up][want.class], want.class)
		}
	}
	ack := sim.Seen{Flow: 1, Host: 7, Size: 66, Opened: sim.Up, Ack: true}
	if got, want := up(aSecond, ack), codePoint(plan.AckTin(p.Classes.Up)); got != want {
		t.Errorf("an acknowledgement: %d, not %d", got, want)
	}

	// What arrives is judged packet by packet too.
	data.Flow = 2
	var last uint8
	for sent = 0; sent+1500 <= b.FirstBytes; sent += 1500 {
		last = down(aSecond, data)
	}
	if tins, next := k.tins[sim.Down], down(aSecond, data); last != tins[plan.Interactive] || next != tins[plan.Normal] {
		t.Errorf("the last of the first bytes came as %d, the next packet as %d", last, next)
	}
}

// A call is voice once it was answered, as long as it is calm. A port with many
// partners is a swarm, and all its traffic is bulk.
func TestClassesOfDatagrams(t *testing.T) {
	k, p := aClassifier(t)
	b, up, down, tins := p.Classes.Behaviour, k.mark(sim.Up), k.mark(sim.Down), k.tins[sim.Up]
	now := aSecond
	expect := func(what string, got uint8, want plan.Class) {
		t.Helper()
		if got != tins[want] {
			t.Errorf("%s: code point %d, not %d of %s", what, got, tins[want], want)
		}
	}
	call := sim.Seen{Flow: -1, Host: 7, Size: 214, Opened: sim.Up, Datagram: true}
	expect("a call that nobody has answered", up(now, call), plan.Normal)
	for range 100 {
		down(now, call)
		now = now.Add(20 * time.Millisecond)
		expect("a call", up(now, call), plan.Voice)
	}
	call.Size = 1214
	expect("a picture", up(now, call), plan.Interactive)
	call.Size = 214
	for range 40 {
		now = now.Add(20 * time.Millisecond)
		expect("the sound beside it", up(now, call), plan.Interactive)
	}
	for range 100 {
		now = now.Add(20 * time.Millisecond)
		up(now, call)
	}
	expect("sound alone again", up(now, call), plan.Voice)
	for range b.CalmPackets {
		now = now.Add(time.Millisecond)
		up(now, call)
	}
	expect("a busy call", up(now.Add(2*time.Second), call), plan.Interactive)
	expect("one that was silent for longer", up(now.Add(6*time.Second), call), plan.Interactive)
	now = now.Add(16 * time.Second)
	expect("ten seconds after it was busy", up(now, call), plan.Voice)
	call.Size = 1214
	for range 2000 { // twice the line's rate
		now = now.Add(time.Millisecond)
		up(now, call)
	}
	expect("a flood", up(now, call), plan.Normal)
	now = now.Add(time.Minute)
	call.Size = 214
	expect("a minute after it", up(now, call), plan.Voice)

	peer := sim.Seen{Host: 9, Size: 1514, Opened: sim.Up, Datagram: true, Swarm: true}
	for i := range b.Peers {
		peer.Flow = 100 + int64(i)
		expect("a few peers", up(now, peer), plan.Normal)
	}
	peer.Flow++
	expect("one too many", up(now, peer), plan.Bulk)
	peer.Flow = 100
	expect("those before it", up(now, peer), plan.Bulk)
	call.Flow, call.Host = -2, 9
	expect("a call of the same machine", up(now, call), plan.Normal)
}

// Limits of a machine: many calls of one machine gain nothing together, and its
// heavy connections of both protocols count for this machine alone.
func TestClassesOfMachines(t *testing.T) {
	k, p := aClassifier(t)
	up, down, tins := k.mark(sim.Up), k.mark(sim.Down), k.tins[sim.Up]
	now := aSecond
	crowd := 0
	for i := range 3000 {
		call := sim.Seen{Flow: -1 - int64(i%60), Host: 7, Size: 214, Opened: sim.Up, Datagram: true}
		down(now, call)
		if got := up(now, call); i >= 2000 && got == tins[plan.Voice] {
			crowd++
		}
		now = now.Add(time.Second / 3000) // 50 packets a second of each flow, 4.8 Mbit/s in all
	}
	if crowd > 0 {
		t.Errorf("%d packets of sixty calls of one machine, %s in all, were voice", crowd, p.Classes.Behaviour.CalmOfUp)
	}
	one := sim.Seen{Flow: -100, Host: 8, Size: 214, Opened: sim.Up, Datagram: true}
	down(now, one)
	if got := up(now, one); got != tins[plan.Voice] {
		t.Errorf("a call of another machine: code point %d, not voice", got)
	}
}
