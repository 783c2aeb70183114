package daemon_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/page"
	"unbloat/lab"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// On a real kernel a line that is watched has three faults: its provider forwards nothing,
// the line loses packets, and the port towards the home is down. Each is found at its time
// with the right part, and nothing else; the dossier has them. With UNBLOAT_PICTURES=1 they are
// spread over a day of 24 hours, and its page and its dossier are in docs/incidents.
func TestIncidentsInLab(t *testing.T) {
	day := os.Getenv("UNBLOAT_PICTURES") != ""
	o := labtest.Options{Server: true, Env: []string{"UNBLOAT_PICTURES=" + os.Getenv("UNBLOAT_PICTURES")}}
	if day {
		o.Within = 3 * time.Hour
	}
	output, inside := labtest.Output(t, o)
	if !inside {
		if day {
			pictures(t, output)
		}
		return
	}
	if day {
		sh(t, "date -s 2026-01-01T00:00:00Z")
	}
	file := t.TempDir() + "/history.db"
	h := newHouse(t, `history = "`+file+`"
[[wan]]
interface = "wan"
lan = "lan"
down = "50 Mbit/s"
up = "10 Mbit/s"
incidents = true
reflectors = ["`+lab.ServerAddr+`"]
`)
	at := map[incident.Part]time.Time{}
	pass := func(d time.Duration) { time.Sleep(d) } // of the guest's time, in which the line is what is tested
	fault := func(clock time.Duration, part incident.Part, begins, ends string, lasts, after time.Duration) {
		t.Helper()
		if day {
			pass(time.Until(time.Now().Truncate(24 * time.Hour).Add(clock)))
		}
		sh(t, begins)
		at[part] = time.Now()
		pass(lasts)
		sh(t, ends)
		pass(after)
	}
	isp := func(line string) string { return "ip netns exec " + lab.NodeISP + " sh -c '" + line + "'" }
	// The line, where it ends at the provider's first router: both ways of what that answers itself too.
	// Losses are counted, not drawn: S830 is about draws, of which some begin with seconds that lose nothing.
	loses := func(chain, hook, device string) string {
		return "nft add table ip lossy && nft add chain ip lossy " + chain + " \"{ type filter hook " + hook + " priority 0; }\" && nft add rule ip lossy " + chain + " " + device + " home numgen inc mod 10 \\< 4 drop"
	}
	pass(90 * time.Second)
	fault(7*time.Hour+40*time.Minute, incident.Provider, isp("nft add table ip broken && nft add chain ip broken f \"{ type filter hook forward priority 0; }\" && nft add rule ip broken f drop"), isp("nft delete table ip broken"), 40*time.Second, time.Minute)
	fault(15*time.Hour+10*time.Minute, incident.Line, isp(loses("i", "prerouting", "iifname")+" && "+loses("o", "postrouting", "oifname")), isp("nft delete table ip lossy"), 2*time.Minute, 4*time.Minute)
	fault(20*time.Hour+45*time.Minute, incident.Home, "ip link set lan down", "ip link set lan up", 30*time.Second, 2*time.Minute)
	if day {
		pass(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - time.Minute)))
	}
	var got daemon.Incidents
	text := h.unbloat(0, "incidents", "--json", "--from", "2d")
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
	dossier := t.TempDir() + "/dossier.html"
	h.unbloat(0, "report", "--incidents", "--from", "2d", "-o", dossier)
	if page := sh(t, "cat "+dossier); strings.Count(page, "<svg") < 6 || !strings.Contains(page, "SHA-256") {
		t.Errorf("the dossier has %d pictures", strings.Count(page, "<svg"))
	}
	h.end(syscall.SIGTERM)
	for name, text := range map[string][]byte{"incidents": []byte(text), "dossier": []byte(sh(t, "cat "+dossier))} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(text)
		z.Close()
		fmt.Printf("FILE %s %s\n", name, base64.StdEncoding.EncodeToString(b.Bytes()))
	}
}

// pictures makes those of docs/incidents from what the test printed in the guest.
func pictures(t *testing.T, output string) {
	t.Helper()
	file := func(name string) []byte {
		_, rest, _ := strings.Cut(output, "FILE "+name+" ")
		text, _, _ := strings.Cut(rest, "\n")
		packed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(name, err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(name, err)
		}
		b, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(name, err)
		}
		return b
	}
	var all daemon.Incidents
	if err := json.Unmarshal(file("incidents"), &all); err != nil {
		t.Fatal(err)
	}
	html := filepath.Join(t.TempDir(), "dossier.html")
	if err := os.WriteFile(html, file("dossier"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := []page.Incident{}
	for _, x := range all.Incidents {
		said := func(r reason.Reason) page.Said {
			return page.Said{EN: r.Text(reason.English(), reason.Page), DE: r.Text(reason.German(), reason.Page)}
		}
		shown = append(shown, page.Incident{ID: x.ID, BeginMs: x.Begin.UnixMilli(), EndMs: x.End.UnixMilli(), Kind: string(x.Kind), Part: string(x.Part), Severity: string(x.Severity), What: said(x.What), Why: said(x.Why)})
	}
	dir := filepath.Join(await.Root(t), "docs", "incidents")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]map[string]any{
		"phone.png":   {"flow": "day", "width": 390, "height": 844},
		"desktop.png": {"flow": "day", "width": 1280, "height": 900},
		"dossier.png": {"flow": "dossier", "width": 1000, "height": 900, "html": html},
	} {
		o["shots"], o["file"], o["incidents"] = dir, name, shown
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.300s", name, await.WebScript(t, 5*time.Minute, "ui", string(text)))
	}
}
