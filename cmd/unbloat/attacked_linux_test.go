package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/probe"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// attackEnv is the environment variable that says for how long TestAttackedAlone attacks,
// such as 1h; without it that is shortAttack.
const (
	attackEnv   = "UNBLOAT_ATTACK"
	shortAttack = 10 * time.Second
)

// What is promised to the owner.
const (
	mostGrown  = 64 << 10 // kB, of the memory of either process
	mostWaited = time.Second
	mostEnding = 15 * time.Second // of either program, once it is told to end
)

// patience is how long an answer is waited for: somebody who waits for longer than is
// promised is late, and a machine that is busy with something else is no door's fault.
const patience = time.Minute

// Addresses in the namespace. All of the three networks are its own.
const (
	routerAddress  = "192.168.77.1"  // of the page and the metrics
	ownerAddress   = "192.168.77.2"  // where the owner's browser is; strangers are at 101 to 108
	serverAddress  = "203.0.113.1"   // of the test server
	visitorAddress = "203.0.113.200" // who tests there; strangers are at 100.64.0.1 to 8
)

// TestAttackedAlone: while all that strangers are known to do is done at once, to a daemon
// with its page, socket and metrics and to a test server, the owner and a visitor are
// served within a second each time, neither program grows by more than 64 MB, the router
// stays as planned, and nothing of the strangers' is run, written or printed. It takes
// 10 s, or what UNBLOAT_ATTACK says; UNBLOAT_SEED repeats a run's draws.
func TestAttackedAlone(t *testing.T) {
	await.NotShort(t)
	lasts, err := shortAttack, error(nil)
	if text := os.Getenv(attackEnv); text != "" {
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", attackEnv, err)
		}
	} else if os.Getenv(apartEnv) == "" {
		await.Quiet(t)
	}
	if !apart(t, lasts) {
		return
	}
	h := newAttacked(t)
	h.doors() // what is made once is made
	if t.Failed() {
		t.Fatalf("not all is served before anybody attacks:\n%s\n%s", h.daemonLog, h.serverLog)
	}
	quiet := await.Meanwhile(t)
	began := h.seen(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { h.weigh(ctx) })
	all.Go(func() { h.own(ctx) })
	h.attack(ctx, &all)
	all.Wait()
	h.doors()
	h.judge(t, began)
	if len(h.late) > 0 {
		t.Logf("all the rest held, but somebody waited for too long:\n%s", strings.Join(h.late, "\n"))
		quiet()
		t.Fail()
	}
}

// apartEnv marks the test binary that runs in namespaces of its own.
const apartEnv = "UNBLOAT_TEST_APART"

// apart reports whether the test runs in namespaces of its own: network, mounts, and a file
// system in which nothing is but what tests make. Outside it runs the test there, relays
// what comes of it, and returns false.
func apart(t *testing.T, lasts time.Duration) bool {
	t.Helper()
	if os.Getenv(apartEnv) != "" {
		return true
	}
	const script = `root=$1 self=$2 actor=$3; shift 3
mount -t tmpfs none "$root" && cd "$root" && mkdir -m 1777 tmp && : >unbloat.test && mount --bind "$self" unbloat.test || exit 77
: >actor && mount --bind "$actor" actor || exit 77
for dir in proc dev usr lib lib64; do
	[ -e "/$dir" ] || continue
	mkdir "$dir" && mount --rbind "/$dir" "$dir" || exit 77
done
ip link set lo up || exit 77
for net in 192.168.77.1/24 203.0.113.1/24 100.64.0.1/24; do ip addr add "$net" dev lo || exit 77; done
exec chroot . /unbloat.test "$@"`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "-Urnm", "sh", "-c", script, "sh", t.TempDir(), self, labtest.Actor(t),
		"-test.run", "^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout", (lasts + 5*time.Minute).String())
	c.Env = append(os.Environ(), apartEnv+"=1", "UNBLOAT_PROGRAMS=/", "TMPDIR=/tmp", "HOME=/tmp/home", "GOGC=100") // as a user's, for its memory
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out said
	c.Stdout, c.Stderr = &out, &out
	if err = c.Start(); err == nil {
		err = c.Wait()
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // a test that broke off leaves what it has started
	}
	switch text := out.String(); {
	case c.ProcessState == nil || c.ProcessState.ExitCode() == 77 || strings.Contains(text, "Operation not permitted"):
		t.Skipf("SKIPPED: no namespaces here: %v: %s", err, text)
	case err == nil && strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skip(text)
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()+" "):
		t.Errorf("in namespaces of its own: %v\n%s", err, text)
	default:
		t.Log(text)
	}
	return false
}

