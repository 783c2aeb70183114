// Package fake holds stand-ins for the tools of systems that we cannot run in
// tests. Each is as strict as the real one, in its words, and has its traps;
// reference/verdicts says what the real ones answered.
package fake

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/mechanism/dummynet"
	"unbloat/unit"
)

// Dnctl is FreeBSD's dummynet and the part of ipfw that feeds it: a kernel, and
// the dnctl(8) and ipfw(8) that talk to it. The zero value is empty.
type Dnctl struct {
	State dummynet.Config
}

// Run runs one command and returns its exit code and what it prints. Lines that
// begin with "kernel: " are what the kernel was told, not output.
func (d *Dnctl) Run(argv []string) (exit int, out []string) {
	traps, err := d.State.Exec(argv)
	var refused *dummynet.ToolError
	if errors.As(err, &refused) {
		return refused.Exit, strings.Split(refused.Message, "\n")
	}
	for _, t := range traps {
		if t.Printed != "" {
			// One message a word: the tool goes on with the next.
			out = append(out, t.Printed)
		}
	}
	if len(argv) < 3 {
		return 0, out
	}
	if argv[1] == "add" {
		r := d.State.Rules[len(d.State.Rules)-1]
		match := strings.ReplaceAll(r.Match, " dst-port ", " ")
		return 0, append(out, fmt.Sprintf("%05d %s %d %s", r.Number, r.Action, r.Target, match))
	}
	return 0, append(out, d.kernel(argv[1], argv[2:], traps)...)
}

// kernel prints what the kernel was told.
func (d *Dnctl) kernel(kind string, words []string, traps []dummynet.Trap) (out []string) {
	say := func(format string, args ...any) { out = append(out, "kernel: "+fmt.Sprintf(format, args...)) }
	number := words[0]
	switch kind {
	case "pipe":
		for _, p := range d.State.Pipes {
			if fmt.Sprint(p.Number) != number {
				continue
			}
			say("sched %s type (as is, else WF2Q+)", number)
			unlimited := ""
			if p.Bandwidth == 0 {
				unlimited = " (unlimited)"
			}
			say("link %s bw %d bit/s%s delay 0ms burst 0", number, int64(p.Bandwidth), unlimited)
			say("internal fs of pipe %s q %d sl.%s", number, slots(p.Slots), codel(p.CoDel))
		}
	case "sched":
		for _, s := range d.State.Scheds {
			if fmt.Sprint(s.Number) != number {
				continue
			}
			out = append(out, "kernel: "+sched(s, traps))
			say("internal fs of sched %s q %d sl.", number, dummynet.DefaultSlots)
		}
	case "queue":
		for _, q := range d.State.Queues {
			if fmt.Sprint(q.Number) != number {
				continue
			}
			out = append(out, "kernel: "+d.queue(q, words, traps))
		}
	}
	return out
}

// sched prints one scheduler, with the defaults of the kernel.
func sched(s dummynet.Sched, traps []dummynet.Trap) string {
	if s.Type == "fq_pie" {
		return fmt.Sprintf("sched %d type fq_pie params -1 -1 -1 -1 -1 -1 19 -1 -1 -1", s.Number)
	}
	mask, clamped, ecn := "", "", "ECN"
	if address, ok := strings.CutPrefix(s.Mask, "src-ip "); ok {
		mask = fmt.Sprintf(" mask{dst 0x0 src %s dport 0x0 sport 0x0 proto 0x0}", address)
	}
	for _, t := range traps {
		if t.Lowered != 0 {
			clamped += fmt.Sprintf(" [CLAMPED %d]", t.Lowered)
		}
	}
	if s.NoECN {
		ecn = "NoECN"
	}
	return fmt.Sprintf("sched %d type %s%s%s target %dus interval %dus %s quantum %d limit %d flows %d", s.Number, s.Type, mask, clamped,
		or(s.Target, 5*time.Millisecond).Microseconds(), or(s.Interval, 100*time.Millisecond).Microseconds(), ecn, or(s.Quantum, 1514), or(s.Limit, 10240), or(s.Flows, 1024))
}

func (d *Dnctl) queue(q dummynet.Queue, words []string, traps []dummynet.Trap) string {
	weight := "-1"
	for i, w := range words {
		if w == "weight" {
			weight = words[i+1]
		}
	}
	s := fmt.Sprintf("queue %d sched %d weight %s lmax -1 pri -1 q %d sl.%s", q.Number, q.Sched, weight, slots(q.Slots), codel(q.CoDel))
	if len(traps) > 0 {
		s += fmt.Sprintf(" [CLAMPED weight %d by wf2q+]", q.Weight)
	}
	for _, x := range d.State.Scheds {
		if x.Number == q.Sched {
			return s
		}
	}
	return s + fmt.Sprintf(" [sched %d not (yet) configured]", q.Sched)
}

func slots(n int) int { return or(n, dummynet.DefaultSlots) }

// codel prints the parameters of a pipe's own CoDel: target, interval, flags.
func codel(words string) string {
	if words == "" {
		return ""
	}
	target, interval, flags := 15*time.Millisecond, 100*time.Millisecond, 0
	w := strings.Fields(words)
	for i, word := range w {
		switch word {
		case "target":
			target, _ = unit.ParseDuration(w[i+1])
		case "interval":
			interval, _ = unit.ParseDuration(w[i+1])
		case "ecn":
			flags = 1
		}
	}
	return fmt.Sprintf(" AQM codel %d %d %d -1 -1 -1 -1", target.Microseconds(), interval.Microseconds(), flags)
}

func or[T comparable](v, deflt T) T {
	var zero T
	if v == zero {
		return deflt
	}
	return v
}
