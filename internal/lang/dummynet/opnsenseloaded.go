package dummynet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/plan"
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
	slices.SortStableFunc(rules, func(a, b RuleItem) int {
		x, _ := strconv.Atoi(a.Sequence)
		y, _ := strconv.Atoi(b.Sequence)
		return x - y
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

// ItemQueue returns the number of the queue of a class's item.
func ItemQueue(d plan.Direction, c plan.Class) int {
	n, _ := strconv.Atoi(numbered("queue", classItem(d, c)))
	return n
}

// Lookups are the commands that have OPNsense's ipfw look up flows in the table,
// and what is missing for that.
//
// A reconfigure there flushes all rules, ours too, and loads the saved ones. rules is
// what `ipfw list` shows. The error says why the queues are not those of the plan.
func Lookups(rules string) (missing [][]string, err error) {
	found := false
	for i, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		device, there := "", false
		number, text := fmt.Sprintf("%05d", FirstRule+i), ""
		for line := range strings.Lines(rules) {
			w := strings.Fields(line)
			if len(w) > 3 && w[0] == number && w[1] == "queue" && w[2] == tablearg {
				there = true
			}
			at := slices.Index(w, "//")
			if at < 3 || at+1 >= len(w) || w[at+1] != UUID("rule "+string(d)) || w[1] != "queue" {
				continue
			}
			if w[2] != strconv.Itoa(ItemQueue(d, plan.Normal)) {
				return nil, fmt.Errorf("queue %s is in the place of unbloat's queue %d, because another item has that number; give that item another number, and apply the plan again", w[2], ItemQueue(d, plan.Normal))
			}
			if via := slices.Index(w, "via"); via > 0 && via+1 < at {
				device = w[via+1]
			}
		}
		if device == "" { // the direction is not shaped
			continue
		}
		found = true
		if there {
			continue
		}
		way := "out"
		if d == plan.DirectionDown {
			way = "in"
		}
		text = "ipfw -q add " + number + " queue " + tablearg + " ip from any to any flow table(" + flowTable + ") " + way + " via " + device
		missing = append(missing, strings.Fields(text))
	}
	if !found {
		return nil, fmt.Errorf("ipfw has none of the plan's rules: the shaper is not loaded; see Firewall: Shaper, and press Apply")
	}
	if missing != nil {
		missing = append([][]string{append([]string{"ipfw"}, strings.Fields(OurTables()[0].String())...)}, missing...)
	}
	return missing, nil
}
