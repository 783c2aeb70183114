package dummynet

import (
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
)

// A Count holds a queue's counters since it was created: passed, waiting and
// dropped.
type Count struct {
	Packets, Bytes           int64
	BacklogPkts, BacklogSize int64
	Drops                    int64
}

// ParseCounts reads each queue's counters from `dnctl queue show`, by the
// queue's number. A queue with a mask counts per flow; these are added up.
// Queues that no packet has reached have no line.
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

// ClassOf returns the class of a queue below one of our pipes; "" for any other
// queue.
func ClassOf(pipe, queue int) plan.Class {
	for _, c := range plan.AllClasses() {
		if (pipe == pipeUp || pipe == pipeDown) && classQueue(pipe, c) == queue {
			return c
		}
	}
	return ""
}
