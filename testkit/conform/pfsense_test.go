package conform

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/testkit/dnctl"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfsensefake"
)

// A php is one process of PHP with pfSense's own files. Many routers use it,
// one after the other.
type php struct {
	work string
	in   io.WriteCloser
	out  *bufio.Reader
}

func startPHP(t *testing.T, checkout string) *php {
	t.Helper()
	p := &php{work: t.TempDir()}
	shim, err := filepath.Abs("testdata/pfsense/shell.php")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.work, "config.xml"), []byte("<pfsense><version>1</version></pfsense>"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("php", "-d", "display_errors=1", shim, checkout, p.work)
	if p.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.in.Close(); _ = c.Wait() })
	return p
}

// run sends lines to the shell, up to its `exit`, and returns what PHP prints.
func (p *php) run(lines string) (string, error) {
	if _, err := io.WriteString(p.in, "begin\n"+lines); err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		if line == ".\n" {
			return strings.TrimSpace(out.String()), nil
		}
		out.WriteString(line)
		if err != nil {
			return "", fmt.Errorf("PHP ended: %w: %s", err, out.String())
		}
	}
}

// A realPfSense is a router with pfSense's own PHP: its shell runs a checkout's
// shaper.inc and filter.inc on a config.xml in a directory. The kernel is a
// stand-in.
type realPfSense struct {
	*fake.Machine
	kernel *dnctl.Machine
	php    *php
	said   string // output of PHP and dnctl
}

// newRealPfSense starts with this config.xml, loaded.
func newRealPfSense(t *testing.T, p *php, config string) *realPfSense {
	t.Helper()
	r := &realPfSense{Machine: fake.NewMachine(map[string]string{pfsense.Config: config}), kernel: &dnctl.Machine{}, php: p}
	changes := func([]string) bool { return true }
	r.Tools["dnctl"] = fake.Tool{Run: fake.Program(r.kernel, "dnctl", r.Files), Changes: changes}
	r.Tools["pfSsh.php"] = fake.Tool{Run: r.shell, Changes: changes}
	if _, err := r.shell(nil, []byte("require_once(\"filter.inc\");\nrequire_once(\"shaper.inc\");\nfilter_configure_sync();\nexec\nexit\n")); err != nil {
		t.Fatal(err)
	}
	return r
}

// shell runs pfSense's PHP shell in the directory, and the commands that this
// ran in the stand-in's kernel.
func (r *realPfSense) shell(_ []string, in []byte) (string, error) {
	path := func(name string) string { return filepath.Join(r.php.work, name) }
	inside := map[string]string{pfsense.Config: "config.xml", pfsense.RulesLimiter: "rules.limiter", pfsense.RulesDebug: "rules.debug"}
	for _, name := range []string{"config.cache", "runs", "rules.limiter", "rules.debug", "log"} {
		_ = os.Remove(path(name))
	}
	write := func(name, text string) error { return os.WriteFile(path(name), []byte(text), 0o700) }
	shown := r.kernel.Run([]string{"dnctl", "queue", "show"}, nil).Stdout
	if err := errors.Join(write("config.xml", r.Files[pfsense.Config]), write("shown", shown), write("dnctl", "#!/bin/sh\ncat "+path("shown")+"\n")); err != nil {
		return "", err
	}
	out, err := r.php.run(string(in))
	if err != nil {
		return "", err
	}
	r.said += out
	for file, name := range inside {
		if text, err := os.ReadFile(path(name)); err == nil {
			r.Files[file] = string(text)
		}
	}
	log, _ := os.ReadFile(path("log"))
	r.said += string(log)
	runs, _ := os.ReadFile(path("runs"))
	for line := range strings.Lines(string(runs)) {
		w := strings.Fields(line)
		if !strings.HasSuffix(w[0], "/dnctl") {
			continue // a sysctl
		}
		w[0] = "dnctl"
		result := r.kernel.Run(w, func(file string) (string, bool) {
			text, err := os.ReadFile(file)
			return string(text), err == nil
		})
		if result.Exit != 0 {
			r.said += strings.Join(w, " ") + ": " + result.Stderr
		}
	}
	return out, nil
}