// attacked is a home's router with its daemon, and a test server elsewhere, that are
// attacked.
type attacked struct {
	*testing.T
	seed uint64
	*stage
	fake   *fake.Linux
	config string
	plan   string // of the router, as JSON

	daemonProcess, serverProcess *exec.Cmd
	daemonLog, serverLog         *said

	browser *http.Client // the owner's
	another *http.Client // his other browser, which has logged in before
	cookie  string       // the first one's cookies, for forgeries
	visitor *http.Client

	ran    atomic.Int64 // commands on the router that have something of an attacker's in them
	strays said         // what of theirs is printed

	mu      sync.Mutex
	waits   map[string]time.Duration // the longest, by door
	late    []string                 // who waited for longer than is promised
	asked   map[string]int
	start   [2]int // kB of memory
	most    [2]int
	attacks map[string]*atomic.Int64
}

// A noted is a router that looks at what is run on it.
type noted struct {
	platform.Runner
	h *attacked
}

func (n noted) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if strings.Contains(strings.Join(argv, " "), mark) || bytes.Contains(stdin, []byte(mark)) {
		n.h.ran.Add(1)
	}
	return n.Runner.Run(ctx, argv, stdin)
}

// newAttacked starts the daemon and the server.
func newAttacked(t *testing.T) *attacked {
	t.Helper()
	f := fake.NewLinux()
	h := &attacked{T: t, seed: rand.Uint64(), fake: f, stage: newStage(t, f.Machine, f, f.Text), config: filepath.Join(t.TempDir(), "unbloat.toml"),
		waits: map[string]time.Duration{}, asked: map[string]int{}, attacks: map[string]*atomic.Int64{}}
	h.router = noted{f, h}
	if text := os.Getenv("UNBLOAT_SEED"); text != "" {
		var err error
		if h.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("UNBLOAT_SEED: %v", err)
		}
	}
	t.Logf("seed %d", h.seed)
	text := fmt.Sprintf("server = \"%s:7676\"\nmetrics = \"%[2]s:9836\"\n[ui]\nlisten = \"%[2]s:7690\"\n[[wan]]\ninterface = \"wan\"\nlan = \"lan\"\nplatform = \"linux\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\nfollow = false\n", serverAddress, routerAddress)
	if err := os.WriteFile(h.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/tmp/dhcp.leases", []byte("0 02:00:00:00:00:01 "+ownerAddress+" owner *\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.daemonProcess, h.daemonLog = h.daemon(t, h.config)
	await.Until(t, time.Minute, "the daemon to apply its configuration", func() bool { return h.kept(t.Context()).State == supervise.InPlace })
	h.serve(t)
	h.plan, _ = h.run(t, "plan", "--down", "50mbit", "--up", "10mbit", "--wan", "wan", "--lan", "lan", "--json", "--quiet", "--for", "linux")

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.browser, h.another, h.visitor = clientFrom(ownerAddress), clientFrom(ownerAddress), clientFrom(visitorAddress)
	h.browser.Jar = jar
	if h.another.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	token, code := h.run(t, "ui", "token", "--json")
	var at daemon.Page
	if err := json.Unmarshal([]byte(token), &at); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, token)
	}
	if status, text := post(h.browser, "/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, at.Token, password)); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	r, _ := http.NewRequest(http.MethodGet, "http://"+routerAddress+":7690/", nil)
	var cookies []string
	for _, c := range jar.Cookies(r.URL) {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	h.cookie = strings.Join(cookies, "; ")
	return h
}

const password = "correct horse"

// serve starts the test server.
func (h *attacked) serve(t *testing.T) {
	t.Helper()
	c := exec.Command(os.Args[0], "serve", "--listen", serverAddress+":7676", "--state-dir", t.TempDir(), "--drain", "1s")
	h.serverProcess, h.serverLog = c, &said{}
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1"), h.serverLog, h.serverLog
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	serving := regexp.MustCompile(`msg=serving address=\S+:7676 irtt=\S+:2112 iperf3=\S+:5201 netperf=\S+:12865 web=\S+:7680`)
	await.Until(t, time.Minute, "the server to serve", func() bool { return serving.MatchString(h.serverLog.String()) })
}

// clientFrom is of somebody at an address, and makes a connection for each request.
func clientFrom(address string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
}

// post sends JSON to the page, as a browser does.
func post(c *http.Client, path, body string) (int, string) {
	return answerTo(c.Post("http://"+routerAddress+":7690"+path, "application/json", strings.NewReader(body)))
}

// answerTo reads an answer; without one the text is why.
func answerTo(r *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

// A doorway is a way to be served: what is asked there, how often, and what is wrong with
// the answer, if anything is.
type doorway struct {
	what  string
	every time.Duration
	ask   func(context.Context) error
}

func (h *attacked) doorways() []doorway {
	const often, seldom = 250 * time.Millisecond, 3 * time.Second
	status := func(want string, status int, text string) error {
		if status != http.StatusOK || !strings.Contains(text, want) {
			return fmt.Errorf("%d %.200s", status, text)
		}
		return nil
	}
	page, metrics, web := "http://"+routerAddress+":7690", "http://"+routerAddress+":9836", serverAddress+":7680"
	return []doorway{
		{"the page", often, func(context.Context) error {
			code, text := answerTo(h.browser.Get(page + "/api/state"))
			return status(`"on":true`, code, text)
		}},
		{"the page's files", often, func(context.Context) error {
			code, text := answerTo(h.browser.Get(page + "/"))
			return status("<html", code, text)
		}},
		{"a login", seldom, func(context.Context) error {
			code, text := post(h.another, "/api/login", fmt.Sprintf(`{"password":%q}`, password))
			return status(`"user":"admin"`, code, text)
		}},
		{"the socket", often, func(ctx context.Context) error {
			var s daemon.WANStatus
			await.True(patience, func() bool { s = h.kept(ctx); return s.State != "" }) // who has lost his place asks again
			if s.State != supervise.InPlace && s.State != supervise.Held {              // whoever reaches the socket may take the turn
				return fmt.Errorf("%+v", s)
			}
			return nil
		}},
		{"the metrics", often, func(context.Context) error {
			code, text := answerTo(h.browser.Get(metrics + "/metrics"))
			return status("unbloat_panics_total 0\n", code, text)
		}},
		{"the server's page", often, func(ctx context.Context) error {
			c, _, err := websocket.Dial(ctx, "ws://"+web+"/api/probe", &websocket.DialOptions{Subprotocols: []string{serve.Subprotocol}, HTTPClient: h.visitor})
			if err != nil {
				return err
			}
			defer c.CloseNow()
			_, text, err := c.Read(ctx)
			if err != nil {
				return err
			}
			var hello serve.Hello
			if err := json.Unmarshal(text, &hello); err != nil {
				return fmt.Errorf("%.200s: %w", text, err)
			}
			if err := c.Write(ctx, websocket.MessageBinary, make([]byte, 48)); err != nil {
				return err
			}
			if _, _, err := c.Read(ctx); err != nil {
				return err
			}
			code, body := answerTo(h.visitor.Get("http://" + web + "/api/down?bytes=20000&session=" + hello.Session))
			if code != http.StatusOK || len(body) != 20000 {
				return fmt.Errorf("%d, %d bytes", code, len(body))
			}
			return nil
		}},
		{"a test", often, func(ctx context.Context) error { return probed(ctx) }},
	}
}

// probed opens a session with unbloat's own protocol, and has a probe answered.
func probed(ctx context.Context) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(visitorAddress)}}
	c, err := d.DialContext(ctx, "tcp", serverAddress+":7676")
	if err != nil {
		return err
	}
	defer c.Close()
	at, _ := ctx.Deadline()
	_ = c.SetDeadline(at)
	fmt.Fprintf(c, "{\"op\":\"hello\",\"versions\":[1]}\n{\"op\":\"udp\",\"dir\":\"echo\"}\n")
	var r probe.Reply
	answers := json.NewDecoder(c)
	for range 2 {
		if err := answers.Decode(&r); err != nil || r.Error != "" {
			return fmt.Errorf("%q, %w", r.Error, err)
		}
	}
	token, err := probe.ParseToken(r.StreamToken)
	if err != nil {
		return err
	}
	u := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(visitorAddress)}}
	p, err := u.DialContext(ctx, "udp", serverAddress+":7676")
	if err != nil {
		return err
	}
	defer p.Close()
	began := time.Now()
	s := probe.NewSession(probe.Config{Interval: 100 * time.Millisecond, Token: token})
	for b := make([]byte, 2000); s.Answered() == 0; {
		if ctx.Err() != nil {
			return fmt.Errorf("%d probes have no answer", s.Sent())
		}
		if out, _ := s.Poll(unit.Instant(time.Since(began))); out != nil {
			_, _ = p.Write(out)
		}
		_ = p.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := p.Read(b); err == nil {
			_ = s.Receive(unit.Instant(time.Since(began)), b[:n])
		}
	}
	return nil
}

