package pfsense

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/conf"
)

// pfSense numbers the queues of limiters itself, from 1 on, and ignores the
// numbers in config.xml; we can choose only the limiters' numbers. So our
// queues are identified by name: rules.limiter lists a limiter's queues in the
// order of config.xml.

// limiterNumbers returns the numbers that our limiters may have.
func limiterNumbers() (out []string) {
	for n := range dummynet.LimiterNumbers {
		out = append(out, strconv.Itoa(first+n))
	}
	return out
}

// ours reports whether a pipe's number is one of our limiters'.
func ours(number string) bool {
	return slices.Contains(limiterNumbers(), number)
}

// A numbering holds the numbers that pfSense assigned to queues.
type numbering struct {
	of    map[string][]int // by the limiter's number, in the limiter's order
	names map[int]string   // of our queues
	pipes []string         // our limiters' numbers in config.xml
}

// numbersOf reads the numbers from rules.limiter. Our limiters with missing
// queues there get no names, and neither does a number that occurs twice: of
// those queues the last configured one is in force.
func numbersOf(root *bsd.ConfigNode, rulesLimiter string) numbering {
	g := numbering{of: map[string][]int{}, names: map[int]string{}}
	uses := map[int]int{}
	for line := range strings.Lines(rulesLimiter) {
		w := strings.Fields(line)
		if len(w) < 5 || w[0] != "queue" || w[3] != "pipe" {
			continue
		}
		if n := number(w[1]); n > 0 {
			g.of[w[4]] = append(g.of[w[4]], n)
			uses[n]++
		}
	}
	for _, l := range root.Child("dnshaper").All("queue") {
		names, numbers := enabled(l), g.of[l.Value("number")]
		if !strings.HasPrefix(l.Value("name"), ourLimiter) {
			continue
		}
		g.pipes = append(g.pipes, l.Value("number"))
		if len(names) != len(numbers) {
			continue
		}
		for i, n := range numbers {
			if uses[n] == 1 {
				g.names[n] = names[i]
			}
		}
	}
	return g
}

// enabled returns the names of a limiter's enabled queues.
func enabled(limiter *bsd.ConfigNode) (out []string) {
	for _, q := range limiter.All("queue") {
		if q.Value("enabled") != "" {
			out = append(out, q.Value("name"))
		}
	}
	return out
}

// number parses a number; -1 if it is none.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// nameOf returns the name of the queue with this number, or a text that can't
// be a name.
func nameOf(digits string, given numbering) string {
	if name, ok := given.names[number(digits)]; ok {
		return name
	}
	return "number " + digits
}

// limiterLines returns our lines of rules.limiter, with queues by name. pfSense
// doesn't rewrite that file after the last limiter is deleted, so limiters that
// are not in config.xml are ignored.
func limiterLines(text string, given numbering) (out []string) {
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case len(w) > 1 && (w[0] == "pipe" || w[0] == "sched") && slices.Contains(given.pipes, w[1]):
		case len(w) > 4 && w[0] == "queue" && slices.Contains(given.pipes, w[4]):
			w[1] = nameOf(w[1], given)
		default:
			continue
		}
		out = append(out, "limiter: "+strings.Join(w, " "))
	}
	return out
}

// kernelFacts returns our objects in the kernel, with queues by name: those of
// our pipes, and those with one of our numbers.
func kernelFacts(kernel []string, given numbering) (out []conf.Fact) {
	for _, line := range kernel {
		w := strings.Fields(line)
		switch {
		case len(w) > 1 && (w[0] == "pipe" || w[0] == "sched") && ours(w[1]):
		case len(w) > 3 && w[0] == "queue":
			name := nameOf(w[1], given)
			if _, named := given.names[number(w[1])]; !named && !ours(w[3]) {
				continue
			}
			w[1] = name
		default:
			continue
		}
		out = append(out, conf.Fact{Kind: conf.Kind(w[0]), Of: w[1], Text: "kernel: " + strings.Join(w, " ")})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Text < out[j].Text })
	return out
}

// ruleLines returns our rules as pf was given them: "rule: out dnqueue
// unbloat_up_q,unbloat_down_q (what is opened out)".
func ruleLines(text string, given numbering) (out []string) {
	for line := range strings.Lines(text) {
		_, after, ok := strings.Cut(line, "dnqueue(")
		numbers, _, closed := strings.Cut(after, ")")
		w := strings.Fields(line)
		if !ok || !closed || len(w) < 2 || !strings.Contains(line, ourRule) {
			continue
		}
		_, name, _ := strings.Cut(line, ourRule)
		name, _, _ = strings.Cut(name, `"`)
		var queues []string
		for n := range strings.SplitSeq(strings.ReplaceAll(numbers, " ", ""), ",") {
			queues = append(queues, nameOf(n, given))
		}
		l := "rule: " + w[1] + " dnqueue " + strings.Join(queues, ",") + " (" + name + ")"
		if !slices.Contains(out, l) { // one for each address family
			out = append(out, l)
		}
	}
	return out
}

// checkQueues returns an error for foreign limiters that make pfSense ignore
// later queues or assign a number twice: ours come last.
func checkQueues(root *bsd.ConfigNode, device string) error {
	refuse := func(what, remedy string) error {
		return &platform.PreconditionError{Doing: "shape " + device, What: what, Remedy: remedy}
	}
	seen := map[string]string{}
	for _, l := range root.Child("dnshaper").All("queue") {
		if strings.HasPrefix(l.Value("name"), ourLimiter) {
			continue
		}
		for _, q := range l.All("queue") {
			name := q.Value("name")
			if why := refusedQueue(q); why != "" {
				return refuse(fmt.Sprintf("pfSense refuses the queue %q of the limiter %s because of its %s, and then leaves out every queue that follows", name, l.Value("name"), why),
					"correct or delete that queue in Firewall: Traffic Shaper: Limiters")
			}
			if other, ok := seen[name]; ok && q.Value("enabled") != "" {
				return refuse(fmt.Sprintf("the limiters %s and %s both have a queue named %q, and pfSense gives its number away twice", other, l.Value("name"), name),
					"give one of them another name in Firewall: Traffic Shaper: Limiters")
			}
			if q.Value("enabled") != "" {
				seen[name] = l.Value("name")
			}
		}
	}
	return nil
}

// refusedQueue returns the field of a queue that pfSense rejects; "": none.
func refusedQueue(q *bsd.ConfigNode) string {
	within := func(field string, low, high float64) bool {
		v := q.Value(field)
		if v == "" || v == "0" && field != "maskbits" && field != "maskbitsv6" {
			return true
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return err == nil && f >= low && f <= high
	}
	const any = 1e300
	switch name := q.Value("name"); {
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		return "name"
	case !within("plr", 0, 1):
		return "packet loss rate"
	case !within("buckets", 16, 65535):
		return "bucket size"
	case !within("qlimit", -any, any):
		return "queue length"
	case !within("weight", -any, any):
		return "weight"
	case !within("maskbits", 1, 32), !within("maskbitsv6", 1, 128):
		return "mask"
	case !slices.Contains([]string{"", "0", "droptail", "codel", "pie", "red", "gred"}, q.Value("aqm")):
		return "queue management algorithm"
	}
	return ""
}
