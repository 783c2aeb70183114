package pfsense_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/guard"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/testkit/conform"
	"unbloat/testkit/dnctl"
	"unbloat/testkit/pfsensefake"
	"unbloat/unit"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyPreferences(t, name, 4294967294, plan.FIFO)
	if w.Only == plan.DirectionDown { // refused, see TestRefused
		w.Only = ""
	}
	if rapid.Bool().Draw(t, name+" classes") {
		w.Classes = classes(rapid.SampledFrom([]string{"198.51.100.0/24", "2001:db8::/32"}).Draw(t, name+" far"), rapid.SampledFrom([]float64{0.1, 0.4}).Draw(t, name+" guarantee"))
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: pfsense.Language(), WAN: "igb0", LAN: "igb1"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// classes asks for some of each kind: a range of ports, a network, and a
// guarantee for voice.
func classes(far string, voice float64) plan.ClassPreferences {
	return plan.ClassPreferences{
		Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Far: []string{far}, HomePort: []plan.PortRange{{From: 22, To: 22}, {From: 873, To: 873}}}},
		Shares: []plan.SharePreference{{Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: voice}}},
	}
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "igb0",
		New: func() (conform.Router, platform.Backend) {
			f := pfsensefake.New()
			return f, &pfsense.Backend{Runner: f}
		},
		Plan: anyPlan,
	})
}

// TestStrangersFiles: what another user made in /tmp is not taken for what pfSense made, and
// is not waited for.
func TestStrangersFiles(t *testing.T) {
	for _, file := range []string{pfsense.RulesLimiter, pfsense.RulesDebug} {
		f := pfsensefake.New()
		f.Whose[file] = "prw-r--r-- 1 65534 65534"
		var strange *guard.UntrustedError
		if _, err := (&pfsense.Backend{Runner: f}).Observe(t.Context(), plan.Plan{}, nil); !errors.As(err, &strange) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// router returns a fake with this config.xml, or with its own if that is empty,
// and the steps to a plan.
func router(t *testing.T, config string, w plan.Preferences) (*pfsensefake.Router, []platform.Step) {
	t.Helper()
	f := pfsensefake.New()
	if config != "" {
		f.Files[pfsense.Config] = config
		f.Load()
	}
	b := &pfsense.Backend{Runner: f}
	p := make5(t, w)
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), p, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := b.Compare(now, want)
	if err != nil {
		t.Fatal(err)
	}
	return f, steps
}

func make5(t *testing.T, w plan.Preferences) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: pfsense.Language(), WAN: "igb0"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const stubs = `<?php
error_reporting(E_ALL);
$config = json_decode(file_get_contents("config.json"), true);
function parse_config($parse) {}
function write_config($why) { global $config; file_put_contents("saved.json", json_encode($config)); }
function filter_configure_sync() { file_put_contents("loaded", "yes"); }
function get_unique_dnqueue_list() { return array("guests" => "1", "guests_q" => "?1"); }
function mwexec($command) {}
`

// TestPHP runs the lines for pfSense's PHP shell in the real PHP, with stubs of
// pfSense's functions, and compares the saved configuration with that of the
// fake.
func TestPHP(t *testing.T) {
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("SKIPPED: there is no php (scripts/setup test installs php-cli)")
	}
	const empty = "<?xml version=\"1.0\"?>\n<pfsense><interfaces><wan><if>igb0</if></wan></interfaces><filter></filter><dnshaper></dnshaper><revision><time>1</time></revision></pfsense>"
	for name, c := range map[string]struct {
		config string
		prefs  plan.Preferences
	}{"beside another limiter": {}, "the first limiter": {config: empty}, "classes": {prefs: plan.Preferences{Classes: classes("2001:db8::/32", 0.4)}}} {
		f, steps := router(t, c.config, c.prefs)
		before, err := bsd.ParseConfig(f.Files[pfsense.Config])
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(steps, func(s platform.Step) bool { return s.Argv[0] == pfsense.Shell })
		code, ok := strings.CutSuffix(steps[i].Stdin, "\nexec\nexit\n")
		if !ok {
			t.Fatalf("%s: it is not executed: %s", name, steps[i].Stdin)
		}
		dir := t.TempDir()
		start, err := json.Marshal(before.Array())
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"filter.inc": "", "shaper.inc": "", "config.json": string(start), "run.php": stubs + code} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run := exec.Command("php", "-d", "include_path=.", "run.php")
		run.Dir = dir
		if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		saved, err := os.ReadFile(filepath.Join(dir, "saved.json"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "loaded")); err != nil {
			t.Error(name, ": nothing was loaded")
		}
		if out, _, err := f.Run(t.Context(), steps[i].Argv, []byte(steps[i].Stdin)); err != nil || len(out) > 0 {
			t.Fatalf("%s: the fake: %s %v", name, out, err)
		}
		after, err := bsd.ParseConfig(f.Files[pfsense.Config])
		if err != nil {
			t.Fatal(err)
		}
		var php map[string]any
		if err := json.Unmarshal(saved, &php); err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"dnshaper", "filter"} {
			if d := cmp.Diff(php[section], after.Child(section).Array()); d != "" {
				t.Errorf("%s, %s: -PHP +fake\n%s", name, section, d)
			}
		}
	}
}

