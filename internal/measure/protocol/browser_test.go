package protocol_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/serve"
	"unbloat/testkit/labtest"
)

// inChromium is what testdata/browser/run.mjs prints.
type inChromium struct {
	Errors []string
	NDT7   struct {
		Code             int
		Errors           []string
		Measurements     struct{ Client, Server int }
		Download, Upload struct {
			LastClientMeasurement struct{ MeanClientMbps float64 }
			LastServerMeasurement struct {
				TCPInfo struct{ BytesReceived, BytesAcked int64 }
			}
		}
	}
	Cloudflare struct {
		Errors   []string
		Latency  int
		Summary  map[string]float64
		Down, Up []struct{ Bytes, Bps, ServerTime float64 }
	}
}

// M-Lab's and Cloudflare's own browser clients, @m-lab/ndt7 and
// @cloudflare/speedtest, measure with our server, in a real browser, over TLS,
// from a page of another origin.
func TestBrowserClients(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: a test of ndt7 takes 20 s")
	}
	labtest.NeedSeccomp(t)
	chromium, node := program(t, "chromium"), program(t, "node")
	dir := browserClients(t)
	files := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(files.Close)
	s, _ := secure(t, serve.Options{})
	cmd := exec.CommandContext(t.Context(), node, "run.mjs", files.URL, narrow(t, s.Web().String()))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	t.Logf("%s", out.String())
	var f inChromium
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	n, c := f.NDT7, f.Cloudflare
	if len(f.Errors)+len(n.Errors)+len(c.Errors) > 0 || n.Code != 0 {
		t.Errorf("the page: %q, ndt7: %d %q, Cloudflare: %q", f.Errors, n.Code, n.Errors, c.Errors)
	}
	if n.Download.LastClientMeasurement.MeanClientMbps <= 0 || n.Upload.LastClientMeasurement.MeanClientMbps <= 0 {
		t.Errorf("ndt7 measured nothing: %+v", n)
	}
	if n.Download.LastServerMeasurement.TCPInfo.BytesAcked <= 0 || n.Upload.LastServerMeasurement.TCPInfo.BytesReceived <= 0 || n.Measurements.Server < 4 {
		t.Errorf("ndt7 heard nothing of the server: %+v", n)
	}
	if c.Latency != 10 || len(c.Down) != 4 || len(c.Up) != 4 || c.Summary["download"] <= 0 || c.Summary["upload"] <= 0 {
		t.Errorf("Cloudflare's client measured %+v", c)
	}
	for _, p := range append(c.Down, c.Up...) {
		if p.ServerTime < 0 {
			t.Errorf("Cloudflare's client was not told the server's own time: %+v", p)
		}
	}
}

// browserClients returns the directory with the clients' modules in the
// versions of the lock file. Where they can't be had the test is skipped.
func browserClients(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("testdata", "browser")
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "scripts", "modules"), dir)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 5:
		t.Skipf("SKIPPED: %s", strings.TrimSpace(string(out)))
	default:
		t.Fatalf("scripts/modules: %v: %s", err, out)
	}
	return dir
}
