package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// luciDir has LuCI's page.
const luciDir = "../../contrib/openwrt/luci-app-unbloat"

// A fakeRouter is what LuCI's page reaches of an OpenWrt router: uhttpd with /ubus,
// and behind it rpcd with its access control, its uci, and our own plugin, which talks
// to the real daemon.
type fakeRouter struct {
	t      *testing.T
	stage  *stage
	config string
	daemon *exec.Cmd
	acl    map[string]access

	mu     sync.Mutex
	staged map[string]string // options of the section home
	run    map[string]any    // a test or a tuning; the daemon's own would need a line
}

// access is a part of an access control list.
type access struct {
	UBus map[string][]string `json:"ubus"`
	UCI  []string            `json:"uci"`
}

// newFakeRouter reads the access control list of the page.
func newFakeRouter(t *testing.T, s *stage, config string, daemon *exec.Cmd) *fakeRouter {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(luciDir, "root/usr/share/rpcd/acl.d/luci-app-unbloat.json"))
	if err != nil {
		t.Fatal(err)
	}
	var acl map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &acl); err != nil {
		t.Fatal(err)
	}
	f := &fakeRouter{t: t, stage: s, config: config, daemon: daemon, acl: map[string]access{}}
	for _, kind := range []string{"read", "write"} {
		var a access
		if err := json.Unmarshal(acl["luci-app-unbloat"][kind], &a); err != nil {
			t.Fatal(err)
		}
		f.acl[kind] = a
	}
	return f
}

// allowed says whether a session may make a call: the admin all that the lists name,
// the viewer what is in the list for reading. LuCI's own lists let each apply.
func (f *fakeRouter) allowed(session, object, method string) bool {
	kinds := map[string][]string{"admin": {"read", "write"}, "viewer": {"read"}}[session]
	return slices.ContainsFunc(kinds, func(kind string) bool {
		a := f.acl[kind]
		if object == "uci" {
			return slices.Contains(a.UCI, "unbloat") && (kind == "write" || method == "get")
		}
		return slices.Contains(a.UBus[object], method)
	})
}

