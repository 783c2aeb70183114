package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/unit"
)

const wholeUCI = `package unbloat

# our home
config daemon 'main'
	option on_stop 'revert'

config wan 'home'
	option interface 'eth0'		# the modem
	option lan "br-lan"
	option down '50 Mbit/s'	# what the provider sells
	option up 10\ Mbit/s
	option link_layer 'docsis'; option overhead '18'
	option goal '10ms'
	option classes off
	option follow '1'
	list reflectors '192.0.2.1'
	list reflectors '192.0.2.2'

config wan
	option interface 'em0'
	option router 'ssh://root@192.0.2.1'
	option platform 'openbsd'
	option shape_up '4500 kbit/s'
	option follow 'off'
	option lan ''
`

func TestParseUCI(t *testing.T) {
	c, err := config.Parse("F", []byte(wholeUCI))
	if err != nil {
		t.Fatal(err)
	}
	w := c.WANs[0]
	if c.OnStop != config.StopRevert || len(c.WANs) != 2 || w.Interface != "eth0" || w.LAN != "br-lan" || w.Down != 50*unit.MbitPerSecond || w.Up != 10*unit.MbitPerSecond ||
		w.LinkLayer != plan.DOCSIS || w.Overhead != 18 || w.Goal.Milliseconds() != 10 || w.Preferences().Classes.Use != plan.ClassesOff || !w.Follow || len(w.Reflectors) != 2 {
		t.Errorf("%+v", c)
	}
	if w := c.WANs[1]; w.Follow || w.LAN != "" || w.Preferences().Up.Rate != 4500*unit.KbitPerSecond || w.Name() != "em0 of ssh://root@192.0.2.1" {
		t.Errorf("%+v", w)
	}
	if err := w.At("F", "down", errors.New("x")); err.Error() != "F:10: down: x" {
		t.Error(err)
	}
}

// TestPageUCI: the page is on with an address, and off without one.
func TestPageUCI(t *testing.T) {
	const wan = "config wan\n\toption interface 'eth0'\n\toption down '50mbit'\n"
	for text, on := range map[string]bool{"": false, "config ui 'page'\n": false, "config ui 'page'\n\toption listen ''\n\toption tls '1'\n": false, "config ui 'page'\n\toption listen '192.168.1.1:7690'\n": true} {
		c, err := config.Parse("/etc/config/unbloat", []byte(wan+text))
		if err != nil || c.UI.Listen.IsValid() != on {
			t.Errorf("%q: %v, %v", text, c.UI, err)
		}
	}
	if _, err := config.Parse("/etc/config/unbloat", []byte(wan+"config ui\n\toption listen 'here'\n")); err == nil || !strings.Contains(err.Error(), "F:5") && !strings.Contains(err.Error(), ":5: listen") {
		t.Error(err)
	}
}

// TestSyntaxOf: the file in /etc/config is OpenWrt's, and so is a text that is
// written as such.
func TestSyntaxOf(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       config.Syntax
	}{
		{"/etc/config/unbloat", "", config.UCI}, {"/etc/unbloat/unbloat.toml", "", config.TOML}, {"F", whole, config.TOML}, {"F", wholeUCI, config.UCI},
		{"F", "\n  # x\n\tconfig\twan", config.UCI}, {"F", "config = 3", config.TOML}, {"/etc/config/unbloat.toml", "", config.TOML}, {"F", "config", config.TOML},
	} {
		if got := config.SyntaxOf(c.name, []byte(c.text)); got != c.want {
			t.Errorf("%s %q: %s", c.name, c.text, got)
		}
	}
}

