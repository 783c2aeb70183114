package nft_test

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

const rules = `
[dscp]
trust_home = true
trust_far = true
wash_down = true
wash_up = true
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
				plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, Hosts: map[string][]string{"nas": {"192.168.1.9", "fd00::9"}}},
				plan.Preferences{AQM: aqm, Side: side, Classes: w})
			if err != nil {
				t.Fatal(err)
			}
			out[name+" "+string(side)] = nft.Render(p, "b10a:")
		}
	}
	return out
}

// TestListedEqualsRendered: nft(8) and this kernel accept every rendered table,
// and its listing by each version of nft compares equal. A removed rule is
// found.
func TestListedEqualsRendered(t *testing.T) {
	rendered := tables(t)
	everyVersion(t, func(t *testing.T, listed map[string]nft.Table) {
		for name, table := range rendered {
			if d := nft.Differences(listed[name], table); d != nil {
				t.Errorf("%s: %q", name, d)
			}
			less := nft.Table{Text: regexp.MustCompile(`(?m)^.* goto \w+\n`).ReplaceAllStringFunc(listed[name].Text, once())}
			if d := nft.Differences(less, table); len(d) != 1 || !strings.Contains(d[0], "rules, not") {
				t.Errorf("%s: a rule is missing, and it says %q", name, d)
			}
		}
	})
}

// once returns a function that removes the first text that it is given, and leaves the others.
func once() func(string) string {
	done := false
	return func(s string) string {
		if done {
			return s
		}
		done = true
		return ""
	}
}

// TestChangedByHand: every change in a listed table is found: a rule removed,
// changed in any number or name, or swapped with the next; the same for sets
// and limits.
func TestChangedByHand(t *testing.T) { everyVersion(t, changedByHand) }

// TestListedAs: if the form is not known, and only then, the text is compared
// with a listing by the same nft. A listing of another table is not used.
func TestListedAs(t *testing.T) {
	odd := func(s string) string { return strings.ReplaceAll(s, "ct bytes", "ct octets") }
	tried := map[string]bool{}
	for name, table := range tables(t) {
		listing := nft.Table{Text: odd(table.Text)}
		if !nft.Unsure(listing, table) || nft.Unsure(table, table) {
			t.Fatalf("%s: it is known what the form means", name)
		}
		with := table.ListedAs(listing.Text)
		if d := nft.Differences(listing, with); !with.Tried || d != nil || with.Digest() != listing.Digest() {
			t.Errorf("%s: %q, digests %q, %q", name, d, with.Digest(), listing.Digest())
		}
		if d := nft.Differences(table, with); d != nil {
			t.Errorf("%s: the known form: %q", name, d)
		}
		if known := table.ListedAs(table.Text); known.Listed != "" || !known.Tried || nft.Unsure(listing, known) {
			t.Errorf("%s: the known form is kept: %v", name, known)
		}
		lines := strings.SplitAfter(listing.Text, "\n")
		for i, line := range lines {
			kind := regexp.MustCompile(`[0-9]+`).ReplaceAllString(line, "N")
			if !strings.HasPrefix(line, "\t\t") || tried[kind] {
				continue
			}
			tried[kind] = true
			less := nft.Table{Text: strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")}
			if d := nft.Differences(less, with); len(d) != 1 {
				t.Errorf("%s: without %q: %q", name, line, d)
			}
			if rule := !regexp.MustCompile(`^\t\t(size|flags|timeout|gc-interval|rate|type ip|type inet)`).MatchString(line); rule && table.ListedAs(less.Text).Tried {
				t.Errorf("%s: without %q it is taken for a listing of the table", name, line)
			}
		}
		for _, text := range []string{"", "Error: syntax error\n", nft.Sample().Text} {
			if got := table.ListedAs(text); got != table {
				t.Errorf("%s: %q is taken for a listing of the table", name, text)
			}
		}
	}
}

func changedByHand(t *testing.T, listed map[string]nft.Table) {
	tried, changes := map[string]bool{}, 0
	for name, table := range parts(listed) {
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

// parts are the tables with one of their chains or sets each, which compare much faster
// than the whole, in the tables' order.
func parts(listed map[string]nft.Table) iter.Seq2[string, nft.Table] {
	block := regexp.MustCompile(`(?ms)^\t[a-z].*?^\t}\n`)
	return func(yield func(string, nft.Table) bool) {
		for _, name := range slices.Sorted(maps.Keys(listed)) {
			text := listed[name].Text
			at := block.FindAllStringIndex(text, -1)
			for _, b := range at {
				if !yield(name, nft.Table{Text: text[:at[0][0]] + text[b[0]:b[1]] + "}\n"}) {
					return
				}
			}
		}
	}
}

// changed returns the line with another number at this place.
func changed(line string, at int, word string) string {
	last := word[len(word)-1]
	if last == '9' {
		last = '0' - 1
	}
	return word[:len(word)-1] + string(last+1)
}

// everyVersion runs a test with the tables as listed by this machine's nft(8)
// and by those in UNBLOAT_NFT (programs, separated by ":").
func everyVersion(t *testing.T, test func(t *testing.T, listed map[string]nft.Table)) {
	everyProgram(t, func(t *testing.T, program string) { test(t, listings(t, program)) })
}

// everyProgram runs a test with each of these programs.
func everyProgram(t *testing.T, test func(t *testing.T, program string)) {
	programs := []string{"nft"}
	if more := os.Getenv("UNBLOAT_NFT"); more != "" {
		programs = append(programs, filepath.SplitList(more)...)
	} else {
		t.Log("SKIPPED: versions of nft(8) other than this machine's: UNBLOAT_NFT names none")
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) { test(t, program) })
	}
}

// TestListedInScratch: each version lists a table in a scratch namespace, made
// by the product's own command, as it lists the table in force. No further
// command runs once they are equal.
func TestListedInScratch(t *testing.T) {
	all := tables(t)
	everyProgram(t, func(t *testing.T, program string) {
		listed, dir := listings(t, program), t.TempDir()
		found, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(dir, "nft")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		for name, want := range all {
			r := &inNamespace{}
			if got := linux.Listed(t.Context(), r, nft.Table{}, want); !got.Tried || got.Listed != "" || r.printed != listed[name].Text {
				t.Errorf("%s: tried %v, in an unknown form %q; it printed\n%s", name, got.Tried, got.Listed, r.printed)
			}
			r = &inNamespace{}
			if got := linux.Listed(t.Context(), r, listed[name], want); got != want || r.runs > 0 {
				t.Errorf("%s: it is equal, and yet %d commands run", name, r.runs)
			}
		}
	})
}

// inNamespace runs commands as root of a user namespace.
type inNamespace struct {
	platform.Local
	runs    int
	printed string
}

func (n *inNamespace) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	stdout, stderr, err = n.Local.Run(ctx, append([]string{"unshare", "-r", "--"}, argv...), stdin)
	n.runs, n.printed = n.runs+1, string(stdout)
	return stdout, stderr, err
}

// listings returns the tables as this nft(8) lists them in a namespace of its
// own.
func listings(t *testing.T, program string) map[string]nft.Table {
	t.Helper()
	version, err := exec.Command("unshare", "-rn", program, "--version").CombinedOutput()
	if err == nil {
		err = exec.Command("unshare", "-rn", program, "list", "ruleset").Run()
	}
	if err != nil {
		t.Skipf("SKIPPED: %s in a namespace of its own: %v: %s", program, err, version)
	}
	t.Logf("%s", version)
	out := map[string]nft.Table{}
	for name, table := range tables(t) {
		var said bytes.Buffer
		cmd := exec.Command("unshare", "-rn", "sh", "-c", `"$0" -f - && "$0" -s -t list table inet unbloat_wan`, program)
		cmd.Stdin, cmd.Stderr = strings.NewReader(table.Load(nft.Table{})), &said
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, said.String())
		}
		out[name] = nft.Table{Text: string(text)}
	}
	return out
}

// TestDifferences: the table of another plan, or none, is reported.
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
