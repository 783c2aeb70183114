package daemon_test

import (
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/steer"
	"unbloat/lab"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// followedWAN is the lab's line of 10/2 Mbit/s in a configuration, followed.
const followedWAN = `[[wan]]
interface = "wan"
lan = "lan"
down = "10 Mbit/s"
up = "2 Mbit/s"
follow = true
least_down = "1 Mbit/s"
most_down = "10.4 Mbit/s"
least_up = "0.2 Mbit/s"
most_up = "2.1 Mbit/s"
`

// A line of 10/2 Mbit/s that falls to 3/0.8 and comes back is followed: the rates go
// down with it within seconds and up again, by netlink and without a look at the
// router for each; and the metrics say so. One second may be that of a probe for more,
// or of its queue: most of five decide.
func TestFollowInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Server: true, Scenario: labtest.HomeAt(10*unit.MbitPerSecond, 2*unit.MbitPerSecond)}) {
		return
	}
	h := newHouse(t, `metrics = "127.0.0.1:9836"
server = "`+lab.Server()+`"
`+followedWAN+`reflectors = ["`+lab.ServerAddr+`"]
`)
	say := func(when string) daemon.WANStatus {
		t.Helper()
		s := h.status().WANs[0]
		if s.Line == nil {
			t.Fatalf("%s: the line is not followed: %+v\n%s", when, s, h.said)
		}
		t.Logf("%s: %v down of %v (%.1f ms, %s), %v up of %v (%.1f ms, %s); %d looks, %d probe bytes", when, s.Line.Down.Rate, s.Line.Down.Capacity, s.Line.Down.Delay.Ms(), s.Line.Down.Why.Cause.Code(),
			s.Line.Up.Rate, s.Line.Up.Capacity, s.Line.Up.Delay.Ms(), s.Line.Up.Why.Cause.Code(), s.Looks, s.Line.ProbeBytes)
		return s
	}
	load := labtest.In(t.Context(), lab.Host(1), labtest.Unbloat(), "test", "--server", lab.Server(), "--json", "--quiet", "--idle", "3", "--seconds", "38")
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = load.Process.Kill(); _ = load.Wait() }()
	time.Sleep(15 * time.Second) // idle, then into the download
	before := say("under load")
	line := func(down, up string) {
		for dev, r := range map[string]string{"m0": down, "m1": up} {
			c := exec.CommandContext(t.Context(), "ip", "netns", "exec", lab.NodeModem, "tc", "qdisc", "change", "dev", dev, "parent", "2:1", "handle", "1:", "tbf", "rate", r, "burst", "1600", "limit", "1000000")
			if b, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
		}
	}
	line("3mbit", "800kbit")
	time.Sleep(8 * time.Second)
	say("8 s after the fall")
	fallen := time.Now()
	shown, err := exec.CommandContext(t.Context(), "tc", "qdisc", "show").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", shown)
	line("10mbit", "2mbit")
	time.Sleep(15 * time.Second)
	back := say("15 s after it came back")
	risen := time.Now()
	if !slices.ContainsFunc(back.Line.Reflectors, func(r steer.Reflector) bool { return r.Address == lab.Server() && r.Asked == 0 }) {
		t.Errorf("the server of the configuration is not known, or is asked while others answer: %+v", back.Line.Reflectors)
	}
	if n := back.Looks - before.Looks; n > 5 {
		t.Errorf("%d looks at the router in 23 s", n)
	}
	var log daemon.Decisions
	var past daemon.History
	c, err := daemon.Dial(t.Context(), daemon.Socket(h.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(t.Context(), daemon.MethodDecisions, "", "", nil, &log); err != nil || len(log.Decisions) < 3 || log.Last < uint64(len(log.Decisions)) {
		t.Errorf("%d decisions: %v", len(log.Decisions), err)
	}
	if !slices.ContainsFunc(log.Decisions, func(d daemon.Decision) bool {
		return d.Direction == "down" && d.To < d.From && d.Why.Code == reason.FollowQueue
	}) {
		t.Errorf("the cut is not among the decisions: %+v", log.Decisions)
	}
	if err := c.Call(t.Context(), daemon.MethodHistory, "", "", daemon.HistoryParams{From: time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)}, &past); err != nil || len(past.At) < 30 || past.Step != 1 {
		t.Fatalf("the history has %d seconds: %v, %v", len(past.At), past.Down.Rate, err)
	}
	// most are the medians of the five seconds before then.
	most := func(then time.Time) (rate int64, delay float64) {
		var rates []int64
		var delays []float64
		for i, at := range past.At {
			if d := past.Down.Delay[i]; d != nil && at < then.UnixMilli() && at >= then.Add(-5*time.Second).UnixMilli() {
				rates, delays = append(rates, past.Down.Rate[i]), append(delays, *d)
			}
		}
		if len(rates) < 4 {
			t.Fatalf("of the five seconds before %v the history knows %d", then, len(rates))
		}
		slices.Sort(rates)
		slices.Sort(delays)
		return rates[len(rates)/2], delays[len(delays)/2]
	}
	if rate, delay := most(fallen); rate > 3_200_000 || rate < 1_300_000 || delay > 40 {
		t.Errorf("3 to 8 s after the fall: down %d bit/s, delay %.1f ms; the line carries 3 Mbit/s", rate, delay)
	}
	if rate, _ := most(risen); rate < 6_700_000 {
		t.Errorf("10 to 15 s after the line came back: down %d bit/s", rate)
	}
	if lines := h.unbloat(0, "history", "--line", "--since", "5m"); !strings.Contains(lines, "wan, ") || strings.Count(lines, "\n") != 25 {
		t.Errorf("history says\n%s", lines)
	}
	// Its rates are other ones than those that were applied, on purpose.
	if says := h.unbloat(0, "status", "--wan", "wan"); strings.Contains(says, "is not what was applied") {
		t.Errorf("status says\n%s", says)
	}
	// The default route moves to another interface and back: what was measured counts no
	// longer, and nothing is rebuilt.
	looks := h.status().WANs[0].Looks // without one nothing is rebuilt
	via := strings.Fields(sh(t, "ip route show default"))
	sh(t, "ip route del default && ip route add default dev lan")
	sh(t, "ip route del default && ip route add "+strings.Join(via, " "))
	await.Until(t, 10*time.Second, "the daemon to hear of the route", func() bool { return h.status().WANs[0].Reroutes == 2 })
	if s := h.status().WANs[0]; s.Line == nil || s.Looks != looks {
		t.Errorf("after the route has moved: %+v", s)
	}
	r, err := http.Get("http://127.0.0.1:9836/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`unbloat_shaper_rate_bytes_per_second{wan="wan",direction="down"}`, `unbloat_rate_changes_total{wan="wan",direction="down",reason=`,
		`unbloat_reconciles_total{wan="wan",cause="start"} 1`, `unbloat_reflector_up{wan="wan",reflector="10.3.0.2"} 1`, `unbloat_line_delay_seconds_count{wan="wan",direction="up"}`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the metrics do not say %s:\n%s", want, b)
		}
	}
}
