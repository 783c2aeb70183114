package opnsense_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/conform"
	"unbloat/testkit/opnsensefake"
	"unbloat/unit"
)

// direct passes requests to the fake without a network.
type direct struct{ o *opnsensefake.Router }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.o.ServeHTTP(w, r)
	return w.Result(), nil
}

// router is the fake, reached by the real client.
type router struct {
	*opnsensefake.Router
	*remote.REST
}

func (r router) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	return r.REST.Run(ctx, argv, stdin)
}

func newRouter(t interface{ Fatal(...any) }) router {
	o := opnsensefake.NewWithGuests()
	c, err := remote.NewREST("https://router", "key", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	c.HTTP.Transport = direct{o}
	return router{o, c}
}

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyPreferences(t, name, 4294967294, plan.FIFO)
	if rapid.Bool().Draw(t, name+" classes") {
		w.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Far: []string{"198.51.100.0/24", "192.0.2.9"}, DSCP: rapid.SampledFrom([][]string{nil, {"ef", "cs1"}}).Draw(t, name+" dscp")}}
		w.Classes.Shares = []plan.SharePreference{{Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: rapid.SampledFrom([]float64{0.1, 0.4}).Draw(t, name+" guarantee")}}}
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan", LAN: "lan"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, platform.Backend) {
			r := newRouter(t)
			return r, &opnsense.Backend{Runner: r}
		},
		Plan: anyPlan,
	})
}

// TestCertificate: an unknown certificate is refused, a pinned one is accepted,
// and one other than the pinned one is refused. No error contains the key or
// the secret.
func TestCertificate(t *testing.T) {
	o := opnsensefake.NewWithGuests()
	o.Secret = "s3cr3t"
	server := httptest.NewTLSServer(o)
	defer server.Close()
	pin := fmt.Sprintf("%X", sha256.Sum256(server.Certificate().Raw))
	for _, c := range []struct{ name, pin, secret, says string }{
		{"unknown", "", "s3cr3t", "--fingerprint"},
		{"pinned", pin, "s3cr3t", ""},
		{"another", strings.Repeat("00", 32), "s3cr3t", "not the one that was given"},
		{"wrong secret", pin, "s3cr3t2", "refused the key and secret"},
	} {
		r, err := remote.NewREST(server.URL, "key", c.secret, c.pin)
		if err != nil {
			t.Fatal(err)
		}
		b := &opnsense.Backend{Runner: r}
		_, err = b.Observe(t.Context(), plan.Plan{}, nil)
		var pre *platform.PreconditionError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &pre) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") || strings.Contains(fmt.Sprint(r), "s3cr3t") {
			t.Errorf("%s: the secret is in %v", c.name, err)
		}
	}
}

// TestInTheWay: a foreign rule on the WAN is named in the error, and no request
// is sent.
func TestInTheWay(t *testing.T) {
	r := newRouter(t)
	r.Put("rule", "aaaaaaaa-0000-4000-8000-000000000003", map[string]string{"description": "mine", "target": "aaaaaaaa-0000-4000-8000-000000000001"})
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan"}, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	b := &opnsense.Backend{Runner: r}
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var pre *platform.PreconditionError
	if _, err := b.Desire(t.Context(), p, now, now); !errors.As(err, &pre) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("a foreign rule: %v", err)
	}
}

type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

// TestSilentReload: if saved limits do not run, the statistics show it, and the
// change is undone.
func TestSilentReload(t *testing.T) {
	r := newRouter(t)
	r.Reload = r.Forget
	before := r.Text()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan"}, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	e := &apply.Engine{Backend: &opnsense.Backend{Runner: r}, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
	var verify *apply.VerifyError
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); !errors.As(err, &verify) || !strings.Contains(err.Error(), "it does not run `pipe") {
		t.Errorf("%v", err)
	}
	if r.Text() != before {
		t.Errorf("not as before:\n%s", r.Text())
	}
}

