package path

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite golden files")

// ms converts milliseconds.
func ms(f float64) time.Duration { return time.Duration(f * 1e6) }

// steady returns twenty probes around a round trip time, some of them lost.
func steady(around float64, lost int) Stats {
	s := Stats{Sent: 20, Lost: lost}
	for i := range 20 - lost {
		s.RTTs = append(s.RTTs, ms(around*(1+float64(i%5)/100)))
	}
	return s
}

// line returns hops with these addresses ("": silent) and these medians, idle
// and under load.
func line(addrs []string, idle, loaded []float64) []Hop {
	var out []Hop
	for i, a := range addrs {
		h := Hop{TTL: i + 1, Destination: i == len(addrs)-1}
		if a == "" {
			h.Idle, h.Loaded = Stats{Sent: 20, Lost: 20}, Stats{Sent: 20, Lost: 20}
		} else {
			h.Addrs = []netip.Addr{netip.MustParseAddr(a)}
			h.Idle = steady(idle[i], 0)
			if loaded != nil {
				h.Loaded = steady(loaded[i], 0)
			}
		}
		out = append(out, h)
	}
	return out
}

func facts(source string, load bool) Capabilities {
	f := Capabilities{
		Time: time.Unix(1360000000, 0), Host: "test.example", Target: target4, Source: netip.MustParseAddr(source),
		Method: "icmp", Size: DefaultSize, Interval: time.Second, Reached: true, HomeHops: -1, CPU: 0.1,
	}
	if load {
		f.Load = &Load{Server: "test.example:7676", Direction: "up", Flows: 4, GoodputUpBps: 4.7e6}
	}
	return f
}

var wanHops = []string{"192.168.1.1", "100.64.0.1", "203.0.113.9", "198.51.100.1", "198.51.100.7"}

// judged is a case of the golden file, with what must be found in it.
type judged struct {
	name  string
	hops  []Hop
	facts Capabilities
	hop   int // where the increase begins; 0: nowhere
	place Place
	valid bool
}

func cases() []judged {
	base := []float64{1, 8, 9, 12, 14}
	home := facts("192.168.1.20", true)
	limited := line(wanHops, base, []float64{1, 8, 9, 12, 14})
	limited[2].Idle, limited[2].Loaded = steady(9, 8), steady(9, 9)
	lossy := line(wanHops, base, []float64{1, 208, 209, 212, 214})
	for i := 1; i < 5; i++ {
		lossy[i].Loaded = steady(208, 3)
	}
	gap := line([]string{"192.168.1.1", "", "", "198.51.100.1", "198.51.100.7"}, base, []float64{1, 0, 0, 412, 414})
	ended := line(wanHops[:3], base, []float64{1, 208, 209})
	ended[2].Destination = false
	refused := slices.Clone(ended)
	refused[2].Refusal = "prohibited by a filter"
	quiet, far := facts("192.168.1.20", false), home
	far.Reached = false
	stuck := home
	stuck.Load = &Load{Server: "s:1", Direction: "both", GoodputUpBps: 1e6}
	busy := home
	busy.CPU = 0.97
	own := home
	own.Names = map[netip.Addr]string{netip.MustParseAddr("203.0.113.9"): "core1.provider.example"}
	double := []string{"192.168.1.1", "192.168.0.1", "203.0.113.9", "198.51.100.1", "198.51.100.7"}
	return []judged{
		{"uplink", line(wanHops, base, []float64{1, 208, 211, 212, 214}), home, 2, Uplink, true},
		{"wifi", line(wanHops, base, []float64{61, 68, 69, 72, 74}), home, 1, Home, true},
		{"wifi a little, uplink much", line(wanHops, base, []float64{9, 210, 212, 212, 214}), home, 2, Uplink, true},
		{"provider", line(wanHops, base, []float64{1, 8, 9, 62, 64}), home, 4, Provider, true},
		{"second router at home", line(double, base, []float64{1, 8, 209, 212, 214}), home, 3, Uplink, true},
		{"between the two routers at home", line(double, base, []float64{1, 208, 209, 212, 214}), home, 2, Home, true},
		{"on the router", line(wanHops[1:], base[1:], []float64{208, 209, 212, 214}), facts("203.0.113.77", true), 1, Uplink, true},
		{"slow to answer only", line(wanHops, base, []float64{1, 8, 89, 12, 14}), own, 0, "", true},
		{"nothing", line(wanHops, base, base), home, 0, "", true},
		{"limited answers", limited, home, 0, "", true},
		{"loss under load", lossy, home, 2, Uplink, true},
		{"silent hops", gap, home, 4, Uplink, true},
		{"silent destination", ended, far, 2, Uplink, true},
		{"refused", refused, far, 2, Uplink, true},
		{"idle only", line(wanHops, base, nil), quiet, 0, "", true},
		{"load that moves nothing", line(wanHops, base, base), stuck, 1, "", false},
		{"busy machine", line(wanHops, base, base), busy, 1, "", false},
		{"no answers", nil, far, 1, "", false},
	}
}

