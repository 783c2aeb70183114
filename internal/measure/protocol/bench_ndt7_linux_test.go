package protocol_test

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/all"
	"unbloat/internal/measure/verdict"
	"unbloat/testkit/await"
)

// BenchmarkNDT7AgainstNDTServer compares ndt7 downloads without TLS over the
// loopback, from our server and from M-Lab's, with the same client and one
// flow: the ratio of the rates. The two take turns.
func BenchmarkNDT7AgainstNDTServer(b *testing.B) {
	program := mlab(b, "github.com/m-lab/ndt-server")
	dir, address := b.TempDir(), freeAddress(b)
	cmd := exec.Command(program, "-ndt7_addr_cleartext", address, "-ndt7_addr", freeAddress(b), "-ndt5_addr", freeAddress(b),
		"-ndt5_ws_addr", freeAddress(b), "-prometheusx.listen-address", freeAddress(b), "-htmldir", dir, "-datadir", dir)
	cmd.Dir = dir
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	ours := freeAddress(b) // in its own process like M-Lab's, or it would slow the client down
	serveProcess(b, "--listen", freeAddress(b), "--irtt", "", "--iperf3", "", "--netperf", "", "--web", ours, "--state-dir", dir)
	for b.Loop() {
		var mine, theirs, ratios []float64
		for range rounds {
			m, t := ndt7Rate(b, ours), ndt7Rate(b, address)
			mine, theirs, ratios = append(mine, m), append(theirs, t), append(ratios, m/t)
		}
		b.ReportMetric(median(mine)/1e9, "Gbit/s")
		b.ReportMetric(median(theirs)/1e9, "ndt-server-Gbit/s")
		b.ReportMetric(median(ratios), "rate-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// ndt7Rate downloads for some time and returns the rate in bit/s.
func ndt7Rate(b *testing.B, address string) (rate float64) {
	b.Helper()
	var err error
	if !await.True(time.Minute, func() bool {
		var c phases.Tester
		if c, err = all.Protocols().Dial(b.Context(), "ndt7+ws://"+address, protocol.Options{}); err != nil {
			return false
		}
		defer c.Close()
		var raw *phases.RawPhase
		if raw, err = c.Phase(b.Context(), phases.PhaseSpec{Name: verdict.PhaseDownload, Duration: benchTime, FlowsDown: 1}); err == nil {
			rate = verdict.Goodput(raw.Down, raw.From, raw.To)
		}
		return err == nil
	}) {
		b.Fatal(err)
	}
	return rate
}