// ask asks once, and notes how long that took.
func (h *attacked) ask(d doorway) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	err := d.ask(ctx)
	took := time.Since(began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[d.what]++
	h.waits[d.what] = max(h.waits[d.what], took)
	if err != nil {
		h.Errorf("%s, asked for the %d. time: %v", d.what, h.asked[d.what], err)
	}
	if took > mostWaited {
		h.late = append(h.late, fmt.Sprintf("%s, asked for the %d. time, answered after %v", d.what, h.asked[d.what], took.Round(time.Millisecond)))
	}
}

// doors asks at each once.
func (h *attacked) doors() {
	for _, d := range h.doorways() {
		h.ask(d)
	}
}

// own asks at all doors again and again until ctx ends.
func (h *attacked) own(ctx context.Context) {
	var all sync.WaitGroup
	for _, d := range h.doorways() {
		all.Go(func() { paced(ctx, d.every, func() { h.ask(d) }) })
	}
	all.Wait()
}

// paced does something again and again until ctx ends, at most so often.
func paced(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// weigh reads how much memory both programs take until ctx ends.
func (h *attacked) weigh(ctx context.Context) {
	processes := [2]*exec.Cmd{h.daemonProcess, h.serverProcess}
	for i, p := range processes {
		h.start[i] = resident(h.T, p.Process.Pid)
	}
	paced(ctx, 200*time.Millisecond, func() {
		for i, p := range processes {
			h.most[i] = max(h.most[i], resident(h.T, p.Process.Pid))
		}
	})
}

// resident is the memory of a process in kB.
func resident(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Errorf("it has ended: %v", err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kB, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
	if err != nil {
		t.Errorf("process %d: %v", pid, err)
	}
	return kB
}

// What strangers must not change.
type sight struct {
	router string
	ran    int               // commands that changed it
	files  map[string]string // content of the configuration and the passwords; of others that they are there
}

// seen looks at it.
func (h *attacked) seen(t *testing.T) sight {
	t.Helper()
	s := sight{router: h.Text(), files: map[string]string{}}
	h.Lock()
	s.ran = len(h.fake.Ran)
	h.Unlock()
	err := filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{"/proc", "/dev", "/usr", "/lib", "/lib64", attackersPlace}, path):
			return fs.SkipDir
		}
		s.files[path] = ""
		if filepath.Dir(path) == filepath.Dir(h.config) && !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s.files[path] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge says what has come of it.
func (h *attacked) judge(t *testing.T, began sight) {
	t.Helper()
	now := h.seen(t)
	if now.router != began.router || now.ran != began.ran {
		t.Errorf("%d commands have changed the router, which is\n%s\nit was\n%s", now.ran-began.ran, now.router, began.router)
	}
	if out, code := h.run(t, "status", "--wan", "wan", "--for", "linux"); code != cli.Done || !strings.Contains(out, "wan is kept at") {
		t.Errorf("status: exit %d: %s", code, out)
	}
	if n := h.ran.Load(); n > 0 {
		t.Errorf("%d commands have something of an attacker's in them", n)
	}
	for path, is := range now.files {
		was, there := began.files[path]
		database := strings.Contains(path, "/page.db") // SQLite's files beside it come and go
		if !there && !database || is != was {
			t.Errorf("%s is new, or another one: %q, it was %q", path, is, was)
		}
	}
	for i, what := range []string{"the daemon", "the server"} {
		t.Logf("%s had %d MB at first, at most %d", what, h.start[i]>>10, h.most[i]>>10)
		if more := h.most[i] - h.start[i]; more > mostGrown {
			t.Errorf("%s has grown by %d MB, at most %d are promised", what, more>>10, mostGrown>>10)
		}
	}
	for _, d := range h.doorways() {
		t.Logf("%s: asked %d times, answered after %v at the latest", d.what, h.asked[d.what], h.waits[d.what].Round(time.Millisecond))
	}
	for _, a := range strangers() {
		t.Logf("%d attacks: %s", h.attacks[a.what].Load(), a.what)
		if h.attacks[a.what].Load() == 0 {
			t.Errorf("nobody attacked: %s", a.what)
		}
	}
	for what, p := range map[string]*exec.Cmd{"the daemon": h.daemonProcess, "the server": h.serverProcess} {
		told := time.Now()
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%s ended with %v", what, err)
		}
		if took := time.Since(told); took > mostEnding {
			h.late = append(h.late, fmt.Sprintf("%s ended %v after it was told to", what, took.Round(time.Millisecond)))
		}
	}
	for what, log := range map[string]string{"the daemon's log": h.daemonLog.String(), "the server's log": h.serverLog.String(), "what commands printed": h.strays.String()} {
		if log != guard.Visible(log) || strings.Contains(strings.ToLower(log), "panic") || strings.Contains("\n"+log, "\n"+mark) {
			t.Errorf("%s has what a terminal obeys, a panic, or a line of an attacker's:\n%q", what, log)
		}
		t.Logf("%s has %d bytes", what, len(log))
	}
	if t.Failed() {
		t.Logf("the daemon says\n%.20000s\nthe server says\n%.20000s", h.daemonLog, h.serverLog)
	}
}