// upload plans 5 Mbit/s up.
func upload(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan"}, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEarlierUUIDs: items of ours under uuids of version 8, as OPNsense before
// 23.1 took them, are ours: status shows them, apply says to revert first, and
// revert takes them away.
func TestEarlierUUIDs(t *testing.T) {
	r := newRouter(t)
	start := r.Text()
	pipe, queue := dummynet.EarlierUUID("pipe up"), dummynet.EarlierUUID("queue up")
	r.Put("pipe", pipe, map[string]string{"number": "20001", "bandwidth": "5", "bandwidthMetric": "Mbit", "description": "unbloat up"})
	r.Put("queue", queue, map[string]string{"number": "20001", "pipe": pipe, "description": "unbloat up"})
	r.Put("rule", dummynet.EarlierUUID("rule up"), map[string]string{"target": queue, "direction": "out", "description": "unbloat up"})
	earlier := r.Text()
	b := &opnsense.Backend{Runner: r}
	e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
	shapers, err := b.Shapers(t.Context(), "wan")
	if err != nil || !slices.ContainsFunc(shapers, func(s platform.Shaped) bool { return s.Ours }) {
		t.Errorf("status: %v, %+v", err, shapers)
	}
	var pre *platform.PreconditionError
	if _, err := e.Begin(t.Context(), upload(t), apply.Options{Confirm: time.Minute}); !errors.As(err, &pre) || !strings.Contains(err.Error(), "unbloat revert") || r.Text() != earlier {
		t.Errorf("apply: %v", err)
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || r.Text() != start {
		t.Errorf("revert: %v\n%s", err, r.Text())
	}
	if tr, err := e.Begin(t.Context(), upload(t), apply.Options{Confirm: time.Minute}); err != nil {
		t.Error(err)
	} else {
		tr.Close()
	}
}

// answering is a router that gives a fixed answer to saves, and saves nothing.
type answering struct {
	router
	answer string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if strings.Contains(r.URL.Path, "/settings/set") {
		_, _ = io.WriteString(w, a.answer)
		return w.Result(), nil
	}
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestRefusedChange: whatever a save is answered with that does not say that it
// was done ends the change, which is undone, with what was done, on what, and why.
func TestRefusedChange(t *testing.T) {
	for answer, says := range map[string][]string{
		`{"result":"failed"}`: {`save the pipe "unbloat up"`, "gave no reason", "uuid"},
		`{"result":"failed","validations":{"pipe.number":"A value is required."}}`:           {`save the pipe "unbloat up"`, "pipe.number: A value is required."},
		`{"result":"failed","validations":{"pipe.bandwidth":["Out of range.","Too much."]}}`: {"pipe.bandwidth: Out of range. Too much."},
		`{"result":"saved","validations":{"pipe.bandwidth":"Out of range."}}`:                {"pipe.bandwidth: Out of range."},
		`[]`:                     {"does not say that it was done"},
		`<html>Log in</html>`:    {"does not say that it was done", "Log in"},
		`{"status":"something"}`: {"something"},
	} {
		r := newRouter(t)
		before := r.Text()
		r.HTTP.Transport = answering{r, answer}
		e := &apply.Engine{Backend: &opnsense.Backend{Runner: r}, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
		_, err := e.Begin(t.Context(), upload(t), apply.Options{Confirm: time.Minute})
		for _, want := range says {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: there is no %q in: %v", answer, want, err)
			}
		}
		if r.Text() != before {
			t.Errorf("%s: not as before:\n%s", answer, r.Text())
		}
	}
}

// TestNumbers: a pipe's number is one that nobody else has.
func TestNumbers(t *testing.T) {
	r := newRouter(t)
	r.Put("pipe", "aaaaaaaa-0000-4000-8000-000000000002", map[string]string{"number": "20001", "bandwidth": "1", "description": "mine"})
	e := &apply.Engine{Backend: &opnsense.Backend{Runner: r}, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
	tr, err := e.Begin(t.Context(), upload(t), apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	numbers := map[string]string{}
	for _, x := range r.Items() {
		if x.Kind == "pipe" {
			if other := numbers[x.Fields["number"]]; other != "" {
				t.Errorf("%s and %s have the number %s", other, x.UUID, x.Fields["number"])
			}
			numbers[x.Fields["number"]] = x.UUID
		}
	}
	if len(numbers) != 4 {
		t.Errorf("%v", numbers)
	}
}