// TestRefusedUCI: every mistake is refused with its line and with what to do.
func TestRefusedUCI(t *testing.T) {
	const ok = "config wan\n\toption interface 'eth0'\n\toption down '50mbit'\n\toption up '10mbit'\n"
	for _, c := range []struct{ text, says string }{
		{"config daemon\n", "F: there is no config wan"},
		{"config globals\n", `F:1: there is no section of type "globals"; the types are daemon, wan`},
		{ok + "\toption speed '3'\n", `F:5: there is no option "speed" here; the options of wan are interface, lan`},
		{"config daemon\n\toption interface 'eth0'\n", `F:2: there is no option "interface" here; the options of daemon are on_stop`},
		{"config daemon\n\toption wan 'eth0'\n", `F:2: there is no option "wan" here`},
		{"config wan 'x'\n" + ok[11:] + "config ui 'x'\n", `F:5: there is a section "x" of type "wan"`},
		{"config wan 'x-y'\n", `F:1: "x-y" is no name of a section`},
		{"config\n", "F:1: "},
		{"config wan\n\toption down '50 Mbit/s\n", "F:2: the quote ' has no end"},
		{"config wan\n\toption down 50 Mbit/s\n", "F:2: option takes a name and a value; a value with spaces stands in quotes"},
		{"package unbloat\n\toption down '5mbit'\n", "F:2: option stands before the first section"},
		{ok + "\tset x '3'\n", `F:5: "set" is neither config, option nor list`},
		{ok + "\toption follow 'maybe'\n", `F:5: follow: "maybe": must be 1 or 0`},
		{ok + "\toption overhead 'much'\n", `F:5: overhead: "much": must be a whole number`},
		{ok + "\toption reflectors '192.0.2.1'\n", "F:5: reflectors: takes a list"},
		{ok + "\tlist aqm 'cake'\n", "F:5: aqm: takes one value"},
		{"config wan\n\toption down '50mbit'\n", "F:1: a config wan needs option interface 'eth0'"},
		{ok + ok, "F:6: interface: eth0 is in another config wan already"},
		{ok + "\toption most_up '12mbit'\n", "F:5: most_up: is for option follow '1', and this config wan"},
		{ok + "\toption learn 'x'\n\toption follow '1'\n", "F:5: learn: \"x\": must be the whole path of a file, as in option learn '/var/lib/unbloat/eth0.rates'"},
		{ok + "\toption follow '1'\n\toption aqm 'fifo'\n", "F:5: follow: needs a queue that keeps its own delay short"},
		{ok + "\toption follow '1'\n\toption router 'ssh://root@192.0.2.1'\n", "F:5: follow: only the router itself can follow its line"},
		{ok + "\toption classes 'off'\n\tlist first '192.168.1.7'\n", "F:6: first: needs classes, and option classes 'off'"},
		{ok + "config daemon\n\toption metrics 'x'\n", "F:6: metrics: \"x\": must be an address and a port, as in option metrics '127.0.0.1:9836'"},
		{ok + "config daemon\n\toption history 'x'\n", "F:6: history: "},
		{ok + "config daemon\n\toption server 'a b'\n", "F:6: server: "},
		{ok + "config ui\n\toption listen 'x'\n", "F:6: listen: \"x\": must be an address and a port, as in option listen '192.168.1.1:7690'; without it there is no page: remove config ui 'page'"},
		{ok + "config ui\n\toption listen '192.168.1.1:1'\n\tlist allow 'x'\n", "F:7: allow: "},
		{ok + "config schedule\n\toption do 'test'\n", "F:6: do: a config schedule with option do 'test' needs at"},
		{ok + "config schedule\n\toption do 'test'\n\toption at 'now'\n", "F:7: at: \"now\": must be a time of day, as in option at '03:30'"},
		{ok + "config schedule\n\toption do 'test'\n\toption at '03:30'\n\toption to '04:00'\n", "F:8: to: does not go with option do 'test'"},
		{ok + "config schedule\n\toption do 'rates'\n\toption from '03:30'\n\toption to '03:30'\n", "F:8: to: is the same time as from, so the entry would never end; set that in the config wan"},
		{ok + "config schedule\n\toption do 'rates'\n\toption from '03:30'\n\toption to '04:30'\n", "F:6: do: a config schedule with option do 'rates' needs down or up"},
		{ok + "config schedule\n\toption do 'test'\n\toption at '03:30'\n\toption wan 'eth9'\n", "F:8: wan: there is no config wan with option interface 'eth9'"},
		{ok + "config wan\n\toption interface 'eth1'\n\toption up '1mbit'\nconfig schedule\n\toption do 'test'\n\toption at '03:30'\n", "F:8: wan: there are several config wan; say which, as in option wan 'eth0'"},
		{ok + "\toption lan 'a\x01'\n", "F:5: lan: a control character"},
		{ok + "\toption lan '\xff'\n", "F:5: lan: it is not text in UTF-8"},
	} {
		_, err := config.Parse("F", []byte(c.text))
		var e *config.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%q\nis refused with %v\nnot with       %s", c.text, err, c.says)
		}
		if toml := regexp.MustCompile(`\[\[|\[ui\]|[a-z] = [a-z0-9"\[]`).FindString(err.Error()); toml != "" {
			t.Errorf("%q\nis refused in TOML's words: %v", c.text, err)
		}
	}
}

