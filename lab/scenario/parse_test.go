package scenario

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/scenarios"
	"unbloat/unit"
)

const good = `name  = "x"
title = "t"

[line]
down = "15 Mbit/s"
up   = "1 Mbit/s"
rtt  = "24 ms"
buffer_down = "1.5 MB"
buffer_up   = "375 kB"
vary = [{ at = "20s", down = "8 Mbit/s" }]

[[load]]
kind  = "upload"
flows = 2

[[load]]
kind = "voip"
host = 2

[[case]]
name   = "before"
router = "none"
[[case]]
name   = "seed"
router = { aqm = "fq_codel", up = "950 kbit/s", target = "15 ms", ecn = false }
`

func TestEmbeddedScenariosParse(t *testing.T) {
	for _, name := range scenarios.Names() {
		text, err := scenarios.Text(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(name+".toml", text)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != name {
			t.Errorf("%s.toml names itself %q", name, s.Name)
		}
	}
}

func TestParse(t *testing.T) {
	s, err := Parse("x.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if s.Line.Up != unit.MbitPerSecond || s.Line.RTT != 24*time.Millisecond || s.Line.BufferUp != 375*unit.KB {
		t.Errorf("line read as %+v", s.Line)
	}
	if s.Hosts() != 2 || len(s.Loads) != 2 || s.Loads[0].Flows != 2 || s.Loads[1].Flows != 1 {
		t.Errorf("loads read as %+v", s.Loads)
	}
	f := s.Cases[1].Router.Fix
	if f == nil || f.Up != 950*unit.KbitPerSecond || f.ECN == nil || *f.ECN || f.Target != 15*time.Millisecond {
		t.Errorf("fix read as %+v", f)
	}
}

// A queue that drops what waits longest takes the place of buffers.
func TestParseHeadDrop(t *testing.T) {
	text := strings.Replace(good, "buffer_down = \"1.5 MB\"\nbuffer_up   = \"375 kB\"", "head_drop = \"30 ms\"\necho_only = true", 1)
	s, err := Parse("x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Line; l.HeadDrop != 30*time.Millisecond || !l.EchoOnly || l.BufferDown+l.BufferUp != 0 || l.HeadDropPackets(l.Down) != 37 || l.HeadDropPackets(0) != leastHeadDrop {
		t.Errorf("line read as %+v", l)
	}
	_, err = Parse("x.toml", []byte(strings.Replace(good, "rtt  =", "head_drop = \"30 ms\"\nrtt  =", 1)))
	if err == nil || !strings.Contains(err.Error(), "buffer_down") {
		t.Errorf("head_drop beside buffers: %v", err)
	}
}

// What a load's kind has by itself, and what a case's rules are.
func TestParseDefaults(t *testing.T) {
	text := strings.Replace(good, `kind = "voip"`, "kind = \"webrtc\"\n[[load]]\nkind = \"cloud-game\"\n[[load]]\nkind = \"game\"", 1)
	s, err := Parse("x.toml", []byte(strings.Replace(text, `ecn = false`, `rules = ["class=interactive,protocol=udp,far_port=3478-3497"]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Loads[1:]; l[0].Bitrate != 1500*unit.KbitPerSecond || l[1].Rate != 15*unit.MbitPerSecond || l[2].PPS != 64 || l[2].BytesDown != 0 {
		t.Errorf("loads read as %+v", l)
	}
	if r := s.Cases[1].Router.Fix.Rules; len(r) != 1 || r[0] != "class=interactive,protocol=udp,far_port=3478-3497" {
		t.Errorf("rules read as %q", r)
	}
}

// A load that would outlast its phase ends with it.
func TestStopAfterPhase(t *testing.T) {
	for stop, want := range map[string]time.Duration{"20s": 20 * time.Second, "30s": 30 * time.Second, "1h": 0} {
		s, err := Parse("x.toml", []byte(strings.Replace(good, `kind = "voip"`, "kind = \"voip\"\nstop = \""+stop+"\"", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Loads[1].Stop; got != want {
			t.Errorf("stop = %q is read as %v, want %v", stop, got, want)
		}
	}
}

// Each error names its line.
func TestParseNamesTheLine(t *testing.T) {
	for _, c := range []struct {
		old, new string
		line     int
		why      string
	}{
		{`up   = "1 Mbit/s"`, `up   = 1`, 6, "in quotes"},
		{`up   = "1 Mbit/s"`, `up   = "1"`, 6, "no unit"},
		{`up   = "1 Mbit/s"`, `upp  = "1 Mbit/s"`, 4, "missing"},
		{`rtt  = "24 ms"`, "rtt  = \"24 ms\"\nspeed = 3", 8, "unknown key"},
		{`kind = "voip"`, `kind = "cobol"`, 17, "unknown"},
		{`host = 2`, `host = 0`, 18, "outside"},
		{`flows = 2`, `flows = 100000`, 14, "outside"},
		{`flows = 2`, `peers = 40`, 14, "is of loads of kind torrent, not of upload"},
		{`kind = "voip"`, "kind = \"torrent\"\npeers = 1000", 18, "outside"},
		{`kind = "voip"`, "kind = \"torrent\"\ntransport = \"sctp\"", 18, "tcp, utp"},
		{`kind = "voip"`, "kind = \"imap\"\nflows = 2", 18, "one client"},
		{`kind = "voip"`, "kind = \"imap\"\nmessages = 0", 18, "outside"},
		{`kind = "voip"`, "kind = \"game\"\npps = 5000", 18, "outside"},
		{`kind = "voip"`, "kind = \"web\"\nthink = \"2\"", 18, "no unit; write"},
		{`kind = "voip"`, "kind = \"ssh\"\ninterval = \"1us\"", 18, "below 1 ms"},
		{`kind = "voip"`, "kind = \"voip\"\nstart = \"30s\"", 18, "not before the end"},
		{`kind = "voip"`, "kind = \"webrtc\"\nbitrate = \"100 kbit/s\"", 18, "outside 150 kbit/s to 20 Mbit/s"},
		{`kind = "voip"`, "kind = \"webrtc\"\ndscp = \"high\"", 18, "af41, nqb, ef"},
		{`kind = "voip"`, "kind = \"voip\"\nbitrate = \"1 Mbit/s\"", 18, "is of loads of kind webrtc, not of voip"},
		{`kind = "voip"`, "kind = \"cloud-game\"\nrate = \"1 kbit/s\"", 18, "outside 1 Mbit/s to 100 Mbit/s"},
		{`kind = "voip"`, "kind = \"quic-upload\"\ncc = \"bbr\"", 18, "upload and download"},
		{`kind = "voip"`, "kind = \"game\"\nbytes_down = 2", 18, "outside 4 to 1472"},
		{`ecn = false`, `rules = ["voice"]`, 25, "is no rule"},
		{`ecn = false`, `rules = "class=voice"`, 25, "list of at most"},
		{`ecn = false`, `classes = "off", rules = ["class=voice,protocol=udp"]`, 25, "classes is off"},
		{`target = "15 ms"`, `target = "-15 ms"`, 25, "negative"},
		{`up = "950 kbit/s",`, ``, 25, "shapes nothing"},
		{`at = "20s"`, `at = "soon"`, 10, "write it like"},
		{`router = "none"`, `router = "nothing"`, 22, "unknown"},
		{`name   = "seed"`, `name   = "before"`, 24, "two cases"},
		{`title = "t"`, `title = `, 2, ""},
		{`name  = "x"`, `name  = "../../etc/passwd"`, 1, "no name"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		_, err := Parse("x.toml", []byte(text))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: no *Error but %v", c.new, err)
			continue
		}
		if e.Line != c.line || !strings.Contains(e.Error(), c.why) {
			t.Errorf("%q: %v; want line %d and %q", c.new, e, c.line, c.why)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("[[case]]\nname=1\n[case.router]\na=[[1]]\n"))
	f.Add([]byte("line=[1]\nload={}\n"))
	f.Add([]byte("a.b.c={d.e=[{f=1}]}\n[a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("f.toml", text)
		if err == nil && (len(s.Cases) == 0 || s.Line.Up <= 0 || s.Line.Down <= 0) {
			t.Fatalf("accepted without cases or rates: %+v", s)
		}
	})
}
