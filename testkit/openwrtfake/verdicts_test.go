package openwrtfake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
)

// A recorded command is a text, or an object where tc failed.
type recorded struct {
	Command
}

func (c *recorded) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, &c.Text)
	}
	var x struct {
		Cmd  string
		RC   int
		Says string
	}
	err := json.Unmarshal(b, &x)
	c.Command = Command{Text: x.Cmd, RC: x.RC, Says: x.Says}
	return err
}

type call struct {
	Exit     int
	Running  bool
	Commands []recorded
	Says     []string
}

// TestSQMVerdicts gives the stand-in the recorded inputs of the real scripts,
// and compares commands, exit codes, log and the running state.
func TestSQMVerdicts(t *testing.T) {
	type vector struct {
		Note, Section string
		Interface     *struct {
			Name string
			MTU  int
		}
		Start call
		Stop  *call
	}
	await.EachVerdict(t, "sqm.jsonl", func(t *testing.T, line int, v vector) {
		bench := NewBench(0)
		if v.Interface != nil {
			bench = NewBench(v.Interface.MTU, v.Interface.Name)
		}
		s := &Scripts{Kernel: bench}
		got, err := s.Start(v.Section)
		if err != nil {
			t.Errorf("sqm.jsonl:%d: %s: %v", line, v.Note, err)
			return
		}
		compare(t, line, v.Note+", start", got, v.Start)
		running := false
		for name := range s.running {
			running = running || s.Running(name)
		}
		if running != v.Start.Running {
			t.Errorf("sqm.jsonl:%d: %s: running: %v, really %v", line, v.Note, running, v.Start.Running)
		}
		if v.Stop == nil {
			return
		}
		if got, err = s.Stop(""); err != nil {
			t.Errorf("sqm.jsonl:%d: %s: %v", line, v.Note, err)
			return
		}
		compare(t, line, v.Note+", stop", got, *v.Stop)
	})
}

func compare(t *testing.T, line int, note string, got Result, want call) {
	t.Helper()
	if got.Exit != want.Exit {
		t.Errorf("sqm.jsonl:%d: %s: exit %d, really %d", line, note, got.Exit, want.Exit)
	}
	var real []Command
	for _, c := range want.Commands {
		real = append(real, c.Command)
	}
	if d := cmp.Diff(real, bothFamilies(got.Commands)); d != "" {
		t.Errorf("sqm.jsonl:%d: %s: -real +stand-in\n%s", line, note, d)
	}
	says := []string{}
	for _, x := range want.Says {
		if strings.TrimSpace(x) != "" {
			says = append(says, x)
		}
	}
	if d := cmp.Diff(says, append([]string{}, got.Says...)); d != "" {
		t.Errorf("sqm.jsonl:%d: %s, says: -real +stand-in\n%s", line, note, d)
	}
}

// bothFamilies merges equal commands of iptables and ip6tables, without their
// answers, as the recording does.
func bothFamilies(list []Command) (out []Command) {
	for i := 0; i < len(list); i++ {
		c := list[i]
		if rest, is := strings.CutPrefix(c.Text, "iptables "); is {
			c = Command{Text: "ip[6]tables " + rest}
			if i++; i == len(list) || list[i].Text != "ip6tables "+rest {
				return append(out, Command{Text: "iptables alone: " + rest})
			}
		}
		out = append(out, c)
	}
	return out
}

// TestUCIVerdicts: the stand-in reads files as the real uci(1) does.
func TestUCIVerdicts(t *testing.T) {
	type vector struct {
		In  string
		Out *string // nil: refused
	}
	await.EachVerdict(t, "uci.jsonl", func(t *testing.T, line int, v vector) {
		c, err := ParseConfig(v.In)
		switch {
		case (err == nil) != (v.Out != nil):
			t.Errorf("uci.jsonl:%d: %q: %v", line, v.In, err)
		case err == nil && c.Export("x") != *v.Out:
			t.Errorf("uci.jsonl:%d: %q is\n%s\nreally\n%s", line, v.In, c.Export("x"), *v.Out)
		}
	})
}
