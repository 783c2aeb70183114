package pf

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// mostRealtime is pfctl(8)'s limit for the sum of all realtime curves on an
// interface, in percent of its rate.
const mostRealtime = 80

// The shortest queues of classes, in packets. A queue of one packet leaves the
// line idle. The classes served first get bursts of small packets (calls, DNS,
// acknowledgements), which would not fit into a queue sized for full packets.
const (
	leastQlimit      = 2
	leastQlimitFirst = 16
)

// classQueues makes the queues of one direction with classes. A class's
// guarantee is its queue's bandwidth, its share under contention. Voice and
// interactive also have it as a realtime curve, so they are served first. Each
// queue is a FIFO that holds the wanted latency at the class's maximum rate.
func altqClassQueues(s plan.Shaper, shares []plan.Share) []ALTQQueue {
	parts, first := bandwidths(s.Rate, shares), unit.Rate(0)
	for i, sh := range shares {
		if goesFirst(sh.Class) {
			first += parts[i]
		}
	}
	room := s.Rate / 100 * mostRealtime
	var out []ALTQQueue
	for i, sh := range shares {
		most, least := s.Rate, leastQlimit
		if sh.Limit > 0 {
			most = min(sh.Limit, s.Rate)
		}
		q := ALTQQueue{Name: ClassQueue(s.Device, sh.Class), Bandwidth: ALTQBandwidth{Rate: parts[i]}, Priority: -1, Scheduler: "hfsc"}
		if sh.Class == plan.Normal {
			q.Options = []string{"default"}
		}
		if goesFirst(sh.Class) {
			sure := parts[i]
			if first > room {
				sure = unit.Rate(float64(sure) * float64(room) / float64(first))
			}
			q.Curves = append(q.Curves, ALTQCurve{Name: "realtime", Then: ALTQBandwidth{Rate: max(sure, unit.BitPerSecond)}})
			most, least = max(most, sure), leastQlimitFirst
		}
		q.Qlimit = min(max(int(math.Ceil(float64(s.Limit)*float64(most)/float64(s.Rate))), least), MaxQlimit)
		q.Curves = append(q.Curves, ALTQCurve{Name: "upperlimit", Then: ALTQBandwidth{Rate: most}})
		out = append(out, q)
	}
	return out
}

func goesFirst(c plan.Class) bool { return c == plan.Voice || c == plan.Interactive }

// bandwidths returns each class's guarantee: never 0, since HFSC gives such a
// queue no share, and in sum at most rate.
func bandwidths(rate unit.Rate, shares []plan.Share) []unit.Rate {
	var out []unit.Rate
	over := -rate
	for _, sh := range shares {
		r := max(sh.Guarantee, min(unit.KbitPerSecond, rate/100))
		out, over = append(out, r), over+r
	}
	if over > 0 {
		i := slices.Index(out, slices.Max(out))
		out[i] -= over
	}
	return out
}

// matches writes the match rules of a direction: as in newer pf, but with the
// old syntax for queues.
func matches(device string, d plan.Direction, rules []plan.Rule) []ALTQRule {
	var out []ALTQRule
	for _, r := range Matches(device, d, rules, assign) {
		out = append(out, ALTQRule(r))
	}
	return out
}

// assign is ALTQ's Assign.
func assign(queue, first string, _ plan.Class) (string, []string) {
	if first == "" {
		return "queue " + queue, []string{queue}
	}
	return fmt.Sprintf("queue ( %s, %s )", queue, first), []string{queue, first}
}

// admission checks HFSC's curves on one interface, as pfctl(8)'s
// eval_pfqueue_hfsc does.
type admission struct {
	ALTQRuleset
	rate     unit.Rate
	realtime [2]unit.Rate // sums so far: initial and final rate
}

// below checks the queues below one that has rate.
func (a *admission) below(rate unit.Rate, names []string, depth int) error {
	var shared [2]unit.Rate
	for _, name := range names {
		q, ok := a.find(name)
		if !ok || depth > len(a.Queues) {
			continue
		}
		own := q.Bandwidth.of(rate)
		if own > rate {
			return fmt.Errorf("bandwidth for %s higher than parent", q.Name)
		}
		share := ALTQCurve{Then: ALTQBandwidth{Rate: own}}
		var sure, most ALTQCurve
		for _, c := range q.Curves {
			*map[string]*ALTQCurve{"realtime": &sure, "linkshare": &share, "upperlimit": &most}[c.Name] = c
		}
		add(&a.realtime, sure, rate)
		add(&shared, share, rate)
		switch room := a.rate / 100 * mostRealtime; {
		case max(a.realtime[0], a.realtime[1]) > room && sure != ALTQCurve{}:
			return fmt.Errorf("real-time sc exceeds 80%% of the interface bandwidth (%s)", shownRate(room))
		case max(shared[0], shared[1]) > rate:
			return errors.New("linkshare sc exceeds parent's sc")
		case max(most.First.of(rate), most.Then.of(rate)) > a.rate:
			return errors.New("upper-limit larger than interface bandwidth")
		case most != ALTQCurve{} && sure.Then.of(rate) > most.Then.of(rate):
			return errors.New("upper-limit sc smaller than real-time sc")
		}
		if err := a.below(own, q.Queues, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// add adds a curve to a sum of two rates: the initial one and the final one.
func add(sum *[2]unit.Rate, c ALTQCurve, parent unit.Rate) {
	first := c.Then
	if c.Ms != 0 {
		first = c.First
	}
	sum[0] += first.of(parent)
	sum[1] += c.Then.of(parent)
}
