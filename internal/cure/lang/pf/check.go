package pf

import (
	"fmt"

	"unbloat/unit"
)

// Check returns the errors of pfctl(8) and the kernel about a ruleset as a
// whole.
func (rs Ruleset) Check() error {
	for i, q := range rs.Queues {
		if err := rs.checkPlace(i, q); err != nil {
			return err
		}
	}
	for _, root := range rs.Queues {
		if root.Parent != "" {
			continue
		}
		if err := rs.checkDefault(root); err != nil {
			return err
		}
	}
	for _, q := range rs.Queues {
		parent, ok := rs.find(q.Parent)
		switch {
		case q.Parent == "":
		case !ok:
			return fmt.Errorf("pfctl: queue %s has an unknown parent %s", q.Name, q.Parent)
		case parent.Flows != 0:
			return fmt.Errorf("pfctl: queue %s: its parent %s is a flow queue, which has no children", q.Name, q.Parent)
		case q.Bandwidth == 0:
			return fmt.Errorf("pfctl: queue %s: a queue with a parent needs a bandwidth", q.Name)
		}
	}
	return nil
}

// checkPlace returns an error for a second root on a device or a name used
// twice.
func (rs Ruleset) checkPlace(i int, q Queue) error {
	for _, other := range rs.Queues[:i] {
		switch {
		case q.Device != "" && q.Parent == "" && other.Parent == "" && other.Device == q.Device:
			return fmt.Errorf("cannot add queue")
		case q.Name == other.Name && q.Device == other.Device:
			return fmt.Errorf("queue %s already exists", q.Name)
		}
	}
	return nil
}

// checkDefault returns an error if a root with a bandwidth has no default leaf.
func (rs Ruleset) checkDefault(root Queue) error {
	defaults := 0
	for _, q := range rs.below(root) {
		if !q.Default {
			continue
		}
		defaults++
		if len(rs.children(q)) > 0 {
			return fmt.Errorf("pfctl: default queue %s is not a leaf queue", q.Name)
		}
	}
	if defaults == 0 && root.Bandwidth != 0 {
		return fmt.Errorf("pfctl: no default queue specified")
	}
	return nil
}

// A Hint is input that pfctl(8) silently accepts but that can't be intended.
type Hint struct {
	Queue string // the queue's name; "": a device
	Text  string
}

// String returns the hint with its queue.
func (h Hint) String() string {
	if h.Queue == "" {
		return h.Text
	}
	return "queue " + h.Queue + ": " + h.Text
}

// Lint lists input that pfctl(8) silently accepts but that can't be intended.
func (rs Ruleset) Lint() []Hint {
	var out []Hint
	say := func(queue, format string, args ...any) {
		out = append(out, Hint{Queue: queue, Text: fmt.Sprintf(format, args...)})
	}
	for _, q := range rs.Queues {
		if q.Max != 0 && q.Max < q.Bandwidth {
			say(q.Name, "max %s is below its bandwidth %s", Rate(q.Max), Rate(q.Bandwidth))
		}
		if q.Min != 0 && q.Flows != 0 {
			say(q.Name, "with min, pf silently uses no flow queue")
		}
		if q.Flows != 0 && q.Bandwidth != 0 && q.Qlimit == 0 {
			say(q.Name, "without qlimit it holds 50 packets, too few for flow queues")
		}
		if q.Bandwidth != 0 && q.Max == 0 && q.Parent == "" {
			say(q.Name, "without max it may take the whole interface's rate, so the queue stays in the modem")
		}
		if max(q.Bandwidth, q.Max) > max32 {
			say(q.Name, "rates above 4.29 Gbit/s wrap around on OpenBSD before 2026")
		}
		if sum := rs.sum(q); sum > q.Bandwidth {
			say(q.Name, "its children's bandwidths add up to %s, more than its %s", Rate(sum), Rate(q.Bandwidth))
		}
		if q.Parent == "" {
			if n := rs.defaults(q); n > 1 {
				say("", "on %s: %d default queues; the last one wins", q.Device, n)
			}
		}
	}
	return out
}

func (rs Ruleset) sum(q Queue) (sum unit.Rate) {
	for _, c := range rs.children(q) {
		sum += c.Bandwidth
	}
	return sum
}

func (rs Ruleset) defaults(root Queue) (n int) {
	for _, q := range rs.below(root) {
		if q.Default {
			n++
		}
	}
	return n
}

func (rs Ruleset) find(name string) (Queue, bool) {
	for _, q := range rs.Queues {
		if q.Name == name {
			return q, true
		}
	}
	return Queue{}, false
}

func (rs Ruleset) children(q Queue) (out []Queue) {
	for _, c := range rs.Queues {
		if c.Parent != "" && c.Parent == q.Name && (c.Device == "" || c.Device == q.Device) {
			out = append(out, c)
		}
	}
	return out
}

// below returns root and all its descendants, each queue once.
func (rs Ruleset) below(root Queue) []Queue {
	out := []Queue{root}
	for i := 0; i < len(out) && len(out) <= len(rs.Queues); i++ {
		out = append(out, rs.children(out[i])...)
	}
	return out
}