// TestTakenUCI: what libuci takes is taken, and means the same: the last value of an
// option, one section of two with a name, comments in another encoding. Of two sections
// of which there can be one, the last counts: LuCI edits that one.
func TestTakenUCI(t *testing.T) {
	const ok = "config wan 'home'\n\toption interface 'eth0'\n\toption down '50mbit'\n"
	for _, c := range []struct {
		text string
		is   func(c config.Config) bool
	}{
		{ok + "\toption down '3mbit'\n", func(c config.Config) bool { return c.WANs[0].Down == 3*unit.MbitPerSecond }},
		{ok + "config ui\nconfig wan 'home'\n\toption up '2mbit'\n", func(c config.Config) bool {
			return len(c.WANs) == 1 && c.WANs[0].Up == 2*unit.MbitPerSecond && c.WANs[0].Down == 50*unit.MbitPerSecond
		}},
		{ok + "config ui\n\toption listen '192.168.1.1:1'\n\toption tls '1'\nconfig ui 'page'\n\toption listen '192.168.1.1:2'\n", func(c config.Config) bool { return c.UI.Listen.Port() == 2 && !c.UI.TLS }},
		{ok + "config ui\n\toption listen '192.168.1.1:1'\nconfig ui 'page'\n", func(c config.Config) bool { return !c.UI.Listen.IsValid() }},
		{"config daemon\n\toption on_stop 'revert'\nconfig daemon 'main'\n" + ok, func(c config.Config) bool { return c.OnStop == config.StopKeep }},
		{"# B\xfcro\n" + ok, func(c config.Config) bool { return len(c.WANs) == 1 }},
	} {
		got, err := config.Parse("/etc/config/unbloat", []byte(c.text))
		if err != nil || !c.is(got) {
			t.Errorf("%q\nis %+v, %v", c.text, got, err)
		}
	}
}

