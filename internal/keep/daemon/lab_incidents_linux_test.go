package daemon_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// On a real kernel a line that is watched has three faults: its provider forwards nothing,
// the line loses packets, and the port towards the home is down. Each is found at its time
// with the right part, and nothing else; the dossier has them.
func TestIncidentsInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Server: true}) {
		return
	}
	h := newHouse(t, `history = "`+t.TempDir()+`/history.db"
[[wan]]
interface = "wan"
lan = "lan"
down = "50 Mbit/s"
up = "10 Mbit/s"
incidents = true
reflectors = ["`+lab.ServerAddr+`"]
`)
	at := map[incident.Part]time.Time{}
	fault := func(part incident.Part, begins, ends string, lasts, after time.Duration) {
		t.Helper()
		sh(t, begins)
		at[part] = time.Now()
		time.Sleep(lasts)
		sh(t, ends)
		time.Sleep(after)
	}
	isp := func(line string) string { return "ip netns exec " + lab.NodeISP + " sh -c '" + line + "'" }
	time.Sleep(90 * time.Second)
	fault(incident.Provider, isp("nft add table ip broken && nft add chain ip broken f \"{ type filter hook forward priority 0; }\" && nft add rule ip broken f drop"), isp("nft delete table ip broken"), 40*time.Second, time.Minute)
	fault(incident.Line, isp("nft add table ip lossy && nft add chain ip lossy p \"{ type filter hook prerouting priority -300; }\" && nft add rule ip lossy p numgen random mod 10 \\< 4 drop"), isp("nft delete table ip lossy"), 2*time.Minute, 4*time.Minute)
	fault(incident.Home, "ip link set lan down", "ip link set lan up", 30*time.Second, time.Minute)
	var got daemon.Incidents
	text := h.unbloat(0, "incidents", "--json")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err, text)
	}
	for _, x := range got.Incidents {
		off := x.Begin.Sub(at[x.Part]).Abs()
		t.Logf("%s %s %s: %s; %s; off by %s, lasted %s", x.Kind, x.Severity, x.Part, x.What, x.Why, off, x.Lasted(time.Now()))
		limit := 2 * time.Second
		if x.Kind == incident.Loss {
			limit = 10 * time.Second
		}
		if at[x.Part].IsZero() || off > limit || !x.Over() {
			t.Errorf("it is none of the faults, or at another time: %+v", x)
		}
		delete(at, x.Part)
	}
	if len(at) > 0 {
		t.Errorf("not found: %v\n%s", at, h.said)
	}
	file := t.TempDir() + "/dossier.html"
	h.unbloat(0, "report", "--incidents", "--from", "1h", "-o", file)
	if page := sh(t, "cat "+file); strings.Count(page, "<svg") < 6 || !strings.Contains(page, "SHA-256") {
		t.Errorf("the dossier has %d pictures", strings.Count(page, "<svg"))
	}
}
