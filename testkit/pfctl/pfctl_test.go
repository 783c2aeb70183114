package pfctl

import (
	"strings"
	"testing"
)

// with returns the machine of the recordings with these files.
func with(g Grammar, files map[string]string) *Program {
	p := recorded(g, "")
	p.File = func(path string) (string, bool) { text, ok := files[path]; return text, ok }
	return p
}

// TestGoesOnBehindErrors: each wrong line is reported with its file and line
// number. After a syntax error the next one is reported only after three right
// tokens.
func TestGoesOnBehindErrors(t *testing.T) {
	files := map[string]string{
		"pf.conf": "include \"a.conf\" # ours\nqueue o on em0 bandwith 1M\nx\ny\npass in on em0 nonsense\nqueue p on em1 bandwidth 1Q default\n",
		"a.conf":  "# a\nqueue q on em9 flows 10\n",
	}
	_, errs, exit := with(Today, files).Run([]string{"-nf", "pf.conf"})
	want := "a.conf:2: not an interface\npf.conf:2: syntax error\npf.conf:5: syntax error\npf.conf:6: unknown unit \"Q\"\n"
	if exit != 1 || errs != want {
		t.Errorf("exit %d\n%swant\n%s", exit, errs, want)
	}
	_, errs, _ = with(Today, map[string]string{"pf.conf": "pass in on $x\nqueue nonsense\n"}).Run([]string{"-nf", "pf.conf"})
	if want := "pf.conf:1: macro 'x' not defined\npf.conf:1: syntax error\n"; errs != want {
		t.Errorf("%q, want %q: the next line is passed over too", errs, want)
	}
}

// TestLoadsAllOrNothing: a pf.conf with an error leaves the loaded rules in
// place, and -n loads nothing.
func TestLoadsAllOrNothing(t *testing.T) {
	files := map[string]string{
		"good":  "queue up on em0 bandwidth 10M max 10M\nqueue std parent up bandwidth 10M flows 1024 qlimit 100 default\nmatch out on em0 proto { tcp udp } to port 53 set queue std\n",
		"bad":   "queue q on em0 bandwidth 1M\n",
		"other": "queue q on em1 flows 16\npass\n",
	}
	p := with(Today, files)
	p.Counts = func(string) Count { return Count{Packets: 7, Bytes: 4200, Drops: 1, DroppedBytes: 1514, Waiting: 3} }
	shown := func() string {
		queues, _, _ := p.Run([]string{"-vsq"})
		rules, _, _ := p.Run([]string{"-sr"})
		return queues + rules
	}
	if _, errs, exit := p.Run([]string{"-f", "good"}); exit != 0 {
		t.Fatal(errs)
	}
	const counters = "  [ pkts:          7  bytes:       4200  dropped pkts:      1 bytes:   1514 ]\n"
	want := "queue up on em0 bandwidth 10M, max 10M\n" + counters + "  [ qlength:   3/ 50 ]\n" +
		"queue std parent up flows 1024 bandwidth 10M default qlimit 100\n" + counters + "  [ qlength:   3/100 ]\n" +
		"match out on em0 proto tcp from any to any port = 53 set (queue std)\nmatch out on em0 proto udp from any to any port = 53 set (queue std)\n"
	if got := shown(); got != want {
		t.Errorf("\n%swant\n%s", got, want)
	}
	for _, args := range [][]string{{"-f", "bad"}, {"-f", "none"}, {"-nf", "other"}, {"-n", "-f", "other"}} {
		if p.Run(args); shown() != want {
			t.Errorf("%q changed it:\n%s", args, shown())
		}
	}
	if p.Run([]string{"-f", "other"}); strings.Contains(shown(), "parent") {
		t.Errorf("it is still there:\n%s", shown())
	}
}

