package pf

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Count holds a queue's counters since it was loaded: passed, waiting and
// dropped. pf does not report how many bytes wait.
type Count struct {
	Packets, Bytes, Drops, Waiting int64
}

var (
	passed = regexp.MustCompile(`pkts: *(\d+) +bytes: *(\d+) +dropped pkts: *(\d+)`)
	waits  = regexp.MustCompile(`qlength: *(\d+) */`)
)

// ParseCounts reads each queue's counters from `pfctl -vsq`, by the queue's
// name.
func ParseCounts(text string) map[string]Count {
	out := map[string]Count{}
	name := ""
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 1 && w[0] == "queue" {
			name = w[1]
		}
		c := out[name]
		if m := passed.FindStringSubmatch(line); m != nil {
			c.Packets, c.Bytes, c.Drops = number(m[1]), number(m[2]), number(m[3])
			out[name] = c
		}
		if m := waits.FindStringSubmatch(line); m != nil {
			c.Waiting = number(m[1])
			out[name] = c
		}
	}
	return out
}

// ParseShown reads the kernel's queues from the output of `pfctl -vsq` and
// skips the counters, pfctl's hidden queues (_root_em0) and CoDel's constants.
func ParseShown(text string) ([]Queue, error) {
	var out []Queue
	for i, line := range strings.Split(text, "\n") {
		words := tokens(line)
		if len(words) < 2 || words[0] != "queue" || strings.HasPrefix(words[1], "_") {
			continue
		}
		q, err := parseQueue(withoutCoDel(words[1:]))
		if err != nil {
			return nil, fmt.Errorf("pfctl -vsq:%d: %w", i+1, err)
		}
		out = append(out, q)
	}
	return out, nil
}

func withoutCoDel(words []string) []string {
	var out []string
	for i := 0; i < len(words); i++ {
		if i > 0 && (words[i] == "target" || words[i] == "interval") {
			i++
			continue
		}
		out = append(out, words[i])
	}
	return out
}
