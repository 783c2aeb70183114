package lab_test

import (
	"fmt"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/tune"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// The rates of a G.711 call and of the probe in one direction, with all
// headers.
const (
	callWire  = 50 * 214 * 8
	probeWire = 50 * 142 * 8
	// payloadShare is the TCP payload's share of a full packet on the line.
	payloadShare = 1448.0 / 1514
)

// keptRates checks that a case's rates are the ones that the tuner found on
// this line and kept.
func keptRates(d *draw, c lab.CaseResult) {
	d.Helper()
	keptWithin(d, c, 4)
}

// keptWithin is keptRates for a line that is tuned with this number of uploads.
func keptWithin(d *draw, c lab.CaseResult, flowsUp int) {
	d.Helper()
	r := c.Tune
	if r == nil || !r.Kept || c.Plan == nil {
		d.Fatalf("%s is not tuned, or was not kept: %+v", c.Name, r)
	}
	d.Logf("%s: tuned to %s down, %s up in %.0f s", c.Name, c.Plan.DownBps.Short(), c.Plan.UpBps.Short(), r.LineSeconds)
	d.AtMost(c.Name+": line time of the tuning, s", r.LineSeconds, tune.MostTime(c.Plan.Basis.Preferences.FlowsDown, flowsUp).Seconds())
}

// tunedAtNight is keptRates at night; by day a case has the rates that a tuning finds.
func tunedAtNight(d *draw, c lab.CaseResult) {
	d.Helper()
	if labtest.Long() {
		keptRates(d, c)
	}
}

// clear checks that every call of a case has at least this MOS and lost
// nothing.
func clear(d *draw, name string, c lab.CaseResult, mos float64) {
	d.Helper()
	worst, ok := lab.WorstCall(c)
	if !ok {
		d.Fatalf("%s: nobody calls", name)
	}
	d.AtLeast(name+": MOS of the worst call", worst, mos)
	for _, l := range c.Loads {
		if l.Kind == scenario.VoIP {
			d.AtMost(name+": loss of a call", l.Latency.Loss, 0)
		}
	}
}

// poor checks that the worst call of a case has at most this MOS.
func poor(d *draw, name string, c lab.CaseResult, mos float64) {
	d.Helper()
	worst, _ := lab.WorstCall(c)
	d.AtMost(name+": MOS of the worst call", worst, mos)
}

// loadOf returns the first load of a kind.
func loadOf(t testing.TB, c lab.CaseResult, kind string) lab.LoadResult {
	t.Helper()
	for _, l := range c.Loads {
		if l.Kind == kind {
			return l
		}
	}
	t.Fatalf("case %s has no load of kind %s", c.Name, kind)
	return lab.LoadResult{}
}

// fairShare returns the goodput of TCP with half of a shaped uplink, beside a
// call that takes less than its own share.
func fairShare(up unit.Rate) float64 { return (float64(up) - callWire) / 2 * payloadShare }

// Two hundred uploads and a call on the same machine. The call needs more than
// its fair share of 5 Mbit/s, so fair queues do not help it, but a class does.
func TestBulk200(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.run("bulk-200", oursAndNightly("fq_codel", "cake")...)
		ours := cases["ours"]
		tunedAtNight(d, ours)
		clear(d, "ours", ours, 4.2)
		d.AtMost("loss", ours.Test.Loaded.Latency.Loss, 0)
		d.AtMost("p95 increase, ms", ours.Test.Loaded.Latency.IncreaseMs.P95, 7)
		// Each upload has a packet or two on its way, and what is resent too early is carried twice.
		d.AtLeast("goodput up, of the line", ours.Test.Loaded.GoodputUpBps/5e6, 0.78)
		for _, name := range []string{"fq_codel", "cake"} {
			if c, ok := cases[name]; ok {
				poor(d, name, c, 2.5)
				d.AtLeast(name+": loss of the call", loadOf(d, c, scenario.VoIP).Latency.Loss, 0.2)
			}
		}
	})
}

// Calls and 200 small acknowledgements a second on ADSL of 6/0.7 Mbit/s: where each packet counts as
// much as it occupies in cells, the round trip's p95 rises by at most 15 ms at tuned rates; where not,
// the modem's queue stands, at the same share of the line. `unbloat tune` finds the framing by
// itself.
func TestADSL(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		names := []string{"uncounted", "counted", "counted-htb"}
		if labtest.Long() {
			names = append(names, "uncounted-htb", "measured")
		}
		for name, c := range d.run("adsl", names...) {
			l := c.Test.Loaded.Latency
			if strings.HasPrefix(name, "uncounted") {
				d.AtLeast(name+": p95 up, ms", l.UpMs.P95, 100)
				continue
			}
			d.AtMost(name+": p95 up, ms", l.UpMs.P95, 15)
			if name != "counted-htb" { // HTB does not charge what it drops to the download
				d.AtMost(name+": p95 increase, ms", l.IncreaseMs.P95, 15)
			}
			// An acknowledgement for every two full packets.
			d.AtLeast(name+": acknowledgements a second", c.Test.Loaded.GoodputDownBps/(2*8*1448), 150)
			if name != "measured" {
				continue
			}
			keptRates(d, c)
			if l := c.Plan.Basis.Line; !l.Measured || l.Overhead != 40 || l.LinkLayer != plan.ATM {
				d.Errorf("the framing that was measured: %q", l.FramingText())
			}
			d.AtLeast("measured: download kept by the tuning", c.Tune.After.Download.GoodputDownBps/c.Tune.Before.Download.GoodputDownBps, 0.93)
		}
	})
}

