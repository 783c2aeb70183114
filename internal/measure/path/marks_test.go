package path

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/reason"
)

// bleached returns what a simulated path tells of marks: hop k (from 1) sends on what by gives.
func bleached(t *testing.T, k int, by func(class uint8) uint8) []Hop {
	t.Helper()
	n := newSimNet(1, simHop{addr: router4, oneWay: time.Millisecond}, simHop{addr: target4.Next(), oneWay: time.Millisecond},
		simHop{addr: target4.Next().Next(), oneWay: time.Millisecond, silent: k == 9}, simHop{addr: target4, oneWay: time.Millisecond})
	n.bleacher, n.by = k, by
	cfg := Config{Marks: classes(marks())}
	tr := New(cfg, n.now)
	n.drive(tr, time.Second, true)
	tr.Begin(Marked, n.now)
	n.drive(tr, 12*time.Second, true)
	n.settle(tr)
	tr.Close(n.now)
	return tr.Hops(n.now)
}

// Who changes which mark is named by the hops that quote it, and by the server; what follows
// is said once.
func TestMarks(t *testing.T) {
	same := func(c uint8) uint8 { return c }
	for _, c := range []struct {
		name    string
		hops    []Hop
		changes []MarkChange
		told    int
	}{
		{"nobody", bleached(t, 0, same), []MarkChange{}, 3},
		{"a silent hop", bleached(t, 9, same), []MarkChange{}, 2},
		{"all DSCPs at hop 1", bleached(t, 1, func(c uint8) uint8 { return c & ecnBits }), []MarkChange{
			{"EF", "EF", "CS0", 1, 2, target4.Next().String()}, {"NQB", "NQB", "CS0", 1, 2, target4.Next().String()}}, 3},
		{"EF to CS5, by precedence, at hop 2", bleached(t, 2, func(c uint8) uint8 {
			if c == 46<<2 {
				return 40 << 2
			}
			return c
		}), []MarkChange{{"EF", "EF", "CS5", 2, 3, target4.Next().Next().String()}}, 3},
		{"the ECN field at hop 2", bleached(t, 2, func(c uint8) uint8 { return c &^ ecnBits }), []MarkChange{
			{"ECT(1)", "ECT(1)", "Not-ECT", 2, 3, target4.Next().Next().String()}, {"CE", "CE", "Not-ECT", 2, 3, target4.Next().Next().String()}}, 3},
	} {
		x := judgeMarks(c.hops, nil, nil)
		got, _ := json.Marshal(x.Changes)
		want, _ := json.Marshal(c.changes)
		if string(got) != string(want) || x.LastHop["EF"] != c.told {
			t.Errorf("%s: %s to hop %d, want %s to hop %d", c.name, got, x.LastHop["EF"], want, c.told)
		}
	}
}

// What a server tells counts both ways, and L4S is told from other ECN by ECT(0).
func TestMarksOfServer(t *testing.T) {
	seen := func(class, up, down uint8) phases.MarkSeen {
		return phases.MarkSeen{Class: class, Sent: 20, There: map[uint8]int{up: 20}, Back: map[uint8]int{down: 20}, RTTs: []time.Duration{20 * time.Millisecond}}
	}
	under := func(zero, one int) []ServerMark {
		out := []ServerMark{}
		for i, n := range []int{zero, one} {
			out = append(out, ServerMark{Mark: underLoad()[i].name, Sent: 100, Up: map[string]int{"CE": n, underLoad()[i].name: 100 - n}})
		}
		return out
	}
	codes := func(rs []reason.Reason) (out []reason.Code) {
		for _, r := range rs {
			out = append(out, r.Code)
		}
		return out
	}
	for _, c := range []struct {
		name    string
		server  []phases.MarkSeen
		loaded  []ServerMark
		says    []reason.Code
		follows []reason.Code
	}{
		{"unchanged", []phases.MarkSeen{seen(46<<2, 46<<2, 46<<2), seen(45<<2, 45<<2, 45<<2), seen(1, 1, 1), seen(3, 3, 3)}, nil, []reason.Code{reason.MarkServerKept}, nil},
		{"cleared towards the home", []phases.MarkSeen{seen(46<<2, 46<<2, 0), seen(45<<2, 45<<2, 0), seen(1, 1, 1), seen(3, 3, 3)}, nil,
			[]reason.Code{reason.MarkServerChanged}, []reason.Code{reason.MarksTellNothing}},
		{"the byte cleared both ways", []phases.MarkSeen{seen(46<<2, 0, 0), seen(45<<2, 0, 0), seen(1, 0, 0), seen(3, 0, 0)}, nil,
			[]reason.Code{reason.MarkServerChanged}, []reason.Code{reason.MarksTellNothing, reason.MarksReadHere, reason.MarksNoL4S, reason.MarksNoECNUp, reason.MarksNoECNDown}},
		{"an old server", []phases.MarkSeen{{Class: 46 << 2, Sent: 20}}, nil, []reason.Code{reason.MarkServerSilent}, nil},
		{"L4S", nil, under(1, 30), []reason.Code{reason.MarkL4S}, []reason.Code{reason.MarksL4SBeyond}},
		{"another ECN", nil, under(10, 12), []reason.Code{reason.MarkClassic}, nil},
		{"no ECN", nil, under(0, 1), nil, nil},
	} {
		x := judgeMarks(nil, serverMarks(marks(), c.server), c.loaded)
		says := codes(x.Findings)
		for _, want := range c.says {
			if !strings.Contains(joined(says), string(want)) {
				t.Errorf("%s: no %s in %v", c.name, want, says)
			}
		}
		for _, not := range []reason.Code{reason.MarkL4S, reason.MarkClassic} {
			if strings.Contains(joined(says), string(not)) && !strings.Contains(joined(c.says), string(not)) {
				t.Errorf("%s: %s", c.name, not)
			}
		}
		if joined(codes(x.Follows)) != joined(c.follows) {
			t.Errorf("%s: follows %v, want %v", c.name, codes(x.Follows), c.follows)
		}
	}
}

func joined(codes []reason.Code) string {
	var out []string
	for _, c := range codes {
		out = append(out, string(c))
	}
	return strings.Join(out, " ")
}
