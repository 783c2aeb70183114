package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/unit"
)

const whole = `# our home
on_stop = "revert"
[[wan]]
interface = "eth0"        # the modem
lan = "br-lan"
down = "50 Mbit/s"        # what the provider sells
up   = '10 Mbit/s'
link_layer = "docsis"
overhead = 18
goal = "10ms"
classes = "off"

[[wan]]
interface = "em0"
router = "ssh://root@192.0.2.1"
platform = "openbsd"
shape_up = "4500 kbit/s"
`

func TestParse(t *testing.T) {
	c, err := config.Parse("F", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	w := c.WANs[0]
	if c.OnStop != config.StopRevert || len(c.WANs) != 2 || w.Interface != "eth0" || w.LAN != "br-lan" || w.Down != 50*unit.MbitPerSecond || w.Up != 10*unit.MbitPerSecond ||
		w.LinkLayer != plan.DOCSIS || w.Overhead != 18 || w.Goal.Milliseconds() != 10 || w.Preferences().Classes.Use != plan.ClassesOff || w.Preferences().Only != "" {
		t.Errorf("%+v", c)
	}
	if w := c.WANs[1]; w.Preferences().Only != plan.DirectionUp || w.Preferences().Up.Rate != 4500*unit.KbitPerSecond || w.Name() != "em0 of ssh://root@192.0.2.1" {
		t.Errorf("%+v", w)
	}
}

// TestMistakes: all that is wrong is told at once, in the order of the file.
func TestMistakes(t *testing.T) {
	for file, c := range map[string]struct {
		text string
		want []string
	}{
		"F": {"folow = true\n[[wan]]\ninterface = \"eth0\"\ndown = \"50\"\nspeed = 3\n[[wan]]\ninterface = \"eth1\"\n[ui]\nlisten = \"here\"\n",
			[]string{`F:1: there is no key "folow" here`, "F:4: down: ", `F:5: there is no key "speed" here`, "F:6: nothing says how fast", "F:9: listen: "}},
		"/etc/config/unbloat": {"config wan\n\toption interface 'eth0'\n\toption folow '1'\n\toption sped '1'\n\toption down '50'\n",
			[]string{`/etc/config/unbloat:3: there is no option "folow" here`, `/etc/config/unbloat:4: there is no option "sped" here`, "/etc/config/unbloat:5: down: "}},
		"G": {whole, nil},
	} {
		got := config.Mistakes(file, []byte(c.text))
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", file, got)
			continue
		}
		for i, err := range got {
			if !strings.HasPrefix(err.Error(), c.want[i]) {
				t.Errorf("%s: %v, not %q", file, err, c.want[i])
			}
		}
	}
}