// A call, pages and an upload at 1 Mbit/s: the call is clear, and pages load
// almost as fast as on the idle line. Of the 17 pages of a whole run the p95 would be the
// slowest, so the p90 is held; in a short one there are too few for either.
func TestSlowUplink(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.run("slow-uplink", oursAndNightly("fq_codel", "cake")...)
		idle := loadOf(d, d.run("slow-uplink-idle", "before")["before"], scenario.Web).Web
		ours := cases["ours"]
		tunedAtNight(d, ours)
		clear(d, "ours", ours, 4.2)
		web := loadOf(d, ours, scenario.Web).Web
		d.AtMost("pages that failed", float64(web.Failed), 0)
		d.AtMost("page load time, p50, of the idle line's", web.LoadMs.P50/idle.LoadMs.P50, 1.5)
		d.AtMost("page load time, mean, of the idle line's", web.LoadMs.Mean/idle.LoadMs.Mean, 1.5)
		if !labtest.Long() {
			return
		}
		d.AtMost("page load time, p90, of the idle line's", web.LoadMs.P90/idle.LoadMs.P90, 1.5)
		poor(d, "fq_codel", cases["fq_codel"], 4)
		call := func(name string) float64 { return loadOf(d, cases[name], scenario.VoIP).Latency.RTTMs.P95 }
		for _, name := range []string{"fq_codel", "cake"} {
			d.AtLeast(name+": p95 of the call, of ours", call(name)/call("ours"), 1.5)
			d.AtLeast(name+": loss of the call", loadOf(d, cases[name], scenario.VoIP).Latency.Loss, 1e-6)
		}
	})
}

// A UDP flood at ten times the uplink's rate: another machine's upload gets its
// share, and a third machine's call is clear. By day too the rates are those of a tuning:
// seed-003's, whose line is the same.
func TestFlood(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := embedded(d.T, "flood")
		shorter(s)
		if !labtest.Long() {
			found := d.tuning("seed-003").Plan
			if found == nil {
				d.Fatal("the tuning of seed-003 was not kept")
			}
			s.Cases = []scenario.Case{{Name: "ours", Router: shaped(found.DownBps, found.UpBps)}}
		}
		ours := d.runs(s, fmt.Sprintf("flood, seed %d", d.Seed), []string{"ours"})["ours"]
		tunedAtNight(d, ours)
		clear(d, "ours", ours, 4)
		d.AtLeast("the upload, of its fair share", loadOf(d, ours, scenario.Upload).GoodputBps/fairShare(ours.Plan.UpBps), 0.9)
	})
}

// Fifty flows of one machine, each calm and answered like a call: they get no
// more than another machine's upload, and do not disturb a call.
func TestAbuser(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		ours := d.run("abuser", "ours")["ours"]
		tunedAtNight(d, ours)
		clear(d, "ours", ours, 4)
		d.AtLeast("the upload, of its fair share", loadOf(d, ours, scenario.Upload).GoodputBps/fairShare(ours.Plan.UpBps), 0.9)
	})
}

// A mail client fetches 5000 messages: the calls are clear, and it takes almost
// the same time as without shaping.
func TestMailAndCall(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.run("imap", "before", "ours")
		ours := cases["ours"]
		tunedAtNight(d, ours)
		clear(d, "ours", ours, 4.2)
		mail, before := loadOf(d, ours, scenario.IMAP).Mail, loadOf(d, cases["before"], scenario.IMAP).Mail
		if !mail.Done || !before.Done {
			d.Fatalf("the mailbox was not fetched in time: %+v, unshaped %+v", mail, before)
		}
		d.AtMost("time of the sync, of the unshaped", mail.Seconds/before.Seconds, 1.1)
		poor(d, "before", cases["before"], 4.1)
	})
}

// A swarm of forty at 25/1 Mbit/s: calls are clear on the same machine and on
// another one, and the swarm still gets the rest of the rate.
func TestTorrentAndCall(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "utp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			overDraws(t, func(d *draw) {
				cases := d.run("torrent-"+transport, oursAndNightly("fq_codel")...)
				ours := cases["ours"]
				tunedAtNight(d, ours)
				clear(d, "ours", ours, 4.2)
				d.AtMost("loss", ours.Test.Loaded.Latency.Loss, 0)
				d.AtMost("p95 increase, ms", ours.Test.Loaded.Latency.IncreaseMs.P95, 15)
				// The swarm can use the part of the uplink that the calls and the
				// probe leave, for pieces and acknowledgements.
				const others = 2*callWire + probeWire
				d.AtLeast("what the swarm takes of what is left of the uplink", (ours.LineUpBps-others)/(1e6-others), 0.9)
				if flat, ok := cases["fq_codel"]; ok {
					poor(d, "fq_codel", flat, 4)
				}
			})
		})
	}
}
