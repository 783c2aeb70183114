package conform

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	hostclearos "unbloat/internal/cure/platform/clearos"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/clearosfake"
)

// TestClearOSMatrix gives the settings of every plan to the stand-ins of
// ClearOS's engine and firewall. The commands that they run must be what the
// plan means.
func TestClearOSMatrix(t *testing.T) {
	own, ours := 0, 0
	for _, c := range matrix(t, hostclearos.Name) {
		qos, network, engine := clearOSFiles(t, c)
		if engine != "" {
			ours++
			got, err := clearosfake.Other(engine)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			ourEngineFaults(t, c, got.Commands)
			continue
		}
		own++
		for _, family := range []string{"ipv4", "ipv6"} {
			got, err := clearosfake.Engine(qos, &network, family)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			ownEngineFaults(t, c, family, got)
		}
	}
	t.Logf("%d plans for ClearOS's own engine, %d for ours", own, ours)
}

// TestClearOS gives the settings of every plan to the real libqos.lua, and runs
// our engine in Lua 5.1 as ClearOS's firewall does.
func TestClearOS(t *testing.T) {
	dir := given(t, "UNBLOAT_CLEAROS", "a checkout of ClearOS's app-qos repository")
	lua := luaOf(t)
	own, ours := 0, 0
	for _, c := range matrix(t, hostclearos.Name) {
		qos, network, engine := clearOSFiles(t, c)
		if engine != "" {
			ours++
			file := filepath.Join(t.TempDir(), "unbloat-qos.lua")
			if err := os.WriteFile(file, []byte(engine), 0o644); err != nil {
				t.Fatal(err)
			}
			ourEngineFaults(t, c, runLua(t, lua, file, qos, &network, "ipv4").Commands)
			continue
		}
		own++
		for _, family := range []string{"ipv4", "ipv6"} {
			got := runLua(t, lua, filepath.Join(dir, "deploy/libqos.lua"), qos, &network, family)
			ownEngineFaults(t, c, family, got)
			if same, err := clearosfake.Engine(qos, &network, family); err != nil {
				t.Errorf("%s, %s: %v", c.Name, family, err)
			} else if d := cmp.Diff(got, same); d != "" {
				t.Errorf("%s, %s: -real +stand-in\n%s", c.Name, family, d)
			}
		}
	}
	t.Logf("libqos.lua took %d configurations, for IPv4 and for IPv6; Lua ran our engine for %d", own, ours)
}

// TestClearOSStandIn gives random settings to the real libqos.lua and to its
// stand-in. Both must run the same commands and report the same messages and
// error.
func TestClearOSStandIn(t *testing.T) {
	dir := given(t, "UNBLOAT_CLEAROS", "a checkout of ClearOS's app-qos repository")
	lua := luaOf(t)
	refused, asked := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		qos, network, family := anyClearOS(r)
		asked++
		got, err := clearosfake.Engine(qos, network, family)
		if err != nil {
			refused++
			return
		}
		if d := cmp.Diff(runLua(t, lua, filepath.Join(dir, "deploy/libqos.lua"), qos, network, family), got); d != "" {
			text := "none"
			if network != nil {
				text = *network
			}
			r.Fatalf("%s\nnetwork.conf: %s\n-real +stand-in\n%s", qos, text, d)
		}
	})
	t.Logf("%d settings at random, of which the stand-in refused %d", asked, refused)
}

func luaOf(t *testing.T) string {
	lua, err := exec.LookPath("lua5.1")
	if err != nil {
		t.Skip("SKIPPED: there is no lua5.1 here (Debian's package of that name)")
	}
	return lua
}

// runLua runs an engine with the shim in testdata.
func runLua(t *testing.T, lua, engine, qos string, network *string, family string) (out clearosfake.Result) {
	t.Helper()
	work := t.TempDir()
	conf := ""
	if network != nil {
		conf = filepath.Join(work, "network.conf")
		if err := os.WriteFile(conf, []byte(*network), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(work, "qos.conf"), []byte(qos), 0o644); err != nil {
		t.Fatal(err)
	}
	shim, err := filepath.Abs("testdata/clearos/shim.lua")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", `set -a; . "$0/qos.conf"; exec "$@"`, work, lua, shim, engine, conf, family)
	var said bytes.Buffer
	c.Stderr = &said
	text, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", shim, err, &said)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "C":
			out.Commands = append(out.Commands, rest)
		case "S":
			out.Says = append(out.Says, rest)
		case "E":
			out.Error = rest
		}
	}
	return out
}

// clearOSFiles returns the files that a plan asks for. engine is "" for
// ClearOS's own engine.
func clearOSFiles(t *testing.T, c MatrixCase) (qos, network, engine string) {
	t.Helper()
	s, _, err := clearos.Render(c.Plan)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if c.Plan.AQM == plan.FQCoDel {
		if engine, err = clearos.Engine(clearOSDevices(c.Plan), commandsOf(t, c)); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
	}
	return clearos.Format(s.QoS, true), clearos.Format(s.Network, false), engine
}

