package incident_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/reason"
)

// replay gives a judge recorded seconds.
func replay(p incident.Params, all []incident.Second) (out []incident.Incident) {
	j := incident.New(p)
	for _, s := range all {
		out = append(out, j.Take(s)...)
	}
	return out
}

// always asks each second.
func always(s incident.Second, _ bool) (int, bool) { return int(s.At.Unix() % 3), true }

// hour lives through an hour before and an hour with a trouble, without everyday load.
func hour(seed uint64, name string, size int) (all []incident.Second) {
	w := newWorld(seed, nil)
	for _, x := range troubles() {
		if x.name == name {
			w.faults = []fault{{x, start().Add(time.Hour), start().Add(70 * time.Minute), size}}
		}
	}
	for range 2 * 3600 {
		all = append(all, w.second(always))
	}
	return all
}

// What is recorded can be judged again: the same seconds, as CSV and back, give the same
// incidents. Each has its samples from a minute before, and their checksum.
func TestReplay(t *testing.T) {
	all := hour(1, "the provider is out", 0)
	told := replay(params(), all)
	if len(told) == 0 {
		t.Fatal("nothing was told")
	}
	text := incident.CSV(all, params().Far)
	read, far, err := incident.ParseCSV(text)
	if err != nil || !reflect.DeepEqual(far, params().Far) {
		t.Fatal(far, err)
	}
	if !bytes.Equal(incident.CSV(read, far), text) {
		t.Error("CSV does not come back as it was")
	}
	again := replay(params(), read)
	if len(again) != len(told) {
		t.Fatalf("%d incidents from the file, %d before", len(again), len(told))
	}
	for i, x := range again {
		if y := told[i]; x.ID != y.ID || x.Kind != y.Kind || x.Part != y.Part || !x.Begin.Equal(y.Begin) || !x.End.Equal(y.End) || x.Digest != y.Digest {
			t.Errorf("%+v, was %+v", x, y)
		}
	}
	last := told[len(told)-1]
	if !last.Over() || last.Digest != incident.Digest(incident.CSV(last.Samples, last.Far)) {
		t.Errorf("%+v: its checksum is not that of its samples", last)
	}
	if got := last.Begin.Sub(last.Samples[0].At); got != time.Minute {
		t.Errorf("samples begin %s before it", got)
	}
}

