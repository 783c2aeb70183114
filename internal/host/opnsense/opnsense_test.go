package opnsense_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/apply"
	"unbloat/internal/apply/conform"
	"unbloat/internal/host"
	"unbloat/internal/host/fake"
	"unbloat/internal/host/opnsense"
	"unbloat/internal/plan"
	"unbloat/internal/remote"
	"unbloat/unit"
)

// direct carries requests to the fake without a network.
type direct struct{ o *fake.OPNsense }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.o.ServeHTTP(w, r)
	return w.Result(), nil
}

// router is the fake, reached by the real client.
type router struct {
	*fake.OPNsense
	*remote.REST
}

func (r router) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	return r.REST.Run(ctx, argv, stdin)
}

func newRouter(t interface{ Fatal(...any) }) router {
	o := fake.NewOPNsense()
	c, err := remote.NewREST("https://router", "key", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	c.HTTP.Transport = direct{o}
	return router{o, c}
}

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyWishes(t, name, 4294967294, plan.FIFO)
	if rapid.Bool().Draw(t, name+" classes") {
		w.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Far: []string{"198.51.100.0/24", "192.0.2.9"}, DSCP: rapid.SampledFrom([][]string{nil, {"ef", "cs1"}}).Draw(t, name+" dscp")}}
		w.Classes.Shares = []plan.ShareWish{{Class: plan.Voice, Guarantee: plan.RateWish{Fraction: rapid.SampledFrom([]float64{0.1, 0.4}).Draw(t, name+" guarantee")}}}
	}
	p, err := plan.Make(plan.Line{}, plan.Facts{Language: opnsense.Language(), WAN: "wan", LAN: "lan"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, apply.Backend) {
			r := newRouter(t)
			return r, &opnsense.Backend{Runner: r}
		},
		Plan: anyPlan,
	})
}

// TestCertificate: an unknown certificate is refused, a pinned one is taken, and
// another than the pinned one is not; neither key nor secret is in any error.
func TestCertificate(t *testing.T) {
	o := fake.NewOPNsense()
	o.Secret = "s3cr3t"
	server := httptest.NewTLSServer(o)
	defer server.Close()
	pin := fmt.Sprintf("%X", sha256.Sum256(server.Certificate().Raw))
	for _, c := range []struct{ name, pin, secret, says string }{
		{"unknown", "", "s3cr3t", "--fingerprint"},
		{"pinned", pin, "s3cr3t", ""},
		{"another", strings.Repeat("00", 32), "s3cr3t", "not the one that was given"},
		{"wrong secret", pin, "s3cr3t2", "not accepted"},
	} {
		r, err := remote.NewREST(server.URL, "key", c.secret, c.pin)
		if err != nil {
			t.Fatal(err)
		}
		b := &opnsense.Backend{Runner: r}
		_, err = b.Observe(t.Context(), plan.Plan{}, nil)
		var pre *host.PreconditionError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &pre) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") || strings.Contains(fmt.Sprint(r), "s3cr3t") {
			t.Errorf("%s: the secret is in %v", c.name, err)
		}
	}
}

// TestInTheWay: a rule of somebody else's on the WAN is named, and nothing is sent.
func TestInTheWay(t *testing.T) {
	r := newRouter(t)
	r.Saved["queue"]["q"] = map[string]string{"number": "10000", "enabled": "1"}
	r.Saved["rule"]["r"] = map[string]string{"enabled": "1", "interface": "wan", "description": "mine", "target": "q"}
	p, err := plan.Make(plan.Line{}, plan.Facts{Language: opnsense.Language(), WAN: "wan"}, plan.Wishes{Up: plan.RateWish{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	b := &opnsense.Backend{Runner: r}
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var pre *host.PreconditionError
	if _, err := b.Desire(t.Context(), p, now, now); !errors.As(err, &pre) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("a foreign rule: %v", err)
	}
}

// silent is a router whose limits stop after a reload, without an error.
type silent struct{ router }

func (s silent) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	out, errOut, err := s.router.Run(ctx, argv, stdin)
	if strings.HasSuffix(argv[1], "/reconfigure") {
		for kind := range s.Running {
			for uuid, fields := range s.Running[kind] {
				if strings.HasPrefix(fields["description"], "unbloat ") {
					delete(s.Running[kind], uuid)
				}
			}
		}
	}
	return out, errOut, err
}

type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

// TestSilentReload: limits that are saved and don't run are noticed in the
// statistics, and undone.
func TestSilentReload(t *testing.T) {
	r := silent{newRouter(t)}
	before := r.Text()
	p, err := plan.Make(plan.Line{}, plan.Facts{Language: opnsense.Language(), WAN: "wan"}, plan.Wishes{Up: plan.RateWish{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	e := &apply.Engine{Backend: &opnsense.Backend{Runner: r}, Runner: r, Dir: t.TempDir(), Deadman: nobody{}}
	var verify *apply.VerifyError
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); !errors.As(err, &verify) || !strings.Contains(err.Error(), "it does not run `pipe") {
		t.Errorf("%v", err)
	}
	if r.Text() != before {
		t.Errorf("not as before:\n%s", r.Text())
	}
}