// TestRefused: every mistake is refused with its line and with what to do.
func TestRefused(t *testing.T) {
	const ok = "[[wan]]\ninterface = \"eth0\"\ndown = \"50mbit\"\nup = \"10mbit\"\n"
	for _, c := range []struct{ text, says string }{
		{"", "F: there is no [[wan]]"},
		{"colour = \"red\"\n" + ok, `F:1: there is no key "colour" here; the keys are on_stop`},
		{ok + "speed = 3\n", `F:5: there is no key "speed" here; the keys are interface, lan, down`},
		{"[[wan]]\ninterface = \"eth0\"\ndown = 50\n", `F:3: down takes a rate with its unit in quotes`},
		{"[[wan]]\ninterface = \"eth0\"\ndown = \"50\"\n", "F:3: down: "},
		{"[[wan]]\ninterface = \"eth0\"\ndown = \"50mbit\"\nfollow = \"no\"\n", "F:4: follow is true or false"},
		{"[[wan]]\ninterface = 3\n", "F:2: interface takes a text in quotes"},
		{"[wan]\ninterface = \"eth0\"\n", "F:1: each line is a table of its own, which begins with [[wan]]"},
		{"[[wan]]\ndown = \"50mbit\"\n", "F:1: a [[wan]] needs interface"},
		{"[[wan]]\ninterface = \"../x\"\ndown = \"50mbit\"\n", "F:2: interface: \"../x\" is not the name of an interface"},
		{"[[wan]]\ninterface = \"eth0\"\n", "F:1: nothing says how fast the line is"},
		{"[[wan]]\ninterface = \"eth0\"\nup = \"1mbit\"\nshape_down = \"97%\"\n", "F:4: shape_down: is a share of the line's rate, which nobody gave; add down"},
		{ok + ok, "F:6: interface: eth0 is in another [[wan]] already"},
		{ok + "aqm = \"fifo\"\nfollow = true\n", "F:6: follow: needs a queue"},
		{ok + "router = \"opnsense+https://192.0.2.1\"\nfollow = true\n", "F:6: follow: only the router itself"},
		{ok + "router = \"ssh://root@192.0.2.1\"\nfollow = true\n", "F:6: follow: only the router itself"},
		{"[[wan]]\ninterface = \"eth0\"\ndown = \"50mbit\"\nfollow = true\n", "F:4: follow: needs down and up"},
		{ok + "least_down = \"60mbit\"\n", "F:5: least_down: 60 Mbit/s is more than the line usually carries (down = 50 Mbit/s)"},
		{ok + "most_up = \"2mbit\"\n", "F:5: most_up: 2 Mbit/s is less than the line usually carries (up = 10 Mbit/s)"},
		{ok + "most_up = \"12mbit\"\n", "F:5: most_up: is for follow = true"},
		{"[[wan]]\ninterface = \"eth0\"\nup = \"1mbit\"\nleast_down = \"1mbit\"\n", "F:4: least_down: is a bound of down, which nobody gave"},
		{ok + "reflectors = [\"dns.example\"]\n", "F:5: reflectors: \"dns.example\" is not the address of a host"},
		{ok + "reflectors = [\"192.0.2.1\", \"192.0.2.1\"]\n", "F:5: reflectors: 192.0.2.1 is in the list twice"},
		{ok + "learn = \"rates\"\n", "F:5: learn: \"rates\": must be the whole path of a file"},
		{ok + "follow = true\ndecisions = \"evening.log\"\n", "F:6: decisions: \"evening.log\": must be the whole path of a file, as in decisions = \"/var/lib/unbloat/eth0.log\""},
		{ok + "decisions = \"/tmp/a.log\"\n", "F:5: decisions: is for follow = true"},
		{ok + "router = \"192.0.2.1\"\n", "F:5: router: \"192.0.2.1\": must be ssh://"},
		{"on_stop = \"leave\"\n" + ok, `F:1: on_stop: "leave": must be "keep"`},
		{"metrics = \"9836\"\n" + ok, "F:1: metrics: \"9836\": must be an address and a port"},
		{"metrics = 9836\n" + ok, "F:1: metrics takes a text in quotes"},
		{ok + "[ui]\nlisten = \"7690\"\n", `F:6: listen: "7690": must be an address and a port`},
		{ok + "[ui]\ntls = true\n", `F:5: listen: "": must be an address and a port`},
		{ok + "[ui]\nlisten = \"127.0.0.1:7690\"\nallow = [\"lan\"]\n", `F:7: allow: "lan" is no network`},
		{ok + "[ui]\nlisten = \"127.0.0.1:7690\"\nnames = [\"https://r\"]\n", `F:7: names: "https://r" is not the name of a machine`},
		{ok + "[ui]\nlisten = \"127.0.0.1:7690\"\ntls = \"yes\"\n", "F:7: tls is true or false"},
		{ok + "[ui]\nlisten = \"127.0.0.1:7690\"\nport = 3\n", `F:7: there is no key "port" here; the keys are listen, tls, allow, names`},
		{ok + "first = [\"laptop\"]\n", `F:5: first: "laptop" is not the address of a machine`},
		{ok + "rules = [\"class=loud,home=192.168.1.7\"]\n", `F:5: rules: rule "class=loud,home=192.168.1.7": `},
		{ok + "rules = [\"voice laptop\"]\n", `F:5: rules: rule "voice laptop": "voice laptop" is not key=value`},
		{ok + "rules = [\"class=voice,protocol=udp\"]\nclasses = \"off\"\n", `F:5: rules: needs classes`},
		{ok + "limits = [\"laptop 5 Mbit/s\"]\n", `F:5: limits: "laptop 5 Mbit/s": begins with the address of a machine`},
		{ok + "limits = [\"192.168.1.7 5\"]\n", `F:5: limits: "192.168.1.7 5": `},
		{ok + "limits = [\"192.168.1.7 1 kbit/s\"]\n", `F:5: limits: "192.168.1.7 1 kbit/s": 1 kbit/s is not between`},
		{ok + "first = [\"192.168.1.7\"]\nlast = [\"192.168.1.7\"]\n", "F:6: last: 192.168.1.7 is there twice"},
		{ok + "classes = \"off\"\nlast = [\"192.168.1.7\"]\n", `F:6: last: needs classes, and classes = "off"`},
		{"[[wan]\n", "F:1: "},
		{"server = \"\"\n" + ok, "F:1: server: \"\": must be a test server"},
		{"history = \"history.db\"\n" + ok, "F:1: history: \"history.db\": must be the whole path"},
		{ok + "classifier = \"pf\"\n", "F:5: classifier: \"pf\": use \"nft\", or \"bpf\""},
		{ok + "classifier = \"\"\n", "F:5: classifier: \"\": use"},
		{ok + "[schedule]\ndo = \"test\"\n", "F:5: schedule: each entry is a table of its own"},
		{"schedule = [{do = \"test\", at = \"03:30\"}]\n" + ok, "F:1: schedule: each entry is a table of its own"},
		{ok + "[[schedule]]\ndo = \"test\"\nwhen = \"03:30\"\n", "F:7: there is no key \"when\" here; the keys are do, wan"},
		{ok + "[[schedule]]\nat = \"03:30\"\n", "F:5: do: \"\": must be \"test\" or \"tune\""},
		{ok + "[[schedule]]\ndo = \"test\"\n", "F:6: do: a [[schedule]] with do = \"test\" needs at"},
		{ok + "[[schedule]]\ndo = \"test\"\nat = \"3 in the morning\"\n", "F:7: at: \"3 in the morning\": must be a time of day"},
		{ok + "[[schedule]]\ndo = \"test\"\nat = \"03:30\"\nto = \"04:00\"\n", "F:8: to: does not go with do = \"test\""},
		{ok + "[[schedule]]\ndo = \"test\"\nat = \"03:30\"\ndays = [\"monday\"]\n", "F:8: days: \"monday\": must be of mon, tue"},
		{ok + "[[schedule]]\ndo = \"test\"\nat = \"03:30\"\nwan = \"eth9\"\n", "F:8: wan: there is no [[wan]] with interface = \"eth9\""},
		{ok + "[[schedule]]\ndo = \"rates\"\nfrom = \"08:00\"\nto = \"17:00\"\n", "F:6: do: a [[schedule]] with do = \"rates\" needs down or up"},
		{ok + "[[schedule]]\ndo = \"rates\"\nfrom = \"08:00\"\nto = \"08:00\"\ndown = \"5mbit\"\n", "F:8: to: is the same time as from"},
		{ok + "[[schedule]]\ndo = \"first\"\nfrom = \"08:00\"\nto = \"17:00\"\nmachine = \"a b\"\n", "F:9: machine: \"a b\": must be the address"},
		{ok + "classes = \"off\"\n[[schedule]]\ndo = \"first\"\nfrom = \"08:00\"\nto = \"17:00\"\nmachine = \"office\"\n", "F:10: machine: a machine can only go first or last where traffic has classes"},
		{ok + ok[:0] + "[[wan]]\ninterface = \"eth1\"\ndown = \"5mbit\"\n[[schedule]]\ndo = \"tune\"\nat = \"03:30\"\n", "F:8: wan: there are several [[wan]]; say which"},
		{"wan = [{interface = \"eth0\", down = \"5mbit\"}]\n", "F:1: each line is a table of its own"},
		{"[[wan]]\ninterface = \"eth0\"\ndown = \"0mbit\"\n", "F:3: down: "},
	} {
		_, err := config.Parse("F", []byte(c.text))
		var e *config.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%q\nis refused with %v\nnot with       %s", c.text, err, c.says)
		}
	}
}