// enabledWAN returns a config.xml with a foreign limiter, and with the
// interface that a plan shapes.
func enabledWAN(wan string) string {
	return strings.Replace(pfsensefake.New().Files[pfsense.Config], "igb0", wan, 1)
}

// applyTo is Apply to a pfSense. Errors fail the test.
func applyTo(t *testing.T, r platform.Runner, c MatrixCase, applied func()) (diffs, left []string) {
	t.Helper()
	diffs, left, err := Apply(t.Context(), &pfsense.Backend{Runner: r}, r, c, applied)
	if err != nil {
		t.Fatal(err)
	}
	return diffs, left
}

// TestPfSense applies every plan to a router with pfSense's own PHP, and to the
// stand-in. The plan is accepted, stored, read back equal and taken back, and
// both routers have the same state in between.
func TestPfSense(t *testing.T) {
	checkout := given(t, "UNBLOAT_PFSENSE", "a checkout of pfSense's repository")
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("SKIPPED: there is no php")
	}
	if _, err := os.Stat(filepath.Join(checkout, "src/etc/inc/shaper.inc")); err != nil {
		t.Fatal(err)
	}
	n, sides, p := 0, 0, startPHP(t, checkout)
	for _, c := range matrix(t, "pfsense") {
		config := enabledWAN(c.Plan.WAN)
		real := newRealPfSense(t, p, config)
		stand := pfsensefake.New()
		stand.Files[pfsense.Config] = config
		stand.Load()
		var files [2]map[string]string
		diffs, left := applyTo(t, real, c, func() { files[0] = maps.Clone(real.Files) })
		if len(diffs)+len(left) > 0 || real.said != "" {
			t.Errorf("%s: not as wanted: %q; left behind: %q; PHP says: %s", c.Name, diffs, left, real.said)
			if n++; n > 1 {
				t.FailNow()
			}
			continue
		}
		if diffs, left := applyTo(t, stand, c, func() { files[1] = maps.Clone(stand.Files) }); len(diffs)+len(left) > 0 {
			t.Errorf("%s: the stand-in differs: %q, %q", c.Name, diffs, left)
		}
		for i := range files {
			files[i][pfsense.RulesDebug] = oursOf(files[i][pfsense.RulesDebug])
		}
		if d := cmp.Diff(files[0], files[1]); d != "" {
			t.Errorf("%s: -real +stand-in\n%s", c.Name, d)
			if n++; n > 1 {
				t.FailNow()
			}
			continue
		}
		sides++
	}
	t.Logf("%d plans accepted, stored, read back equal and taken away again", sides)
}

// oursOf returns our rules among those that pf was given.
func oursOf(rules string) (out string) {
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "unbloat: ") {
			out += line
		}
	}
	return out
}

// TestPfSenseLimiters gives random limiters, valid and invalid, to pfSense's
// own shaper.inc and to the stand-in. Both must make the same of them.
func TestPfSenseLimiters(t *testing.T) {
	checkout := given(t, "UNBLOAT_PFSENSE", "a checkout of pfSense's repository")
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("SKIPPED: there is no php")
	}
	p := startPHP(t, checkout)
	seed := uint64(1)
	if s := os.Getenv("UNBLOAT_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 400 {
		config := "<?xml version=\"1.0\"?>\n<pfsense><version>1</version>" + anyLimiters(random) + "</pfsense>"
		r := &realPfSense{Machine: fake.NewMachine(map[string]string{pfsense.Config: config}), kernel: &dnctl.Machine{}, php: p}
		said, err := r.shell(nil, []byte("require_once(\"filter.inc\");\nrequire_once(\"shaper.inc\");\nfilter_generate_dummynet_rules();\nexec\nexit\n"))
		if err != nil {
			t.Fatal(err)
		}
		made := pfsensefake.Limiters(config, time.Now())
		rules := ""
		if made.Rules != nil {
			rules = *made.Rules
		}
		if real := r.Files[pfsense.RulesLimiter]; real != rules || (made.Fatal != "") != strings.Contains(said, "Error:") || made.Fatal != "" && made.Fatal != said {
			t.Errorf("%d: %s\nPHP says %q, the stand-in %q\n-real +stand-in\n%s", i, config, said, made.Fatal, cmp.Diff(real, rules))
		}
	}
}

