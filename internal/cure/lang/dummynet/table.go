package dummynet

import (
	"fmt"
	"strings"
)

// A plan of an older unbloat could have a table of flows, whose entries say which queue
// a flow's packets go to, and rules that look it up. None is made any longer; it is
// read, so that what is left of such a plan can be taken back.
const (
	flowTable = "unbloat"
	flowKey   = "flow:src-ip,proto,src-port,dst-ip,dst-port"
	tablearg  = "tablearg"
)

// A Table is a table of ipfw(8).
type Table struct{ Name, Type string }

// OurTables returns all tables that plans may have.
func OurTables() []Table { return []Table{{flowTable, flowKey}} }

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
