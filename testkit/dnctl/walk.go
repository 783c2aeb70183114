package dnctl

import (
	"slices"
	"strconv"
	"strings"
)

// A Packet is what a rule asks of one at an interface. Rules that name an address, a
// table or a mark do not take it.
type Packet struct {
	Interface        string
	Out              bool
	Proto            string // udp, icmp, ipv6-icmp …
	FromPort, ToPort int
}

// Takes returns the action of the first rule that takes the packet, as in "pipe 3",
// or "".
func (m *Machine) Takes(p Packet) string {
	for _, r := range m.rules {
		w := strings.Fields(r.text)[1:]
		action := w[0]
		w = w[1:]
		switch action {
		case "pipe", "queue", "skipto":
			action, w = action+" "+w[0], w[1:]
		case "count", "return": // go on to the next rule
			continue
		}
		if p.fits(w) {
			return action
		}
	}
	return ""
}

// fits reports whether a rule takes the packet; w is what it says after its action.
func (p Packet) fits(w []string) bool {
	if len(w) < 5 || w[1] != "from" || w[2] != "any" || w[0] != "ip" && w[0] != p.Proto {
		return false
	}
	w = w[3:]
	if w[0] != "to" {
		if !within(w[0], p.FromPort) {
			return false
		}
		w = w[1:]
	}
	if len(w) < 2 || w[1] != "any" {
		return false
	}
	if w = w[2:]; len(w) > 0 && w[0][0] >= '0' && w[0][0] <= '9' {
		if !within(w[0], p.ToPort) {
			return false
		}
		w = w[1:]
	}
	for len(w) > 0 && w[0] != "//" {
		switch w[0] {
		case "in", "out":
			if (w[0] == "out") != p.Out {
				return false
			}
			w = w[1:]
		case "xmit", "recv", "via":
			if w[1] != p.Interface || w[0] == "xmit" && !p.Out {
				return false
			}
			w = w[2:]
		default: // what this packet does not have
			return false
		}
	}
	return true
}

// within reports whether a list of ports and ranges has the port.
func within(list string, port int) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool {
		low, high, isRange := strings.Cut(s, "-")
		from, _ := strconv.Atoi(low)
		to := from
		if isRange {
			to, _ = strconv.Atoi(high)
		}
		return from <= port && port <= to
	})
}
