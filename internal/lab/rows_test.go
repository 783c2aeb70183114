package lab_test

import (
	"os"
	"testing"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/tune"
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
func keptRates(t *testing.T, c lab.CaseResult) {
	t.Helper()
	keptWithin(t, c, 4)
}

// keptWithin is keptRates for a line that is tuned with this number of uploads.
func keptWithin(t *testing.T, c lab.CaseResult, flowsUp int) {
	t.Helper()
	r := c.Tune
	if r == nil || !r.Kept || c.Plan == nil {
		t.Fatalf("%s is not tuned, or was not kept: %+v", c.Name, r)
	}
	t.Logf("%s: tuned to %s down, %s up in %.0f s", c.Name, c.Plan.DownBps.Short(), c.Plan.UpBps.Short(), r.LineSeconds)
	atMost(t, c.Name+": line time of the tuning, s", r.LineSeconds, tune.MostTime(c.Plan.Basis.Preferences.FlowsDown, flowsUp).Seconds())
}

// clear checks that every call of a case has at least this MOS and lost
// nothing.
func clear(t *testing.T, name string, c lab.CaseResult, mos float64) {
	t.Helper()
	worst, ok := lab.WorstCall(c)
	if !ok {
		t.Fatalf("%s: nobody calls", name)
	}
	atLeast(t, name+": MOS of the worst call", worst, mos)
	for _, l := range c.Loads {
		if l.Kind == scenario.VoIP {
			atMost(t, name+": loss of a call", l.Latency.Loss, 0)
		}
	}
}

// poor checks that the worst call of a case has at most this MOS.
func poor(t *testing.T, name string, c lab.CaseResult, mos float64) {
	t.Helper()
	worst, _ := lab.WorstCall(c)
	atMost(t, name+": MOS of the worst call", worst, mos)
}

// loadOf returns the first load of a kind.
func loadOf(t *testing.T, c lab.CaseResult, kind string) lab.LoadResult {
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
// How much the uploads carry is a matter of chance: each has a packet or two on its way,
// and what is resent too early is carried twice. With CAKE alone 0.74 to 0.83 of the line
// were seen; with classes 0.85 to 0.9, and in two draws of 29 as with CAKE alone. So
// each draw is held to 0.7, and their mean to 0.8.
func TestBulk200(t *testing.T) {
	t.Parallel()
	const draws = 3
	cases := run(t, "bulk-200", "fq_codel", "cake", "ours")
	sum := 0.0
	for n := range uint64(draws) {
		ours := cases["ours"]
		if n > 0 {
			ours = runSeed(t, labtest.Seed(t)+n, "bulk-200", "ours")["ours"]
		}
		keptRates(t, ours)
		clear(t, "ours", ours, 4.2)
		atMost(t, "loss", ours.Test.Loaded.Latency.Loss, 0)
		atMost(t, "p95 increase, ms", ours.Test.Loaded.Latency.IncreaseMs.P95, 7)
		goodput := ours.Test.Loaded.GoodputUpBps / 5e6
		atLeast(t, "goodput up, of the line", goodput, 0.7)
		sum += goodput
	}
	atLeast(t, "goodput up, of the line, mean", sum/draws, 0.8)
	for _, name := range []string{"fq_codel", "cake"} {
		poor(t, name, cases[name], 2.5)
		atLeast(t, name+": loss of the call", loadOf(t, cases[name], scenario.VoIP).Latency.Loss, 0.2)
	}
}

// A call, pages and an upload at 1 Mbit/s: the call is clear, and pages load
// almost as fast as on the idle line.
func TestSlowUplink(t *testing.T) {
	t.Parallel()
	cases := run(t, "slow-uplink", "fq_codel", "cake", "ours")
	idle := loadOf(t, run(t, "slow-uplink-idle")["before"], scenario.Web).Web
	ours := cases["ours"]
	keptRates(t, ours)
	clear(t, "ours", ours, 4.2)
	web := loadOf(t, ours, scenario.Web).Web
	atMost(t, "pages that failed", float64(web.Failed), 0)
	atMost(t, "page load time, p50, of the idle line's", web.LoadMs.P50/idle.LoadMs.P50, 1.5)
	atMost(t, "page load time, mean, of the idle line's", web.LoadMs.Mean/idle.LoadMs.Mean, 1.5)
	atMost(t, "page load time, p90, of the idle line's", web.LoadMs.P90/idle.LoadMs.P90, 1.5) // of 17 pages the p95 would be the slowest
	poor(t, "fq_codel", cases["fq_codel"], 4)
	call := func(name string) float64 { return loadOf(t, cases[name], scenario.VoIP).Latency.RTTMs.P95 }
	for _, name := range []string{"fq_codel", "cake"} {
		atLeast(t, name+": p95 of the call, of ours", call(name)/call("ours"), 1.5)
		atLeast(t, name+": loss of the call", loadOf(t, cases[name], scenario.VoIP).Latency.Loss, 1e-6)
	}
}

// A UDP flood at ten times the uplink's rate: another machine's upload gets its
// share, and a third machine's call is clear.
func TestFlood(t *testing.T) {
	t.Parallel()
	ours := run(t, "flood", "ours")["ours"]
	keptRates(t, ours)
	clear(t, "ours", ours, 4)
	atLeast(t, "the upload, of its fair share", loadOf(t, ours, scenario.Upload).GoodputBps/fairShare(ours.Plan.UpBps), 0.9)
}

// Fifty flows of one machine, each calm and answered like a call: they get no
// more than another machine's upload, and do not disturb a call.
func TestAbuser(t *testing.T) {
	t.Parallel()
	ours := run(t, "abuser", "ours")["ours"]
	keptRates(t, ours)
	clear(t, "ours", ours, 4)
	atLeast(t, "the upload, of its fair share", loadOf(t, ours, scenario.Upload).GoodputBps/fairShare(ours.Plan.UpBps), 0.9)
}

// A mail client fetches 5000 messages: the calls are clear, and it takes almost
// the same time as without shaping.
func TestMailAndCall(t *testing.T) {
	t.Parallel()
	cases := run(t, "imap", "before", "ours")
	ours := cases["ours"]
	keptRates(t, ours)
	clear(t, "ours", ours, 4.2)
	mail, before := loadOf(t, ours, scenario.IMAP).Mail, loadOf(t, cases["before"], scenario.IMAP).Mail
	if !mail.Done || !before.Done {
		t.Fatalf("the mailbox was not fetched in time: %+v, unshaped %+v", mail, before)
	}
	atMost(t, "time of the sync, of the unshaped", mail.Seconds/before.Seconds, 1.1)
	poor(t, "before", cases["before"], 4.1)
}

// A swarm of forty at 25/1 Mbit/s: calls are clear on the same machine and on
// another one, and the swarm still gets the rest of the rate.
func TestTorrentAndCall(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "utp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			cases := run(t, "torrent-"+transport, "fq_codel", "ours")
			ours := cases["ours"]
			keptRates(t, ours)
			clear(t, "ours", ours, 4.2)
			atMost(t, "loss", ours.Test.Loaded.Latency.Loss, 0)
			atMost(t, "p95 increase, ms", ours.Test.Loaded.Latency.IncreaseMs.P95, 15)
			poor(t, "fq_codel", cases["fq_codel"], 4)
			// The swarm can use the part of the uplink that the calls and the
			// probe leave, for pieces and acknowledgements.
			const others = 2*callWire + probeWire
			atLeast(t, "what the swarm takes of what is left of the uplink", (ours.LineUpBps-others)/(1e6-others), 0.9)
			if os.Getenv("UNBLOAT_LONG") != "" { // figures for information only
				alone := loadOf(t, run(t, "torrent-"+transport+"-alone")["before"], scenario.Torrent)
				swarm, left := loadOf(t, ours, scenario.Torrent), 1-others/1e6
				t.Logf("payload down, of what it moves alone and unshaped: %.2f", swarm.GoodputDownBps/alone.GoodputDownBps)
				t.Logf("payload up, of what it moves alone and unshaped, on what is left: %.2f", swarm.GoodputUpBps/alone.GoodputUpBps/left)
			}
		})
	}
}
