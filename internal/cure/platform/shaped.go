package platform

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Shaped device has a queue other than the kernel's default.
type Shaped struct {
	Device     string        `json:"device"`
	Ours       bool          `json:"ours"`                  // made by unbloat
	Rate       unit.Rate     `json:"rate_bps"`              // 0: no shaper that is known here
	Queue      string        `json:"queue"`                 // "cake", "htb + fq_codel"
	IngressTo  []string      `json:"ingress_to,omitempty"`  // devices to which ingress packets are redirected
	OwnIngress bool          `json:"own_ingress,omitempty"` // that redirect is unbloat's
	Says       string        `json:"says"`                  // one sentence for people
	Counters   []tc.Counters `json:"counters"`
}

// A Traffic holds the bytes so far of one home machine's connections in one
// class. Queues do not count waiting or dropped packets by machine.
type Traffic struct {
	Home  string     `json:"home"`
	Class plan.Class `json:"class"` // in the direction that carried more
	Flows int        `json:"flows"`
	Up    unit.Size  `json:"up_bytes"`
	Down  unit.Size  `json:"down_bytes"`
}

// A Connection is one of a home machine's.
type Connection struct {
	Protocol string         `json:"protocol"`
	Home     netip.AddrPort `json:"home"` // before NAT
	Far      netip.AddrPort `json:"far"`
	Up       Carried        `json:"up"`
	Down     Carried        `json:"down"`
}

// A Carried is what a connection has carried in one direction, and the class that it has there now.
type Carried struct {
	Bytes unit.Size  `json:"bytes"`
	Class plan.Class `json:"class,omitempty"` // "": not known, as nothing has come
	Why   string     `json:"why,omitempty"`   // the name of the reason that decided, as package classify has it; "": not known
}

// SortConnections sorts them for people: those that have their class for a reason, such as
// "steady", come first, then those that have carried most.
func SortConnections(all []Connection, reason string) {
	later := func(c Connection) int {
		if c.Up.Why == reason || c.Down.Why == reason {
			return 0
		}
		return 1
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return cmp.Or(cmp.Compare(later(a), later(b)), cmp.Compare(b.Up.Bytes+b.Down.Bytes, a.Up.Bytes+a.Down.Bytes),
			a.Home.Compare(b.Home), a.Far.Compare(b.Far), strings.Compare(a.Protocol, b.Protocol)) < 0
	})
}

// Machines adds up connections by machine and class, sorted by these.
func Machines(all []Connection) []Traffic {
	type of struct {
		home  netip.Addr
		class plan.Class
	}
	sums := map[of]int{}
	var out []Traffic
	for _, c := range all {
		class := c.Up.Class
		if c.Down.Bytes > c.Up.Bytes {
			class = c.Down.Class
		}
		key := of{c.Home.Addr(), class}
		i, ok := sums[key]
		if !ok {
			i = len(out)
			sums[key] = i
			out = append(out, Traffic{Home: key.home.String(), Class: class})
		}
		out[i].Flows++
		out[i].Up += c.Up.Bytes
		out[i].Down += c.Down.Bytes
	}
	order := plan.AllClasses()
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return cmp.Or(cmp.Compare(a.Home, b.Home), cmp.Compare(slices.Index(order, a.Class), slices.Index(order, b.Class))) < 0
	})
	return out
}