// Each case names the right link, and prints the text of the golden file.
func TestJudge(t *testing.T) {
	var got txtar.Archive
	for _, c := range cases() {
		r := Judge(c.hops, c.facts)
		if r.Valid != c.valid {
			t.Errorf("%s: valid %v %v", c.name, r.Valid, r.InvalidReasons)
		}
		switch b := r.Begins; {
		case !c.valid:
		case c.hop == 0 && b != nil:
			t.Errorf("%s: begins %+v", c.name, b)
		case c.hop != 0 && (b == nil || b.Hop != c.hop || b.Place != c.place):
			t.Errorf("%s: begins %+v, want hop %d, %s", c.name, b, c.hop, c.place)
		}
		var b bytes.Buffer
		if err := Write(&b, r, 0); err != nil {
			t.Fatal(err)
		}
		got.Files = append(got.Files, txtar.File{Name: c.name, Data: b.Bytes()})
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	golden := filepath.Join("testdata", "judge.txtar")
	if *update {
		if err := os.WriteFile(golden, txtar.Format(&got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(txtar.Format(&got)) {
		t.Errorf("not as %s says; -update rewrites it:\n%s", golden, txtar.Format(&got))
	}
}

// Wherever a simulated network has a queue, that link is found, whatever single
// routers do on their own.
func TestJudgeFindsTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := drawHops(t)
		at := rapid.IntRange(0, len(hops)-1).Draw(t, "at")
		hops[at].queue = time.Duration(rapid.IntRange(40, 4000).Draw(t, "queue ms")) * time.Millisecond
		for i := range hops[:len(hops)-1] {
			if rapid.IntRange(0, 3).Draw(t, "busy") == 0 {
				hops[i].own = time.Duration(rapid.IntRange(0, 500).Draw(t, "own ms")) * time.Millisecond
			}
		}
		n := newSimNet(rapid.Int64().Draw(t, "seed"), hops...)
		n.loss = rapid.Float64Range(0, 0.1).Draw(t, "loss")
		n.jitter = 3 * time.Millisecond
		tr := n.trace(Config{}, 20*time.Second, 20*time.Second)
		f := facts("192.168.1.20", true)
		f.Reached = tr.Reached()
		r := Judge(tr.Hops(n.now), f)
		b := r.Begins
		if b == nil || b.Hop != at+1 || b.After != at || b.Statistic != "p50" {
			t.Fatalf("begins %+v, want hop %d", b, at+1)
		}
		if want := float64(hops[at].queue.Milliseconds()); b.IncreaseMs < want-10 || b.IncreaseMs > want+10 {
			t.Fatalf("increase %v, want %v", b.IncreaseMs, want)
		}
	})
}

// The tables of an article of 2013: mtr on the router itself, so that the first
// hop is the provider's, idle and during an upload.
func TestJudgeSeed(t *testing.T) {
	quiet := [][3]float64{{6.0, 7.3, 13.9}, {7.0, 10.0, 11.9}, {6.7, 12.5, 92.9}, {7.2, 13.1, 58.2}, {7.1, 12.4, 47.7}, {7.1, 8.7, 11.2}, {26.1, 27.1, 28.4}, {31.1, 32.3, 33.1}, {32.0, 33.9, 38.5}, {31.9, 37.9, 45.9}, {29.0, 34.6, 59.1}}
	upload := [][3]float64{{36.9, 830.8, 3691}, {41.8, 854.1, 3661}, {37.5, 867.1, 3762}, {43.1, 821.9, 3799}, {38.7, 796.9, 3972}, {47.5, 861.7, 4101}, {59.5, 829.9, 4168}, {61.9, 844.9, 4077}, {63.5, 890.5, 3988}, {50.1, 846.7, 3900}, {64.1, 897.9, 3807}}
	of := func(v [3]float64) Stats { // only best, average and worst are known
		s := Stats{Sent: 25, RTTs: []time.Duration{ms(v[0]), ms(v[2])}}
		for range 23 {
			s.RTTs = append(s.RTTs, ms(v[1]))
		}
		return s
	}
	var hops []Hop
	for i := range quiet {
		hops = append(hops, Hop{TTL: i + 1, Addrs: []netip.Addr{hopAddr(i + 100)}, Destination: i == len(quiet)-1, Idle: of(quiet[i]), Loaded: of(upload[i])})
	}
	r := Judge(hops, facts("67.231.216.5", true))
	if b := r.Begins; b == nil || b.Hop != 1 || b.Place != Uplink || b.IncreaseMs < 700 {
		t.Errorf("begins %+v", b)
	}
}

// A queue that comes and goes only shows in the p95.
func TestJudgeBursts(t *testing.T) {
	hops := line(wanHops, []float64{1, 8, 9, 12, 14}, []float64{1, 8, 9, 12, 14})
	for i := 1; i < len(hops); i++ {
		for k := 0; k < 20; k += 5 {
			hops[i].Loaded.RTTs[k] += ms(150)
		}
	}
	r := Judge(hops, facts("192.168.1.20", true))
	if b := r.Begins; b == nil || b.Hop != 2 || b.Statistic != "p95" || !strings.Contains(r.Verdict, "now and then") {
		t.Errorf("begins %+v: %s", b, r.Verdict)
	}
}

// Latency that varies without our load is mentioned.
func TestJudgeIdleVaries(t *testing.T) {
	hops := line(wanHops, []float64{1, 8, 9, 12, 14}, nil)
	for i := 1; i < len(hops); i++ {
		for k := range 10 {
			hops[i].Idle.RTTs[k] += ms(float64(20 * k))
		}
	}
	r := Judge(hops, facts("192.168.1.20", false))
	if !strings.Contains(r.Verdict, "from hop 2 on") || !strings.Contains(r.Verdict, "router's uplink") {
		t.Error(r.Verdict)
	}
}

func TestGuessHome(t *testing.T) {
	for _, c := range []struct {
		source string
		hops   string
		want   int
	}{
		{"192.168.1.2", "192.168.1.1 10.0.0.1 198.51.100.7", 1}, // 10/8 may be the provider's
		{"192.168.1.2", "192.168.1.1 192.168.0.1 198.51.100.7", 2},
		{"192.168.1.2", "192.168.1.1 192.168.0.1", 1}, // the destination itself
		{"192.168.1.2", "192.168.1.1", 1},
		{"203.0.113.5", "203.0.113.1 198.51.100.7", 0},
		{"100.64.3.4", "100.64.0.1 198.51.100.7", 0},
		{"2001:db8::2", "2001:db8::1 fd00::1 2001:db8:9::1 2001:db8:a::1", 2},
		{"fd00::2", "fd00::1 2001:db8:9::1 2001:db8:a::1", 1},
		{"192.168.1.2", "", 1},
	} {
		var hops []Hop
		for i, a := range strings.Fields(c.hops) {
			hops = append(hops, Hop{TTL: i + 1, Addrs: []netip.Addr{netip.MustParseAddr(a)}})
		}
		if len(hops) > 0 {
			hops[len(hops)-1].Destination = true
		}
		if got := GuessHome(netip.MustParseAddr(c.source), hops); got != c.want {
			t.Errorf("%s via %s: %d, want %d", c.source, c.hops, got, c.want)
		}
	}
}

// On a terminal of 80 columns the two phases are printed below each other, and no line wraps.
func TestWriteNarrow(t *testing.T) {
	for _, c := range cases() {
		r := Judge(c.hops, c.facts)
		var b bytes.Buffer
		if err := Write(&b, r, 80); err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Split(b.String(), "\n") {
			if utf8.RuneCountInString(l) > 80 {
				t.Errorf("%s: %q", c.name, l)
			}
		}
		if begins := strings.Count(b.String(), "▲ begins"); r.Begins != nil != (begins == 1) || r.Load != nil != strings.Contains(b.String(), "\nunder ") {
			t.Errorf("%s:\n%s", c.name, b.String())
		}
	}
}

// The table's columns are aligned with their heads, with any figures.
func TestTableAligned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := line(wanHops, []float64{1, 2, 3, 4, 5}, []float64{1, 2, 3, 4, 5})
		for i := range hops {
			hops[i].Idle = steady(float64(rapid.IntRange(0, 99_000).Draw(t, "ms")), rapid.IntRange(0, 20).Draw(t, "lost"))
		}
		lines := strings.Split(strings.TrimSuffix(Table(Judge(hops, facts("192.168.1.20", true))), "\n"), "\n")
		bar := slices.Index([]rune(lines[1]), '|')
		for _, l := range lines[2:] {
			if r := []rune(l); r[bar] != '|' {
				t.Fatalf("%s\n%s", lines[1], l)
			}
		}
	})
}

func ExampleWrite() {
	r := Judge(line(wanHops[:2], []float64{1, 8}, nil), facts("192.168.1.20", false))
	fmt.Print(Table(r))
	// Output:
	// HOST: test.example                Loss%   Snt   Last    Avg   Best   Wrst  StDev
	//   1.|-- 192.168.1.1                0.0%    20    1.0    1.0    1.0    1.0    0.0
	//   2.|-- 100.64.0.1                 0.0%    20    8.3    8.2    8.0    8.3    0.1
}