// TestSetUCI: new rates are written where they were; comments and all else stay.
func TestSetUCI(t *testing.T) {
	got, err := config.Set("F", []byte(wholeUCI), 0, []config.Setting{{Key: "down", Value: "40 Mbit/s"}, {Key: "up", Value: "9 Mbit/s"}, {Key: "shape_up", Value: "8 Mbit/s"}, {Key: "shape_down", Value: ""}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`'50 Mbit/s'`, `'40 Mbit/s'`, `10\ Mbit/s`, `'9 Mbit/s'`, "# the modem\n", "# the modem\n\toption shape_up '8 Mbit/s'\n").Replace(wholeUCI)
	if string(got) != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	if got, err = config.Set("F", got, 0, []config.Setting{{Key: "shape_up", Value: ""}, {Key: "down", Value: "50 Mbit/s"}}); err != nil || string(got) != strings.Replace(wholeUCI, `10\ Mbit/s`, `'9 Mbit/s'`, 1) {
		t.Errorf("%v\n%s", err, got)
	}
	if got, err = config.Set("F", []byte(wholeUCI), 1, []config.Setting{{Key: "up", Value: "5 Mbit/s"}, {Key: "shape_up", Value: ""}}); err != nil || string(got) != strings.NewReplacer("'em0'\n", "'em0'\n\toption up '5 Mbit/s'\n", "\toption shape_up '4500 kbit/s'\n", "").Replace(wholeUCI) {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := config.Set("F", []byte(wholeUCI), 2, []config.Setting{{Key: "up", Value: "5 Mbit/s"}}); err == nil || !strings.Contains(err.Error(), "change it by hand: option up '5 Mbit/s'") {
		t.Error(err)
	}
}

// key is a key of a random configuration: TOML's text of its value.
type key struct{ name, value string }

// configurations draws configurations that are right, with any of the keys.
func configurations(t *rapid.T) string {
	var b strings.Builder
	text := func(s string) string {
		j, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(j)
	}
	rate := func(name string, least, most int64) string {
		return unit.Rate(rapid.Int64Range(least, most).Draw(t, name) * int64(unit.KbitPerSecond)).String()
	}
	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	write := func(keys []key) {
		for _, k := range rapid.Permutation(keys).Draw(t, "order") {
			fmt.Fprintf(&b, "%s = %s\n", k.name, k.value)
		}
	}
	var top []key
	if maybe("on_stop") {
		top = append(top, key{"on_stop", text(rapid.SampledFrom([]string{"keep", "revert"}).Draw(t, "stop"))})
	}
	if maybe("metrics") {
		top = append(top, key{"metrics", `"127.0.0.1:9836"`})
	}
	if maybe("server") {
		top = append(top, key{"server", `"test.example.net"`})
	}
	if maybe("history") {
		top = append(top, key{"history", `"/var/lib/it's/history.db"`})
	}
	write(top)
	if maybe("ui") {
		b.WriteString("[ui]\n")
		keys := []key{{"listen", `"192.168.1.1:7690"`}}
		for name, value := range map[string]string{"tls": "true", "allow": `["10.8.0.0/24", "192.0.2.7"]`, "names": `["router.lan"]`} {
			if maybe(name) {
				keys = append(keys, key{name, value})
			}
		}
		slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
		write(keys)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "wans") {
		fmt.Fprintf(&b, "[[wan]]\n")
		keys := []key{{"interface", text(fmt.Sprintf("eth%d", i))}, {"down", text(rate("down", 5000, 9000))}, {"up", text(rate("up", 5000, 9000))}}
		// A name may be anything that a file can hold.
		odd := rapid.StringOf(rapid.RuneFrom([]rune(" 'a\"\\#;\n\tä€\u2028=[]x"))).Draw(t, "odd")
		for name, value := range map[string]string{"lan": text(odd), "platform": text("openwrt"), "classes": text("/etc/" + odd), "aqm": `"cake"`, "side": `"ifb"`, "link_layer": `"docsis"`, "classifier": `"nft"`, "first": `["192.168.1.7"]`, "last": `["192.168.1.8", "2001:db8::2"]`, "rules": `["class=voice,home=192.168.1.9,protocol=udp,port=3478-3497", "class=bulk,protocol=tcp,port=6881|6882"]`, "limits": `["192.168.1.9 5 Mbit/s", "2001:db8::/64 20 Mbit/s / 2 Mbit/s"]`,
			"watch": "false", "overhead": fmt.Sprint(rapid.IntRange(-20, 60).Draw(t, "bytes")), "framing": `"overhead 40 mpu 0 atm down 6Mbit/s up 700kbit/s"`, "goal": `"7ms"`, "shape_down": `"97%"`, "shape_up": `"900 kbit/s"`} {
			if maybe(name) {
				keys = append(keys, key{name, value})
			}
		}
		slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
		switch follow := maybe("follow"); {
		case follow:
			keys = append(keys, key{"follow", "true"})
			for name, value := range map[string]string{"incidents": "true", "least_down": text(rate("least", 100, 4000)), "least_up": text("1 Mbit/s"), "most_down": text(rate("most", 9000, 99000)), "most_up": text("1 Gbit/s"), "learn": text(fmt.Sprintf("/etc/unbloat/learned-%d.json", i)), "decisions": text(fmt.Sprintf("/tmp/%d.log", i)), "reflectors": `["192.0.2.1", "2001:db8::1"]`} {
				if maybe(name) {
					keys = append(keys, key{name, value})
				}
			}
		default:
			keys = append(keys, key{"follow", "false"}, key{"router", text("ssh://root@192.0.2.1:22/" + odd)})
		}
		write(keys)
	}
	for range rapid.IntRange(0, 2).Draw(t, "receivers") {
		b.WriteString("[[notify]]\n")
		write(rapid.SampledFrom([][]key{
			{{"to", `"ntfy"`}, {"url", `"https://ntfy.example/topic"`}, {"secret_file", `"/etc/unbloat/token"`}, {"min_severity", `"severe"`}, {"quiet", `"22:00-07:00"`}, {"most", "3"}},
			{{"to", `"mqtt"`}, {"url", `"mqtts://me@mqtt.example"`}, {"secret_file", `"/etc/unbloat/mqtt"`}},
			{{"to", `"webhook"`}, {"url", `"http://192.0.2.1/hook"`}, {"secret_env", `"KEY"`}, {"language", `"de"`}},
			{{"to", `"mail"`}, {"url", `"smtp://me@mail.example:587"`}, {"from", `"me@mail.example"`}, {"recipients", `["you@mail.example", "they@mail.example"]`}},
		}).Draw(t, "receiver"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "entries") {
		b.WriteString("[[schedule]]\n")
		days := key{"days", `["mon", "sat"]`}
		wan := []key{{"wan", `"eth0"`}}
		if strings.Contains(strings.Split(b.String()+"[[wan]]", "[[wan]]")[1], "router") {
			_, rest, _ := strings.Cut(b.String(), "router = ")
			router, _, _ := strings.Cut(rest, "\n")
			wan = append(wan, key{"router", router})
		}
		write(slices.Concat(wan, rapid.SampledFrom([][]key{
			{{"do", `"test"`}, {"at", `"03:30"`}}, {{"do", `"tune"`}, {"at", `"03:30"`}, days}, {{"do", `"first"`}, {"from", `"08:00"`}, {"to", `"17:00"`}, {"machine", `"192.168.1.7"`}},
			{{"do", `"rates"`}, {"from", `"19:00"`}, {"to", `"23:00"`}, {"down", `"6 Mbit/s"`}, {"up", `"6 Mbit/s"`}, days},
		}).Draw(t, "entry")))
	}
	return b.String()
}

// plainly leaves out where the keys stood.
func plainly(c config.Config) string { return fmt.Sprintf("%+v", config.Bare(c)) }

// TestConvertLaw: a configuration means the same in TOML and in UCI, there and
// back, and what is written is written the same way again.
func TestConvertLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := configurations(t)
		c, err := config.Parse("F", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		uci, err := config.Convert("F", []byte(text), config.UCI)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		there, err := config.Parse("/etc/config/unbloat", uci)
		if err != nil || plainly(there) != plainly(c) {
			t.Fatalf("%v\n%s\nis in UCI\n%s\n%+v\n%+v", err, text, uci, c, there)
		}
		back, err := config.Convert("/etc/config/unbloat", uci, config.TOML)
		if err != nil {
			t.Fatalf("%v\n%s", err, uci)
		}
		again, err := config.Parse("F", back)
		if err != nil || plainly(again) != plainly(c) {
			t.Fatalf("%v\n%s\nis in TOML\n%s", err, uci, back)
		}
		if twice, err := config.Convert("F", back, config.UCI); err != nil || !bytes.Equal(twice, uci) {
			t.Fatalf("%v\n%s\nbecomes\n%s", err, uci, twice)
		}
		// New rates for one WAN are all that changes.
		i := rapid.IntRange(0, len(c.WANs)-1).Draw(t, "which")
		set, err := config.Set("/etc/config/unbloat", uci, i, []config.Setting{{Key: "down", Value: "6500 kbit/s"}})
		if err != nil {
			t.Fatalf("%v\n%s", err, uci)
		}
		now, err := config.Parse("/etc/config/unbloat", set)
		c.WANs[i].Down = 6500 * unit.KbitPerSecond
		if err != nil || plainly(now) != plainly(c) {
			t.Fatalf("%v\n%s", err, set)
		}
	})
}

// TestKeys: the keys that are told to others are those that a file is read into.
func TestKeys(t *testing.T) {
	want, got := config.Layout(), config.Keys()
	for table := range want {
		slices.Sort(want[table])
		slices.Sort(got[table])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is read (-) and what is told (+):\n%s", diff)
	}
}

// TestEveryKey: the law draws every key that there is.
func TestEveryKey(t *testing.T) {
	missing := slices.Concat(slices.Collect(maps.Values(config.Keys()))...)
	for seed := range 200 {
		text := "\n" + rapid.Custom(configurations).Example(seed)
		missing = slices.DeleteFunc(missing, func(k string) bool {
			return strings.Contains(text, "\n"+k+" = ") || strings.Contains(text, "\n[["+k+"]]") || strings.Contains(text, "\n["+k+"]")
		})
	}
	if len(missing) > 0 {
		t.Errorf("never drawn: %q", missing)
	}
}

// TestConvertMistake: a wrong configuration is not converted, nor is a text that
// UCI can't hold.
func TestConvertMistake(t *testing.T) {
	for _, text := range []string{"", "[[wan]]\ninterface = \"eth0\"\n", "[[wan]]\ninterface = \"eth0\"\ndown = \"5mbit\"\nlan = \"\\u0001\"\n"} {
		if out, err := config.Convert("F", []byte(text), config.UCI); err == nil {
			t.Errorf("%q becomes %q", text, out)
		}
	}
}

func FuzzParseUCI(f *testing.F) {
	f.Add([]byte(wholeUCI))
	f.Add([]byte("config wan\noption interface a\\\nb\"c\"'d';option up 1mbit#"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("/etc/config/unbloat", text)
		var e *config.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		toml, err := config.Convert("/etc/config/unbloat", text, config.TOML)
		if err != nil {
			t.Fatal(err)
		}
		if there, err := config.Parse("F", toml); err != nil || plainly(there) != plainly(c) {
			t.Fatalf("%q is in TOML\n%s\n%v", text, toml, err)
		}
		for i := range c.WANs {
			out, err := config.Set("/etc/config/unbloat", text, i, []config.Setting{{Key: "shape_up", Value: "1 Mbit/s"}})
			if err == nil {
				if c, err := config.Parse("/etc/config/unbloat", out); err != nil || c.WANs[i].ShapeUp.Rate != unit.MbitPerSecond {
					t.Fatalf("%q becomes %q: %v", text, out, err)
				}
			}
		}
	})
}

// testdata/uci has texts (.in), and what OpenWrt's `uci export` makes of each (.exported): our
// reading of both is the same. UNBLOAT_UCI=FILE asks that program again.
func TestRealUCI(t *testing.T) {
	texts, err := filepath.Glob("testdata/uci/*.in")
	if err != nil || len(texts) == 0 {
		t.Fatal(texts, err)
	}
	for _, in := range texts {
		text, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		exported, err := os.ReadFile(strings.TrimSuffix(in, ".in") + ".exported")
		if err != nil {
			t.Fatal(err)
		}
		if program := os.Getenv("UNBLOAT_UCI"); program != "" {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "unbloat"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), program, "-c", dir, "export", "unbloat").Output()
			if err != nil || !bytes.Equal(out, exported) {
				t.Errorf("%s: uci exports\n%s\n%v\nrecorded is\n%s", in, out, err, exported)
			}
		}
		c, err := config.Parse("/etc/config/unbloat", text)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if of, err := config.Parse("/etc/config/unbloat", exported); err != nil || plainly(of) != plainly(c) {
			t.Errorf("%s:\n%s\nas uci exports it: %v\n%s", in, plainly(c), err, plainly(of))
		}
	}
}