// anyLimiters returns a random dnshaper section.
func anyLimiters(random *rand.Rand) string {
	of := func(list ...string) string { return list[random.IntN(len(list))] }
	field := func(name string, chance float64, list ...string) string {
		if random.Float64() > chance {
			return ""
		}
		return "<" + name + ">" + of(list...) + "</" + name + ">"
	}
	queue := func(name string, children func() string) string {
		q := "<queue>" + field("name", 0.98, name, name, name, name, "up", "a", "0") + field("number", 0.9, "1", "2", "3", "7", "12", "", "x") +
			field("enabled", 0.95, "on", "on", "on", "on", "", "1", "0") + field("mask", 0.4, "none", "srcaddress", "dstaddress", "odd", "") +
			field("maskbits", 0.2, "32", "24", "1", "", "0", " 8", "7.5") + field("maskbitsv6", 0.2, "128", "64", "", "1e1") +
			field("qlimit", 0.2, "50", "100", "101", "1000", "0", "", "1e3") + field("plr", 0.15, "0.1", "0", "1", "", "5e-1") + field("buckets", 0.15, "16", "1024", "0", "") +
			field("delay", 0.15, "10", "0", "", "0.0", "010") + field("aqm", 0.9, "droptail", "droptail", "codel", "pie", "red", "gred", "") + field("ecn", 0.4, "on", "off", "") +
			field("weight", 0.3, "1", "50", "100", "0", "500", "") + field("sched", 0.9, "fq_codel", "fq_codel", "fq_pie", "wf2q+", "fifo", "qfq", "rr", "prio", "other", "") +
			field("param_fq_codel_target", 0.4, "5", "0", "", "x y") + field("param_fq_codel_limit", 0.3, "10240", "-1") + field("param_codel_target", 0.3, "7", "0.5", "") +
			field("param_pie_alpha", 0.3, "1", "0.2", "") + field("param_red_max_th", 0.3, "40", "") + field("pie_onoff", 0.2, "on", "off") + field("pie_qdelay", 0.2, "on") +
			field("pie_capdrop", 0.2, "on", "") + field("pie_pderand", 0.2, "on") + field("description", 0.2, "a &amp; b", "<![CDATA[a &lt; b]]>")
		return q + children() + "</queue>"
	}
	out := "<dnshaper>"
	for range random.IntN(4) {
		out += queue(of("up", "down", "guests", " x ", "my link", "a&amp;b", "é"), func() string {
			s := ""
			if random.Float64() < 0.9 {
				s += "<bandwidth>"
				for range random.IntN(3) {
					s += "<item>" + field("bw", 0.99, "85", "9.5", "0.4", " 7 ", "1e3", "-1", "100000000000000", ".5", "x", "0x10") + field("burst", 0.5, "", "0", "1500", "x", " 8 ") +
						field("bwscale", 0.9, "Mb", "Kb", "Gb", "b", "") + field("bwsched", 0.9, "none", "none", "none", "day", "") + "</item>"
				}
				s += "</bandwidth>"
			}
			for range random.IntN(4) {
				s += queue(of("a", "b", "c", "up", "d_1", "e-2", "bad name"), func() string { return "" })
			}
			return s
		})
	}
	return out + "</dnshaper>"
}
