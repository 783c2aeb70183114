package verify

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/mechanism/clearos"
	"unbloat/internal/plan"
	"unbloat/internal/platform/clearos/fake"
)

// TestClearOS gives the settings of every plan that is for ClearOS's own engine
// to libqos.lua, with Lua 5.1.
func TestClearOS(t *testing.T) {
	dir := given(t, "UNBLOAT_CLEAROS", "a checkout of ClearOS's app-qos repository")
	lua := luaOf(t)
	n := 0
	for _, c := range matrix(t, plan.ClearOS) {
		if c.Plan.AQM != plan.SFQ {
			continue
		}
		n++
		qos, network := clearOSFiles(t, c)
		for _, family := range []string{"ipv4", "ipv6"} {
			got := libqos(t, lua, dir, qos, &network, family)
			for _, bad := range clearOSFaults(c.Plan, got, family) {
				t.Errorf("%s, %s: %s", c.Name, family, bad)
			}
		}
	}
	t.Logf("ClearOS's own engine took %d configurations, for IPv4 and for IPv6", n)
}

// TestClearOSStandIn gives settings at random to libqos.lua and to what stands in
// for it: both run the same commands, say the same, and end with the same error.
func TestClearOSStandIn(t *testing.T) {
	dir := given(t, "UNBLOAT_CLEAROS", "a checkout of ClearOS's app-qos repository")
	lua := luaOf(t)
	refused, asked := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		qos, network, family := anyClearOS(r)
		asked++
		got, err := fake.Engine(qos, network, family)
		if err != nil {
			refused++
			return
		}
		if d := cmp.Diff(libqos(t, lua, dir, qos, network, family), got); d != "" {
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

// libqos runs the real engine by the shim in testdata.
func libqos(t *testing.T, lua, dir, qos string, network *string, family string) (out fake.Result) {
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
	c := exec.Command("sh", "-c", `set -a; . "$0/qos.conf"; exec "$@"`, work, lua, shim, filepath.Join(dir, "deploy/libqos.lua"), conf, family)
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

// clearOSFiles returns the files that a plan for ClearOS's own engine asks for.
func clearOSFiles(t *testing.T, c Case) (qos, network string) {
	t.Helper()
	s, _, err := clearos.Render(c.Plan)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return clearos.Format(s.QoS, true), clearos.Format(s.Network, false)
}

// anyClearOS draws settings, most of them such as somebody might write.
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