// TestPHPSyntax: the real PHP can parse each script file.
func TestPHPSyntax(t *testing.T) {
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("SKIPPED: there is no php (scripts/setup test installs php-cli)")
	}
	files, err := filepath.Glob("php/*.php")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, file := range files {
		if out, err := exec.Command("php", "-l", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// TestShellIsStrict: lines that are not PHP, or are never executed, change
// nothing. The exit code is 0 even then, so only the readback finds it.
func TestShellIsStrict(t *testing.T) {
	f, steps := router(t, "", plan.Preferences{})
	i := slices.IndexFunc(steps, func(s platform.Step) bool { return s.Argv[0] == pfsense.Shell })
	before := f.Text()
	for name, c := range map[string]struct{ old, with, says string }{
		"a typing error":       {"write_config(", "write_confg(", "Parse error"},
		"not executed":         {"\nexec\n", "\n", ""},
		"a statement unclosed": {"filter_configure_sync();", "filter_configure_sync()", "Parse error"},
	} {
		out, _, err := f.Run(t.Context(), steps[i].Argv, []byte(strings.Replace(steps[i].Stdin, c.old, c.with, 1)))
		if err != nil || !strings.Contains(string(out), c.says) || f.Text() != before {
			t.Errorf("%s: %v %q", name, err, out)
		}
	}
	out, _, err := f.Run(t.Context(), steps[i].Argv, []byte(strings.Replace(steps[i].Stdin, "require_once(\"filter.inc\");\n", "", 1)))
	if err != nil || !strings.Contains(string(out), "undefined function") || strings.Contains(f.Dnctl.State(), "7001") {
		t.Errorf("without filter.inc: %v %q", err, out)
	}
	b := &pfsense.Backend{Runner: f}
	now, err := b.Observe(t.Context(), make5(t, plan.Preferences{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), make5(t, plan.Preferences{}), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, diffs, _ := b.Compare(now, want); !strings.Contains(strings.Join(diffs, " "), "limiter: pipe 7001") {
		t.Errorf("the read-back misses it: %q", diffs)
	}
}

// TestRefused: obstacles are named in the error.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		says     string
		wan      string
		only     plan.Direction
		old, new string
	}{
		{"beside one for the upload", "igb0", plan.DirectionDown, "", ""},
		{"igb0, igb1, pppoe0", "em0", "", "", ""},
		{"through the limiter guests_q already", "igb0", "", "<interface>lan</interface>", "<interface>wan</interface>"},
		{"has the number 7001", "igb0", "", "<name>guests</name><number>1</number>", "<name>guests</name><number>7001</number>"},
		{"leaves out every queue that follows", "igb0", "", "<name>guests_q</name><number>1</number>", "<name>guests q</name><number>1</number>"},
		{"gives its number away twice", "igb0", "", "</queue>\n\t</dnshaper>", "</queue><queue><name>b</name><number>2</number><enabled>on</enabled><queue><name>guests_q</name><enabled>on</enabled></queue></queue></dnshaper>"},
		{"mend that file first", "igb0", "", "</pfsense>", ""},
	} {
		f := pfsensefake.New()
		b := &pfsense.Backend{Runner: f}
		f.Files[pfsense.Config] = strings.Replace(f.Files[pfsense.Config], c.old, c.new, 1)
		p := make5(t, plan.Preferences{})
		p.WAN, p.Up.Device, p.Down.Device, p.Down.IngressOf, p.Basis = c.wan, c.wan, c.wan, c.wan, nil
		if c.only == plan.DirectionDown {
			p.Up, p.UpBps = nil, 0
		}
		now, err := b.Observe(t.Context(), p, nil)
		if err == nil {
			_, err = b.Desire(t.Context(), p, now, nil)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// TestStatus: status explains a limiter that was made by hand, with the rules
// that use it, and our own after apply. It says so if the kernel lacks a
// limiter.
func TestStatus(t *testing.T) {
	f, steps := router(t, "", plan.Preferences{})
	b := &pfsense.Backend{Runner: f}
	says := func() string {
		shapers, err := b.Shapers(t.Context(), "igb0")
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, x := range shapers {
			all.WriteString(x.Device + ": " + x.Says + "\n")
		}
		return all.String()
	}
	const guests = "limiter guests: it holds to 3.00 Mbit/s, by a FIFO of 50 packets (not unbloat's): what goes with connections of the rule \"guests & <others>\" on lan; it runs\n"
	if got := says(); got != guests {
		t.Errorf("%s", got)
	}
	for _, s := range steps {
		if _, errOut, err := f.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
			t.Fatalf("%s: %s", s, errOut)
		}
	}
	got := says()
	for _, want := range []string{guests, "limiter unbloat_up: it holds to 4.75 Mbit/s, by FQ-CoDel target 5ms", "(unbloat's)", "what comes back of connections of the rule \"unbloat: what is opened in\" on wan (in); it runs"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if _, _, err := f.Run(t.Context(), []string{"dnctl", "pipe", "7001", "config", "bw", "1Mbit/s"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := says(); !strings.Contains(got, "the kernel does not have it so (pipe 7001 bw 4.750 Mbit/s") {
		t.Errorf("a limit that is not loaded: %s", got)
	}
}

// TestClasses: pfSense's rules for a plan with classes: in an order for pf,
// where the last match decides, for connections opened from either side. Each
// class has a queue with its own weight and CoDel, which status explains. A
// plan without classes removes them from the kernel again.
func TestClasses(t *testing.T) {
	f, steps := router(t, "", plan.Preferences{Classes: classes("2001:db8::/32", 0.4)})
	run := func(steps []platform.Step) {
		t.Helper()
		for _, s := range steps {
			if _, errOut, err := f.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%s: %s", s, errOut)
			}
		}
	}
	run(steps)
	var rules []string
	for line := range strings.Lines(f.Files[pfsense.RulesDebug]) {
		if _, match, ok := strings.Cut(line, "on {  igb0  } "); ok {
			before, numbers, _ := strings.Cut(match, " ridentifier ")
			_, numbers, _ = strings.Cut(numbers, "dnqueue( ")
			numbers, _, _ = strings.Cut(numbers, ")")
			rules = append(rules, strings.Fields(line)[1]+" "+strings.Join(strings.Fields(before), " ")+": "+strings.TrimSpace(numbers))
		}
	}
	want := []string{ // queue 1 is the guests'
		"out inet from any to any: 4,8", "out inet6 from any to any: 4,8",
		"out inet proto udp from any to any port 53: 2,6", "out inet6 proto udp from any to any port 53: 2,6",
		"out inet proto tcp from any to any port 53: 2,6", "out inet6 proto tcp from any to any port 53: 2,6",
		"out inet6 proto udp from any port 22 to 2001:db8::/32: 5,9", "out inet6 proto udp from any port 873 to 2001:db8::/32: 5,9",
		"out inet6 proto tcp from any port 22 to 2001:db8::/32: 5,9", "out inet6 proto tcp from any port 873 to 2001:db8::/32: 5,9",
		"out inet proto udp from any to any port 19301 >< 19310: 2,6", "out inet6 proto udp from any to any port 19301 >< 19310: 2,6",
	}
	for _, r := range slices.Clone(want) {
		way, ends, _ := strings.Cut(strings.TrimPrefix(r, "out "), " from ")
		from, to, _ := strings.Cut(ends, " to ")
		to, numbers, _ := strings.Cut(to, ": ")
		up, down, _ := strings.Cut(numbers, ",")
		want = append(want, "in "+way+" from "+to+" to "+from+": "+down+","+up)
	}
	for _, way := range []string{"out ", "in "} { // control traffic, past the classes
		for _, r := range []string{"inet proto icmp from any to any", "inet6 proto ipv6-icmp from any to any", "inet proto udp from any to any port 66 >< 69",
			"inet6 proto udp from any to any port 66 >< 69", "inet proto udp from any to any port 545 >< 548", "inet6 proto udp from any to any port 545 >< 548"} {
			want = append(want, way+r+map[string]string{"out ": ": 10,11", "in ": ": 11,10"}[way])
		}
	}
	if d := cmp.Diff(want, rules); d != "" {
		t.Errorf("pf's rules: -want +got\n%s", d)
	}
	shown := func() string {
		return f.Dnctl.Run([]string{"dnctl", "pipe", "show"}, nil).Stdout + f.Dnctl.Run([]string{"dnctl", "sched", "show"}, nil).Stdout + f.Dnctl.Run([]string{"dnctl", "queue", "show"}, nil).Stdout
	}
	for _, q := range []string{"07001:   4.750 Mbit/s", "q00002 100 sl. 0 flows (1 buckets) sched 7001 weight 40 lmax 0 pri 0  AQM CoDel target 5ms interval 100ms ECN", "q00009 100 sl. 0 flows (1 buckets) sched 7002 weight 8 "} {
		if !strings.Contains(shown(), q) {
			t.Errorf("%q is not in the kernel:\n%s", q, shown())
		}
	}
	b := &pfsense.Backend{Runner: f}
	f.Dnctl.Counted = map[int]dnctl.Count{2: {Packets: 50, Bytes: 10_000}, 4: {Packets: 131602, Bytes: 197344212, BacklogPackets: 29, BacklogBytes: 43500, Drops: 235}}
	shapers, err := b.Shapers(t.Context(), "igb0")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(shapers, func(x platform.Shaped) bool { return x.Device == "limiter unbloat_up" })
	for _, says := range []string{"WF2Q+, which shares by weight (unbloat_up_voice 40, ", "rules, the last of which fits decides", "; it runs"} {
		if i < 0 || !strings.Contains(shapers[i].Says, says) {
			t.Errorf("%q is not said in %+v", says, shapers)
		}
	}
	counted := []tc.Counters{{Device: "limiter unbloat_up", Kind: "queue", Handle: "unbloat_up_voice", Bytes: 10_000, Packets: 50},
		{Device: "limiter unbloat_up", Kind: "queue", Handle: "unbloat_up_normal", Bytes: 197344212, Packets: 131602, Drops: 235, BacklogBytes: 43500, BacklogPkts: 29}}
	if d := cmp.Diff(counted, shapers[max(i, 0)].Counters); d != "" {
		t.Errorf("what each class's queue counts: %s", d)
	}
	p := make5(t, plan.Preferences{})
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := b.Desire(t.Context(), p, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err = b.Compare(now, plain)
	if err != nil {
		t.Fatal(err)
	}
	run(steps)
	if kernel := shown(); strings.Contains(kernel, "q00006 ") || strings.Contains(kernel, "q00009 ") || !strings.Contains(kernel, "FQ_CODEL") || !strings.Contains(kernel, "q00003 ") {
		t.Errorf("without classes:\n%s", kernel)
	}
	many := plan.Rule{Class: plan.Bulk, Protocol: "tcp"}
	for n := range uint16(60) {
		many.FarPort = append(many.FarPort, plan.PortRange{From: 1000 + 2*n, To: 1000 + 2*n})
	}
	if _, err := b.Desire(t.Context(), make5(t, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{many}}}), now, nil); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Errorf("a rule of sixty ports: %v", err)
	}
}

// TestNumbersByName: pfSense numbers queues itself, after the existing ones, so
// ours are found by name. No foreign number changes, and later changes of our
// numbers are noticed.
func TestNumbersByName(t *testing.T) {
	f, steps := router(t, "", plan.Preferences{})
	for _, s := range steps {
		if _, errOut, err := f.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
			t.Fatalf("%s: %s", s, errOut)
		}
	}
	limiters := f.Files[pfsense.RulesLimiter]
	for _, line := range []string{"queue 1 config pipe 1 ", "queue 2 config pipe 7001 ", "queue 3 config pipe 7002 "} {
		if !strings.Contains(limiters, line) {
			t.Errorf("%q is not in:\n%s", line, limiters)
		}
	}
	asWanted := func() []string {
		b := &pfsense.Backend{Runner: f}
		now, err := b.Observe(t.Context(), make5(t, plan.Preferences{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Desire(t.Context(), make5(t, plan.Preferences{}), now, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, diffs, err := b.Compare(now, want)
		if err != nil {
			t.Fatal(err)
		}
		return diffs
	}
	if diffs := asWanted(); len(diffs) > 0 {
		t.Errorf("after the apply: %q", diffs)
	}
	f.Files[pfsense.Config] = strings.Replace(f.Files[pfsense.Config], "<dnshaper>", "<dnshaper><queue><name>more</name><number>2</number><enabled>on</enabled><queue><name>more_q</name><enabled>on</enabled></queue></queue>", 1)
	f.Load()
	if diffs := asWanted(); len(diffs) > 0 || !strings.Contains(f.Files[pfsense.RulesLimiter], "queue 4 config pipe 7002 ") {
		t.Errorf("behind one queue more: %q\n%s", diffs, f.Files[pfsense.RulesLimiter])
	}
}
