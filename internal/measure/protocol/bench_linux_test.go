package protocol_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// benchServer runs all our servers until the benchmark ends.
func benchServer(b testing.TB, o serve.Options) *serve.Server {
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

// cpuOf returns the processor time that a process has used, in seconds
// (proc_pid_stat(5)).
func cpuOf(b testing.TB, pid int) float64 {
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

// rounds is how often the two programs take turns. The machine may sometimes be
// busy with other things, so the medians are compared.
const rounds = 5

// median returns the median of some figures.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// plenty returns limits that no benchmark reaches.
func plenty() serve.Limits {
	return serve.Limits{AddressBytes: 1e6 * unit.GB, AddressTime: 1000 * time.Hour, PerAddress: 4096, Sessions: 4096, AddressConns: 8192, Conns: 8192}
}

// BenchmarkTCPAgainstIperf3 compares one TCP flow over the loopback, with our
// client and server in this process, to iperf3 -c and -s.
func BenchmarkTCPAgainstIperf3(b *testing.B) {
	for b.Loop() {
		for what, v := range againstIperf3(b, rounds, benchTime) {
			b.ReportMetric(v, what)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// A flow over the loopback reaches 0.95 of iperf3's rate at no more processor time per bit.
func TestTCPAgainstIperf3Alone(t *testing.T) {
	await.Quiet(t)
	got := againstIperf3(t, 3, time.Second)
	t.Logf("%.2f of iperf3's rate, at %.2f of its processor time per bit", got[rateRatio], got[costRatio])
	if !(got[rateRatio] >= 0.95) || !(got[costRatio] > 0 && got[costRatio] <= 1) {
		t.Errorf("%.2f of iperf3's rate, at %.2f of its processor time per bit; want 0.95 and 1", got[rateRatio], got[costRatio])
	}
}

const rateRatio, costRatio = "rate-ratio", "cpu-per-bit-ratio"

// againstIperf3 returns the rates of a flow of ours and of iperf3's, and the ratios of rate
// and of processor time per bit. The two take turns of this length, and the medians count.
func againstIperf3(t testing.TB, turns int, each time.Duration) map[string]float64 {
	t.Helper()
	path, err := exec.LookPath("iperf3")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	s := benchServer(t, serve.Options{Limits: plenty()})
	c, err := phases.Dial(t.Context(), s.Addr().String(), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var mine, theirs, rates, costs []float64
	for range turns {
		rate, cpu := oursRun(t, c, each)
		iperfRate, iperfCPU := iperf3Run(t, path, each)
		mine, theirs = append(mine, rate), append(theirs, iperfRate)
		rates, costs = append(rates, rate/iperfRate), append(costs, cpu/rate/(iperfCPU/iperfRate))
	}
	return map[string]float64{"Gbit/s": median(mine) / 1e9, "iperf3-Gbit/s": median(theirs) / 1e9, rateRatio: median(rates), costRatio: median(costs)}
}

// oursRun returns the rate of one flow of ours in bit/s, and the processor time
// of both ends.
func oursRun(b testing.TB, c *phases.Client, each time.Duration) (rate, cpu float64) {
	b.Helper()
	before := cpuOf(b, os.Getpid())
	f, err := c.StartFlows(b.Context(), phases.FlowSpec{Dir: phases.Up, Flows: 1})
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(each)
	r, err := f.Stop(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return float64(r.Goodput()), cpuOf(b, os.Getpid()) - before
}

// iperf3Run returns iperf3's rate in bit/s, and the processor time of both
// ends.
func iperf3Run(b testing.TB, path string, each time.Duration) (rate, cpu float64) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := exec.Command(path, "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush")
	said, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan() && !strings.Contains(lines.Text(), "listening"); {
	}
	client := exec.Command(path, "-c", "127.0.0.1", "-p", port, "-t", strconv.Itoa(int(each.Seconds())), "-J")
	out, err := client.Output()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	_ = server.Wait() // it ends after one test
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

// serveProcess runs `unbloat serve` with limits that no benchmark reaches, and
// returns its process id.
func serveProcess(b *testing.B, argv ...string) int {
	b.Helper()
	argv = append([]string{"serve", "--quiet", "--max-sessions-per-address", "2000", "--max-connections-per-address", "4000",
		"--max-bytes-per-address", "1000000GB", "--max-time-per-address", "1000h"}, argv...)
	server := exec.Command(labtest.Binary(b), argv...)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	return server.Process.Pid
}

// BenchmarkThousandProbers measures which share of one processor `unbloat
// serve`, in its own process, needs to answer 1000 sessions with 100 probes a
// second each, each from its own socket. It also measures what the kernel alone
// needs to receive and send as many (TestBareEcho); the two take turns. Other
// load on the machine makes both slower, as they compete for caches, so the
// least of all seconds is reported beside the medians.
func BenchmarkThousandProbers(b *testing.B) {
	address, bare := freeAddress(b), freeAddress(b)
	server := serveProcess(b, "--listen", address, "--irtt", "", "--iperf3", "", "--netperf", "", "--web", "")
	echo := bareProcess(b, bare)
	probes := openProbes(b, address, proberSessions)
	for b.Loop() {
		var ours, kernel, ratios []float64
		for range 5 {
			o, k := probed(b, server, address, probes), probed(b, echo, bare, probes)
			ours, kernel, ratios = append(ours, o...), append(kernel, k...), append(ratios, median(o)/median(k))
		}
		b.ReportMetric(median(ours), "cores-at-100k/s")
		b.ReportMetric(slices.Min(ours), "least-cores")
		b.ReportMetric(median(kernel), "kernel-cores")
		b.ReportMetric(slices.Min(kernel), "least-kernel-cores")
		b.ReportMetric(median(ratios), "cpu-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

const proberSessions, proberRate = 1000, 100

// probed sends the probes to a server process for some seconds, and returns for
// each second how many processors the server used, scaled to the full rate.
func probed(b *testing.B, server int, address string, probes [][]byte) (cores []float64) {
	const senders, seconds = 10, 3
	var answered atomic.Int64
	ctx, stop := context.WithCancel(b.Context())
	var all sync.WaitGroup
	each := len(probes) / senders
	for i := range senders {
		all.Go(func() { ask(ctx, b, address, probes[i*each:(i+1)*each], proberRate, &answered) })
	}
	time.Sleep(500 * time.Millisecond)
	for range seconds {
		before, count := runtimeOf(b, server), answered.Load()
		time.Sleep(time.Second)
		cpu, n := runtimeOf(b, server)-before, answered.Load()-count
		cores = append(cores, cpu.Seconds()/float64(max(n, 1))*proberSessions*proberRate)
	}
	stop()
	all.Wait()
	return cores
}

// runtimeOf returns the processor time that all threads of a process have used,
// to the nanosecond (Documentation/scheduler/sched-stats.rst).
func runtimeOf(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		b.Skipf("SKIPPED: no statistics of the scheduler: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}

// openProbes opens sessions with one stream of echoes each, and returns a probe
// for each stream.
func openProbes(b *testing.B, address string, n int) [][]byte {
	b.Helper()
	var out [][]byte
	for range n {
		var conn net.Conn
		var err error
		if !await.True(time.Minute, func() bool { conn, err = net.Dial("tcp", address); return err == nil }) {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		in := bufio.NewReader(conn)
		var r probe.Reply
		for _, q := range []probe.Request{{Op: probe.OpHello, Versions: []int{probe.Version}}, {Op: probe.OpUDP, Dir: probe.DirEcho}} {
			if _, err := conn.Write(probe.AppendLine(nil, q)); err != nil {
				b.Fatal(err)
			}
			line, err := in.ReadBytes('\n')
			if err == nil {
				r, err = probe.ParseReply(line)
			}
			if err != nil || r.Error != "" {
				b.Fatal(err, r.Error)
			}
		}
		token, err := probe.ParseToken(r.StreamToken)
		if err != nil {
			b.Fatal(err)
		}
		p := make([]byte, probe.MinSize)
		probe.PutHeader(p, probe.Header{Kind: probe.KindEcho, Token: token})
		out = append(out, p)
	}
	return out
}

// ask sends each probe rate times a second from its own socket, and counts the
// socket's answers when it sends the next one. It does not wait for answers:
// waking up a reader on the same machine would count as the server's work, but
// real clients are on other machines.
func ask(ctx context.Context, b *testing.B, address string, probes [][]byte, rate int, answered *atomic.Int64) {
	to := netip.MustParseAddrPort(address)
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range probes {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		}
		if err != nil {
			b.Error(err)
			return
		}
	}
	const tick = time.Millisecond
	per := len(probes) * rate / int(time.Second/tick)
	buf := make([]byte, 2048)
	for i, next := 0, time.Now(); ctx.Err() == nil; {
		next = next.Add(tick)
		time.Sleep(time.Until(next))
		for range per {
			fd := fds[i%len(fds)]
			for {
				if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil {
					break // no more answers for now
				}
				answered.Add(1)
			}
			if _, err := unix.Write(fd, probes[i%len(probes)]); err != nil {
				b.Error(err)
				return
			}
			i++
		}
	}
}
