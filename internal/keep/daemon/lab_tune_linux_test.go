package daemon_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// TestTuneInLab: `unbloat tune` has the daemon tune a line whose rates in the
// configuration are wrong. Nobody else changes the line meanwhile; interrupted, all is
// as before; one goes to its end, what is kept is in the configuration, and `why`
// knows it. A test that a page has started goes on without its connection.
func TestTuneInLab(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: tunings of a real line, which TestTuningEndsWithDaemon has without one; UNBLOAT_LONG=1 runs it")
	}
	if !labtest.Inside(t, labtest.Options{Server: true, Scenario: labtest.HomeAt(10*unit.MbitPerSecond, 2*unit.MbitPerSecond)}) {
		return
	}
	h := newHouse(t, "server = \""+lab.Server()+"\"\n[[wan]]\ninterface = \"wan\" # the modem\nlan = \"lan\"\ndown = \"4 Mbit/s\"\nup = \"0.8 Mbit/s\"\n")
	before := shaped(ours()...)
	tuneWith := func(server string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		t.Helper()
		c := exec.CommandContext(t.Context(), labtest.Unbloat(), "tune", "--server", server, "--wan", "wan", "--lan", "lan", "--json", "--no-store")
		c.Env = h.env
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		return c, &out, &errs
	}
	begin := func() (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) { return tuneWith(lab.Server()) }

	// Without a server nothing is tried.
	c, _, errs := tuneWith("10.3.0.99:4040")
	if err := c.Wait(); err == nil || !strings.Contains(errs.String(), "10.3.0.99") {
		t.Errorf("without a server tune ends with %v\n%s", err, errs)
	}
	if is := shaped(ours()...); is != before || h.status().WANs[0].State != supervise.InPlace {
		t.Errorf("without a server it is\n%s\nbefore\n%s", is, before)
	}

	c, _, errs = begin()
	await.Until(t, time.Minute, "the tuning to try rates", func() bool {
		c, err := daemon.Dial(t.Context(), daemon.Socket(h.dir))
		if err != nil {
			return false
		}
		defer c.Close()
		var is daemon.RunStatus
		return c.Call(t.Context(), daemon.MethodRun, "", "", nil, &is) == nil && is.Stage != nil && is.Stage.Doing == tune.Trying
	})
	if s := h.status().WANs[0]; s.State != supervise.Held || !strings.Contains(s.Why, "unbloat tune") {
		t.Errorf("while it is tuned: %+v", s)
	}
	if out := h.unbloat(5, "revert"); !strings.Contains(out, "`unbloat tune` is working on it") {
		t.Errorf("revert says %s", out)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != 1 {
		t.Errorf("interrupted, it ends with %v\n%s", err, errs)
	}
	h.within("the tuning was interrupted", before, ours()...)

	kept := h.tunes(begin, before)

	ask := func(method string, params, result any) {
		t.Helper()
		c, err := daemon.Dial(t.Context(), daemon.Socket(h.dir))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Call(t.Context(), method, "", "", params, result); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	var run daemon.Started
	ask(daemon.MethodTest, daemon.TestParams{Seconds: unit.Seconds(3 * time.Second), Idle: unit.Seconds(2 * time.Second), Unattended: true}, &run)
	var is daemon.RunStatus
	for start := time.Now(); is.State != daemon.RunDone; {
		ask(daemon.MethodRun, daemon.RunParams{Run: run.Run, After: is.Last, Wait: 5}, &is)
		if time.Since(start) > time.Minute || is.State == daemon.RunFailed {
			t.Fatalf("%+v", is)
		}
	}
	if is.Error != nil && is.Error.Code != daemon.CodeFailed || !bytes.Contains(is.Result, []byte(`"schema":"unbloat.test/1"`)) || is.Phase == nil || is.Phase.Phase != "both" {
		t.Errorf("%+v", is)
	}
	if got := shaped(ours()...); got != kept {
		t.Errorf("after a test it is\n%s", got)
	}
}

// tunes waits for a tuning whose rates are kept, and returns what is shaped then.
func (h *house) tunes(tune func() (*exec.Cmd, *bytes.Buffer, *bytes.Buffer), before string) (kept string) {
	h.t.Helper()
	c, out, errs := tune()
	if err := c.Wait(); err != nil {
		h.t.Fatalf("%v\n%s%s\nthe daemon says\n%s", err, out, errs, h.said)
	}
	var r struct {
		Kept bool      `json:"kept"`
		Down unit.Rate `json:"line_down_bps"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Kept || r.Down < 8*unit.MbitPerSecond || r.Down > 10_400*unit.KbitPerSecond {
		h.t.Errorf("%v: %.300s", err, out)
	}
	if !strings.Contains(errs.String(), "download") {
		h.t.Errorf("its progress is\n%s", errs)
	}
	text, err := os.ReadFile(h.config)
	if err != nil || strings.Contains(string(text), `down = "4 Mbit/s"`) || !strings.Contains(string(text), "# the modem") {
		h.t.Errorf("%v: the configuration is\n%s", err, text)
	}
	kept = shaped(ours()...)
	if s := h.status().WANs[0]; kept == before || s.State != supervise.InPlace || s.Down < 6_500*unit.KbitPerSecond {
		h.t.Errorf("%+v\n%s", s, kept)
	}
	sh(h.t, "tc qdisc del dev wan root")
	h.within("what was tuned", kept, ours()...)
	if out := h.unbloat(0, "why", "udp 10.1.0.2:5004 > 203.0.113.9:5004", "--bytes", "200"); !strings.Contains(out, "up ") {
		h.t.Errorf("why says %s", out)
	}
	return kept
}
