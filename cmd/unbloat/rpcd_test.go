package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// TestRpcd: LuCI's calls, as rpcd makes them. Before the daemon runs the status says
// what is wrong with the configuration. New rates are undone unless they are
// confirmed, and then they are in the configuration. Errors are part of the answer.
func TestRpcd(t *testing.T) {
	await.NotShort(t)
	p := stages()[0]
	s := p.make(t)
	start := s.Text()
	config := filepath.Join(t.TempDir(), "etc/config/unbloat")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type reply struct {
		rpcdState
		State string
		Error struct{ Code, Text string }
	}
	ask := func(args string, words ...string) (r reply) {
		t.Helper()
		c := exec.CommandContext(t.Context(), self, append([]string{"rpcd", "--config", config}, words...)...)
		c.Env = append(os.Environ(), asProgram+"=1", "PATH="+s.path, "UNBLOAT_STATE_DIR="+s.state)
		c.Stdin = strings.NewReader(args)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
		if err := json.Unmarshal(out, &r); err != nil || bytes.Count(out, nil) > 256<<10 {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
		return r
	}
	write("config daemon 'main'\n")
	if r := ask("", "call", "status"); r.Running || !strings.Contains(r.Problem, "there is no config wan") || r.WANs == nil {
		t.Errorf("%+v", r)
	}
	if r := ask(`{"wan":"em0"}`, "call", "revert"); r.Error.Code != "precondition" {
		t.Errorf("%+v", r.Error)
	}
	write("config wan 'home'\n\toption interface '" + p.wan + "' # the modem\n\toption lan '" + p.lan + "'\n\toption platform '" + p.platform + "'\n\toption down '50 Mbit/s'\n\toption up '10 Mbit/s'\n")
	s.daemon(t, config)
	await.Until(t, 40*time.Second, "the daemon to apply its configuration", func() bool { return s.kept(t.Context()).State == supervise.InPlace })
	one := func() rpcdWAN {
		t.Helper()
		r := ask(`{"lang":"de","ubus_rpc_session":"0"}`, "call", "status")
		if !r.Running || len(r.WANs) != 1 {
			t.Fatalf("%+v", r)
		}
		return r.WANs[0]
	}
	first := s.Text()
	if w := one(); w.State != supervise.InPlace || w.LineDown != 50*unit.MbitPerSecond || w.Pending != 0 || first == start {
		t.Errorf("%+v", w)
	}
	const rates = `{"wan":"em0","down":"40 Mbit/s","seconds":60}`
	if r := ask(rates, "call", "rates"); r.State != "armed" {
		t.Fatalf("%+v", r)
	}
	if w := one(); w.Pending <= 0 || w.Pending > 60 || s.Text() == first {
		t.Errorf("%+v", w)
	}
	ask(`{"wan":"em0"}`, "call", "revert")
	if w := one(); w.Pending != 0 || w.State == supervise.Suspended || s.Text() != first {
		t.Errorf("undone, it is %+v\n%s", w, s.Text())
	}
	ask(rates, "call", "rates")
	if r := ask(`{"wan":"em0"}`, "call", "confirm"); r.State != "committed" {
		t.Errorf("%+v", r)
	}
	if text, err := os.ReadFile(config); err != nil || !strings.Contains(string(text), "option down '40 Mbit/s'") || !strings.Contains(string(text), "# the modem") {
		t.Errorf("%v %s", err, text)
	}
	if w := one(); w.LineDown != 40*unit.MbitPerSecond || w.LineUp != 10*unit.MbitPerSecond {
		t.Errorf("%+v", w)
	}
	ask(`{"wan":"em0"}`, "call", "revert")
	if w := one(); w.State != supervise.Suspended || s.Text() != start {
		t.Errorf("off, it is %+v\n%s", w, s.Text())
	}
	ask(`{"wan":"em0"}`, "call", "on")
	if w := one(); w.State != supervise.InPlace {
		t.Errorf("%+v", w)
	}
	for method, c := range map[string]struct{ args, code string }{
		"rates": {`{"wan":"em0","down":"40"}`, "usage"}, "confirm": {`{"wan":"em0"}`, "precondition"}, "on": {`{"wan":"em7"}`, "unknown_wan"}, "turn": {`{}`, "unknown_method"}, "status": {`[`, "usage"},
	} {
		if r := ask(c.args, "call", method); r.Error.Code != c.code || r.Error.Text == "" {
			t.Errorf("%s %s: %+v", method, c.args, r.Error)
		}
	}
}