// TestSet: new rates are written where they were, keys that are new are added, and
// all else stays as it is.
func TestSet(t *testing.T) {
	got, err := config.Set("F", []byte(whole), 0, []config.Setting{{Key: "down", Value: "40 Mbit/s"}, {Key: "up", Value: "9 Mbit/s"}, {Key: "shape_up", Value: "8 Mbit/s"}, {Key: "shape_down", Value: ""}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`"50 Mbit/s"`, `"40 Mbit/s"`, `'10 Mbit/s'`, `"9 Mbit/s"`, "# the modem\n", "# the modem\nshape_up = \"8 Mbit/s\"\n").Replace(whole)
	if string(got) != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	if got, err = config.Set("F", got, 0, []config.Setting{{Key: "shape_up", Value: ""}, {Key: "down", Value: "50 Mbit/s"}}); err != nil || string(got) != strings.Replace(whole, `'10 Mbit/s'`, `"9 Mbit/s"`, 1) {
		t.Errorf("%v\n%s", err, got)
	}
	for _, unusual := range []string{
		"[[wan]]\ninterface = \"eth0\"\ndown = \"\"\"\n5mbit\"\"\"\n",
	} {
		if got, err := config.Set("F", []byte(unusual), 0, []config.Setting{{Key: "down", Value: "4 Mbit/s"}}); err == nil || !strings.Contains(err.Error(), `change it by hand: down = "4 Mbit/s"`) {
			t.Errorf("%q becomes %q: %v", unusual, got, err)
		}
	}
}

// TestSetLaw: whatever is written is read back, and everything else is as before.
func TestSetLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		n := rapid.IntRange(1, 4).Draw(t, "wans")
		for i := range n {
			fmt.Fprintf(&b, "%s[[wan]]\n", strings.Repeat("# note = \"x\"\n", rapid.IntRange(0, 2).Draw(t, "notes")))
			lines := []string{fmt.Sprintf("interface = \"eth%d\"", i), `up="1 Mbit/s"# no more`, "lan = 'br-lan'"}
			if rapid.Bool().Draw(t, "down") {
				lines = append(lines, "\tdown  =  \"7mbit\"")
			}
			b.WriteString(strings.Join(rapid.Permutation(lines).Draw(t, "lines"), "\n"))
			if i < n-1 || rapid.Bool().Draw(t, "newline") {
				b.WriteString("\n")
			}
		}
		i := rapid.IntRange(0, n-1).Draw(t, "which")
		down := unit.Rate(rapid.Int64Range(100, 1e6).Draw(t, "rate")) * unit.KbitPerSecond
		got, err := config.Set("F", []byte(b.String()), i, []config.Setting{{Key: "down", Value: down.String()}})
		if err != nil {
			t.Fatalf("%v:\n%s", err, b.String())
		}
		c, err := config.Parse("F", got)
		if err != nil || c.WANs[i].Down != down || strings.Count(string(got), "# no more") != n {
			t.Fatalf("%v\n%s", err, got)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("F", text)
		var e *config.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		if err == nil && len(c.WANs) == 0 {
			t.Fatal("no WAN")
		}
	})
}

