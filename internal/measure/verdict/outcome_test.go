package verdict

import (
	"testing"
	"time"
)

// The example of draft-ietf-ippm-qoo-10 §3.4: latency alone gives 50, loss alone 75, and
// the least counts. (Its 99.9th percentile is the 95th here.)
func TestOutcomeOfTheDraft(t *testing.T) {
	n := need{use: "example", latency: []latencyNeed{{p99, 200, 500}, {p95, 300, 600}}, loss: [2]float64{0.01, 0.05}, down: 4e6}
	l := Latency{Received: 1000, Loss: 0.02, RTTMs: Quantiles{P99: 350, P95: 375}}
	if o := n.outcome(l, 28e6, 0); o != (UseScore{"example", 50, "latency"}) {
		t.Errorf("%+v", o)
	}
	l.RTTMs = Quantiles{P99: 100, P95: 100}
	if o := n.outcome(l, 28e6, 0); o != (UseScore{"example", 75, "loss"}) {
		t.Errorf("loss alone: %+v", o)
	}
	if o := n.outcome(l, 3e6, 0); o != (UseScore{"example", 0, "throughput"}) {
		t.Errorf("too slow: %+v", o)
	}
}

// Laws: more delay or loss never helps, scores are within 0 … 100, and each use's worst phase
// counts; what is optimal is better than what is unacceptable, and has its reason.
func TestOutcomes(t *testing.T) {
	for _, n := range needs() {
		if n.reasoning == "" || n.loss[0] >= n.loss[1] {
			t.Errorf("%s: %+v", n.use, n.loss)
		}
		before := 101.0
		for rtt := 1.0; rtt < 5000; rtt *= 1.3 {
			o := n.outcome(Latency{Received: 100, RTTMs: Quantiles{P95: rtt, P99: 2 * rtt}}, 1e9, 1e9)
			if o.Score > before || o.Score < 0 || o.Score > 100 || (o.Score == 100) != (o.Limit == "") && o.Score < 99 {
				t.Errorf("%s at %.0f ms: %+v after %.0f", n.use, rtt, o, before)
			}
			before = o.Score
		}
		if before != 0 {
			t.Errorf("%s: five seconds are good for %.0f", n.use, before)
		}
	}
	quick, slow := Latency{Received: 100, RTTMs: Quantiles{P95: 20, P99: 25}}, Latency{Received: 100, RTTMs: Quantiles{P95: 700, P99: 900}}
	test := &Test{Idle: &Phase{Latency: quick}, Download: &Phase{Latency: quick, GoodputDownBps: 50e6}, Upload: &Phase{Latency: slow, GoodputUpBps: 5e6}}
	got := outcomes(test)
	if len(got) != 4 || got[0].Use != "call" || got[0].Score != 17 || got[1].Score != 0 || got[3].Limit != "latency" {
		t.Errorf("%+v", got)
	}
	if test.Upload = nil; outcomes(test) != nil {
		t.Error("outcomes of half a test")
	}
}

// How long the delay took to fall is told where somebody looked.
func TestRecovery(t *testing.T) {
	after := 1500 * time.Millisecond
	if p := Evaluate(Raw{Recovery: &after}, Baseline{}, 0); p.RecoveryMs == nil || *p.RecoveryMs != 1500 {
		t.Errorf("%v", p.RecoveryMs)
	}
	if p := Evaluate(Raw{}, Baseline{}, 0); p.RecoveryMs != nil {
		t.Errorf("not known, and %v", *p.RecoveryMs)
	}
}
