package peer

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/internal/lab/labtest"
	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/serve"
)

// benchServer runs all our servers until the benchmark ends.
func benchServer(b *testing.B, o serve.Options) *serve.Server {
	b.Helper()
	o.Listen = "127.0.0.1:0"
	s, err := serve.Listen(o)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	b.Cleanup(func() { stop(); <-done })
	return s
}

// cpuOf returns the processor time a process has taken, in seconds (proc_pid_stat(5)).
func cpuOf(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks float64
	for _, w := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseFloat(w, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return ticks / 100
}

const benchTime = 3 * time.Second

// BenchmarkTCPAgainstIperf3 compares one TCP flow over the loopback, our client
// and server in this process, with iperf3 -c and -s: the ratio of the rates, and
// of processor time per bit. They take turns.
func BenchmarkTCPAgainstIperf3(b *testing.B) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	s := benchServer(b, serve.Options{})
	c, err := measure.Dial(b.Context(), s.Addr().String(), measure.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var ours, theirs, ourCPU, theirCPU float64
	for b.Loop() {
		before := cpuOf(b, os.Getpid())
		f, err := c.StartFlows(b.Context(), measure.FlowSpec{Dir: measure.Up, Flows: 1})
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(benchTime)
		r, err := f.Stop(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		rate := float64(r.Goodput())
		ours += rate
		ourCPU += (cpuOf(b, os.Getpid()) - before) / (rate * benchTime.Seconds())
		rate, cpu := iperf3Run(b, path)
		theirs += rate
		theirCPU += cpu / (rate * benchTime.Seconds())
	}
	n := float64(b.N)
	b.ReportMetric(ours/n/1e9, "Gbit/s")
	b.ReportMetric(theirs/n/1e9, "iperf3-Gbit/s")
	b.ReportMetric(ours/theirs, "rate-ratio")
	b.ReportMetric(ourCPU/theirCPU, "cpu-per-bit-ratio")
	b.ReportMetric(0, "ns/op")
}

// iperf3Run returns iperf3's rate in bit/s, and the processor time of both its ends.
func iperf3Run(b *testing.B, path string) (rate, cpu float64) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := exec.Command(path, "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	client := exec.Command(path, "-c", "127.0.0.1", "-p", port, "-t", strconv.Itoa(int(benchTime.Seconds())), "-J")
	out, err := client.Output()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	_ = server.Wait() // it served one test
	var r struct {
		End struct {
			Received struct {
				BPS float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		b.Fatal(err)
	}
	for _, p := range []*os.ProcessState{client.ProcessState, server.ProcessState} {
		cpu += (p.UserTime() + p.SystemTime()).Seconds()
	}
	return r.End.Received.BPS, cpu
}

// BenchmarkThousandProbers tells what share of one processor `unbloat serve`
// takes, in a process of its own, to answer what 1000 sessions with 100 probes
// a second each ask: 100 000 datagrams a second, of ten sockets.
func BenchmarkThousandProbers(b *testing.B) {
	const sockets, each = 10, 100 * time.Microsecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	server := exec.Command(labtest.Binary(b), "serve", "--listen", address, "--irtt", "", "--iperf3", "", "--web", "", "--quiet")
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	var c *measure.Client
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c, err = measure.Dial(b.Context(), address, measure.Options{}); err == nil {
			break
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	clock := netio.NewClock()
	for b.Loop() {
		var probes []*measure.Probe
		for range sockets {
			p, err := c.StartProbe(b.Context(), measure.ProbeSpec{Interval: each})
			if err != nil {
				b.Fatal(err)
			}
			probes = append(probes, p)
		}
		before, from := cpuOf(b, server.Process.Pid), clock.Now()
		time.Sleep(benchTime)
		cpu, to := cpuOf(b, server.Process.Pid)-before, clock.Now()
		answered := 0.0
		for _, p := range probes {
			samples, _ := p.Samples(from, to)
			for i := range samples {
				if samples[i].Fate == probe.Answered {
					answered++
				}
			}
			_ = p.Close()
		}
		b.ReportMetric(cpu/benchTime.Seconds(), "server-cores")
		b.ReportMetric(answered/benchTime.Seconds(), "answers/s")
		b.ReportMetric(cpu/answered*1e5, "cores-at-100k/s")
	}
	b.ReportMetric(0, "ns/op")
}