// TestALTQShown: the queues of an interface are shown as a tree, with the root
// queues that pfctl adds.
func TestALTQShown(t *testing.T) {
	p := with(ALTQ, map[string]string{"pf.conf": "altq on em0 bandwidth 10Mb hfsc queue { a, b }\nqueue a bandwidth 3300Kb qlimit 9 hfsc ( default realtime 2Mb )\nqueue b bandwidth 60% { c }\nqueue c bandwidth 50%\n"})
	if _, errs, exit := p.Run([]string{"-f", "pf.conf"}); exit != 0 {
		t.Fatal(errs)
	}
	got, _, _ := p.Run([]string{"-s", "queue"})
	want := "queue root_em0 on em0 bandwidth 10Mb priority 0 {a, b}\nqueue  a on em0 bandwidth 3.30Mb qlimit 9 hfsc( default realtime 2Mb ) \nqueue  b on em0 bandwidth 6Mb {c}\nqueue   c on em0 bandwidth 3Mb \n"
	if got != want {
		t.Errorf("\n%swant\n%s", got, want)
	}
	if out, _, _ := with(ALTQ, nil).Run([]string{"-sq"}); out != "No queue in use\n" {
		t.Errorf("%q", out)
	}
}

// TestRefusesWhatItDoesNotKnow: the stand-in must not accept what the real
// program may refuse.
func TestRefusesWhatItDoesNotKnow(t *testing.T) {
	for text, g := range map[string]Grammar{
		"pass in on em0 from any os Linux\n":              Today,
		"pass in on em0 route-to 192.168.1.9\n":           Today,
		"match out on em0 nat-to { 1.2.3.4 1.2.3.5 }\n":   Today,
		"pass in on em0 divert-packet port 700\n":         Today,
		"set fingerprints \"/etc/pf.os\"\n":               Today,
		"pass out on em0 proto tcp user alice\n":          Today,
		"pass out on em0 to www.example.com\n":            Today,
		"match out on em0 queue a\n":                      ALTQ,
		"binat on em0 from 10.0.0.1 to any -> 10.0.0.2\n": ALTQ,
		"queue q on em0 flows 16\n":                       ALTQ,
		"altq on em0 bandwidth 1Mb hfsc queue { bb }\n":   Today,
		"nat on em0 from em1:network to any -> (em0)\n":   Today,
		"pass out on em0\nno newline at the end, of old":  ALTQ,
	} {
		if _, errs, exit := with(g, map[string]string{"pf.conf": text}).Run([]string{"-nf", "pf.conf"}); exit != 1 || errs == "" {
			t.Errorf("%q: exit %d, %q", text, exit, errs)
		}
	}
	if _, errs, exit := recorded(Today, "").Run([]string{"-x", "loud"}); exit != 1 || !strings.Contains(errs, "does not know") {
		t.Errorf("an option: %d, %q", exit, errs)
	}
}

// FuzzRun: with any text the program ends, an exit code of 1 comes with a
// message, and the same text gets the same answer.
func FuzzRun(f *testing.F) {
	f.Add("a=b\nqueue r on em0 bandwidth 10M, max 10M\nqueue s parent r bandwidth 1M burst 2M for 10ms flows 10 default\nmatch out on em0 proto { tcp udp } to port { 53 5060:5061 } tos ef set ( queue s, prio (3, 5) )\n", byte(0))
	f.Add("altq on { em0 em1 } bandwidth 10Mb hfsc queue { a, b }\nqueue a bandwidth 80% hfsc ( default realtime (2Mb 10 1Mb) )\nqueue b bandwidth 20%\npass out on em0 keep state queue( a, b )\n", byte(1))
	f.Add("anchor \"x\" on em0 {\npass in quick\n}\nantispoof for em1\ntable <t> { 10/8 !10.1.1.1 }\n", byte(2))
	f.Fuzz(func(t *testing.T, text string, g byte) {
		grammar := Grammar(g % 3)
		out, errs, exit := with(grammar, map[string]string{"f": text}).Run([]string{"-nvf", "f"})
		if exit != 0 && errs+out == "" {
			t.Errorf("%q: it fails without a word", text)
		}
		if out2, errs2, exit2 := with(grammar, map[string]string{"f": text}).Run([]string{"-nvf", "f"}); out2 != out || errs2 != errs || exit2 != exit {
			t.Errorf("%q: said differently the second time:\n%s%swant\n%s%s", text, out2, errs2, out, errs)
		}
	})
}
