package opnsense_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/testkit/conform"
	"unbloat/testkit/opnsensefake"
)

// pasted sends the requests that a plan prints for people, and returns the
// resulting router.
func pasted(t *testing.T, p plan.Plan) *opnsensefake.Router {
	t.Helper()
	text, err := opnsense.Driver().Text(p)
	if err != nil {
		t.Fatal(err)
	}
	o := opnsensefake.New()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		method, path, _ := strings.Cut(line, " ")
		if method != http.MethodGet && method != http.MethodPost {
			continue
		}
		body := ""
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "{") {
			body = strings.ReplaceAll(lines[i+1], "ROUTER-ADDRESS", "192.0.2.7") // as the text asks
		} else if method == http.MethodPost {
			body = "{}"
		}
		if code, a := o.Request(method, path, body); code != http.StatusOK || method == http.MethodPost && a != `{"result":"saved"}` && a != `{"status":"ok"}` {
			t.Fatalf("%s\n%s\n%d %s", line, body, code, a)
		}
	}
	return o
}

// TestMatrixOnStandIn: every plan of the matrix is printed as requests to paste,
// and a router as strict as the real one accepts them. Some plans are applied too,
// so many that each rate, style, kind of classes and interface occurs
// (UNBLOAT_LONG=1: a third more, each on another interface): the items are the
// same, they run, and after revert the router is as before.
func TestMatrixOnStandIn(t *testing.T) {
	await.NotShort(t)
	cases, err := conform.Matrix(opnsense.Name)
	if err != nil {
		t.Fatal(err)
	}
	applied, met := 0, map[string]bool{}
	for i, c := range cases {
		byHand := pasted(t, c.Plan).Items()
		long := os.Getenv("UNBLOAT_LONG") != "" && (i+i/3)%3 == 0
		if fresh := meet(met, c.Name); !fresh && !long {
			continue
		}
		applied++
		r := emptyRouter(t)
		b := &opnsense.Backend{Runner: r}
		start := r.Text()
		now, err := b.Observe(t.Context(), c.Plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := b.Desire(t.Context(), c.Plan, now, now)
		var input *platform.InputError
		if errors.As(err, &input) { // the article's rule needs the router's address
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		reach(t, c.Name, r, b, wanted)
		if d := cmp.Diff(byHand, r.Items()); d != "" {
			t.Fatalf("%s: -pasted +applied\n%s", c.Name, d)
		}
		without, err := b.Baseline(t.Context(), wanted, now)
		if err != nil {
			t.Fatal(err)
		}
		reach(t, c.Name, r, b, without)
		if r.Text() != start {
			t.Fatalf("%s: reverted, it is\n%s", c.Name, r.Text())
		}
	}
	t.Logf("%d of %d plans applied", applied, len(cases))
}

// meet records the parts in a case's name, and reports whether any is new.
func meet(met map[string]bool, name string) (fresh bool) {
	for i, part := range strings.Split(name, "/") {
		key := fmt.Sprint(i, part)
		fresh = fresh || !met[key]
		met[key] = true
	}
	return fresh
}

// reach runs the steps to a state and checks that it is reached.
func reach(t *testing.T, name string, r platform.Runner, b *opnsense.Backend, wanted platform.State) {
	t.Helper()
	for i := range 2 {
		now, err := b.Observe(t.Context(), plan.Plan{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		steps, diffs, err := b.Compare(now, wanted)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if i == 1 && len(diffs) > 0 {
			t.Fatalf("%s: applied, and yet %q", name, diffs)
		}
		for _, s := range steps {
			if _, _, err := r.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%s: %s: %v", name, s, err)
			}
		}
	}
}

// emptyRouter returns a router without shapers.
func emptyRouter(t *testing.T) router {
	t.Helper()
	o := opnsensefake.New()
	c, err := remote.NewREST("https://router", "key", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	c.HTTP.Transport = direct{o}
	return router{o, c}
}
