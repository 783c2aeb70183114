package dummynet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
)

// Classes by behaviour: ipfw(8) has a table of flows, whose entries say which queue
// a flow's packets go to. The rules look it up; a program that reads what the flows
// carry fills it. Both directions have entries of their own in the one table, since
// a key names source and destination.
const (
	flowTable = "unbloat"
	flowKey   = "flow:src-ip,proto,src-port,dst-ip,dst-port"
	tablearg  = "tablearg"
)

// A Table is a table of ipfw(8).
type Table struct{ Name, Type string }

// OurTables returns all tables that plans may have.
func OurTables() []Table { return []Table{{flowTable, flowKey}} }

// addTable makes the table of flows, if rules look it up.
func (c *Config) addTable(p plan.Plan) {
	if p.ByBehaviour() && slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Target == 0 }) {
		c.Tables = append(c.Tables, OurTables()...)
	}
}

// lookup returns the rule that looks flows up. A flow without an entry goes on to
// the next rule.
func lookup(number int, d plan.Direction, wan string) Rule {
	way := "out xmit "
	if d == plan.DirectionDown {
		way = "in recv "
	}
	return Rule{Number: number, Action: "queue", Match: "ip from any to any flow table(" + flowTable + ") " + way + wan}
}

// String writes the table's ipfw(8) command without the program's name. A table
// that is there already, and is of the same kind, stays as it is.
func (t Table) String() string { return "table " + t.Name + " create type " + t.Type + " missing" }

// Shown writes the table as ParseShown returns it.
func (t Table) Shown() string { return "table " + t.Name + " type " + t.Type }

// createTable reads `NAME create type TYPE …`; other commands of tables are no part
// of a configuration.
func (c *Config) createTable(words []string) error {
	if len(words) < 2 || words[1] != "create" {
		return nil
	}
	if len(words) < 4 || words[2] != "type" {
		return fmt.Errorf("table %s: its type is missing", words[0])
	}
	c.Tables = upsert(c.Tables, Table{words[0], words[3]}, func(x Table) bool { return x.Name == words[0] })
	return nil
}

// shownTables reads `ipfw table all info`.
func shownTables(text string) (out []string) {
	name := ""
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, "--- table("); ok {
			name, _, _ = strings.Cut(head, ")")
			continue
		}
		if _, kind, ok := strings.Cut(line, " type: "); ok && name != "" {
			kind, _, _ = strings.Cut(strings.TrimSpace(kind), ",")
			if strings.HasPrefix(strings.TrimSpace(kind), "flow") { // its fields are separated by commas too
				_, kind, _ = strings.Cut(line, " type: ")
				kind = strings.TrimSuffix(strings.TrimSpace(kind), ", locked")
			}
			if name == flowTable {
				out = append(out, Table{name, kind}.Shown())
			}
			name = ""
		}
	}
	return out
}

// A SortedFlow is a flow, and the queue of its packets in one direction.
type SortedFlow struct {
	Protocol  uint8
	Home, Far netip.AddrPort
	Shown     netip.AddrPort // the home's end after NAT; the zero one: as it is
	Direction plan.Direction
	Queue     int // of its class
}

// ClassQueue returns the number of a class's queue, as Render gives it.
func ClassQueue(d plan.Direction, c plan.Class) int {
	if d == plan.DirectionDown {
		return classQueue(pipeDown, c)
	}
	return classQueue(pipeUp, c)
}

// Entries adds a flow's entries of the table: key, and number of its queue. What
// ipfw sees of the home's end on the WAN depends on which firewall comes first, so
// that is there before NAT and after it. Protocols without ports have none, nor has
// DHCP, which passes before all queues.
func (f SortedFlow) Entries(to map[string]int) {
	dhcp := func(x plan.PortRange) bool { return x.Contains(f.Home.Port()) || x.Contains(f.Far.Port()) }
	if !classify.HasPorts(f.Protocol) || f.Protocol == classify.UDP && slices.ContainsFunc(plan.DHCP(), dhcp) {
		return
	}
	for _, home := range []netip.AddrPort{f.Home, f.Shown} {
		if !home.IsValid() {
			continue
		}
		from, to_ := home, f.Far
		if f.Direction == plan.DirectionDown {
			from, to_ = to_, from
		}
		to[fmt.Sprintf("%s,%d,%d,%s,%d", from.Addr(), f.Protocol, from.Port(), to_.Addr(), to_.Port())] = f.Queue
	}
}

// mostEntries is how many entries a command adds or removes: it must fit into the
// arguments of a program.
const mostEntries = 500

// EntryCommands returns the commands that change the table's entries from one map to
// the other. With -q an entry that is there is changed, and one that is missing is
// no error.
func EntryCommands(from, to map[string]int) (out [][]string) {
	var add, gone []string
	for k, queue := range to {
		if was, ok := from[k]; !ok || was != queue {
			add = append(add, k+" "+strconv.Itoa(queue))
		}
	}
	for k := range from {
		if _, ok := to[k]; !ok {
			gone = append(gone, k)
		}
	}
	slices.Sort(add)
	slices.Sort(gone)
	for _, x := range []struct {
		verb string
		list []string
	}{{"delete", gone}, {"add", add}} {
		for some := range slices.Chunk(x.list, mostEntries) {
			out = append(out, append([]string{"ipfw", "-q", "table", flowTable, x.verb}, strings.Fields(strings.Join(some, " "))...))
		}
	}
	return out
}

// ListEntries is the command that shows the table's entries, for ParseEntries.
func ListEntries() []string { return []string{"ipfw", "table", flowTable, "list"} }

// ParseEntries reads the table's entries. Lines that are none are left out.
func ParseEntries(text string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) != 2 || strings.Count(w[0], ",") != 4 {
			continue
		}
		if n, err := strconv.Atoi(w[1]); err == nil {
			out[w[0]] = n
		}
	}
	return out
}
