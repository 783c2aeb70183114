package protocol_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unbloat/internal/serve"
)

// Debian's flent runs its ping test against our irtt server: Debian's irtt asks
// first whether anybody answers, and then sends filled probes.
func TestFlentPing(t *testing.T) {
	flent := program(t, "flent")
	program(t, "irtt")
	const host = "127.0.0.76" // flent knows irtt's own port only; nobody else listens on it here
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Irtt: host + ":2112"})
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	serveUntilEnd(t, s)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), flent, "ping", "-H", host, "-l", "3", "-s", "0.05", "--data-dir", dir, "-x")
	cmd.Dir = dir // flent takes a file or folder of the name for its test
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

type flentFile struct {
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