// TestSetListUCI: what is no text is written as uci has it, and a list is replaced whole.
func TestSetListUCI(t *testing.T) {
	const text = "config wan\n\toption interface 'eth0'\n\toption down '50mbit'\n\toption up '9mbit'\n\toption follow '0' # not yet\n\tlist first '192.168.1.7'\n\tlist first '192.168.1.8'\n"
	got, err := config.Set("F", []byte(text), 0, []config.Setting{{Key: "follow", Value: "true"}, {Key: "first", List: []string{"192.168.1.9"}}, {Key: "last", List: []string{"192.168.1.7", "2001:db8::1"}}})
	want := "config wan\n\toption interface 'eth0'\n\tlist last '192.168.1.7'\n\tlist last '2001:db8::1'\n\toption down '50mbit'\n\toption up '9mbit'\n\toption follow '1' # not yet\n\tlist first '192.168.1.9'\n"
	if err != nil || string(got) != want {
		t.Fatalf("%v\n%s\nwant\n%s", err, got, want)
	}
	if got, err = config.Set("F", got, 0, []config.Setting{{Key: "last"}, {Key: "follow"}}); err != nil || bytes.Contains(got, []byte("last")) || bytes.Contains(got, []byte("follow")) {
		t.Errorf("%v\n%s", err, got)
	}
}