func clearOSDevices(p plan.Plan) []string {
	return tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down})
}

// commandsOf returns the commands by which a plain Linux router would be
// shaped.
func commandsOf(t *testing.T, c MatrixCase) [][]string {
	t.Helper()
	p := c.Plan
	p.Offloads = nil
	out, err := linux.FirstCommands(p)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return out
}

// ourEngineFaults reports where our engine's commands differ from the plan's.
// The ones that first remove the old state are ignored.
func ourEngineFaults(t *testing.T, c MatrixCase, got []string) {
	t.Helper()
	var want, ran []string
	for _, argv := range commandsOf(t, c) {
		want = append(want, strings.Join(argv, " "))
	}
	for _, line := range got {
		if !strings.HasSuffix(line, " 2>/dev/null") {
			ran = append(ran, line)
		} else if !strings.Contains(line, " del dev ") {
			t.Errorf("%s: %q may fail unseen", c.Name, line)
		}
	}
	if d := cmp.Diff(want, ran); d != "" {
		t.Errorf("%s: our engine: -plan +run\n%s", c.Name, d)
	}
}

var ownClass = regexp.MustCompile(`^/sbin/tc class add dev (\S+) parent (1:1?) classid 1:(\d+) htb rate (\d+)kbit(?: ceil (\d+)kbit prio (\d))?$`)

// ownEngineFaults reports where ClearOS's own engine does not do what the plan
// means. It must end without an error; each direction has its rate and seven
// classes that HTB accepts and that together do not exceed the line; each class
// of the plan has its guarantee and its limit; and iptables accepts the rules.
func ownEngineFaults(t *testing.T, c MatrixCase, family string, got clearosfake.Result) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %s: %s", c.Name, family, fmt.Sprintf(format, args...))
	}
	if got.Error != "" || len(got.Says) != 1 {
		bad("it says %q, and ends with %q", got.Says, got.Error)
	}
	type class struct{ rate, ceil int64 }
	classes := map[string]map[string]class{}
	marks := 0
	for _, line := range got.Commands {
		if m := ownClass.FindStringSubmatch(line); m != nil {
			if classes[m[1]] == nil {
				classes[m[1]] = map[string]class{}
			}
			rate, _ := strconv.ParseInt(m[4], 10, 64)
			ceil, _ := strconv.ParseInt(m[5], 10, 64)
			classes[m[1]][m[3]] = class{rate, ceil}
			if rate == 0 || m[5] == "0" {
				bad("HTB takes no class of 0: %s", line)
			}
			if m[3] != "1" && m[3] != "1"+m[6] {
				bad("the priority is not the band's: %s", line)
			}
		}
		if strings.HasPrefix(line, "iptables -t mangle -A ") && strings.Contains(line, "--set-mark") {
			marks++
			if family == "ipv6" {
				bad("a rule for IPv6: %s", line)
			}
			if port := strings.Contains(line, "port"); port && !strings.Contains(line, " -p tcp ") && !strings.Contains(line, " -p udp ") && !strings.Contains(line, " -p sctp ") {
				bad("a port without a protocol: %s", line)
			}
		}
	}
	p := c.Plan
	for _, d := range []struct {
		dev    string
		s      *plan.Shaper
		shares []plan.Share
	}{{p.WAN, p.Up, p.Classes.Of(false)}, {"imq0", p.Down, p.Classes.Of(true)}} {
		of, kbit := classes[d.dev], int64(d.s.Rate)/1000
		if of["1"].rate != kbit || len(of) != 8 {
			bad("%s has %d classes and %d kbit/s, want 8 and %d", d.dev, len(of), of["1"].rate, kbit)
		}
		sum := int64(0)
		for id, x := range of {
			if id == "1" {
				continue
			}
			if sum += x.rate; x.ceil < x.rate || x.ceil > kbit {
				bad("%s: class %s has %d kbit/s and at most %d, of %d", d.dev, id, x.rate, x.ceil, kbit)
			}
		}
		if sum > kbit {
			bad("%s: the classes are sure of %d kbit/s, of %d", d.dev, sum, kbit)
		}
		for _, sh := range d.shares {
			x := of["1"+map[plan.Class]string{plan.Voice: "0", plan.Interactive: "1", plan.Normal: "3", plan.Bulk: "5"}[sh.Class]]
			least := int64(sh.Guarantee*100/d.s.Rate) * kbit / 100 // rounded to whole percents and whole kbit/s
			if most := int64(sh.Limit) / 1000; x.rate < least || sh.Limit > 0 && x.ceil < most-1 || sh.Limit == 0 && x.ceil != kbit {
				bad("%s: %s has %d kbit/s and at most %d; the plan says %s and %s", d.dev, sh.Class, x.rate, x.ceil, sh.Guarantee, sh.Limit)
			}
		}
	}
	if (marks > 0) != (p.Classes != nil && family == "ipv4") {
		bad("%d rules mark", marks)
	}
}

