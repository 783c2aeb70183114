package webtest_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/internal/lab/labtest"
	"unbloat/internal/serve"
	"unbloat/internal/webtest"
	"unbloat/web/webscript"
)

// modelFound is what web/test/model.mjs observed.
type modelFound struct {
	Errors, Spills, Faint, Unnamed, Small, Said []string
	Asked, Linked                               bool
	Refused, Value, Shared, First, Whole        string
	TookMs, FirstMs, WholeMs                    float64
	Answers                                     []struct{ Name, Grade, Sentence, Belief, Query string }
}

// served runs the whole server with its page, as `unbloat serve` does, and
// returns the page's address.
func served(t *testing.T, key string) string {
	t.Helper()
	people := webtest.New(webtest.Options{Name: "here", Simulator: webtest.TheSimulator{}})
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Web: "127.0.0.1:0", Page: people, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		people.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + net.JoinHostPort("127.0.0.1", portOf(t, s.Web().String())) + "/"
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The sliders work at once, by keyboard, and have labels; their address leads
// to the same chart again. On a server with a key they first ask for it.
func TestModelPage(t *testing.T) {
	labtest.NeedSeccomp(t)
	for _, c := range []struct {
		name string
		key  string
		o    map[string]any
	}{
		{"desktop", "", map[string]any{"width": 1280, "height": 900, "scheme": "light"}},
		{"phone with a key", "sesame street", map[string]any{"width": 360, "height": 740, "scheme": "dark"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o["shots"], c.o["key"] = os.Getenv("UNBLOAT_SHOTS"), c.key
			text, err := json.Marshal(c.o)
			if err != nil {
				t.Fatal(err)
			}
			var f modelFound
			if err := json.Unmarshal(webscript.Run(t, 2*time.Minute, "model", served(t, c.key), string(text)), &f); err != nil {
				t.Fatal(err)
			}
			t.Logf("from the key to the curve %.0f ms; %+v", f.TookMs, f.Answers)
			if len(f.Errors)+len(f.Spills)+len(f.Faint)+len(f.Unnamed)+len(f.Small) > 0 {
				t.Errorf("the page complains: %q\nis wider than the window: %q\nhas faint text: %q\ncontrols without a name: %q\nor too small: %q",
					f.Errors, f.Spills, f.Faint, f.Unnamed, f.Small)
			}
			if f.Linked != (c.key != "") {
				t.Error("a link with the key does not open the page, or keeps showing it")
			}
			if f.Asked != (c.key != "") || f.Asked != strings.Contains(f.Refused, "not the key") {
				t.Errorf("asked for the key: %v, on a wrong one: %q", f.Asked, f.Refused)
			}
			if len(f.Answers) != 3 {
				t.Fatalf("%d answers", len(f.Answers))
			}
			none, rtt, cake := f.Answers[0], f.Answers[1], f.Answers[2]
			if none.Grade != "F" || !strings.Contains(none.Belief, "may be further off") || !strings.HasPrefix(cake.Grade, "A") {
				t.Errorf("none %s (%s), cake %s", none.Grade, none.Belief, cake.Grade)
			}
			if f.Value != "20 ms" || !strings.Contains(rtt.Query, "rtt=25&") || rtt.Sentence == none.Sentence {
				t.Errorf("the slider says %q, then the address %s", f.Value, rtt.Query)
			}
			if f.Shared != cake.Sentence {
				t.Errorf("its address brings %q, it was %q", f.Shared, cake.Sentence)
			}
			t.Logf("at 1 Gbit/s both ways a first look after %.0f ms, the whole after %.0f ms", f.FirstMs, f.WholeMs)
			if !strings.HasPrefix(f.First, "A first look") || !strings.HasPrefix(f.Whole, "From a simulator") || f.FirstMs > f.WholeMs/2 {
				t.Errorf("at first %q after %.0f ms, then %q after %.0f ms", f.First, f.FirstMs, f.Whole, f.WholeMs)
			}
			if n := len(f.Said); n < 1 || n > 2 {
				t.Errorf("a screen reader was told %d times of 9 steps: %q", n, f.Said)
			}
		})
	}
}
