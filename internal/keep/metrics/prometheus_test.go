package metrics_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"unbloat/testkit/await"
)

// A real Prometheus loads the alert rules, asks for our metrics and evaluates every
// rule; a rate that it has scraped can be asked for.
func TestPrometheus(t *testing.T) {
	await.NotShort(t)
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: prometheus is not installed (Debian: apt install prometheus)")
	}
	ours := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text()) }))
	defer ours.Close()
	rules, err := filepath.Abs(filepath.Join(grafana, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	content := fmt.Sprintf("global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [%q]\nscrape_configs:\n  - job_name: unbloat\n    static_configs:\n      - targets: [%q]\n", rules, ours.Listener.Addr())
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.CommandContext(t.Context(), program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	get := func(path string, to any) bool {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return json.NewDecoder(r.Body).Decode(to) == nil
	}
	type rule struct{ Name, Health, LastError string }
	var loaded struct {
		Data struct {
			Groups []struct{ Rules []rule }
		}
	}
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	const most = 2 * time.Minute // it starts within a second on an idle machine
	if !await.True(most, func() bool {
		return get("/api/v1/query?query="+url.QueryEscape(`unbloat_shaper_rate_bytes_per_second{job="unbloat",direction="down"}`), &answer) && len(answer.Data.Result) > 0
	}) {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("Prometheus has none of our metrics; it says\n%s", said)
	}
	n := 0
	await.Until(t, most, "every rule to be evaluated", func() bool {
		loaded.Data.Groups, n = nil, 0
		if !get("/api/v1/rules", &loaded) {
			return false
		}
		for _, g := range loaded.Data.Groups {
			for _, r := range g.Rules {
				if n++; r.Health == "unknown" {
					return false
				}
			}
		}
		return n > 0
	})
	for _, g := range loaded.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	t.Logf("%d rules, %d rates down", n, len(answer.Data.Result))
}
