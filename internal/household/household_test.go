package household_test

import (
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/scenario"
)

// home runs loads on a line of 25/1 Mbit/s and 34 ms, as it is, on the virtual
// engine with the unbloat of this tree, and returns what became of them.
func home(t *testing.T, d time.Duration, loads ...scenario.Load) []lab.LoadResult {
	t.Helper()
	if _, err := lab.FindKernel(lab.Virtual); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	s := labtest.Home()
	s.Line.Down, s.Line.Up, s.Line.RTT = 25e6, 1e6, 34*time.Millisecond
	s.Line.BufferUp = 125e3 // a second of it
	s.Test.Seconds, s.Test.Idle = d, 2*time.Second
	s.Loads = loads
	r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Binary: labtest.Binary(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s of line time in %.1f s", r.VirtualSeconds, r.WallSeconds)
	return r.Cases[0].Loads
}

func between(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	if !(got >= least && got <= most) {
		t.Errorf("%s: %.6g, want %.6g to %.6g", what, got, least, most)
	} else {
		t.Logf("%s: %.6g (%.6g to %.6g)", what, got, least, most)
	}
}

// A call is G.711: 50 packets of 172 bytes a second each way. On an idle line
// it sounds as well as G.711 can; behind a second of queue it does not.
func TestVoIP(t *testing.T) {
	call := scenario.Load{Kind: scenario.VoIP, Flows: 1, Host: 2}
	idle := home(t, 10*time.Second, call)[0]
	between(t, "packets", float64(idle.Latency.Sent), 7.25*50-1, 7.25*50+1)
	between(t, "goodput, bit/s", idle.GoodputBps, 0.99*172*8*50, 1.01*172*8*50)
	between(t, "MOS on the idle line", idle.Voice.MOS, 4.35, 4.42)
	busy := home(t, 16*time.Second, call, scenario.Load{Kind: scenario.Upload, Flows: 4, Host: 1})[0]
	between(t, "MOS beside an upload", busy.Voice.MOS, 1, 2.5)
}

// A torrent runs both ways, and is at the end connected to almost every peer
// (libtorrent changes one now and then). Either transport fills the modem.
func TestTorrent(t *testing.T) {
	for _, transport := range []string{"tcp", "utp"} {
		loads := home(t, 20*time.Second, scenario.Load{Kind: scenario.Torrent, Flows: 1, Host: 1, Peers: 40, Transport: transport},
			scenario.Load{Kind: scenario.Game, Flows: 1, Host: 2, PPS: 64})
		r := loads[0].Torrent
		between(t, transport+": download, Mbit/s", r.DownBps/1e6, 1, 25)
		between(t, transport+": upload, share of the line", r.UpBps/1e6, 0.25, 1)
		between(t, transport+": peers connected", float64(r.Connected), 38, 40)
		between(t, transport+": p95 beside it, ms", loads[1].Latency.RTTMs.P95, 500, 1100)
	}
}

// A game is so many packets a second each way, and each is measured.
func TestGame(t *testing.T) {
	g := home(t, 10*time.Second, scenario.Load{Kind: scenario.Game, Flows: 1, Host: 1, PPS: 128, Bytes: 120})[0]
	between(t, "packets", float64(g.Latency.Sent), 7.25*128-1, 7.25*128+1)
	between(t, "goodput, bit/s", g.GoodputBps, 0.99*120*8*128, 1.01*120*8*128)
	between(t, "p95, ms", g.Latency.RTTMs.P95, 34, 37)
}

// Names are resolved by dnsmasq on the router, which asks across the line what
// it does not know: the median is its own, the tail is the line's.
func TestDNS(t *testing.T) {
	r := home(t, 10*time.Second, scenario.Load{Kind: scenario.DNS, Flows: 1, Host: 1, Interval: 50 * time.Millisecond})[0].DNS
	between(t, "queries", float64(r.Queries), 195, 200)
	between(t, "failed", float64(r.Failed), 0, 0)
	between(t, "p50, ms", r.AnswerMs.P50, 0, 1)
	between(t, "p95, ms", r.AnswerMs.P95, 34, 36)
}

// Pages take what their bytes and round trips take on an idle line, and longer
// beside an upload that delays every request.
func TestWeb(t *testing.T) {
	pages := scenario.Load{Kind: scenario.Web, Flows: 1, Host: 1, Objects: 80, Think: time.Second}
	idle := home(t, 16*time.Second, pages)[0]
	between(t, "pages", float64(idle.Web.Pages), 5, 12)
	between(t, "failed", float64(idle.Web.Failed), 0, 0)
	between(t, "p50, ms", idle.Web.LoadMs.P50, 500, 1500)
	busy := home(t, 16*time.Second, pages, scenario.Load{Kind: scenario.Upload, Flows: 4, Host: 2})[0]
	between(t, "pages beside an upload", float64(busy.Web.Pages), 0, 2)
}

// Keys come back after a round trip, by way of OpenSSH; behind a full modem
// they take as long as its queue.
func TestSSH(t *testing.T) {
	keys := scenario.Load{Kind: scenario.SSH, Flows: 1, Host: 1, Interval: 100 * time.Millisecond}
	idle := home(t, 8*time.Second, keys)[0].Shell
	between(t, "keys", float64(idle.Keys), 78, 80)
	between(t, "missing", float64(idle.Missing), 0, 0)
	between(t, "p50, ms", idle.EchoMs.P50, 34, 37)
	busy := home(t, 12*time.Second, keys, scenario.Load{Kind: scenario.Upload, Flows: 4, Host: 2})[0].Shell
	between(t, "p95 beside an upload, ms", busy.EchoMs.P95, 900, 3000)
}

// A film plays without a stall on the idle line, in the quality that it
// carries, and stalls beside a download that leaves it nothing.
func TestVideo(t *testing.T) {
	r := home(t, 30*time.Second, scenario.Load{Kind: scenario.Video, Flows: 1, Host: 1})[0].Video
	between(t, "stalls", float64(r.Stalls), 0, 0)
	between(t, "quality, Mbit/s", r.QualityBps/1e6, 4, 8)
	between(t, "startup, ms", r.StartupMs, 100, 600)
	between(t, "played, s", r.PlayedS, 29, 30)
}

// A mailbox comes whole and at the line's rate.
func TestIMAP(t *testing.T) {
	r := home(t, 16*time.Second, scenario.Load{Kind: scenario.IMAP, Flows: 1, Host: 1, Messages: 1000})[0]
	if !r.Mail.Done {
		t.Errorf("the synchronisation did not end: %+v", *r.Mail)
	}
	between(t, "messages", float64(r.Mail.Messages), 1000, 1000)
	between(t, "mean size, bytes", float64(r.Mail.Bytes)/1000, 12e3, 20e3)
	between(t, "goodput, share of the line", r.GoodputBps/25e6, 0.5, 0.95)
}
