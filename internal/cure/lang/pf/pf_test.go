package pf_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/unit"
)

// TestVerdicts gives Parse the recorded inputs of the real pfctl and expects
// its answers.
func TestVerdicts(t *testing.T) {
	f, err := os.Open("testdata/openbsd-pf.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var v struct {
			Config   string
			Accepted bool
			Message  []string
		}
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		_, err := Parse(v.Config)
		switch {
		case (err == nil) != v.Accepted:
			t.Errorf("%s\naccepted by pfctl: %v, here: %v", v.Config, v.Accepted, err)
		case len(v.Message) > 0 && err.Error() != v.Message[0]:
			t.Errorf("%s\npfctl: %s\nhere:  %v", v.Config, v.Message[0], err)
		}
	}
	if n != 41 {
		t.Errorf("%d vectors, want 41", n)
	}
}

// TestArticle renders the article's two lines from its measured rates.
func TestArticle(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 120 * unit.MbitPerSecond, Up: 12 * unit.MbitPerSecond},
		plan.Capabilities{Language: openbsd.Language(), WAN: "em0", LAN: "em1"},
		plan.Preferences{Style: plan.StyleArticle})
	if err != nil {
		t.Fatal(err)
	}
	rs, notes, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `queue outq on em0 flows 1024 bandwidth 11M max 11M qlimit 1024 default
queue inq on em1 flows 1024 bandwidth 110M max 110M qlimit 1024 default
`
	if d := cmp.Diff(want, rs.String()); d != "" || len(notes) != 0 {
		t.Errorf("-seed +rendered:\n%s\nnotes %q", d, notes)
	}
}

// TestParseShown reads the same queues from `pfctl -vsq`.
func TestParseShown(t *testing.T) {
	rs, err := Parse(`queue outq on em0 flows 1024 bandwidth 11M, max 11M default qlimit 1024
  [ pkts:          0  bytes:          0  dropped pkts:      0 bytes:      0 ]
  [ qlength:   0/1024 ]
queue inq on em1 flows 1024 quantum 300 bandwidth 29100K, max 29100K default qlimit 1024
`)
	want := []Queue{
		{Name: "outq", Device: "em0", Flows: 1024, Bandwidth: 11e6, Max: 11e6, Qlimit: 1024, Default: true},
		{Name: "inq", Device: "em1", Flows: 1024, Quantum: 300, Bandwidth: 29.1e6, Max: 29.1e6, Qlimit: 1024, Default: true},
	}
	if d := cmp.Diff(want, rs.Queues); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// A pf.conf with macros, comments and rules, as people write it.
func TestParseByHand(t *testing.T) {
	rs, err := Parse(`ext_if = "em0"   # the modem
set skip on lo
queue root on $ext_if bandwidth 9M max 9M
queue std parent root bandwidth 8M max 9M \
    flows 1024 qlimit 1024 default
queue ack parent root bandwidth 1M max 9M flows 1024
match out on $ext_if proto tcp set queue (std, ack)
block in quick on $ext_if from <bad>
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(rs.Queues) != 3 || rs.Queues[0].Device != "em0" || !rs.Queues[1].Default {
		t.Errorf("%+v", rs.Queues)
	}
	if len(rs.Rules) != 2 || cmp.Diff([]string{"std", "ack"}, rs.Rules[0].Queues) != "" || rs.Rules[1].Queues != nil {
		t.Errorf("%+v", rs.Rules)
	}
}

// TestLint: input that pfctl silently accepts and Lint reports.
func TestLint(t *testing.T) {
	for text, want := range map[string]string{
		"queue o on em0 bandwidth 11M max 5M flows 1024 qlimit 1024 default":                                                                 "below its bandwidth",
		"queue o on em0 bandwidth 11M min 1M max 11M flows 1024 qlimit 1024 default":                                                         "silently uses no flow queue",
		"queue o on em0 bandwidth 11M max 11M flows 1024 default":                                                                            "holds 50 packets",
		"queue o on em0 bandwidth 10G max 10G flows 1024 qlimit 1024 default":                                                                "wrap around",
		"queue o on em0 bandwidth 11M flows 1024 qlimit 1024 default":                                                                        "without max",
		"queue r on em0 bandwidth 10M max 10M\nqueue a parent r bandwidth 9M default\nqueue b parent r bandwidth 9M":                         "add up to 18M",
		"queue r on em0 bandwidth 10M max 10M\nqueue a parent r bandwidth 5M default\nqueue b parent r bandwidth 5M default":                 "2 default queues",
		"queue outq on em0 flows 1024 bandwidth 11M max 11M qlimit 1024 default\nqueue i on em1 flows 1024 qlimit 1024 bandwidth 1M default": "queue i: without max",
	} {
		rs, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := rs.Lint(); len(got) != 1 || !strings.Contains(got[0].String(), want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestParseIsInverse: for any plan Parse reads back exactly what was rendered,
// and Check accepts it.
func TestParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(label string) unit.Rate {
			return unit.Rate(rapid.Int64Range(64e3, 10e9).Draw(t, label))
		}
		p, err := plan.Make(plan.Line{Down: rate("down"), Up: rate("up")},
			plan.Capabilities{Language: openbsd.Language(), WAN: rapid.StringMatching(`[a-z]{2,6}[0-9]{1,3}`).Draw(t, "wan"), LAN: "vlan10"},
			plan.Preferences{
				AQM:  rapid.SampledFrom([]plan.AQM{plan.FQCoDel, plan.FIFO}).Draw(t, "aqm"),
				Only: rapid.SampledFrom([]plan.Direction{"", plan.DirectionUp, plan.DirectionDown}).Draw(t, "only"),
			})
		if err != nil {
			t.Fatal(err)
		}
		rs, _, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(rs.String())
		if err != nil {
			t.Fatalf("%s%v", rs, err)
		}
		if d := cmp.Diff(rs, back); d != "" {
			t.Fatalf("%s%s", rs, d)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("queue outq on em0 flows 1024 bandwidth 11M max 11M qlimit 1024 default\nmatch out on $ext set queue (a, b)")
	f.Add("a=\"b\"\nqueue $a parent a bandwidth 1.5Kb, min 1, max 2\\\n")
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Parse(text)
		if err != nil {
			return
		}
		rs.Lint()
		var queues strings.Builder
		for _, q := range rs.Queues {
			queues.WriteString(q.String() + "\n")
		}
		back, err := Parse(queues.String())
		if err != nil {
			t.Fatalf("%q → %q: %v", text, queues.String(), err)
		}
		if d := cmp.Diff(rs.Queues, back.Queues); d != "" {
			t.Fatalf("%q: %s", text, d)
		}
	})
}
