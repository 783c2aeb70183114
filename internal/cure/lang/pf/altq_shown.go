package pf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/unit"
)

// defaultQlimit is the length that pfctl(8) does not print (DEFAULT_QLIMIT).
const defaultQlimit = 50

// Shown returns the lines of `pfctl -vsq` for a ruleset's queues, without the
// counters and without the root queue that pfctl adds (print_queue of OpenBSD
// 5.5's pfctl_altq.c). Rates are printed with two decimals, which is the
// precision of a readback.
func (rs ALTQRuleset) Shown() []string {
	var out []string
	for _, i := range rs.Interfaces {
		for _, name := range i.Queues {
			q, ok := rs.find(name)
			if !ok {
				continue
			}
			s := fmt.Sprintf("queue %s on %s bandwidth %s", q.Name, i.Device, shownRate(q.Bandwidth.of(i.Bandwidth.Rate)))
			if q.Qlimit != 0 && q.Qlimit != defaultQlimit {
				s += fmt.Sprintf(" qlimit %d", q.Qlimit)
			}
			if options := q.options(func(b ALTQBandwidth) string { return shownRate(b.of(i.Bandwidth.Rate)) }); options != "" {
				s += " hfsc( " + options + " )"
			}
			out = append(out, s)
		}
	}
	return out
}

// shownRate formats a rate as pfctl's rate2str does: two decimals or none,
// truncated.
func shownRate(r unit.Rate) string {
	f, units := float64(r), " KMG"
	i := 0
	for ; f >= 1000 && i < 3; i++ {
		f /= 1000
	}
	if int(f*100)%100 != 0 {
		return fmt.Sprintf("%.2f%cb", f, units[i])
	}
	return fmt.Sprintf("%d%cb", int(f), units[i])
}

// A ShownQueue is a queue as `pfctl -vsq` prints it. Its rates have that
// precision.
type ALTQShownQueue struct {
	Name, Device string
	Bandwidth    unit.Rate
	Upperlimit   unit.Rate // maximum; 0: its bandwidth
	Realtime     unit.Rate // served first up to this rate
	Qlimit       int       // packets
	Default      bool      // takes packets that no rule assigns
	Root         bool      // made by pfctl, parent of the other queues
	Queues       []string
	Line         string // in Shown's form
}

// ParseQueues returns the queues that `pfctl -vsq` prints, in its order.
func ParseALTQQueues(text string) []ALTQShownQueue {
	var out []ALTQShownQueue
	for line := range strings.Lines(text) {
		w := tokens(line)
		if len(w) < 2 || w[0] != "queue" {
			continue
		}
		before, _, _ := strings.Cut(line, "{")
		q := ALTQShownQueue{Name: w[1], Root: strings.HasPrefix(w[1], rootPrefix), Qlimit: defaultQlimit,
			Line: strings.ReplaceAll(strings.Join(strings.Fields(before), " "), " priority 1 ", " ")}
		for i, key := range w[:len(w)-1] {
			switch value := w[i+1]; key {
			case "on":
				q.Device = value
			case "bandwidth":
				q.Bandwidth = rateOf(value)
			case "upperlimit":
				q.Upperlimit = rateOf(value)
			case "realtime":
				q.Realtime = rateOf(value)
			case "qlimit":
				if n, err := strconv.Atoi(value); err == nil {
					q.Qlimit = n
				}
			case "{":
				if names, _, err := list(w[i:], "{", "}"); err == nil {
					q.Queues = names
				}
			}
		}
		q.Default = slices.Contains(w, "default")
		out = append(out, q)
	}
	return out
}

// rootPrefix begins the names of the queues that pfctl makes itself.
const rootPrefix = "root_"

// rateOf reads a rate as pfctl shows it; 0 if it is none.
func rateOf(word string) unit.Rate {
	b, _, err := bandwidth([]string{word})
	if err != nil {
		return 0
	}
	return b.Rate
}

// ParseShown returns the queues that `pfctl -vsq` prints, in Shown's form.
func ShownALTQ(text string) []string {
	var out []string
	for _, q := range ParseALTQQueues(text) {
		if !q.Root {
			out = append(out, q.Line)
		}
	}
	return out
}

// Place returns text with lines inserted where pfctl requires queueing: after
// options and normalization, before translation and filtering.
func PlaceALTQ(text, lines string) string {
	at, continued := len(text), false
	for pos := 0; pos < len(text); {
		end := strings.IndexByte(text[pos:], '\n')
		next := len(text)
		if end >= 0 {
			next = pos + end + 1
		}
		line := strings.TrimRight(text[pos:next], "\n")
		if !continued && sectionOf(line) > queueing {
			at = pos
			break
		}
		continued = strings.HasSuffix(line, `\`)
		pos = next
	}
	before := text[:at]
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	return before + lines + text[at:]
}

// Translates reports whether a pf.conf has translation rules whose order
// matters (OpenBSD 4.6 and before): queues must come before them, match rules
// after.
func Translates(text string) bool {
	for line := range strings.Lines(text) {
		if anyOrder(line) {
			return false
		}
		if sectionOf(line) == translation {
			return true
		}
	}
	return false
}