func (f *fakeRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	static := func(name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", map[string]string{".js": "text/javascript", ".po": "text/plain; charset=utf-8"}[filepath.Ext(name)])
		_, _ = w.Write(text)
	}
	switch {
	case r.URL.Path == "/":
		lang := "en"
		if strings.HasPrefix(r.Header.Get("Accept-Language"), "de") {
			lang = "de"
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, luciPage, lang)
	case r.URL.Path == "/standin.js":
		static("../../web/test/luci-standin.js")
	case strings.HasPrefix(r.URL.Path, "/luci-static/"):
		static(filepath.Join(luciDir, "htdocs", filepath.Clean(r.URL.Path)))
	case strings.HasPrefix(r.URL.Path, "/po/"):
		static(filepath.Join(luciDir, filepath.Clean(r.URL.Path)))
	case r.URL.Path == "/stop":
		_ = f.daemon.Process.Kill()
		_ = f.daemon.Wait()
	case r.URL.Path == "/ubus/":
		f.ubus(w, r)
	case r.URL.Path == "/favicon.ico":
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// ubus answers a call as uhttpd does.
func (f *fakeRouter) ubus(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID     int
		Params []json.RawMessage
	}
	var session, object, method string
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Params) != 4 ||
		errors.Join(json.Unmarshal(q.Params[0], &session), json.Unmarshal(q.Params[1], &object), json.Unmarshal(q.Params[2], &method)) != nil {
		http.Error(w, "no call", http.StatusBadRequest)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": q.ID}
	if f.allowed(session, object, method) {
		code, data := f.call(r.Context(), object, method, q.Params[3])
		answer["result"] = []any{code, data}
	} else {
		answer["error"] = map[string]any{"code": -32002, "message": "Access denied"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// call answers a call that is allowed: ubus's code and the answer.
func (f *fakeRouter) call(ctx context.Context, object, method string, args json.RawMessage) (int, any) {
	if object == "uci" {
		return f.uci(method, args)
	}
	if f.measure(method) {
		return 0, map[string]any{}
	}
	out, err := f.plugin(ctx, args, "call", method)
	if ctx.Err() != nil { // the page was left, so nobody waits for the answer
		return 9, nil
	}
	if err != nil {
		f.t.Errorf("%s %s: %v", method, args, err)
		return 9, nil
	}
	if method != "status" {
		return 0, out
	}
	var status map[string]any
	if err := json.Unmarshal(out, &status); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run != nil {
		status["run"] = maps.Clone(f.run)
		if seconds, _ := f.run["seconds"].(int); f.run["state"] == "running" {
			f.run["seconds"] = seconds + 3
			if f.run["method"] == "test" && seconds > 3 {
				f.run["state"], f.run["grade"] = "done", "A"
			}
		}
	}
	return 0, status
}

// measure stands in for the daemon's tests and tunings.
func (f *fakeRouter) measure(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch method {
	case "test", "tune":
		f.run = map[string]any{"method": method, "wan": "em0", "state": "running", "seconds": 0}
	case "stop":
		f.run["state"] = "stopped"
	default:
		return false
	}
	return true
}

// plugin runs our program as rpcd does: the file in libexec.
func (f *fakeRouter) plugin(ctx context.Context, args []byte, words ...string) (json.RawMessage, error) {
	text, err := os.ReadFile(filepath.Join(luciDir, "root/usr/libexec/rpcd/luci.unbloat"))
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	script := strings.Replace(string(text), "/usr/bin/unbloat rpcd", self+" rpcd --config "+f.config, 1)
	ctx, cancel := context.WithTimeout(ctx, 120*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "luci.unbloat"}, words...)...)
	c.Env = append(os.Environ(), asProgram+"=1", "PATH="+f.stage.path, "UNBLOAT_STATE_DIR="+f.stage.state)
	c.Stdin = bytes.NewReader(args)
	out, err := c.Output()
	if err == nil && (!json.Valid(out) || len(out) > 256<<10) {
		err = fmt.Errorf("no JSON that rpcd takes: %d bytes", len(out))
	}
	return out, err
}

// uci is rpcd's, for the one section of the test.
func (f *fakeRouter) uci(method string, args json.RawMessage) (int, any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := os.ReadFile(f.config)
	if err != nil {
		return 4, nil
	}
	home := map[string]string{".type": "wan", ".name": "home"}
	for _, m := range regexp.MustCompile(`(?m)^\toption (\w+) '([^']*)'`).FindAllStringSubmatch(string(text), -1) {
		home[m[1]] = m[2]
	}
	switch method {
	case "get":
		page := map[string]string{".type": "ui", ".name": "cfg037b1a", ".anonymous": "true"} // rpcd's name of it
		if m := regexp.MustCompile(`option listen '([^']*)'`).FindStringSubmatch(string(text)); m != nil {
			page["listen"] = m[1]
		}
		return 0, map[string]any{"values": map[string]any{"home": home, "cfg037b1a": page}}
	case "set":
		var a struct {
			Config, Section string
			Values          map[string]string
		}
		if json.Unmarshal(args, &a) != nil || a.Config != "unbloat" || a.Section != "home" {
			return 2, nil
		}
		f.staged = a.Values
		return 0, nil
	case "apply":
		for k, v := range f.staged {
			home[k] = v
		}
		var b strings.Builder
		b.WriteString("\nconfig wan 'home'\n")
		for _, k := range []string{"interface", "lan", "platform", "down", "up"} {
			fmt.Fprintf(&b, "\toption %s '%s'\n", k, home[k])
		}
		if err := os.WriteFile(f.config, []byte(b.String()), 0o600); err != nil {
			return 9, nil
		}
		_ = f.daemon.Process.Signal(syscall.SIGHUP) // procd's trigger
		return 0, nil
	case "confirm":
		return 0, nil
	}
	return 3, nil
}

// luciPage is a page of LuCI's, as far as ours needs it.
const luciPage = `<!doctype html><html lang="%s"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>LuCI</title>
<style>body{font:15px/1.4 sans-serif;margin:0 auto;padding:12px;max-width:940px;color:#222;background:#fff}
.cbi-section{margin:0 0 1.5em}.cbi-value{display:flex;flex-wrap:wrap;gap:.3em 1em;padding:.3em 0}.cbi-value[hidden]{display:none}.cbi-value-title{flex:0 0 15em;text-align:right}.cbi-value-field{flex:1 1 12em}
.table{width:100%%;border-collapse:collapse}.th,.td{text-align:left;padding:.4em .5em;border-top:1px solid #ccc;vertical-align:top}
.hint{color:#555;font-size:.9em}.btn{padding:.4em 1em;border:1px solid #888;border-radius:4px;background:#f5f5f5;color:#222}.cbi-button-positive,.cbi-button-apply{background:#0a5c9e;color:#fff}.cbi-button-negative{background:#a02020;color:#fff}
.alert-message{padding:.5em 1em;border:1px solid #b98900;background:#fff6d9;border-radius:4px;margin:.5em 0}.alert-message.error{border-color:#a02020;background:#fdecec}
@media(max-width:600px){.tr.table-titles{display:none}.tr:not(.table-titles){display:block;border-top:1px solid #ccc}.td,.tr>.th{display:block;border:0}.td::before{content:attr(data-title)": ";color:#555}.cbi-value-title{flex-basis:100%%;text-align:left}}</style></head>
<body data-view="/luci-static/resources/view/unbloat/line.js"><div id="notes"></div><div id="view"></div><script src="/standin.js"></script></body></html>`

// TestLuCI: a person at LuCI's page, in a real browser: it shows how the line is kept;
// new speeds are tried, undone and kept; the line is turned off and on; settings go
// LuCI's own way. Who may only look changes nothing. With UNBLOAT_SHOTS=DIR it writes
// pictures there.
func TestLuCI(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a browser")
	}
	labtest.NeedSeccomp(t)
	p := stages()[0]
	s := p.make(t)
	config := filepath.Join(t.TempDir(), "etc/config/unbloat")
	text := "config wan 'home'\n\toption interface '" + p.wan + "'\n\toption lan '" + p.lan + "'\n\toption platform '" + p.platform + "'\n\toption down '50 Mbit/s'\n\toption up '10 Mbit/s'\n" + fmt.Sprintf("\nconfig ui\n\toption listen '127.0.0.1:%d'\n", freePort(t))
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _ := s.daemon(t, config)
	await.Until(t, 40*time.Second, "the daemon to apply its configuration", func() bool { return s.kept(t.Context()).State == supervise.InPlace })
	router := newFakeRouter(t, s, config, cmd)
	router.lists(t)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	type found struct {
		Errors, Spills, Faint, Unnamed, Before, Kept, Entered                                                        []string
		Listen, Title, Refused, Trial, Tried, Undone, Settings, Denied, Still, Stopped, Measured, Ended, Hour, First string
	}
	visit := func(options map[string]any) (f found) {
		t.Helper()
		options["shots"] = os.Getenv("UNBLOAT_SHOTS")
		o, err := json.Marshal(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(browse(t, "luci", server.URL+"/", string(o)), &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Errors)+len(f.Spills)+len(f.Faint)+len(f.Unnamed) > 0 {
			t.Errorf("the page complains: %q\nis wider than the window: %q\nhas faint text: %q\nhas controls without a name: %q", f.Errors, f.Spills, f.Faint, f.Unnamed)
		}
		if !strings.HasPrefix(f.Listen, "127.0.0.1:") {
			t.Errorf("the page's address is %q, and it has no name in the file", f.Listen)
		}
		if !strings.Contains(f.Title, p.wan) || f.Before[1] != "50 Mbit/s" || f.Before[2] == "" || f.Undone != f.Before[0] || f.Tried == f.Before[0] || f.Refused == "" {
			t.Errorf("%+v", f)
		}
		return f
	}
	if !labtest.Long() {
		t.Log("German, on a phone: SKIPPED: UNBLOAT_LONG=1 looks at it")
	} else if f := visit(map[string]any{"width": 390, "height": 844, "language": "de-DE", "brief": true}); !strings.Contains(f.Trial, "Dies ist ein Versuch. Er wird in") || !strings.Contains(f.Title, "Leitung") || strings.Join(f.Entered, ", ") != "admin  false, viewer  true" {
		t.Errorf("%+v", f)
	}
	f := visit(map[string]any{"width": 1280, "height": 900, "language": "en-US"})
	if f.Kept[0] != f.Tried || f.Kept[1] != "40.5 Mbit/s" || !strings.Contains(f.Trial, "This is a trial. It is undone in") || !strings.Contains(f.Stopped, "The service is not running.") || f.Settings != "9 Mbit/s" || f.Measured != "Grade A." || f.Ended != "It was stopped." {
		t.Errorf("%+v", f)
	}
	if !strings.Contains(f.Hour, "It is off: the line is not shaped. It is on again by itself at ") {
		t.Errorf("off for an hour: %q", f.Hour)
	}
	if !strings.Contains(f.First, "let 192.168.1.20 go first: "+p.wan+" has no classes now") {
		t.Errorf("a machine first, without classes: %q", f.First)
	}
	if !strings.Contains(f.Denied, "Access denied") || f.Still != "The line is shaped." {
		t.Errorf("a viewer is told %q, and the line is %q", f.Denied, f.Still)
	}
	now, err := os.ReadFile(config)
	if err != nil || !strings.Contains(string(now), "option down '40500 kbit/s'") && !strings.Contains(string(now), "option down '40.5 Mbit/s'") {
		t.Errorf("%v\n%s", err, now)
	}
}

// lists checks that the program has every method that the access control list names.
func (f *fakeRouter) lists(t *testing.T) {
	t.Helper()
	out, err := f.plugin(t.Context(), nil, "list")
	var methods map[string]map[string]any
	if err != nil || json.Unmarshal(out, &methods) != nil {
		t.Fatal(err, string(out))
	}
	n := 0
	for kind, a := range f.acl {
		for _, m := range a.UBus["luci.unbloat"] {
			n++
			if _, ok := methods[m]; !ok {
				t.Errorf("%s: the program has no method %q", kind, m)
			}
		}
	}
	if n != len(methods) {
		t.Errorf("the list has %d methods, the program %d", n, len(methods))
	}
}

// browse runs a script of scripts/web. The test is skipped if that lacks a program.
func browse(t *testing.T, args ...string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "web"), args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 5 {
		t.Skipf("SKIPPED: %s", strings.TrimSpace(errs.String()))
	}
	if err != nil {
		t.Fatalf("scripts/web %q: %v\n%s%s", args, err, out.String(), errs.String())
	}
	return out.Bytes()
}

// freePort returns a port of the loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
