package dummynet_test

import (
	"strings"
	"testing"

	. "unbloat/internal/cure/lang/dummynet"
)

// FuzzParseShown: no line kept of dnctl's and ipfw's output contains a line
// break. Limiters of a config.xml are refused, or read back as written.
func FuzzParseShown(f *testing.F) {
	f.Add("00001:  29.100 Mbit/s    0 ms burst 0 \nq131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0 droptail\n sched 65537 type FIFO flags 0x0 0 buckets 0 active\n",
		"00001: sched 1 type FQ_CODEL flags 0x0 0 buckets 0 active\n FQ_CODEL target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 NoECN\n", "q00001  50 sl. 0 flows (1 buckets) sched 1 weight 10 lmax 0 pri 0 droptail\n", "00100 queue 1 ip from any to any\n--- table(unbloat), set(0) ---\n kindex: 0, type: flow:src-ip,proto,src-port,dst-ip,dst-port\n")
	f.Add("<dnshaper><queue><name>a</name><number>1</number><bandwidth><item><bw>29</bw><bwscale>Mb</bwscale></item></bandwidth></queue></dnshaper>", "", "", "")
	f.Fuzz(func(t *testing.T, pipes, scheds, queues, rules string) {
		for _, line := range ParseShown(pipes, scheds, queues, rules, rules) {
			if line == "" || strings.ContainsAny(line, "\n") {
				t.Fatalf("%q", line)
			}
		}
		ls, err := ParseLimiters(pipes)
		if err != nil {
			return
		}
		if _, err := ParseLimiters(ls.String()); err != nil {
			t.Fatalf("%q → %q: %v", pipes, ls.String(), err)
		}
	})
}
