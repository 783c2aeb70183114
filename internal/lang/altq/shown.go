package altq

import (
	"fmt"
	"strings"

	"unbloat/unit"
)

// defaultQlimit is the length that pfctl(8) does not print (DEFAULT_QLIMIT).
const defaultQlimit = 50

// Shown returns the lines of `pfctl -vsq` for a ruleset's queues, without the
// counters and without the root queue that pfctl adds (print_queue of OpenBSD
// 5.5's pfctl_altq.c). A rate is printed with two decimals, so what is read back
// is no more exact than that.
func (rs Ruleset) Shown() []string {
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
			if options := q.options(func(b Bandwidth) string { return shownRate(b.of(i.Bandwidth.Rate)) }); options != "" {
				s += " hfsc( " + options + " )"
			}
			out = append(out, s)
		}
	}
	return out
}

// shownRate prints a rate as pfctl's rate2str does: two decimals or none, both cut.
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

// ParseShown returns the queues that `pfctl -vsq` prints, in Shown's form.
func ParseShown(text string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "{")
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "queue" || strings.HasPrefix(words[1], "root_") {
			continue
		}
		out = append(out, strings.ReplaceAll(strings.Join(words, " "), " priority 1 ", " "))
	}
	return out
}

// Place returns text with lines put where pfctl's order wants queueing: after
// options and normalization, before translation and filtering.
func Place(text, lines string) string {
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

// Translates reports whether a pf.conf has translation rules whose order counts
// (4.6 and before): queues have to stand before them, and match rules behind.
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
