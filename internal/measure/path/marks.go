package path

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/reason"
	"unbloat/unit"
)

// A mark is a traffic class that is sent to see what becomes of it: a DSCP, or an ECN field.
type mark struct {
	name  string
	class uint8
	bits  uint8 // of the traffic class that it is about
}

const (
	dscpBits = 0xfc
	ecnBits  = 0x03
)

// marks are what Walk sends: EF (RFC 3246), NQB (RFC 9956), ECT(1) (RFC 9331), and CE (RFC 3168).
func marks() []mark {
	return []mark{{"EF", 46 << 2, dscpBits}, {"NQB", 45 << 2, dscpBits}, {"ECT(1)", 1, ecnBits}, {"CE", 3, ecnBits}}
}

// called is the name of what has come of a mark.
func (m mark) called(class uint8) string {
	if m.bits == ecnBits {
		return [...]string{"Not-ECT", "ECT(1)", "ECT(0)", "CE"}[class&ecnBits]
	}
	return dscpName(class >> 2)
}

// dscpName names a code point (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622, RFC 9956).
func dscpName(d uint8) string {
	name := map[uint8]string{1: "LE", 44: "VA", 45: "NQB", 46: "EF"}[d]
	switch {
	case name != "":
		return name
	case d%8 == 0:
		return fmt.Sprintf("CS%d", d/8)
	case d%2 == 0 && d>>3 >= 1 && d>>3 <= 4:
		return fmt.Sprintf("AF%d%d", d>>3, d>>1&3)
	}
	return fmt.Sprintf("DSCP %d", d)
}

// Marks is what became of marks on the way.
type Marks struct {
	Changes  []MarkChange    `json:"changes"`          // by what hops quote, in the order of the way; never nil
	LastHop  map[string]int  `json:"last_hop"`         // by mark, the last that quoted it
	Server   []ServerMark    `json:"server,omitempty"` // as the server of the load sees them, on the idle line
	Loaded   []ServerMark    `json:"loaded,omitempty"` // under load
	Findings []reason.Reason `json:"findings"`         // what all of it says
	Follows  []reason.Reason `json:"follows"`          // what it means for a plan
}

// A MarkChange is where a mark is changed: between two hops that answer.
type MarkChange struct {
	Mark    string `json:"mark"`
	From    string `json:"from"`
	To      string `json:"to"`
	After   int    `json:"after"` // the last hop with From; 0: this machine
	Hop     int    `json:"hop"`   // the first with To
	Address string `json:"address"`
}

// A ServerMark is how packets of one mark came to the server, and its answers back.
type ServerMark struct {
	Mark     string         `json:"mark"`
	Sent     int            `json:"sent"`
	Up       map[string]int `json:"up"`   // as the server saw them; empty: it does not tell
	Down     map[string]int `json:"down"` // as its answers, sent with the same mark, came back
	MedianMs float64        `json:"median_ms"`
}

// Of a phase for marks: rounds to each hop, packets to the server, and how far apart.
const (
	markRounds = 3
	markEach   = 20
	markGap    = 20 * time.Millisecond
)

// underLoad are the ECN fields that are compared under load.
func underLoad() []mark {
	return []mark{{"ECT(0)", 2, ecnBits}, {"ECT(1)", 1, ecnBits}}
}

func classes(of []mark) (out []uint8) {
	for _, m := range of {
		out = append(out, m.class)
	}
	return out
}

// serverMarks names what was seen.
func serverMarks(of []mark, seen []phases.MarkSeen) (out []ServerMark) {
	for i, s := range seen {
		m := ServerMark{Mark: of[i].name, Sent: s.Sent, Up: map[string]int{}, Down: map[string]int{}}
		for class, n := range s.There {
			m.Up[of[i].called(class)] += n
		}
		for class, n := range s.Back {
			m.Down[of[i].called(class)] += n
		}
		if slices.Sort(s.RTTs); len(s.RTTs) > 0 {
			m.MedianMs = round(unit.Ms(s.RTTs[len(s.RTTs)/2]))
		}
		out = append(out, m)
	}
	return out
}

// judgeMarks finds where marks are changed, and what that means. hops has, for each mark that
// was sent, the traffic classes that were quoted.
func judgeMarks(hops []Hop, server, loaded []ServerMark) *Marks {
	out := &Marks{Changes: []MarkChange{}, LastHop: map[string]int{}, Server: server, Loaded: loaded, Findings: []reason.Reason{}, Follows: []reason.Reason{}}
	for _, m := range marks() {
		now, after := m.name, 0
		for _, h := range hops {
			as, ok := m.most(h.Quoted[m.class])
			if !ok {
				continue
			}
			out.LastHop[m.name] = h.TTL
			if as != now {
				out.Changes = append(out.Changes, MarkChange{Mark: m.name, From: now, To: as, After: after, Hop: h.TTL, Address: text(h.Addr())})
			}
			now, after = as, h.TTL
		}
	}
	out.find()
	out.follow()
	return out
}

