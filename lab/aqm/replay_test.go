package aqm

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoldenTraces replays every trace of the corpus: 24 arrival patterns with
// Linux 6.12, OpenBSD 1.16 and OpenBSD 1.21. Every packet must agree.
func TestGoldenTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt.gz")
	if err != nil || len(files) != 72 {
		t.Fatalf("%d traces, error %v; want 72", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			res, err := Replay(f, 3)
			if err != nil {
				t.Fatal(err)
			}
			if res.Packets == 0 || res.Agree != res.Packets {
				t.Errorf("%d of %d packets agree; first that differ: %v", res.Agree, res.Packets, res.FirstDifferences)
			}
		})
	}
}

// golden reads a trace of the corpus as text.
func golden(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPlainTextAgreesToo replays a trace that is not gzipped.
func TestPlainTextAgreesToo(t *testing.T) {
	res, err := Replay(strings.NewReader(golden(t, "1010-linux-6.12.txt.gz")), 1)
	if err != nil || res.Agree != res.Packets || res.Packets != 1500 {
		t.Fatalf("%+v, error %v; want 1500 of 1500", res, err)
	}
}

// TestAlteredTraceDiffers changes the fate of one packet at a time: the replay
// must find the difference.
func TestAlteredTraceDiffers(t *testing.T) {
	text := golden(t, "1002-linux-6.12.txt.gz")
	for _, c := range []struct{ name, from, to string }{
		{"time", "sent 179862698 mark", "sent 179862699 mark"},
		{"mark taken away", "sent 179862698 mark", "sent 179862698"},
		{"fate", "sent 179862698 mark", "drop 179862698"},
		{"a dialect of its own", "linux-6.12", "ns-3"},
		{"rate", `"rate_bps": 5000000`, `"rate_bps": 5000001`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(text, c.from) {
				t.Fatalf("the trace has no %q", c.from)
			}
			res, err := Replay(strings.NewReader(strings.Replace(text, c.from, c.to, 1)), 5)
			if err != nil {
				t.Fatal(err)
			}
			if res.Agree == res.Packets || len(res.FirstDifferences) == 0 {
				t.Errorf("%d of %d packets agree with an altered trace", res.Agree, res.Packets)
			}
		})
	}
}

// TestLeftPackets cuts a trace short: packets that were not sent by then are
// still queued.
func TestLeftPackets(t *testing.T) {
	const trace = `# {"implementation": "linux-6.12", "rate_bps": 8000000}
0 0 1 1000 sent 0
1 0 1 1000 sent 1000000
2 0 1 1000 left 0
`
	res, err := Replay(strings.NewReader(trace), 1)
	if err != nil || res.Agree != 3 {
		t.Fatalf("%+v, error %v; want 3 that agree", res, err)
	}
}

// TestBadTraces: text that is not a trace is refused, with its line number.
func TestBadTraces(t *testing.T) {
	const head = `# {"implementation": "linux-6.12", "rate_bps": 1000000}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 1: the trace is empty"},
		{"no parameters", "0 0 1 1000 sent 0\n", "line 1: the first line"},
		{"not JSON", "# {\n", "line 1: parameters"},
		{"no implementation", `# {"rate_bps": 1}`, "line 1: parameters: \"implementation\""},
		{"unknown implementation", `# {"implementation": "plan9", "rate_bps": 1}`, "known are rfc, linux-6.12"},
		{"rate", `# {"implementation": "linux-6.12", "rate_bps": 0}`, "line 1: parameters: rate_bps 0"},
		{"flows", `# {"implementation": "linux-6.12", "rate_bps": 1, "flows": 0}`, "line 1: fq_codel: 0 flows"},
		{"limit", `# {"implementation": "linux-6.12", "rate_bps": 1, "limit_packets": -1}`, "line 1: parameters: limit_packets"},
		{"quantum", `# {"implementation": "linux-6.12", "rate_bps": 1, "quantum_bytes": 0}`, "line 1: parameters: quantum"},
		{"interval", `# {"implementation": "linux-6.12", "rate_bps": 1, "interval_ns": 0}`, "line 1: fq_codel: codel: interval"},
		{"fields", head + "0 0 1\n", "line 2: 3 fields"},
		{"number", head + "0 x 1 1000 sent 0\n", `line 2: enqueue_ns "x"`},
		{"size", head + "0 0 1 0 sent 0\n", `line 2: bytes "0"`},
		{"fate", head + "0 0 1 9 lost 0\n", `line 2: fate "lost"`},
		{"mark", head + "0 0 1 9 sent 0 ce\n", `line 2: "ce" after the time`},
		{"order", head + "0 5 1 9 sent 5\n1 4 1 9 sent 5\n", "line 3: packet 1 arrives before"},
		{"seq", head + "1 5 1 9 sent 5\n1 5 1 9 sent 5\n", "line 3: packet 1 after packet 1"},
		{"long line", head + strings.Repeat("x", 5000), "line 2: longer than 4096 bytes"},
		{"cut gzip", "\x1f\x8b\x08\x00", "read gzip header"},
		{"cut in a line", cutGzip(t, head+"0 0 1 1000 sent 0\n1 5 1 100"), "line 3: unexpected EOF"},
		{"no packet", head, "line 2: the trace ends before its first packet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Replay(strings.NewReader(c.text), 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want it to say %q", err, c.want)
			}
		})
	}
}

// cutGzip compresses the text, and cuts off the end of the result.
func cutGzip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzRun: no input may crash the reader or the replay, and a trace with the
// replay's own answers must agree with the replay.
func FuzzRun(f *testing.F) {
	for _, name := range []string{"1007-linux-6.12.txt.gz", "1007-openbsd-1.16.txt.gz", "1007-openbsd-1.21.txt.gz"} {
		text := golden(f, name)
		f.Add([]byte(text[:strings.LastIndexByte(text[:3000], '\n')]))
	}
	f.Add([]byte("# {\"implementation\":\"freebsd\",\"rate_bps\":8000,\"flows\":2,\"limit_packets\":1}\n0 0 1 1500 sent 0\n1 0 2 9 drop 0\n2 0 2 9 left 0 mark\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		tr, err := ReadTrace(bytes.NewReader(text))
		if err != nil || len(tr.Packets) == 0 {
			return
		}
		got, err := tr.simulate()
		if err != nil {
			return
		}
		for i := range tr.Packets {
			if tr.Packets[i].Outcome.Fate == Left {
				return // the end of the trace moves with the answers
			}
			tr.Packets[i].Outcome = got[i]
		}
		res, err := tr.Replay(1)
		if err != nil {
			t.Fatal(err)
		}
		if res.Agree != res.Packets {
			t.Fatalf("a replay differs from itself: %v", res.FirstDifferences)
		}
	})
}
