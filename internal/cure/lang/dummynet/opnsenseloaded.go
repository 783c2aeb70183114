package dummynet

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Loaded returns what OPNsense's templates make of the items: the commands for
// dnctl(8) and ipfw(8) that a reconfigure runs, without its rules that are not the
// shaper's. device is the device of the items' interface.
func (it Items) Loaded(device string) string {
	var b strings.Builder
	some := func(word, value string) string { // the templates leave out what is empty
		if value == "" {
			return ""
		}
		return " " + word + " " + value
	}
	pipes := map[string]string{}
	for _, x := range it.Pipes {
		pipes[x.UUID] = x.Number
		fmt.Fprintf(&b, "dnctl pipe %s config bw %s%s/s", x.Number, x.Bandwidth, x.BandwidthMetric)
		b.WriteString(some("queue", x.Queue))
		fmt.Fprintf(&b, " type %s", cmp.Or(x.Scheduler, "wf2q+"))
		if x.Scheduler == "fq_codel" {
			b.WriteString(" " + loadedCoDel(x.CoDelTarget, x.CoDelInterval, x.CoDelECN) + some("quantum", x.Quantum) + some("limit", x.Limit) + some("flows", x.Flows))
		}
		b.WriteString("\n")
	}
	targets := map[string]string{}
	for uuid, number := range pipes {
		targets[uuid] = "pipe " + number
	}
	for _, x := range it.Queues {
		targets[x.UUID] = "queue " + x.Number
		fmt.Fprintf(&b, "dnctl queue %s config pipe %s weight %s", x.Number, pipes[x.Pipe], x.Weight)
		if x.CoDelEnable == "1" {
			fmt.Fprintf(&b, " codel %s", loadedCoDel(x.CoDelTarget, x.CoDelInterval, x.CoDelECN))
		}
		b.WriteString("\n")
	}
	rules := slices.Clone(it.Rules)
	sort.SliceStable(rules, func(i, j int) bool {
		a, b := rules[i], rules[j]
		x, _ := strconv.Atoi(a.Sequence)
		y, _ := strconv.Atoi(b.Sequence)
		return x < y
	})
	for i, x := range rules {
		proto, ack, _ := strings.Cut(x.Proto, "_")
		fmt.Fprintf(&b, "ipfw add %d %s %s from %s to %s src-port %s dst-port %s %s", loadedFirst+i, targets[x.Target], proto, x.Source, x.Destination, x.SourcePort, x.DestPort, x.Direction)
		if ack != "" {
			b.WriteString(" tcpflags ack")
		}
		if x.IPLen != "" {
			fmt.Fprintf(&b, " iplen 1-%s", x.IPLen)
		}
		if x.DSCP != "" {
			fmt.Fprintf(&b, " dscp %s", x.DSCP)
		}
		fmt.Fprintf(&b, " via %s // %s %s\n", device, x.UUID, x.Interface)
	}
	return b.String()
}

// loadedFirst is the number of the shaper's first rule on OPNsense.
const loadedFirst = 60001

func loadedCoDel(target, interval, ecn string) string {
	s := ""
	if target != "" {
		s += "target " + target + " "
	}
	if interval != "" {
		s += "interval " + interval + " "
	}
	if ecn == "1" {
		return s + "ecn"
	}
	return s + "noecn"
}
