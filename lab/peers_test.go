package lab_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// Other programs agree with our measurements: ping and irtt see the same round
// trip times at the same time, and iperf3 the same throughput, on the unshaped
// line and on the shaped one.
func TestPeersAgree(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ping", "iperf3", "irtt"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed", tool)
		}
	}
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true, Scenario: labtest.HomeAt(12*unit.MbitPerSecond, 2*unit.MbitPerSecond)}) {
		return
	}
	ctx := t.Context()
	for _, server := range [][]string{{"irtt", "server", "-i", "0"}, {"iperf3", "-s"}} {
		cmd := labtest.In(ctx, lab.NodeServer, server...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	time.Sleep(time.Second)
	peersAgree(ctx, t, "before")
	out, err := labtest.In(ctx, lab.NodeRouter, labtest.Unbloat(), "apply", "--yes",
		"--wan", lab.RouterWAN, "--down", "11.76mbit", "--up", "1.98mbit").CombinedOutput()
	if err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
	peersAgree(ctx, t, "after")
}

func peersAgree(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	c, err := phases.Dial(ctx, lab.Server(), phases.Options{Agent: "peers"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	idle, err := c.Idle(ctx, 3*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	const length, head = 16 * time.Second, 5 * time.Second
	var ping, irtt []float64
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(head)
		other := make(chan struct{})
		go func() { defer close(other); irtt = irttRTTs(ctx, t, 10*time.Second) }()
		ping = pingRTTs(ctx, t, 100)
		<-other
	}()
	raw, err := c.Phase(ctx, phases.PhaseSpec{Name: verdict.PhaseUpload, Duration: length, CutHead: head, CutTail: time.Second, FlowsUp: 4})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	p := c.Judge(when, []phases.RawPhase{*idle, *raw}).Upload
	same(t, when+": p50 of ping against ours, ms", median(ping), p.Latency.RTTMs.P50, 1, 0.05)
	same(t, when+": p50 of irtt against ours, ms", median(irtt), p.Latency.RTTMs.P50, 1, 0.05)
	time.Sleep(3 * time.Second) // for the queue to drain
	same(t, when+": goodput of iperf3 against ours, Mbit/s", iperf3Upload(ctx, t)/1e6, p.GoodputUpBps/1e6, 0, 0.03)
	time.Sleep(3 * time.Second)
}

func same(t *testing.T, what string, theirs, ours, absolute, share float64) {
	t.Helper()
	d := math.Abs(theirs - ours)
	if !(d <= max(absolute, share*ours)) {
		t.Errorf("%s: %.4g against %.4g", what, theirs, ours)
	} else {
		t.Logf("%s: %.4g against %.4g", what, theirs, ours)
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return v[(len(v)-1)/2]
}

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// pingRTTs asks every 99 ms: at 100 its questions go through the moments of the shaper's packets once in three
// seconds, and the median would be of three such rounds and a part.
func pingRTTs(ctx context.Context, t *testing.T, n int) []float64 {
	out, err := exec.CommandContext(ctx, "ping", "-c", strconv.Itoa(n), "-i", "0.099", lab.ServerAddr).Output()
	if err != nil {
		t.Errorf("ping: %v: %s", err, out)
	}
	var v []float64
	for _, m := range pingTime.FindAllStringSubmatch(string(out), -1) {
		f, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Error(err)
		}
		v = append(v, f)
	}
	return v
}

func irttRTTs(ctx context.Context, t *testing.T, d time.Duration) []float64 {
	out, err := exec.CommandContext(ctx, "irtt", "client", "-i", "50ms", "-d", d.String(), "-Q", "-o", "-", lab.ServerAddr).Output()
	if err != nil {
		t.Errorf("irtt: %v", err)
	}
	var r struct {
		RoundTrips []struct {
			Lost  any `json:"lost"`
			Delay struct {
				RTT int64 `json:"rtt"`
			} `json:"delay"`
		} `json:"round_trips"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Errorf("irtt's JSON: %v", err)
	}
	var v []float64
	for _, x := range r.RoundTrips {
		if x.Delay.RTT > 0 {
			v = append(v, float64(x.Delay.RTT)/1e6)
		}
	}
	return v
}

func iperf3Upload(ctx context.Context, t *testing.T) float64 {
	// After its time iperf3 asks without a pause whether the server has answered, once a socket takes more
	// data. So much does not leave these buffers until then.
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_wmem", []byte("4096 2097152 4194304"), 0); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "iperf3", "-c", lab.ServerAddr, "-P", "4", "-t", "10", "-O", "4", "-J").Output()
	if err != nil {
		t.Errorf("iperf3: %v: %s", err, out)
	}
	var r struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Errorf("iperf3's JSON: %v", err)
	}
	return r.End.Received.BitsPerSecond
}
