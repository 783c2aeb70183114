package dnctl

import (
	"strings"
	"testing"
)

// Tables of flows answer as sbin/ipfw/tables.c says. Nothing of this was recorded.
func TestTables(t *testing.T) {
	m := &Machine{}
	const create = "ipfw table t create type flow:src-ip,proto,src-port,dst-ip,dst-port"
	for _, x := range []struct {
		command string
		exit    int
		out     string
	}{
		{"ipfw table all info", 0, ""},
		{"ipfw -q table t destroy", 0, ""},
		{"ipfw table t destroy", 0, "ipfw: failed to destroy table t: No such process\n"},
		{"ipfw table t list", exitOS, "ipfw: failed to request table info: No such process\n"},
		{"ipfw table t delete 1.2.3.4", exitData, "ipfw: Table t does not exist\n"},
		{"ipfw add 100 queue tablearg ip from any to any flow table(t) out xmit em0", exitUnknown, "ipfw: stand-in: does not know a rule that looks up a table of flows that is not there\n"},
		{"ipfw table t create type flow:colour", exitUsage, "ipfw: unable to parse flow option colour\n"},
		{create, 0, ""},
		{create, exitOS, "ipfw: Table creation failed: File exists\n"},
		{create + " missing", 0, ""},
		{"ipfw table t create type flow:src-ip,dst-ip missing", exitData, "ipfw: The existing table is not compatible with one you are creating.\n"},
		{"ipfw add 100 queue tablearg ip from any to any flow t", exitData, "ipfw: enclose table name into \"table()\"\n"},
		{"ipfw add 100 queue tablearg ip from any to any flow table(t) out xmit em0", 0, "00100 queue tablearg ip from any to any flow table(t) out xmit em0\n"},
		{"ipfw -q table t add 10.0.0.1,17,5004,198.51.100.9,5004 11 2001:db8::1,6,1,2001:db8::2,443 21", 0, ""},
		{"ipfw -q table t add 10.0.0.1,17,5004,198.51.100.9,5004 12", 0, ""},
		{"ipfw -q table t delete 10.0.0.7,17,1,198.51.100.9,1", 0, ""},
		{"ipfw -q table t add 10.0.0.1,17,5004,2001:db8::1,5004 12", exitData, "ipfw: Inconsistent address family\n"},
		{"ipfw -q table t add 10.0.0.1,300,5004,198.51.100.9,5004 12", exitData, "ipfw: Bad protocol number: 300\n"},
		{"ipfw -q table t add 10.0.0.1,17,5004,198.51.100.9 12", exitData, "ipfw: invalid key: dst port missing\n"},
		{"ipfw table t list", 0, "10.0.0.1,17,5004,198.51.100.9,5004 12\n2001:db8::1,6,1,2001:db8::2,443 21\n"},
		{"ipfw table all info", 0, "--- table(t), set(0) ---\n kindex: 0, type: flow:src-ip,proto,src-port,dst-ip,dst-port\n references: 1, valtype: legacy\n algorithm: flow:hash\n items: 2, size: 280\n"},
		{"ipfw -q table t destroy", exitOS, "ipfw: failed to destroy table t: Device busy\n"},
		{"ipfw -q delete 100", 0, ""},
		{"ipfw -q table t destroy", 0, ""},
		{"ipfw table all info", 0, ""},
	} {
		r := m.Run(strings.Fields(x.command), nil)
		if r.Exit != x.exit || r.Stdout+r.Stderr != x.out {
			t.Errorf("%s: exit %d, %q; want %d, %q", x.command, r.Exit, r.Stdout+r.Stderr, x.exit, x.out)
		}
	}
}