// anyClearOS draws settings. Most of them are realistic.
func anyClearOS(r *rapid.T) (qos string, network *string, family string) {
	pick := func(name string, list ...string) string { return rapid.SampledFrom(list).Draw(r, name) }
	shares := func(name string) string {
		if pick(name+" usual", "usual", "usual", "other") == "usual" {
			return pick(name, "*:15:15:14:14:14:14:14", "*:100:100:100:100:100:100:100", "*:30:20:1:37:1:10:1", "*:10:10:10:10:10:10:10")
		}
		n := func(i int) int {
			return rapid.SampledFrom([]int{0, 1, 10, 14, 15, 20, 100, 101}).Draw(r, fmt.Sprint(name, i))
		}
		text := ""
		for range rapid.IntRange(0, 2).Draw(r, name+" entries") {
			text += pick(name+" of", "*", "ppp0", "eth1", "eth0.7", "wan_0") + fmt.Sprintf(":%d:%d:%d:%d:%d:%d:%d ", n(0), n(1), n(2), n(3), n(4), n(5), n(6))
		}
		return text + pick(name+" rest", "", "", "", " ", "x", "*:1:2", "*:1.5:2:3:4:5:6:7")
	}
	list := func(name string) string {
		text := ""
		for range rapid.IntRange(1, 4).Draw(r, name+" entries") {
			text += pick(name, "ppp0:auto", "ppp0:auto", "eth1:auto", "eth0:10", "eth0.7:auto", "br-lan:auto", "wan_0:5", "ppp0", "enp3s0:auto", "wlan0:auto") + pick(name+" blank", " ", "  ", "\t ")
		}
		return text
	}
	mark := func(name string) string {
		text := ""
		for range rapid.IntRange(0, 3).Draw(r, name+" entries") {
			fields := []string{"a", pick(name+" if", "*", "ppp0", "eth9"), pick(name+" on", "1", "0", "x", ""), pick(name+" way", "0", "1", "2"), pick(name+" prio", "0", "3", "7", "x"),
				pick(name+" proto", "tcp", "-", "!udp", ""), pick(name+" from", "-", "192.0.2.1"), pick(name+" sport", "-", "53", "1:9", "1,2"), pick(name+" to", "-", "2001:db8::/32"), pick(name+" dport", "-", "443", "1:9", "1,2")}
			text += strings.Join(fields[:rapid.SampledFrom([]int{10, 10, 10, 9, 7, 3}).Draw(r, name+" fields")], "|") + pick(name+" blank", " ", " \\\n  ", "\n", "\t")
		}
		return text
	}
	custom := func(name string) string {
		text := ""
		for range rapid.IntRange(0, 2).Draw(r, name+" entries") {
			text += pick(name, "a|*|1|0|0|-p tcp --syn", "b|ppp0|1|1|2|-m dscp  --dscp-class EF", "c|*|1|0|3", "d|*|0|0|0|-p udp") + pick(name+" end", "\n", "\n\n  ", " \n\t", "\\\n")
		}
		return text
	}
	set := func(key string, value func(string) string) {
		switch pick(key+" is", "set", "set", "set", "set", "set", "set", "empty", "absent") {
		case "set":
			qos += fmt.Sprintf("%s=\"%s\"\n", key, value(key))
		case "empty":
			qos += key + "=\"\"\n"
		}
	}
	set("QOS_ENABLE_IFB", func(k string) string { return pick(k, "no", "yes", "maybe") })
	both := list("both")
	same := pick("same", "same", "same", "other") == "same"
	for _, way := range []string{"UPSTREAM", "DOWNSTREAM"} {
		set("QOS_"+way, func(k string) string {
			if same {
				return both
			}
			return list(k)
		})
		set("QOS_"+way+"_BWRES", shares)
		set("QOS_"+way+"_BWLIMIT", shares)
	}
	for _, n := range []string{"4", "6"} {
		set("QOS_PRIOMARK"+n, mark)
		set("QOS_PRIOMARK"+n+"_CUSTOM", custom)
	}
	if pick("network.conf", "there", "there", "there", "absent") == "there" {
		text := ""
		for range rapid.IntRange(0, 6).Draw(r, "speeds") {
			text += pick("comment", "", "", "# ", "X") + pick("speed of", "PPP0", "ETH1", "ETH0", "7", "LAN", "ppp0") + "_MAX_" + pick("way", "UPSTREAM", "DOWNSTREAM") +
				pick("is", "=", " = ", "=\"") + pick("speed", "9000", "85000", "64", "7", "1", "0", "007", "99.5", "-5", "123456789", "") + "\n"
		}
		network = &text
	}
	return qos, network, pick("family", "ipv4", "ipv6")
}
