package remote_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/testkit/opnsensefake"
	"unbloat/unit"
)

// An apiRouter is an OPNsense whose API can be reached on a port, by us and by
// itself.
type apiRouter struct {
	*opnsensefake.Router
	mu  sync.Mutex
	cut atomic.Bool // our connection to it is cut
}

func (a *apiRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.cut.Load() && !strings.HasPrefix(r.UserAgent(), "curl") {
		panic(http.ErrAbortHandler)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Router.ServeHTTP(w, r)
}

func (a *apiRouter) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Text()
}

// TestWatchdogOfAnAPI: with the watchdog on the router, a change through the
// API is undone by the router's own requests to itself when its holder is gone.
// If it is confirmed it stays. The API key that the watchdog had is removed
// with it.
func TestWatchdogOfAnAPI(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("SKIPPED: there is no curl; install it")
	}
	s := startServer(t)
	a := &apiRouter{Router: opnsensefake.NewWithGuests()}
	a.Secret = `s3c"r\et`
	web := httptest.NewTLSServer(a)
	defer web.Close()
	api, err := remote.NewREST(web.URL, "key", a.Secret, fmt.Sprintf("%x", sha256.Sum256(web.Certificate().Raw)))
	if err != nil {
		t.Fatal(err)
	}
	b := &opnsense.Backend{Runner: api}
	watchdog := api.Watchdog(s.dial(t), b)
	watchdog.Uptime, watchdog.Patience, watchdog.Folder = apply.Uptime, watchdogWaits, watchdogFolder(t)
	e := &apply.Engine{Backend: b, Runner: api, Dir: t.TempDir(), Watchdog: watchdog}
	make := func(up unit.Rate) plan.Plan {
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan", LAN: "lan"}, plan.Preferences{Up: plan.RatePreference{Rate: up}, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	start := a.text()
	for _, over := range []string{"nothing", "an earlier plan"} {
		was := a.text()
		// Longer than all of this takes: the watchdog undoes since the way is lost.
		tr, err := e.Begin(t.Context(), make(5*unit.MbitPerSecond), apply.Options{Confirm: 10 * time.Minute, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		if a.text() == was {
			t.Fatal("nothing was changed")
		}
		j, err := e.Pending("wan")
		if err != nil || j == nil {
			t.Fatalf("no journal: %v", err)
		}
		key := watchdog.Folder + "/unbloat-watchdog-" + j.ID + "/key"
		if info, err := os.Stat(filepath.Dir(key)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the key's folder: %v, %v", info, err)
		}
		a.cut.Store(true)
		s.cable.set(true)
		defer func() {
			if t.Failed() {
				t.Logf("the watchdog's directory:\n%s\nthe router has\n%s\nbefore:\n%s", listing(filepath.Dir(key)), a.text(), was)
			}
		}()
		// Each of its fifty requests is a process with a TLS handshake of its own: half a
		// minute on a busy machine.
		await.Until(t, 4*time.Minute, "the router to undo over "+over, func() bool { return a.text() == was })
		a.cut.Store(false)
		s.cable.set(false)
		if err := tr.Commit(); !errors.Is(err, apply.ErrTooLate) {
			t.Errorf("what is undone was committed: %v", err)
		}
		tr.Close()
		if _, err := os.Stat(key); err == nil {
			t.Error("the key is still on the router")
		}
		if a.text() != was {
			t.Errorf("over %s, it has\n%s\nbefore:\n%s", over, a.text(), was)
		}
		if tr, err = e.Begin(t.Context(), make(4*unit.MbitPerSecond), apply.Options{Confirm: longAfter, Hold: true}); err != nil {
			t.Fatal(err)
		}
		if err := tr.Commit(); err != nil {
			t.Error(err)
		}
		tr.Close()
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || a.text() != start {
		t.Errorf("reverted (%v), it has\n%s\nat the start:\n%s", err, a.text(), start)
	}
}

// listing returns the small files of a directory, but for the key, with what is in them.
func listing(dir string) string {
	var b strings.Builder
	files, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if f.Name() == "key" || len(text) > 2000 {
			text = nil
		}
		fmt.Fprintf(&b, "%s: %q %v\n", f.Name(), text, err)
	}
	return b.String()
}

// TestAPIRefusals: the API's client does not follow redirects with the key,
// does not work without TLS, and does not accept truncated answers.
func TestAPIRefusals(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it went there") }))
	defer elsewhere.Close()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/short":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
		case "/gone":
			panic(http.ErrAbortHandler)
		}
	}))
	defer web.Close()
	api, err := remote.NewREST(web.URL, "key", "s3cr3t", fmt.Sprintf("%x", sha256.Sum256(web.Certificate().Raw)))
	if err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{"/moved": elsewhere.URL, "/short": "unexpected EOF", "/gone": "EOF"} {
		_, err := platform.Output(t.Context(), api, "GET", path)
		contains(t, err, says)
		if unreachable := errors.Is(err, platform.ErrUnreachable); unreachable != (path != "/moved") {
			t.Errorf("%s: unreachable %v: %v", path, unreachable, err)
		}
	}
	for _, base := range []string{"http://router", "https://", "https://key:s3cr3t@router"} {
		if _, err := remote.NewREST(base, "key", "s3cr3t", ""); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", base, err)
		}
	}
}