// A file that is no samples is refused with what is wrong.
func TestParseCSV(t *testing.T) {
	good := string(incident.CSV(hour(1, "", 0)[:3], []string{"a"}))
	for text, want := range map[string]string{
		"":    "columns",
		"a,b": "columns",
		strings.Replace(good, "a_asked", "a_asks", 1):  "far end",
		strings.Replace(good, "2026-03-02", "2.3.", 1): "line 2",
		good + "x\n": "wrong number of fields",
	} {
		if _, _, err := incident.ParseCSV([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// A stronger incident takes over what was its consequence: one outage, told once at its
// begin and once at its end, without loss or delay beside it.
func TestConsequencesAreHidden(t *testing.T) {
	for _, name := range []string{"the line is out", "the provider is out", "the line loses", "the line carries less", "the router's processor is full"} {
		told := map[string]bool{}
		for _, x := range replay(params(), hour(3, name, 50)) {
			told[x.ID] = true
		}
		if len(told) != 1 {
			t.Errorf("%s: %d incidents were told: %v", name, len(told), told)
		}
	}
}

// What is short is not told: a hiccup of the line, a moment's delay.
func TestShortTroubleIsNotTold(t *testing.T) {
	for _, x := range troubles() {
		if x.sharp || x.part == incident.Router && x.name != "the shaper is above the line" {
			continue
		}
		w := newWorld(5, []fault{{x, start().Add(time.Hour), start().Add(time.Hour + 4*time.Second), 20}})
		j := incident.New(params())
		for range 2 * 3600 {
			for _, told := range j.Take(w.second(always)) {
				t.Errorf("4 s of: %s: %s", x.name, says(told))
			}
		}
	}
}

// A loss that begins with seconds of silence is told as a loss of the line soon, and not as an
// outage beyond a first hop that answers half of the questions.
func TestLossThatBeginsSilent(t *testing.T) {
	all := hour(1, "the line is out", 0)
	begins := -1
	for i := range all {
		if all[i].First.Asked > all[i].First.Answered && i > 3590 && begins < 0 {
			begins = i
		}
		if after := i - begins; begins >= 0 && after >= 8 && i < 3600+600 {
			far := int(all[i].At.Unix() % 3)
			all[i].Far[far] = incident.Answers{Asked: 1}
			all[i].First = incident.Answers{Asked: 1}
			if after%3 == 0 {
				all[i].Far[far].Answered, all[i].Far[far].RTT = 1, ms(20)
			}
			if after%5 > 1 {
				all[i].First.Answered, all[i].First.RTT = 1, ms(8)
			}
		}
	}
	last := map[string]incident.Incident{}
	for _, x := range replay(params(), all) {
		last[x.ID] = x
	}
	for _, x := range last {
		if x.Kind != incident.Loss || x.Part != incident.Line {
			t.Errorf("%s", says(x))
		}
	}
	if len(last) != 1 {
		t.Errorf("%d incidents", len(last))
	}
}

// Without an answer of the first hop, it is not sure who is to blame for what is beyond.
func TestUnsureWithoutFirstHop(t *testing.T) {
	all := hour(1, "the provider is out", 0)
	for i := range all {
		all[i].First = incident.Answers{}
	}
	for _, x := range replay(params(), all) {
		if x.Part != incident.Unsure {
			t.Errorf("%s", says(x))
		}
	}
}

// What goes on when nobody looks any more ends then.
func TestClose(t *testing.T) {
	j := incident.New(params())
	all := hour(1, "the line is out", 0)
	for _, s := range all[:3600+120] {
		j.Take(s)
	}
	at := all[3600+120].At
	out := j.Close(at)
	if len(out) != 1 || !out[0].End.Equal(at) || out[0].Digest == "" {
		t.Errorf("%+v", out)
	}
}

// Kinds, parts and severities have a name in each language.
func TestNames(t *testing.T) {
	var all []string
	for _, k := range incident.Kinds() {
		all = append(all, "kind "+string(k))
	}
	for _, p := range incident.Parts() {
		all = append(all, "part "+string(p))
	}
	for _, s := range incident.Severities() {
		all = append(all, "severity "+string(s))
	}
	for _, l := range reason.Languages() {
		for _, name := range all {
			if l.Name(name) == name {
				t.Errorf("%s: %q has no name", l.Tag, name)
			}
		}
	}
}

// A line that loses most packets from the first on has one incident, which ends: what speaks
// for two kinds in the same second is told once.
func TestOneOfTwoKinds(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		j := incident.New(params())
		last := map[string]incident.Incident{}
		for k := range 1800 {
			s := incident.Second{At: start().Add(time.Duration(k) * time.Second), Far: make([]incident.Answers, 3), CPU: -1}
			loses := k >= 600 && k < 720
			s.First.Asked, s.Far[k%3].Asked = 1, 1
			if !loses || r.Float64() > 0.4 {
				s.First = incident.Answers{Asked: 1, Answered: 1, RTT: ms(8)}
			}
			const first = "..++++....." // of the trouble: what both kinds are sure of in the same second
			answers := r.Float64() > 0.64
			if n := k - 600; loses && n < len(first) {
				answers = first[n] == '+'
			}
			if !loses || answers {
				s.Far[k%3] = incident.Answers{Asked: 1, Answered: 1, RTT: ms(20)}
			}
			for _, x := range j.Take(s) {
				last[x.ID] = x
			}
		}
		for _, x := range last {
			if !x.Over() || x.Kind != incident.Loss || x.Part != incident.Line && x.Part != incident.Unsure {
				t.Errorf("seed %d: %s", seed, says(x))
			}
		}
		if len(last) != 1 {
			t.Errorf("seed %d: %d incidents", seed, len(last))
		}
	}
}
