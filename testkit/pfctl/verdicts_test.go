package pfctl

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
)

// A vector is a pf.conf with the answer of the real program.
type vector struct {
	Config     string
	Accepted   bool
	Exit       *int
	Message    []string
	Normalised *[]string
}

// recorded returns the machine on which the vectors were recorded.
func recorded(g Grammar, config string) *Program {
	prefix := netip.MustParsePrefix
	gbit := func(name string, a ...netip.Prefix) Interface {
		return Interface{Name: name, Speed: 1e9, MTU: 1500, Addresses: a}
	}
	return &Program{
		Grammar: g,
		Interfaces: []Interface{
			gbit("lo0", prefix("127.0.0.1/8"), prefix("::1/128")),
			gbit("em0", prefix("192.168.1.1/24"), prefix("2001:db8::1/64")),
			gbit("em1", prefix("192.168.2.1/24"), prefix("2001:db8::2/64")),
		},
		File: func(path string) (string, bool) { return config, path == "pf.conf" },
	}
}

// judge gives the pf.conf of a vector to the stand-in and compares the answers.
func judge(t *testing.T, g Grammar, line int, v vector) {
	t.Helper()
	out, errs, exit := recorded(g, v.Config+"\n").Run([]string{"-nvf", "pf.conf"})
	if (exit == 0) != v.Accepted || v.Exit != nil && *v.Exit != exit {
		t.Errorf("%d: %s\nexit %d, want accepted %v\n%s", line, v.Config, exit, v.Accepted, errs)
	}
	if v.Normalised == nil { // the recording has only the messages
		for _, m := range v.Message {
			if !strings.Contains(errs, m) {
				t.Errorf("%d: %s\n%q is not said in %q", line, v.Config, m, errs)
			}
		}
		return
	}
	if d := cmp.Diff(v.Message, lines(errs)); d != "" {
		t.Errorf("%d: %s\nmessages -real +stand-in\n%s", line, v.Config, d)
	}
	if d := cmp.Diff(*v.Normalised, lines(out)); d != "" {
		t.Errorf("%d: %s\n-real +stand-in\n%s", line, v.Config, d)
	}
}

func lines(text string) []string {
	if text == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// TestPfVerdicts compares with the recorded answers of the current pfctl.
func TestPfVerdicts(t *testing.T) {
	for _, file := range []string{"pf.jsonl", "openbsd-pf.jsonl"} {
		await.EachVerdict(t, file, func(t *testing.T, line int, v vector) { judge(t, Today, line, v) })
	}
}

// TestALTQVerdicts compares with the recorded answers of the pfctl with ALTQ.
func TestALTQVerdicts(t *testing.T) {
	await.EachVerdict(t, "altq.jsonl", func(t *testing.T, line int, v vector) { judge(t, ALTQ, line, v) })
}
