package scenario

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/unit"
)

const followed = `name = "x"
[line]
down = "15 Mbit/s"
up   = "1 Mbit/s"
rtt  = "24 ms"
buffer_down = "1.5 MB"
buffer_up   = "375 kB"
trace = "x.trace"
[[case]]
name   = "follows"
router = { daemon = { down = "15 Mbit/s", up = "1 Mbit/s", follow = true, least_down = "2 Mbit/s", most_up = "2 Mbit/s" } }
`

// A scenario names the file of its line's rates and the daemon's configuration.
func TestReadTraceAndDaemon(t *testing.T) {
	s, err := Read("x.toml", []byte(followed), func(name string) ([]byte, error) {
		if name != "x.trace" {
			t.Errorf("it asks for %q", name)
		}
		return []byte("# seconds down up\n0 15 1\n0.2 15 1\n0.4 7.5 0 # an outage up\n1 15 0.5\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{At: 0, Down: 15 * unit.MbitPerSecond, Up: unit.MbitPerSecond, Exact: true},
		{At: 400 * time.Millisecond, Down: 7500 * unit.KbitPerSecond, Exact: true},
		{At: time.Second, Down: 15 * unit.MbitPerSecond, Up: 500 * unit.KbitPerSecond, Exact: true},
	}
	if !slices.Equal(s.Line.Vary, want) {
		t.Errorf("the line changes by %+v", s.Line.Vary)
	}
	d := s.Cases[0].Router.Daemon
	if s.Cases[0].Router.Mode != ModeDaemon || d == nil || !d.Follow || d.Down != 15*unit.MbitPerSecond || d.LeastDown != 2*unit.MbitPerSecond || d.MostUp != 2*unit.MbitPerSecond {
		t.Errorf("the daemon is read as %+v", d)
	}
	if _, err := Read("x.toml", []byte(followed), func(string) ([]byte, error) { return nil, os.ErrNotExist }); err == nil {
		t.Error("a trace that is not there was read")
	}
}

// What is wrong with a trace or a daemon is named with its line.
func TestTraceNamesTheLine(t *testing.T) {
	for text, why := range map[string]string{
		"0 1\n":                 "x.trace:1: 2 fields",
		"0 1 1\n1 -1 1\n":       "x.trace:2: \"-1\"",
		"0 1 1\n1 NaN 1\n":      "x.trace:2: \"NaN\"",
		"1 1 1\n":               "x.trace:1: the first line",
		"0 1 1\n2 1 1\n2 2 2\n": "x.trace:3: 2s is not after",
		"# nothing\n":           "x.trace: no rates",
		"0 1 1\n0.1 1e9 1\n#\n": "x.trace:2: \"1e9\"",
	} {
		_, err := ParseTrace("x.trace", []byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Error(), why) {
			t.Errorf("%q: %v; want %s", text, err, why)
		}
	}
	for _, c := range []struct{ old, new, why string }{
		{`trace = "x.trace"`, `trace = "../x"`, "x.toml:8"},
		{`trace = "x.trace"`, "trace = \"x\"\nvary = [{ at = \"1s\" }]", "x.toml:8"},
		{`follow = true`, `follow = 1`, "x.toml:11"},
		{`follow = true, `, ``, "x.toml:11"},
		{`least_down = "2 Mbit/s"`, `least_down = "20 Mbit/s"`, "x.toml:11"},
		{`follow = true`, `follows = true`, "x.toml:11"},
	} {
		_, err := Parse("x.toml", []byte(strings.Replace(followed, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), c.why) {
			t.Errorf("%s: %v; want %s", c.new, err, c.why)
		}
	}
}

// The same seed gives the same line, which is written and read back as it is.
func TestVaryingLines(t *testing.T) {
	for _, k := range LineKinds() {
		line := func(seed uint64) []Change {
			c, err := Varying(k, seed, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a := line(1)
		if !slices.Equal(a, line(1)) || slices.Equal(a, line(2)) {
			t.Errorf("%s: seeds don't decide", k)
		}
		back, err := ParseTrace("t", FormatTrace("made", a))
		if err != nil || !slices.Equal(a, back) {
			t.Errorf("%s: it is not read as it was written: %v", k, err)
		}
		if len(a) < 10 {
			t.Errorf("%s: %d changes in a minute", k, len(a))
		}
	}
	if _, err := Varying("isdn", 1, time.Minute); err == nil {
		t.Error("a kind that there is not was made")
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add([]byte("0 1 1\n1 0 0.5 # out\n"))
	f.Add([]byte("0 1e-3 1e5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseTrace("t", text)
		if err != nil {
			return
		}
		if len(c) == 0 || c[0].At != 0 {
			t.Fatalf("accepted %q as %v", text, c)
		}
		for i := range c[1:] {
			if c[i+1].At <= c[i].At {
				t.Fatalf("%q goes back in time", text)
			}
		}
	})
}
