package plan_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/unit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	kbit = unit.KbitPerSecond
	mbit = unit.MbitPerSecond
	gbit = unit.GbitPerSecond
)

// input is the "input.json" of a golden file.
type input struct {
	Line         Line         `json:"line"`
	Capabilities Capabilities `json:"facts"`
	Preferences  Preferences  `json:"wishes"`
}

// TestGolden plans what each file's input.json says: the five articles' own
// numbers, and ours.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			if err := json.Unmarshal(a.Files[0].Data, &in); err != nil {
				t.Fatal(err)
			}
			in.Capabilities.Language = all.Must(in.Capabilities.Platform)
			var got []txtar.File
			p, err := Make(in.Line, in.Capabilities, in.Preferences)
			if err != nil {
				got = []txtar.File{{Name: "error.txt", Data: []byte(err.Error() + "\n")}}
			} else {
				got = []txtar.File{{Name: "explain.txt", Data: []byte(p.Explain())}, {Name: "shapers.json", Data: shapersJSON(t, p)}}
			}
			got = append(a.Files[:1:1], got...)
			if *update {
				a.Files = got
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(txtar.Format(&txtar.Archive{Files: a.Files})), string(txtar.Format(&txtar.Archive{Files: got}))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// shapersJSON is the part of a plan's JSON that is rendered.
func shapersJSON(t *testing.T, p Plan) []byte {
	b, err := json.MarshalIndent(map[string]any{"down": p.Down, "up": p.Up, "offloads": p.Offloads, "goal": p.Goal}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func linuxHas(aqms ...AQM) Capabilities {
	return Capabilities{Language: linux.Language(), WAN: "eth0", LAN: "eth1", IFB: true, AQMs: aqms}
}

func mustMake(t *testing.T, l Line, f Capabilities, w Preferences) Plan {
	t.Helper()
	p, err := Make(l, f, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func preferences(t *testing.T, r Request) Preferences {
	t.Helper()
	w, err := r.Preferences()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A rule that cannot be read is refused, with the rule.
func TestRequestRules(t *testing.T) {
	w := preferences(t, Request{Up: mbit, Rules: []string{"class=interactive,protocol=udp,far_port=3478"}})
	if len(w.Classes.Rules) != 1 || w.Classes.Rules[0].Class != Interactive {
		t.Errorf("read as %+v", w.Classes.Rules)
	}
	if _, err := (Request{Up: mbit, Rules: []string{"class=first"}}).Preferences(); err == nil || !strings.Contains(err.Error(), "class=first") {
		t.Errorf("a class that is none gave %v", err)
	}
}

// The settings of the five articles, from Preferences alone.
func TestSeedNumbers(t *testing.T) {
	no := false
	p := mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, linuxHas(),
		Preferences{AQM: FQCoDel, Down: RatePreference{Fraction: 0.97}, Up: RatePreference{Fraction: 0.97}})
	if p.DownBps != 29100*kbit || p.UpBps != 4850*kbit {
		t.Errorf("seed 000: %s / %s", p.DownBps, p.UpBps)
	}
	p = mustMake(t, Line{}, linuxHas(), preferences(t, Request{AQM: "fifo", Up: mbit}))
	if p.Down != nil || p.Up.Limit != 9 {
		t.Errorf("seed 002: limit %d", p.Up.Limit)
	}
	p = mustMake(t, Line{}, linuxHas(), preferences(t, Request{AQM: "fq_codel", Up: 950 * kbit, Target: 15 * time.Millisecond, ECN: &no}))
	if p.Down != nil || p.Up.Rate != 950*kbit || p.Up.Target != 15*time.Millisecond || p.Up.ECN || p.Up.Interval < 95*time.Millisecond {
		t.Errorf("seed 003: %+v", p.Up)
	}
	p = mustMake(t, Line{Down: 15 * mbit, Up: mbit}, linuxHas(), preferences(t, Request{AQM: "fq_codel", Down: 13 * mbit, Side: "lan"}))
	if p.Up != nil || p.Down.Device != "eth1" || p.Down.IngressOf != "" || p.Down.Rate != 13*mbit {
		t.Errorf("seed 003, download: %+v", p.Down)
	}
	p = mustMake(t, Line{Down: 120 * mbit, Up: 12 * mbit}, Capabilities{Language: openbsd.Language(), WAN: "em0", LAN: "em1"},
		Preferences{Down: RatePreference{Rate: 110 * mbit}, Up: RatePreference{Rate: 11 * mbit}})
	if p.Down.Device != "em1" || p.Up.Device != "em0" || p.Up.Limit != 1024 || p.Up.Flows != 1024 {
		t.Errorf("seed 004: %+v %+v", p.Down, p.Up)
	}
	p = mustMake(t, Line{Down: 25 * mbit, Up: mbit}, Capabilities{Language: clearos.Language(), WAN: "ppp0", LAN: "eth1", IFB: true}, Preferences{Style: StyleArticle})
	if p.AQM != SFQ || p.UpBps != mbit || p.DownBps != 25*mbit {
		t.Errorf("seed 001: %s %s / %s", p.AQM, p.DownBps, p.UpBps)
	}
}

// What a platform cannot express is in the plan's explanation.
func TestLimitsAreExplained(t *testing.T) {
	yes := true
	for _, c := range []struct {
		platform    string
		down, up    unit.Rate
		preferences Preferences
		says        []string
	}{
		{"openbsd", 20 * mbit, 2 * mbit, Preferences{ECN: &yes, Target: 15 * time.Millisecond}, []string{"drop and never mark", "ECN cannot be set", "no word for CoDel's target", "target of 15 ms cannot be set", "Ethernet frames"}},
		{"openbsd", 20 * mbit, mbit, Preferences{}, []string{"drop and never mark", "longer than the target"}},
		{"openbsd-altq", 20 * mbit, 2 * mbit, Preferences{}, []string{"4.29 Gbit/s", "32 bits", "a full FIFO adds 100 ms"}},
		{"freebsd", 20 * mbit, 2 * mbit, Preferences{}, []string{"whole numbers", "9.5Mbit/s as 9 bit/s", "4.29 Gbit/s", "IP packets alone"}},
		{"opnsense", 20 * mbit, 2 * mbit, Preferences{}, []string{"whole numbers", "4.29 Gbit/s"}},
		{"pfsense", 20 * mbit, 2 * mbit, Preferences{}, []string{"whole numbers", "4.29 Gbit/s"}},
		{"openwrt", 20 * mbit, 2 * mbit, Preferences{}, []string{"whole kbit/s"}},
		{"clearos", 20 * mbit, 2 * mbit, Preferences{}, []string{"whole kbit/s"}},
		{"clearos", 20 * mbit, 2 * mbit, Preferences{Style: StyleArticle}, []string{"sfq, which has no AQM", "the line's own speed"}},
	} {
		f, err := all.Assume(c.platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		text := mustMake(t, Line{Down: c.down, Up: c.up}, f, c.preferences).Explain()
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", c.platform, want, text)
			}
		}
	}
}

func TestLowRateRules(t *testing.T) {
	for _, c := range []struct {
		up     unit.Rate
		target time.Duration
		q      unit.Size
		ecn    bool
		limit  int
		burst  unit.Size
	}{
		{64 * kbit, 284 * time.Millisecond, 300, false, 1001, 1749},
		{950 * kbit, 20 * time.Millisecond, 300, false, 1001, 1749},
		{3999 * kbit, 5 * time.Millisecond, 300, false, 1001, 1749},
		{4 * mbit, 5 * time.Millisecond, 300, true, 1001, 1749},
		{9 * mbit, 5 * time.Millisecond, 300, true, 1001, 1749},
		{20 * mbit, 5 * time.Millisecond, 610, true, 1652, 2500},
		{gbit, 5 * time.Millisecond, 1514, true, 10240, 125000},
	} {
		s := mustMake(t, Line{}, linuxHas(FQCoDel), Preferences{Up: RatePreference{Rate: c.up}}).Up
		if s.Target != c.target || s.Quantum != c.q || s.ECN != c.ecn || s.Limit != c.limit || s.Burst != c.burst {
			t.Errorf("%s: %+v, want %+v", c.up, *s, c)
		}
		if want := 95*time.Millisecond + c.target; s.Interval != want {
			t.Errorf("%s: interval %v, want %v", c.up, s.Interval, want)
		}
	}
}

// A download that is planned for many connections has a queue with room for two
// packets of each. Other downloads, and the upload, do not.
func TestQueueForManyDownloads(t *testing.T) {
	for _, c := range []struct {
		flows    int
		down     unit.Rate
		interval time.Duration // 0: the one for few connections
	}{
		{0, 26 * mbit, 0},
		{4, 26 * mbit, 0},
		{100, 26 * mbit, 1863 * time.Millisecond}, // 20 × 100 × 2 × 1514 bytes
		{100, 5 * mbit, 2 * time.Second},          // at most 100 ms of queue
		{40, 26 * mbit, 0},                        // with 1.1 packets of each on the way, the queue need not hold their bursts
		{1000, gbit, 0},                           // 1.65
	} {
		line := Line{Down: c.down * 2, Up: 5 * mbit, RTT: 20 * time.Millisecond}
		rates := Preferences{Down: RatePreference{Rate: c.down}, Up: RatePreference{Rate: 5 * mbit}}
		few := mustMake(t, line, linuxHas(CAKE), rates)
		rates.FlowsDown = c.flows
		p := mustMake(t, line, linuxHas(CAKE), rates)
		want := c.interval
		if want == 0 && c.flows < 32 { // so many never slow down together
			want = few.Down.Interval
		}
		if p.Down.Interval != want || p.Up.Interval != few.Up.Interval {
			t.Errorf("%d downloads at %v: %v down, %v up; want %v", c.flows, c.down, p.Down.Interval, p.Up.Interval, want)
		}
		if q := p.WithRates(c.down/2, mbit); q.Basis.Preferences.FlowsDown != c.flows {
			t.Errorf("%d downloads become %d at other rates", c.flows, q.Basis.Preferences.FlowsDown)
		}
	}
}

func TestGoalIsThreeHalfPacketTimes(t *testing.T) {
	for _, c := range []struct {
		down, up unit.Rate
		want     time.Duration
	}{
		{30 * mbit, 5 * mbit, 5 * time.Millisecond},
		{15 * mbit, mbit, 19379200},
		{0, 0, 5 * time.Millisecond},
		{gbit, 0, 5 * time.Millisecond},
	} {
		if got := DefaultGoal(Line{Down: c.down, Up: c.up}); got != c.want {
			t.Errorf("%s/%s: %v, want %v", c.down, c.up, got, c.want)
		}
	}
}

func TestLadder(t *testing.T) {
	for _, c := range []struct {
		have []AQM
		want AQM
	}{{nil, CAKE}, {[]AQM{FIFO, FQCoDel, CAKE}, CAKE}, {[]AQM{FIFO, FQCoDel}, FQCoDel}} {
		if p := mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, linuxHas(c.have...), Preferences{}); p.AQM != c.want || p.Up.AQM != c.want || p.Down.AQM != c.want {
			t.Errorf("%v: %s", c.have, p.AQM)
		}
	}
	// A FIFO is used only if it is asked for.
	var none *NoAQMError
	if _, err := Make(Line{Up: mbit}, linuxHas(FIFO), Preferences{}); !errors.As(err, &none) || !slices.Equal(none.Lacks, []AQM{CAKE, FQCoDel}) || !strings.Contains(err.Error(), "--aqm fifo") {
		t.Errorf("neither CAKE nor FQ-CoDel: %v", err)
	}
	if _, err := Make(Line{Up: mbit}, linuxHas([]AQM{}...), Preferences{}); !errors.As(err, &none) || strings.Contains(err.Error(), "fifo") {
		t.Errorf("nothing at all: %v", err)
	}
	if p := mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, linuxHas(FIFO), Preferences{AQM: FIFO}); p.AQM != FIFO || p.Up.AQM != FIFO {
		t.Errorf("a FIFO that is asked for: %s", p.AQM)
	}
	if p := mustMake(t, Line{Up: mbit}, Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0"}, Preferences{}); p.AQM != FIFO {
		t.Errorf("ALTQ, which has nothing else: %s", p.AQM)
	}
	var lacks *UnsupportedAQMError
	if _, err := Make(Line{Up: mbit}, linuxHas(FIFO), Preferences{AQM: CAKE}); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "install its kernel module") {
		t.Errorf("CAKE without its module: %v", err)
	}
	if _, err := Make(Line{Up: mbit}, Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0"}, Preferences{AQM: FQCoDel}); !errors.As(err, &lacks) || strings.Contains(err.Error(), "module") {
		t.Errorf("FQ-CoDel with ALTQ, which has no modules: %v", err)
	}
}

func TestOverhead(t *testing.T) {
	ppp := Capabilities{Language: linux.Language(), WAN: "ppp0", LAN: "eth1", IFB: true, PointToPoint: true}
	for _, c := range []struct {
		line                    Line
		capabilities            Capabilities
		overhead, stab, ofPkt40 int
	}{
		{Line{}, linuxHas(), 14, 0, 54},
		{Line{LinkLayer: DOCSIS}, linuxHas(), 18, 4, 64},
		{Line{LinkLayer: ATM}, linuxHas(), 44, 30, 106},
		{Line{LinkLayer: PTM}, linuxHas(), 22, 8, 70},
		{Line{}, ppp, 22, 22, 62},
		{Line{LinkLayer: PTM}, ppp, 30, 30, 72},
		{Line{Overhead: 34, MPU: 68}, linuxHas(), 34, 20, 74},
	} {
		c.line.Down, c.line.Up = 30*mbit, 5*mbit
		s := mustMake(t, c.line, c.capabilities, Preferences{AQM: FQCoDel}).Up
		if s.Overhead != c.overhead || s.StabOverhead() != c.stab || int(s.WireSize(40)) != c.ofPkt40 {
			t.Errorf("%+v on %s: overhead %d, stab %d, 40 → %d; want %d, %d, %d", c.line, c.capabilities.WAN, s.Overhead, s.StabOverhead(), s.WireSize(40), c.overhead, c.stab, c.ofPkt40)
		}
	}
	if got := (Line{}).FromGoodput(1448e3); got != 1514*kbit {
		t.Errorf("line rate of 1.448 Mbit/s goodput: %s", got)
	}
}

func TestRefusals(t *testing.T) {
	line := Line{Down: 30 * mbit, Up: 5 * mbit}
	rates := func(down, up unit.Rate) Preferences {
		return Preferences{Down: RatePreference{Rate: down}, Up: RatePreference{Rate: up}}
	}
	long := linuxHas()
	long.WAN = "interface-of-16c"
	for name, c := range map[string]struct {
		line         Line
		capabilities Capabilities
		w            Preferences
		want         string
	}{
		"swapped":             {line, linuxHas(), rates(5*mbit, 30*mbit), "look swapped"},
		"swapped, at 95 %":    {line, linuxHas(), rates(4750*kbit, 28*mbit), "look swapped"},
		"far above the line":  {line, linuxHas(), rates(300*mbit, 5*mbit), "more than twice"},
		"nothing known":       {Line{}, linuxHas(), Preferences{}, ErrNothingToShape.Error()},
		"fraction of nothing": {Line{Up: mbit}, linuxHas(), Preferences{Down: RatePreference{Fraction: 0.9}}, "was not measured"},
		"negative":            {line, linuxHas(), rates(-1, 5*mbit), "not within"},
		"1 Pbit/s":            {line, linuxHas(), rates(1e15, 5*mbit), "not within"},
		"too low":             {Line{}, linuxHas(), rates(0, 999), "too low"},
		"name too long":       {line, long, Preferences{}, "has 16 characters"},
		"shell in a name":     {line, Capabilities{Language: linux.Language(), WAN: "e;reboot"}, Preferences{}, "has the character"},
		"option as a name":    {line, Capabilities{Language: linux.Language(), WAN: "-h"}, Preferences{}, "not an interface's name"},
		"WAN is LAN":          {line, Capabilities{Language: linux.Language(), WAN: "a", LAN: "a"}, Preferences{}, "is the WAN too"},
		"unknown platform":    {line, Capabilities{Platform: "dos", WAN: "a"}, Preferences{}, "unknown"},
		"no ifb, no LAN":      {line, Capabilities{Language: linux.Language(), WAN: "eth0"}, Preferences{}, "no ifb device"},
		"LAN side, no LAN":    {line, Capabilities{Language: linux.Language(), WAN: "eth0", IFB: true}, Preferences{Side: SideLAN}, "--lan"},
		"target > interval":   {line, linuxHas(), Preferences{AQM: FQCoDel, Target: 200 * time.Millisecond, Interval: 100 * time.Millisecond}, "above the interval"},
		"target of CAKE":      {line, linuxHas(), Preferences{Target: 15 * time.Millisecond}, "takes no target"},
		"dummynet above 2^32": {Line{}, Capabilities{Language: freebsd.Language(), WAN: "igb0"}, rates(5*gbit, 0), "the most that freebsd can hold"},
		"em0 on OPNsense":     {line, Capabilities{Language: opnsense.Language(), WAN: "em0"}, Preferences{}, "wan, lan, opt1"},
		"pf has no CAKE":      {line, Capabilities{Language: openbsd.Language(), WAN: "em0", LAN: "em1"}, Preferences{AQM: CAKE}, "has no cake"},
	} {
		if p, err := Make(c.line, c.capabilities, c.w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: plan %v, error %v; want %q", name, p.Up, err, c.want)
		}
	}
	var swapped *SwappedError
	if _, err := Make(line, linuxHas(), rates(5*mbit, 30*mbit)); !errors.As(err, &swapped) {
		t.Errorf("swapped: %T", err)
	}
	if p := mustMake(t, line, linuxHas(), rates(31*mbit, 5*mbit)); len(p.Warnings) != 1 {
		t.Errorf("3 %% above the line: warnings %q", p.Warnings)
	}
	if _, err := Make(Line{Down: 100 * mbit, Up: 100 * mbit}, linuxHas(), rates(95*mbit, 100*mbit)); err != nil {
		t.Errorf("a symmetric line is never swapped: %v", err)
	}
}
