package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// A pageRun is what web/ui/test/real.mjs has found on a daemon's page.
type pageRun struct {
	Errors, Axe, Spills, Faint, Unnamed, Small, Said []string
	Steps                                            map[string]any
}

// A pageHome is a daemon with a page that keeps a stand-in of an OpenBSD router.
type pageHome struct {
	*stage
	place
	config, url, token, fingerprint string
}

// newPageHome starts it; its configuration begins with top, and its [ui] ends with ui.
func newPageHome(t *testing.T, top, ui string) *pageHome {
	t.Helper()
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it takes long; set UNBLOAT_LONG=1")
	}
	labtest.NeedSeccomp(t)
	i := slices.IndexFunc(stages(), func(p place) bool { return p.platform == "openbsd" })
	p := stages()[i]
	h := &pageHome{stage: p.make(t), place: p, config: filepath.Join(t.TempDir(), "unbloat.toml")}
	text := top + fmt.Sprintf("[ui]\nlisten = \"127.0.0.1:%d\"\n%s[[wan]]\ninterface = %q\nlan = %q\nplatform = %q\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\" # sold\n", freePort(t), ui, p.wan, p.lan, p.platform)
	if err := os.WriteFile(h.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, log := h.daemon(t, h.config)
	await.Until(t, 2*time.Minute, "the daemon to apply its configuration", func() bool { return h.kept(t.Context()).State == supervise.InPlace })
	out, code := h.run(t, "ui", "token", "--json")
	var at struct{ daemon.Page }
	if err := json.Unmarshal([]byte(out), &at); err != nil || code != 0 || len(at.URLs) == 0 || at.Token == "" {
		t.Fatalf("exit %d, %v: %s\n%s", code, err, out, log)
	}
	h.url, h.token, h.fingerprint = at.URLs[0], at.Token, at.Fingerprint
	return h
}

// browse has a person use the page.
func (h *pageHome) browse(t *testing.T, o map[string]any) pageRun {
	t.Helper()
	o["token"], o["shots"] = h.token, os.Getenv("UNBLOAT_SHOTS")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var f pageRun
	if err := json.Unmarshal(await.WebScript(t, 10*time.Minute, "real", h.url, string(text)), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Errors)+len(f.Axe)+len(f.Spills)+len(f.Faint)+len(f.Unnamed)+len(f.Small) > 0 {
		t.Errorf("the browser complains %q\naxe finds %q\nwider than the window %q\nfaint %q\nwithout a name %q\ntoo small %q", f.Errors, f.Axe, f.Spills, f.Faint, f.Unnamed, f.Small)
	}
	t.Logf("%v\na screen reader heard %q", f.Steps, f.Said)
	return f
}

func (f pageRun) want(t *testing.T, steps map[string][]string) {
	t.Helper()
	for step, want := range steps {
		for _, w := range want {
			if got := fmt.Sprint(f.Steps[step]); !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", step, got, w)
			}
		}
	}
}

// TestPageOfDaemon: a person's first evening with the page of a daemon that keeps a
// stand-in of an OpenBSD router, in a real browser: the token, new speeds that are
// kept and written, shaping turned off and undone by itself, the schedule, a test and a
// tuning that are stopped, a test with its result, the events.
func TestPageOfDaemon(t *testing.T) {
	port := freePort(t)
	server := fmt.Sprintf("127.0.0.1:%d", port)
	h := newPageHome(t, fmt.Sprintf("server = %q\nhistory = %q\n", server, filepath.Join(t.TempDir(), "history.db")), "")
	serves, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(serves, "serve", "--listen", server, "--irtt", "", "--iperf3", "", "--netperf", "", "--web", "", "--state-dir", t.TempDir())
	c.Env = append(os.Environ(), asProgram+"=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	before := h.Text()
	f := h.browse(t, map[string]any{})
	f.want(t, map[string][]string{
		"sentence":     {"The line is idle."},
		"limits":       {"The line carries 50 Mbit/s.", "The limit is"},
		"cookies":      {"unbloat false true Strict"},
		"speeds":       {"[50 10]"},
		"question":     {"New speeds are set on " + h.wan, "Does everything still work?", "undone in"},
		"kept":         {"The change is kept."},
		"keptSpeeds":   {"[50 8]"},
		"off":          {"off", "Turn on"},
		"undone":       {"undone by itself"},
		"planned":      {"At 03:30 a test, every day"},
		"plannedNow":   {"The schedule of " + h.wan + " has changed, and applies now."},
		"plannedAfter": {"At 03:30 a test, every day"},
		"testLive":     {"A test runs", "Round trip", "Mbit/s", "Stop"},
		"testStopped":  {"Stopped. Nothing was changed."},
		"tuneLive":     {"A tuning runs", "The line as it is"},
		"tuneStopped":  {"Stopped. Nothing was changed."},
		"history":      {"1 measurement"},
		"events":       {"Nobody confirmed a change, so it was undone", "A change was kept by this page", "A change was made by this page"},
	})
	// On the loopback the machine measures itself, and mostly says so.
	if got := fmt.Sprint(f.Steps["result"]); !strings.Contains(got, "The measurement proves nothing:") && !strings.Contains(got, "The test is done.") {
		t.Errorf("the test's result is %q", got)
	}
	written, err := os.ReadFile(h.config)
	if err != nil || !strings.Contains(string(written), "up = \"8 Mbit/s\" # sold") || !strings.HasSuffix(string(written), "[[schedule]]\ndo = \"test\"\nwan = \""+h.wan+"\"\nat = \"03:30\"\n") {
		t.Errorf("%v: the configuration is\n%s", err, written)
	}
	if h.Text() == before || h.kept(t.Context()).State != supervise.InPlace {
		t.Errorf("the router is %v\n%s", h.kept(t.Context()), h.Text())
	}
}

// TestPageOfDaemonWithTLS: the same page with a certificate of its own: a browser that
// takes it logs in, gets a cookie for this host alone, and hears the stream.
func TestPageOfDaemonWithTLS(t *testing.T) {
	h := newPageHome(t, "", "tls = true\n")
	if !strings.HasPrefix(h.url, "https://") {
		t.Fatalf("the page is at %s", h.url)
	}
	conn, err := tls.Dial("tcp", strings.Trim(strings.TrimPrefix(h.url, "https:"), "/"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if sum := sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw); hex.EncodeToString(sum[:]) != strings.ToLower(h.fingerprint) {
		t.Errorf("`unbloat ui token` says %s, the certificate is %x", h.fingerprint, sum)
	}
	f := h.browse(t, map[string]any{"brief": true, "language": "de-DE", "scheme": "dark", "width": 390, "height": 844})
	f.want(t, map[string][]string{"cookies": {"__Host-unbloat true true Strict"}, "sentence": {"Leitung"}})
}