// most returns what a mark was called most often at a hop. A queue that marks CE at a packet
// here and there changes nothing for good.
func (m mark) most(quoted map[uint8]int) (as string, ok bool) {
	count := map[string]int{}
	for class, n := range quoted {
		count[m.called(class)] += n
	}
	for name, n := range count {
		if n > count[as] || n == count[as] && (name == m.name || name < as && as != m.name) {
			as, ok = name, true
		}
	}
	return as, ok
}

// Directions of a server's marks, in findings.
const (
	markUp   = "up"
	markDown = "down"
)

// find says what was seen.
func (x *Marks) find() {
	say := func(code reason.Code, args ...any) { x.Findings = append(x.Findings, reason.Of(code, args...)) }
	for _, m := range marks() {
		changed := false
		for _, c := range x.Changes {
			if c.Mark == m.name {
				changed = true
				say(reason.MarkChanged, "mark", c.Mark, "as", c.To, "after", c.After, "hop", c.Hop, "address", c.Address)
			}
		}
		switch told := x.LastHop[m.name]; {
		case told == 0:
			say(reason.MarkUntold, "mark", m.name)
		case !changed:
			say(reason.MarkKept, "mark", m.name, "hop", told)
		}
	}
	for _, s := range x.Server {
		for _, way := range s.ways() {
			switch as, n := usual(way.as); {
			case n == 0:
				say(reason.MarkServerSilent, "mark", s.Mark, "direction", way.direction)
			case as == s.Mark:
				say(reason.MarkServerKept, "mark", s.Mark, "direction", way.direction)
			default:
				say(reason.MarkServerChanged, "mark", s.Mark, "direction", way.direction, "as", as)
			}
		}
	}
	for _, direction := range []string{markUp, markDown} {
		zero, one, ok := x.shares(direction)
		switch {
		case !ok || one < fewCE:
		case zero < one/2:
			say(reason.MarkL4S, "direction", direction, "one", one, "zero", zero, "ms", x.loadedMs(1), "other_ms", x.loadedMs(0))
		default:
			say(reason.MarkClassic, "direction", direction, "one", one, "zero", zero)
		}
	}
}

// fewCE is the share of packets that must be marked CE to say that a queue does so.
const fewCE = 0.02

type markWay struct {
	direction string
	as        map[string]int
}

func (s ServerMark) ways() []markWay { return []markWay{{markUp, s.Up}, {markDown, s.Down}} }

// usual returns what most packets came as, and how many came.
func usual(as map[string]int) (name string, all int) {
	for k, n := range as {
		all += n
		if n > as[name] || n == as[name] && k < name {
			name = k
		}
	}
	return name, all
}

// shares returns which shares of ECT(0) and ECT(1) came as CE under load.
func (x *Marks) shares(direction string) (zero, one float64, ok bool) {
	if len(x.Loaded) != 2 {
		return 0, 0, false
	}
	var share [2]float64
	for i, s := range x.Loaded {
		for _, way := range s.ways() {
			if _, all := usual(way.as); way.direction == direction && all > 0 {
				share[i], ok = float64(way.as["CE"])/float64(all), true
			}
		}
	}
	return share[0], share[1], ok
}

func (x *Marks) loadedMs(i int) float64 { return x.Loaded[i].MedianMs }

// follow says what the findings mean for a plan, each thing once.
func (x *Marks) follow() {
	lost := func(direction string, names ...string) bool {
		return direction == markUp && slices.ContainsFunc(x.Changes, func(c MarkChange) bool { return slices.Contains(names, c.Mark) }) ||
			slices.ContainsFunc(x.Server, func(s ServerMark) bool {
				return slices.Contains(names, s.Mark) && slices.ContainsFunc(s.ways(), func(w markWay) bool {
					as, n := usual(w.as)
					return w.direction == direction && n > 0 && as != s.Mark
				})
			})
	}
	l4s := slices.ContainsFunc(x.Findings, func(f reason.Reason) bool { return f.Code == reason.MarkL4S })
	for _, c := range []struct {
		is   bool
		code reason.Code
	}{
		{lost(markDown, "EF") && lost(markDown, "NQB"), reason.MarksTellNothing},
		{lost(markUp, "EF", "NQB"), reason.MarksReadHere},
		{lost(markUp, "ECT(1)") || lost(markDown, "ECT(1)"), reason.MarksNoL4S},
		{lost(markUp, "CE"), reason.MarksNoECNUp},
		{lost(markDown, "CE"), reason.MarksNoECNDown},
		{l4s, reason.MarksL4SBeyond},
	} {
		if c.is {
			x.Follows = append(x.Follows, reason.Of(c.code))
		}
	}
}

// Told returns the findings that are not as one would wish.
func (x *Marks) Told() []reason.Reason {
	return slices.DeleteFunc(slices.Clone(x.Findings), func(f reason.Reason) bool {
		return f.Code != reason.MarkChanged && f.Code != reason.MarkServerChanged && f.Code != reason.MarkL4S
	})
}

// write prints what became of marks.
func (x *Marks) write(b *strings.Builder) {
	b.WriteString("\nMarks:\n")
	for _, f := range reason.Texts(x.Findings) {
		wrap(b, "· ", f)
	}
	for _, f := range reason.Texts(x.Follows) {
		wrap(b, "→ ", f)
	}
}
