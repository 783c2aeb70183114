package nft_test

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/host/linux"
	"unbloat/internal/mechanism/nft"
	"unbloat/internal/plan"
	"unbloat/unit"
)

const rules = `
[dscp]
trust_home = true
trust_far = true
[[rule]]
class = "voice"
protocol = "udp"
far_port = ["19302-19309"]
[[rule]]
class = "bulk"
home = ["192.168.1.7", "02:00:00:00:00:07", "nas"]
port = ["80", "8080-8090"]
from_bytes = "1 MB"
[[rule]]
class = "interactive"
domain = ["zoom.us"]
[[rule]]
class = "voice"
dscp = ["ef", "cs5"]
far = ["2001:db8::/32", "203.0.113.0/24"]
[[rule]]
class = "bulk"
protocol = "icmp"
direction = "down"
[[rule]]
class = "normal"
protocol = "esp"
below_bytes = "1 MB"
`

func tables(t *testing.T) map[string]nft.Table {
	t.Helper()
	w, err := plan.ParseClasses("rules", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]nft.Table{}
	for _, side := range []plan.Side{plan.SideIFB, plan.SideLAN} {
		for name, aqm := range map[string]plan.AQM{"cake": plan.CAKE, "htb": plan.FQCoDel} {
			p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
				plan.Facts{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, Hosts: map[string][]string{"nas": {"192.168.1.9", "fd00::9"}}},
				plan.Wishes{AQM: aqm, Side: side, Classes: w})
			if err != nil {
				t.Fatal(err)
			}
			out[name+" "+string(side)] = nft.Render(p, "b10a:")
		}
	}
	return out
}

// nft(8) and this kernel take every rendered table, and what nft lists of it is
// found equal; a rule that somebody took away is found missing.
func TestListedEqualsRendered(t *testing.T) {
	if err := exec.Command("unshare", "-rn", "nft", "list", "ruleset").Run(); err != nil {
		t.Skipf("SKIPPED: nft(8) in a namespace of its own: %v", err)
	}
	for name, table := range tables(t) {
		var out, errs bytes.Buffer
		cmd := exec.Command("unshare", "-rn", "sh", "-c", "nft -f - && nft -s -t list table inet unbloat")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(table.Load()), &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, errs.String())
		}
		listed := nft.Table{Text: out.String()}
		if d := nft.Differences(listed, table); d != nil {
			t.Errorf("%s: %q", name, d)
		}
		less := nft.Table{Text: strings.Replace(listed.Text, "\t\tgoto up_normal\n", "", 1)}
		if d := nft.Differences(less, table); len(d) != 1 || !strings.Contains(d[0], "rules, not") {
			t.Errorf("%s: a rule is missing, and it says %q", name, d)
		}
	}
}

// What is changed by hand in a table as nft lists it is found: each rule taken
// away, changed in any number or name, or exchanged with the next; each set and limit.
func TestChangedByHand(t *testing.T) {
	tried, changes := map[string]bool{}, 0
	for name, table := range listings(t) {
		lines := strings.SplitAfter(table.Text, "\n")
		same := func(what string, changed []string) {
			t.Helper()
			if d := nft.Differences(nft.Table{Text: strings.Join(changed, "")}, table); len(d) != 1 {
				t.Errorf("%s: %s: %q", name, what, d)
			}
		}
		for i, line := range lines {
			kind := regexp.MustCompile(`[0-9]+`).ReplaceAllString(line, "N")
			if !strings.HasPrefix(line, "\t\t") || tried[kind] {
				continue
			}
			tried[kind] = true
			put := func(with ...string) []string { return slices.Concat(lines[:i], with, lines[i+1:]) }
			same("without "+line, put())
			same("with a counter: "+line, put("\t\tcounter "+strings.TrimLeft(line, "\t")))
			if next := lines[i+1]; strings.HasPrefix(next, "\t\t") && strings.Contains(line, "goto") && next != line {
				same("exchanged: "+line, slices.Concat(lines[:i], []string{next, line}, lines[i+2:]))
			}
			for _, at := range regexp.MustCompile(`[0-9]+|goto [a-z]+|saddr|daddr|sport|dport|udp|tcp|icmp| over| & | \| |!=|original|reply|drop|accept`).FindAllStringIndex(line, -1) {
				word := line[at[0]:at[1]]
				other := map[string]string{"saddr": "daddr", "daddr": "saddr", "sport": "dport", "dport": "sport", "udp": "tcp", "tcp": "udp", "icmp": "udp", " over": "", " & ": " | ", " | ": " & ", "!=": "==",
					"original": "reply", "reply": "original", "drop": "accept", "accept": "drop"}[word]
				switch {
				case strings.HasPrefix(word, "goto"):
					other = word + "x"
				case word[0] >= '0' && word[0] <= '9':
					other = changed(line, at[0], word)
				}
				if strings.Contains(line, "tcp flags") && (word == "tcp" || word == " | " || word == " & ") || strings.Contains(line, "seen-reply") && word == "reply" {
					continue // what nft would not list
				}
				same("with "+other+" in place of "+word+" in "+line, put(line[:at[0]]+other+line[at[1]:]))
				changes++
			}
		}
	}
	if len(tried) < 100 || changes < 500 {
		t.Errorf("only %d kinds of lines and %d changes were tried", len(tried), changes)
	}
}

// changed is another number in place of one.
func changed(line string, at int, word string) string {
	last := word[len(word)-1]
	if last == '9' {
		last = '0' - 1
	}
	return word[:len(word)-1] + string(last+1)
}

// listings are the tables as nft lists them.
func listings(t *testing.T) map[string]nft.Table {
	t.Helper()
	if err := exec.Command("unshare", "-rn", "nft", "list", "ruleset").Run(); err != nil {
		t.Skipf("SKIPPED: nft(8) in a namespace of its own: %v", err)
	}
	out := map[string]nft.Table{}
	for name, table := range tables(t) {
		cmd := exec.Command("unshare", "-rn", "sh", "-c", "nft -f - && nft -s -t list table inet unbloat")
		cmd.Stdin = strings.NewReader(table.Load())
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = nft.Table{Text: string(text)}
	}
	return out
}

// Any other plan's table, or none, is told apart.
func TestDifferences(t *testing.T) {
	all := tables(t)
	a, b := all["cake ifb"], all["cake lan"]
	for _, x := range []struct {
		listed, wanted nft.Table
		says           string
	}{{a, b, "another plan"}, {nft.Table{}, a, "missing"}, {a, nft.Table{}, "should not be"}} {
		if d := nft.Differences(x.listed, x.wanted); len(d) == 0 || !strings.Contains(d[0], x.says) {
			t.Errorf("%q, want %q", d, x.says)
		}
	}
	if d := nft.Differences(a, a); d != nil {
		t.Errorf("equal, and yet %q", d)
	}
}
