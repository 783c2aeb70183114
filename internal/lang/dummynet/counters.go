package dummynet

import (
	"strconv"
	"strings"

	"unbloat/internal/plan"
)

// A Count is what went through a queue, waits in it and was dropped, since it
// was made.
type Count struct {
	Packets, Bytes           int64
	BacklogPkts, BacklogSize int64
	Drops                    int64
}

// ParseCounts reads of `dnctl queue show` what each queue counts; a queue with a
// mask counts each flow, and those are added up. Queues that nothing has ever
// come to have no line.
func ParseCounts(text string) map[int]Count {
	out := map[int]Count{}
	at := 0
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(w[0], "q")); err == nil && w[0][0] == 'q' {
			at = n
			continue
		}
		if len(w) < 8 || !digits(strings.TrimSuffix(w[0], "*")) || at == 0 {
			continue
		}
		last := w[len(w)-5:] // packets, bytes, waiting packets and bytes, drops
		var n [5]int64
		ok := true
		for i, s := range last {
			v, err := strconv.ParseInt(s, 10, 64)
			n[i], ok = v, ok && err == nil
		}
		if ok {
			c := out[at]
			out[at] = Count{c.Packets + n[0], c.Bytes + n[1], c.BacklogPkts + n[2], c.BacklogSize + n[3], c.Drops + n[4]}
		}
	}
	return out
}

func digits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// ClassOf returns the class of which a queue below a pipe of ours is; "" for
// any other.
func ClassOf(pipe, queue int) plan.Class {
	for _, c := range plan.AllClasses() {
		if (pipe == pipeUp || pipe == pipeDown) && classQueue(pipe, c) == queue {
			return c
		}
	}
	return ""
}
