package lab_test

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// The table of `unbloat lab compare` has a row for each scenario and a column
// for each case, with the total rate and the worst call.
func TestWriteTable(t *testing.T) {
	s := &scenario.Scenario{
		Name: "home",
		Line: scenario.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond, RTT: 34 * time.Millisecond},
		Loads: []scenario.Load{
			{Kind: scenario.Torrent, Flows: 1, Host: 1, Peers: 40, Transport: "utp"}, {Kind: scenario.IMAP, Flows: 1, Host: 1, Messages: 9},
			{Kind: scenario.Web, Flows: 2, Host: 1}, {Kind: scenario.VoIP, Flows: 1, Host: 1}, {Kind: scenario.VoIP, Flows: 1, Host: 2},
		},
		Cases: []scenario.Case{{Name: "fq_codel"}, {Name: "ours"}},
	}
	test := func(p95, loss float64) *verdict.Test {
		return &verdict.Test{Valid: true, Loaded: &verdict.Phase{Latency: verdict.Latency{IncreaseMs: verdict.Quantiles{P95: p95}, Loss: loss}}}
	}
	call := func(v *verdict.Voice) lab.LoadResult {
		return lab.LoadResult{Kind: scenario.VoIP, QoE: household.QoE{Voice: v}}
	}
	r := &lab.Result{Cases: []lab.CaseResult{
		{Name: "fq_codel", Test: test(223.4, 0.125), Loads: []lab.LoadResult{call(&verdict.Voice{MOS: 4.1}), call(nil),
			{Kind: scenario.IMAP, QoE: household.QoE{Mail: &household.MailResult{Messages: 7, Of: 9, Seconds: 30}}}}},
		{Name: "ours", Test: test(3.14, 0), Loads: []lab.LoadResult{
			{Kind: scenario.Torrent, GoodputDownBps: 2e6, GoodputUpBps: 6e5, QoE: household.QoE{Torrent: &household.TorrentResult{}}},
			{Kind: scenario.IMAP, QoE: household.QoE{Mail: &household.MailResult{Messages: 9, Of: 9, Seconds: 20.25, Done: true}}},
			{Kind: scenario.Web, QoE: household.QoE{Web: &household.WebResult{Pages: 3, LoadMs: verdict.Quantiles{P50: 1270}}}},
			call(&verdict.Voice{MOS: 4.39}), call(&verdict.Voice{MOS: 4.2})}},
	}}
	var out strings.Builder
	if err := lab.WriteTable(&out, []lab.Row{{Scenario: s, Results: []*lab.Result{r}}}, lab.CompareCases()); err != nil {
		t.Fatal(err)
	}
	want := `| scenario | before | fq_codel | cake | ours |
|---|---|---|---|---|
| home: 25/1 Mbit/s, 34 ms; 40 utp peers, 9 messages, 2 × web, voip, voip | – | +223 ms, 12 % lost; MOS 1.00; 7 of 9 messages in 30 s | – | +3.1 ms; MOS 4.20; torrent 2/0.6 Mbit/s; mail in 20.2 s; pages in 1.27 s |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	r.Cases[1].Loads = []lab.LoadResult{
		{Kind: scenario.Video, GoodputBps: 3e6, QoE: household.QoE{Video: &household.VideoResult{QualityBps: 2.5e6, Stalls: 2, StalledS: 3.25, StartupMs: 400}}},
		{Kind: scenario.DNS, QoE: household.QoE{DNS: &household.DNSResult{Queries: 9, Failed: 1, AnswerMs: verdict.Quantiles{P50: 20, P95: 41.5}}}},
		{Kind: scenario.SSH, QoE: household.QoE{Shell: &household.ShellResult{Keys: 50, EchoMs: verdict.Quantiles{P50: 34, P95: 40}}}},
	}
	out.Reset()
	if err := lab.WriteTable(&out, []lab.Row{{Scenario: s, Results: []*lab.Result{r}}}, []string{"ours"}); err != nil {
		t.Fatal(err)
	}
	for _, felt := range []string{"2 stalls of 3.2 s together", "p95 41.5 ms, 1 failed", "echo p50 34.0 ms"} {
		if !strings.Contains(out.String(), felt) {
			t.Errorf("%q, which a user felt, is not in\n%s", felt, out.String())
		}
	}
	if got := lab.Chosen(s, lab.CompareCases()); len(got) != 2 || got[0] != "fq_codel" || got[1] != "ours" {
		t.Errorf("the scenario's cases of the table: %v", got)
	}
}