// TestSetOther: what is not a text is written as it must be, and a line that has it
// keeps its comment.
func TestSetOther(t *testing.T) {
	const text = "[ui]\nlisten = \"127.0.0.1:7690\"\n\n[[wan]]\ninterface = \"eth0\"\ndown = \"50mbit\"\nup = \"9mbit\"\nfollow = false # not yet\nfirst = [\"192.168.1.7\"]\n"
	got, err := config.Set("F", []byte(text), 0, []config.Setting{{Key: "follow", Value: "true"}, {Key: "first", Value: ""}, {Key: "last", List: []string{"192.168.1.7", "2001:db8::1"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "[ui]\nlisten = \"127.0.0.1:7690\"\n\n[[wan]]\ninterface = \"eth0\"\nlast = [\"192.168.1.7\", \"2001:db8::1\"]\ndown = \"50mbit\"\nup = \"9mbit\"\nfollow = true # not yet\n"
	if string(got) != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	c, err := config.Parse("F", got)
	if err != nil || !c.WANs[0].Follow || len(c.WANs[0].Last) != 2 || c.UI.Listen.Port() != 7690 {
		t.Errorf("%+v, %v", c, err)
	}
	if rules := c.WANs[0].MachineRules(); len(rules) != 1 || rules[0].Class != plan.Bulk || rules[0].Home[1] != "2001:db8::1" {
		t.Errorf("%+v", rules)
	}
}

// TestHere: a router is this machine if its API is asked at the loopback.
func TestHere(t *testing.T) {
	for router, want := range map[string]bool{
		"opnsense+https://127.0.0.1": true, "opnsense+https://127.0.0.1:8443/": true, "opnsense+https://[::1]:443": true, "opnsense+https://[::1]": true,
		"opnsense+https://localhost:8443": true, "opnsense+https://user@localhost": true,
		"opnsense+https://192.0.2.1": false, "opnsense+https://127.0.0.1.example.net": false, "ssh://root@127.0.0.1": false, "opnsense+https://[2001:db8::1]:443": false,
	} {
		_, err := config.Parse("F", []byte("[[wan]]\ninterface = \"wan\"\ndown = \"50mbit\"\nup = \"10mbit\"\nrouter = \""+router+"\"\nfollow = true\n"))
		if is := err == nil; is != want {
			t.Errorf("%s is taken for this machine: %t (%v)", router, is, err)
		}
	}
}

// TestSchedule: entries hold from a time to another on their days, over midnight too;
// and what happens at a time is due once, however often the clock is looked at.
func TestSchedule(t *testing.T) {
	const entries = `
[[schedule]] # the office
do = "first"
wan = "eth0"
machine = "office"
from = "08:00"
to = "17:00"
days = ["mon", "fri"]

[[schedule]]
do = "rates"
wan = "eth0"
from = "22:00"
to = "06:00"
days = ["fri"]
down = "25 Mbit/s"

[[schedule]]
do = "tune"
wan = "eth0"
at = "23:59"
`
	c, err := config.Parse("F", []byte(whole+entries))
	if err == nil || !strings.Contains(err.Error(), "F:22: machine: a machine can only go first") {
		t.Errorf("classes are off, and %v", err)
	}
	c, err = config.Parse("F", []byte(strings.Replace(whole, "classes = \"off\"\n", "", 1)+entries))
	if err != nil {
		t.Fatal(err)
	}
	at := func(day int, clock string) time.Time { // 23 November 2026 is a Monday
		x, err := time.Parse("15:04:05", clock)
		if err != nil {
			t.Fatal(err)
		}
		return time.Date(2026, 11, day, x.Hour(), x.Minute(), x.Second(), 0, time.Local)
	}
	for _, x := range []struct {
		entry int
		at    time.Time
		holds bool
	}{
		{0, at(23, "07:59:59"), false}, {0, at(23, "08:00:00"), true}, {0, at(23, "16:59:59"), true}, {0, at(23, "17:00:00"), false}, {0, at(24, "12:00:00"), false},
		{1, at(27, "21:59:59"), false}, {1, at(27, "22:00:00"), true}, {1, at(28, "05:59:59"), true}, {1, at(28, "06:00:00"), false}, {1, at(28, "22:00:00"), false}, {1, at(27, "05:00:00"), false},
		{2, at(23, "23:59:00"), false},
	} {
		if c.Schedule[x.entry].Holds(x.at) != x.holds {
			t.Errorf("%s: holds at %s: %t", c.Schedule[x.entry].Says(), x.at, !x.holds)
		}
	}
	due := 0
	for now := at(23, "23:50:00"); now.Before(at(25, "00:10:00")); now = now.Add(17 * time.Second) {
		if when, is := c.Schedule[2].Due(now.Add(-17*time.Second), now); is {
			if due++; when.Hour() != 23 || when.Minute() != 59 {
				t.Errorf("due at %s", when)
			}
		}
	}
	if due != 2 {
		t.Errorf("due %d times in two days", due)
	}
	if _, is := c.Schedule[2].Due(at(22, "00:00:00"), at(24, "00:00:00")); is {
		t.Error("a clock that was set by two days makes up for what it has jumped over")
	}
	w := c.WANs[0].During(c.Schedule)
	if w.Down != 25*unit.MbitPerSecond || w.Up != 10*unit.MbitPerSecond || len(w.Rules) != 1 || w.Rules[0].Class != plan.Voice || c.WANs[0].Rules != nil {
		t.Errorf("%+v", w)
	}
	want := "eth0: schedule: office goes first, Mon, Fri from 08:00 to 17:00"
	if got := c.Schedule[0].Says(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// New rates are written beside a schedule, too.
	text := []byte(strings.Replace(whole, "classes = \"off\"\n", "", 1) + "[[schedule]]\ndo = \"rates\"\nwan = \"eth0\"\nfrom = \"22:00\"\nto = \"06:00\"\ndown = \"25 Mbit/s\"\n")
	out, err := config.Set("F", text, 0, []config.Setting{{Key: "down", Value: "40 Mbit/s"}, {Key: "shape_up", Value: "8 Mbit/s"}})
	if err != nil || !strings.Contains(string(out), "down = \"40 Mbit/s\"") || !strings.Contains(string(out), "down = \"25 Mbit/s\"") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Rules and limits of one's own reach the plan: the rules behind those of machines, as they
// were written, and the limits down and up.
func TestOwnRules(t *testing.T) {
	c, err := config.Parse("F", []byte("[[wan]]\ninterface = \"eth0\"\ndown = \"50 Mbit/s\"\nup = \"9 Mbit/s\"\nfirst = [\"192.168.1.8\"]\n"+
		"rules = [\"class=voice,home=192.168.1.7,protocol=udp,port=3478-3497\", \"class=bulk,protocol=tcp,port=6881\"]\nlimits = [\"192.168.1.7 5 Mbit/s\", \"192.168.1.0/29 20 Mbit/s / 2 Mbit/s\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := c.WANs[0].Preferences()
	var rules []string
	for _, r := range p.Classes.Rules {
		rules = append(rules, r.String())
	}
	if got := strings.Join(rules, "; "); !strings.HasPrefix(got, "first: home 192.168.1.8 → voice") || len(rules) != 3 || !strings.Contains(rules[1], "3478-3497") || !strings.Contains(rules[1], "192.168.1.7") || !strings.HasSuffix(rules[2], "→ bulk") {
		t.Errorf("rules: %q", rules)
	}
	if len(p.Limits) != 2 || p.Limits[0] != (plan.HardLimit{Machine: "192.168.1.7", Down: 5e6, Up: 5e6}) || p.Limits[1].String() != "192.168.1.0/29 20 Mbit/s / 2 Mbit/s" {
		t.Errorf("limits: %+v", p.Limits)
	}
}
