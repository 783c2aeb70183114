package tell_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/tell"
	"unbloat/reason"
	"unbloat/testkit/await"
)

func wrong(id string, s incident.Severity) incident.Incident {
	x := incident.Incident{ID: id, WAN: "eth0", Kind: incident.Outage, Part: incident.Provider, Severity: s, Begin: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)}
	x.What, x.Why = reason.Of(reason.IncidentOutage, "asked", 9, "answered", 0), reason.Of(reason.BlameUnknown)
	return x
}

// once tells a receiver of one incident, and returns why that failed.
func once(t *testing.T, n config.Notify) error {
	t.Helper()
	n.MinSeverity, n.Most, n.Language = "minor", 6, "de"
	x := tell.New([]config.Notify{n}, tell.Options{Getenv: os.Getenv, Send: tell.Send})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { defer close(done); x.Run(ctx) }()
	x.Tell(wrong("a", incident.Severe))
	var c tell.Count
	await.Until(t, time.Minute, "it to be sent, or not", func() bool { c = x.Counts()[0]; return c.Sent > 0 || c.Failing != "" })
	cancel()
	<-done
	if c.Failing != "" {
		return errors.New(c.Failing)
	}
	return nil
}

// ntfy gets a title, a priority and a text; a webhook what its key has signed. Neither
// follows a redirect, and an error has nothing of the address.
func TestHTTP(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("the key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got *http.Request
	var body []byte
	answer := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		if answer/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(answer)
	}))
	defer s.Close()
	ntfy := config.Notify{To: "ntfy", URL: s.URL + "/topic-nobody-knows", SecretFile: key}
	if err := once(t, ntfy); err != nil || got.Header.Get("Priority") != "high" || got.Header.Get("Authorization") != "Bearer the key" || got.URL.Path != "/topic-nobody-knows" ||
		!strings.Contains(string(body), "der Anbieter") || !strings.Contains(got.Header.Get("Title"), "Ausfall") {
		t.Errorf("ntfy: %v %v\n%s", err, got.Header, body)
	}
	hook := config.Notify{To: "webhook", URL: s.URL + "/hook", SecretFile: key}
	if err := once(t, hook); err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte("the key"))
	mac.Write(body)
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); got.Header.Get(tell.SignatureHeader) != want || !strings.Contains(string(body), `"schema":"`+tell.MessageSchema+`","event":"begin"`) {
		t.Errorf("webhook: %v\n%s", got.Header, body)
	}
	for _, answer = range []int{302, 403, 500} {
		if err := once(t, ntfy); err == nil || got.URL.Path != "/topic-nobody-knows" || !strings.Contains(err.Error(), fmt.Sprint(answer)) {
			t.Errorf("after %d: %v, asked for %s", answer, err, got.URL.Path)
		}
	}
	s.Close()
	if err := once(t, ntfy); err == nil || strings.Contains(err.Error(), "topic-nobody-knows") {
		t.Errorf("of a server that is away: %v", err)
	}
	if err := os.WriteFile(key, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := once(t, hook); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("without a key: %v", err)
	}
}

// sink takes mails by SMTP, without TLS.
func sink(t *testing.T) (address string, mails <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	out := make(chan string, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			in, said := bufio.NewReader(c), ""
			fmt.Fprint(c, "220 sink\r\n")
			for data := false; ; {
				line, err := in.ReadString('\n')
				if err != nil {
					break
				}
				said += line
				switch word := strings.ToUpper(strings.Fields(line + " .")[0]); {
				case data && line == ".\r\n":
					data = false
					out <- said
					fmt.Fprint(c, "250 taken\r\n")
				case data:
				case word == "DATA":
					data = true
					fmt.Fprint(c, "354 go on\r\n")
				case word == "RCPT" && strings.Contains(line, "nobody@"):
					fmt.Fprint(c, "550 no such mailbox\r\n")
				case word == "QUIT":
					fmt.Fprint(c, "221 bye\r\n")
					c.Close()
				default:
					fmt.Fprint(c, "250 fine\r\n")
				}
			}
			c.Close()
		}
	}()
	return l.Addr().String(), out
}

// A mail has its subject, its recipients and its text; a mailbox that is refused is an error.
func TestMail(t *testing.T) {
	address, mails := sink(t)
	n := config.Notify{To: "mail", URL: "smtp://me@" + address, From: "me@mail.example", Recipients: []string{"you@mail.example", "they@mail.example"}}
	if err := once(t, n); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-mails:
		for _, want := range []string{"MAIL FROM:<me@mail.example>", "RCPT TO:<you@mail.example>", "RCPT TO:<they@mail.example>", "Subject: ", "Ausfall", "der Anbieter", "Auto-Submitted"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("no mail came")
	}
	n.Recipients = []string{"nobody@mail.example"}
	if err := once(t, n); err == nil || !strings.Contains(err.Error(), "550") {
		t.Errorf("to nobody: %v", err)
	}
}
