package nft_test

import (
	"bytes"
	"os/exec"
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
