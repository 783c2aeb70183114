package pfsensefake_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
	"unbloat/testkit/pfsensefake"
)

// noon is the time at which the recordings evaluated the schedules: one is
// always active, the other never.
var noon = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// A vector is a recorded configuration, or a recorded form.
type vector struct {
	Note      string
	Config    string
	Elsewhere string  `json:"elsewhere_in_config"`
	Limiters  *string `json:"rules.limiter"`
	Runs      []string
	Slots     string `json:"max_qlimit"`
	Pipes     [][2]*string
	Queues    [][3]any
	Next      struct{ Pipe, Queue int }
	Log       []string
	Fatal     string
	XMLError  json.RawMessage `json:"xml_error"`

	Validate string
	Post     map[string]string
	Errors   []string
}

// TestShaperVerdicts gives the recorded inputs of pfSense's own shaper.inc to
// the stand-in. It compares rules.limiter, the numbers, the log, PHP's fatal
// errors, and the errors of forms.
func TestShaperVerdicts(t *testing.T) {
	await.EachVerdict(t, "pfsense.jsonl", func(t *testing.T, _ int, v vector) {
		switch v.Validate {
		case "pipe":
			same(t, v.Post, v.Errors, pfsensefake.PipeErrors(v.Post))
			return
		case "queue":
			same(t, v.Post, v.Errors, pfsensefake.ChildErrors(v.Post))
			return
		}
		made := pfsensefake.Limiters("<?xml version=\"1.0\"?>\n<pfsense>"+v.Elsewhere+v.Config+"</pfsense>", noon)
		if (v.XMLError != nil) != (made.XMLError != "") {
			t.Errorf("%s: XML error: real %s, stand-in %q", v.Note, v.XMLError, made.XMLError)
		}
		if v.XMLError != nil {
			return
		}
		got := vector{Note: v.Note, Config: v.Config, Elsewhere: v.Elsewhere, Limiters: made.Rules, Runs: made.Runs, Slots: made.MaxSlots, Log: made.Log, Fatal: made.Fatal,
			Pipes: [][2]*string{}, Queues: [][3]any{}}
		got.Next.Pipe, got.Next.Queue = made.NextPipe, made.NextChild
		for _, p := range made.Pipes {
			got.Pipes = append(got.Pipes, [2]*string{&p.Name, p.Number})
			for _, c := range p.Children {
				got.Queues = append(got.Queues, [3]any{p.Name, c.Name, float64(c.Number)})
			}
		}
		same(t, v.Note, v, got)
	})
}

func same(t *testing.T, of any, want, got any) {
	t.Helper()
	if list, ok := got.([]string); ok && list == nil {
		got = []string{}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%v: -real +stand-in\n%s", of, d)
	}
}
