//go:build !router

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// oursAlone turns off the protocols of others, whose ports are fixed: another
// test, or another copy of this one, may have them.
var oursAlone = []string{"--irtt", "", "--iperf3", "", "--netperf", ""}

// startServe runs `unbloat serve` and returns the address of its page. stop
// ends it as a service manager would.
func startServe(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	c := exec.Command(os.Args[0], slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--drain", "1s"}, oursAlone, args)...)
	c.Env = append(os.Environ(), asProgram+"=1")
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		began := time.Now()
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("serve ended with: %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("serve ended %v after it was told to", took) // a session is still open
		}
	}
	found := make(chan string, 1)
	var said strings.Builder // read when found is closed
	go func() {
		address := regexp.MustCompile(`msg=serving.* web=(\S+)`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
			if m := address.FindStringSubmatch(lines.Text()); m != nil {
				found <- "http://" + m[1]
			}
		}
		close(found)
	}()
	select {
	case url = <-found:
	case <-time.After(30 * time.Second):
	}
	if url == "" {
		_ = c.Process.Kill()
		for range found { // until its output ends
		}
		_ = c.Wait()
		t.Fatalf("serve did not say where it serves:\n%s", said.String())
	}
	return url, stop
}

// aSession opens a test as the page does.
func aSession(t *testing.T, url string, header http.Header) (serve.Hello, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, url+"/api/probe", &websocket.DialOptions{Subprotocols: []string{serve.Subprotocol}, HTTPHeader: header})
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return serve.Hello{}, resp.StatusCode
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	_, text, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var hello serve.Hello
	if err := json.Unmarshal(text, &hello); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return hello, http.StatusSwitchingProtocols
}

// An address's budget counts on the page too: a load ends when the budget is
// used up, and the page is told.
func TestPageBudget(t *testing.T) {
	await.NotShort(t)
	url, stop := startServe(t, "--state-dir", t.TempDir(), "--keep-results", "0", "--max-bytes-per-address", "3MB")
	defer stop()
	hello, _ := aSession(t, url, nil)
	for i, want := range []bool{true, false} {
		resp, err := http.Get(fmt.Sprintf("%s/api/down?bytes=2000000&session=%s", url, hello.Session))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("download %d: %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url+"/api/probe", &websocket.DialOptions{Subprotocols: []string{serve.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	var closed websocket.CloseError
	if _, _, err := c.Read(ctx); !errors.As(err, &closed) || closed.Code != websocket.StatusTryAgainLater || !strings.Contains(closed.Reason, "limit") {
		t.Errorf("another session: %v", err)
	}
	if resp, err := http.Get(url + "/garbage?ckSize=1"); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("by another protocol: %v %v", resp, err)
	}
}

// measured returns a result of an idle line, as the page submits it.
func measured(t *testing.T) string {
	t.Helper()
	p := serve.RawPhase{Name: verdict.PhaseIdle, EndUs: 3_000_000, BinUs: 100_000, Skips: []serve.Skip{}, DownByte: []int64{}, UpByte: []int64{}}
	for i := range int64(150) {
		p.Probes.DueUs = append(p.Probes.DueUs, i*20_000)
		p.Probes.SentUs = append(p.Probes.SentUs, i*20_000)
		p.Probes.ReceivedUs = append(p.Probes.ReceivedUs, i*20_000+21_000+i)
		p.Probes.ServerUs = append(p.Probes.ServerUs, i*20_000+10_000)
		p.Probes.HeldUs = append(p.Probes.HeldUs, 30)
	}
	text, err := json.Marshal(serve.Submission{
		Schema: serve.SubmissionSchema, IntervalUs: 20_000, TickUs: 5, Protocol: "http/1.1", Transport: serve.OverWebSocket, Phases: []serve.RawPhase{p},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func fetch(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The program serves the pages and offers datagrams, and a result keeps its
// address after a restart. With a key, results can still be read by anybody,
// and nothing else.
func TestServePage(t *testing.T) {
	await.NotShort(t)
	dir := t.TempDir()
	state := []string{"--state-dir", dir}
	url, stop := startServe(t, state...)
	for _, path := range []string{"/", "/favicon.svg"} {
		if status, text := fetch(t, get(t, url+path)); status != http.StatusOK || len(text) < 100 {
			t.Errorf("%s: %d, %d bytes", path, status, len(text))
		}
	}
	hello, _ := aSession(t, url, nil)
	if hello.Certificate == "" {
		t.Error("no datagrams are offered")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/results?session="+hello.Session, strings.NewReader(measured(t)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	status, text := fetch(t, r)
	var saved serve.Saved
	if err := json.Unmarshal([]byte(text), &saved); err != nil || status != http.StatusOK || saved.ID == "" {
		t.Fatalf("%d %.300s: %v", status, text, err)
	}
	_, before := fetch(t, get(t, url+"/api/results/"+saved.ID))
	stop()
	if _, err := os.Stat(filepath.Join(dir, "page.db")); err != nil {
		t.Error(err)
	}

	url, stop = startServe(t, append(state, "--key", "sesame")...)
	defer stop()
	if status, after := fetch(t, get(t, url+"/api/results/"+saved.ID)); status != http.StatusOK || after != before {
		t.Errorf("after a restart: %d, %d bytes of %d", status, len(after), len(before))
	}
	if status, _ := fetch(t, get(t, url+"/r/"+saved.ID)); status != http.StatusOK {
		t.Errorf("the result's page: %d", status)
	}
	if _, status := aSession(t, url, nil); status != http.StatusUnauthorized {
		t.Errorf("a test without the key: %d", status)
	}
	if _, status := aSession(t, url, http.Header{"Authorization": {"Bearer sesame"}}); status != http.StatusSwitchingProtocols {
		t.Errorf("a test with the key: %d", status)
	}
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(fmt.Errorf("ask for %s: %w", url, err))
	}
	return r
}

// A server ends cleanly when its context ends, and says so.
func TestServeCommand(t *testing.T) {
	c := newServeCommand()
	var log bytes.Buffer
	c.SetErr(&log)
	c.SetArgs([]string{"--listen", "127.0.0.1:0", "--state-dir", t.TempDir()})
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := c.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "serving") || !strings.Contains(log.String(), "stopped") {
		t.Errorf("log %q", log.String())
	}
	for address, code := range map[string]int{"nonsense": cli.Usage, "192.0.2.1:0": cli.Precondition} { // not an address of this machine
		c = newServeCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{"--listen", address, "--web", ""}, oursAlone...))
		var e *cli.Error
		if err := c.ExecuteContext(t.Context()); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Without a home the server keeps nothing in the directory that happens to be the working
// one.
func TestServeHere(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "here")
	if dir, err := (&serveFlags{}).dir(); err == nil {
		t.Errorf("the server keeps its state in %s", dir)
	}
}
