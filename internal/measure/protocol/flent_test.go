package protocol_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/serve"
)

// Debian's flent runs its ping test with our irtt server. Debian's irtt first
// checks for an answer, and then sends probes with filled payloads.
func TestFlentPing(t *testing.T) {
	flent := program(t, "flent")
	program(t, "irtt")
	const host = "127.0.0.76" // flent can only use irtt's own port; no other server uses it on this address
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Irtt: host + ":2112"})
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	serveUntilEnd(t, s)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), flent, "ping", "-H", host, "-l", "3", "-s", "0.05", "--data-dir", dir, "-x")
	cmd.Dir = dir // flent runs a test from a file or directory of that name, if there is one
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.flent.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v: %s", files, err, out)
	}
	r := readFlent(t, files[0])
	const series = "Ping (ms) UDP"
	if n := len(r.Raw[series]); n < 40 {
		t.Errorf("%d round trips: %s", n, out)
	}
	answered := 0
	for _, p := range r.Raw[series] {
		if p.Val > 0 && p.Up != 0 && p.Down != 0 {
			answered++
		}
	}
	if answered < len(r.Raw[series])*9/10 {
		t.Errorf("%d of %d probes were answered with stamps", answered, len(r.Raw[series]))
	}
}

// Debian's flent runs rrul with our netperf and irtt servers: four loads in
// each direction and three pings, each with its own DSCP, which the answers
// must have too.
func TestFlentRrul(t *testing.T) {
	flent := program(t, "flent")
	program(t, "irtt")
	program(t, "fping")
	netperf := netperfProgram(t)
	const host = "127.0.0.76" // flent can only use the protocols' own ports; no other server uses them on this address
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Irtt: host + ":2112", Netperf: host + ":12865"})
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	serveUntilEnd(t, s)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, flent, "rrul", "-H", host, "-l", "4", "-s", "0.2", "-d", "1", "--data-dir", dir)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "PATH="+filepath.Dir(netperf)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.flent.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v: %s", files, err, out)
	}
	r := readFlent(t, files[0])
	for _, series := range []string{"Ping (ms) UDP EF", "Ping (ms) UDP BK", "Ping (ms) UDP BE"} {
		if n := len(r.Raw[series]); n < 20 {
			t.Errorf("%s: %d round trips", series, n)
		}
	}
	tos := map[string]int{"BE": 0, "BK": 0x20, "CS5": 0xa0, "EF": 0xb8}
	for class, tos := range tos {
		for _, way := range []string{"upload", "download"} {
			series := "TCP " + way + " " + class
			m := r.Metadata.Series[series]
			sent, came := m.Sent, m.Received
			if n := len(r.Raw[series]); n < 5 || m.Mean < 1 || m.Elapsed < 3.9 || m.Elapsed > 6 {
				t.Errorf("%s: %d points, %.1f Mbit/s in the mean, %.2f s", series, n, m.Mean, m.Elapsed)
			}
			if m.UpTOS != tos || m.DownTOS != tos {
				t.Errorf("%s: marked %#x and %#x, not %#x", series, m.UpTOS, m.DownTOS, tos)
			}
			// At the end, bytes on the way are only counted at one side.
			if came < sent*9/10-8<<20 || came > sent*11/10+8<<20 || m.Congestion == "" {
				t.Errorf("%s: %d bytes sent, %d came, by %q", series, sent, came, m.Congestion)
			}
		}
	}
	t.Logf("%s", out)
}

// netperfProgram returns netperf's client: the installed one, or the one that
// scripts/setup-netperf has downloaded.
func netperfProgram(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short, and this runs netperf")
	}
	if path, err := exec.LookPath("netperf"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		path := filepath.Join(cache, "unbloat", "netperf", "usr", "bin", "netperf")
		if _, err = os.Stat(path); err == nil {
			return path
		}
	}
	t.Skipf("SKIPPED: netperf: %v (make setup-test fetches it, where Debian's mirror has it)", err)
	return ""
}

// Debian's netperf: each supported test, and the error numbers for the others.
func TestNetperfProgram(t *testing.T) {
	program := netperfProgram(t)
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Netperf: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, s)
	port := fmt.Sprint(s.Netperf().Port())
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"stream", "DIRECTION=Send", []string{"-t", "TCP_STREAM", "-l", "1"}},
		{"maerts", "DIRECTION=Receive", []string{"-t", "TCP_MAERTS", "-l", "1"}},
		{"stream of an amount", "REMOTE_BYTES_RECVD=1015808", []string{"-t", "TCP_STREAM", "-l", "-1000000"}},
		{"maerts of an amount", "REMOTE_BYTES_SENT=1000000", []string{"-t", "TCP_MAERTS", "-l", "-1000000"}},
		{"transactions over TCP", "REMOTE_BYTES_SENT=100", []string{"-t", "TCP_RR", "-l", "-100"}},
		{"transactions over UDP", "REMOTE_BYTES_SENT=100", []string{"-t", "UDP_RR", "-l", "-100"}},
		{"transactions for a second", "PROTOCOL=UDP", []string{"-t", "UDP_RR", "-l", "1"}},
		{"not served", "remote error 95", []string{"-t", "TCP_CRR", "-l", "1"}},
	} {
		args := append([]string{"-H", "127.0.0.1", "-p", port, "-P", "0", "-v", "0"}, c.args...)
		args = append(args, "--", "-k", "THROUGHPUT,DIRECTION,PROTOCOL,REMOTE_BYTES_SENT,REMOTE_BYTES_RECVD")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, _ := exec.CommandContext(ctx, program, args...).CombinedOutput() // the output is checked instead
		cancel()
		if !strings.Contains(string(out), c.want) {
			t.Errorf("%s: no %q in\n%s", c.name, c.want, out)
		}
	}
}

type flentFile struct {
	Metadata struct {
		Series map[string]struct {
			Mean       float64 `json:"MEAN_VALUE"` // Mbit/s
			Elapsed    float64 `json:"ELAPSED_TIME"`
			UpTOS      int     `json:"UPSTREAM_TOS"`
			DownTOS    int     `json:"DOWNSTREAM_TOS"`
			Sent       int64   `json:"BYTES_SENT"`
			Received   int64   `json:"BYTES_RECVD"`
			Congestion string  `json:"CONG_CONTROL"`
		} `json:"SERIES_META"`
	} `json:"metadata"`
	Raw map[string][]struct {
		Val  float64
		Up   float64 `json:"owd_up"`
		Down float64 `json:"owd_down"`
	} `json:"raw_values"`
}

func readFlent(t *testing.T, file string) (r flentFile) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}
