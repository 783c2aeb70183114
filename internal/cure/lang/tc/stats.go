package tc

import (
	"fmt"
	"strconv"
)

// Counters are the kernel's counters of one qdisc.
type Counters struct {
	Device       string `json:"device"`
	Kind         string `json:"kind"`
	Handle       string `json:"handle"`
	Parent       string `json:"parent"`
	Bytes        int64  `json:"bytes"`
	Packets      int64  `json:"packets"`
	Drops        int64  `json:"drops"`
	Overlimits   int64  `json:"overlimits"`
	Marks        int64  `json:"marks"`     // ECN: packets marked instead of dropped
	AckDrops     int64  `json:"ack_drops"` // CAKE: redundant ACKs dropped by ack-filter
	BacklogBytes int64  `json:"backlog_bytes"`
	BacklogPkts  int64  `json:"backlog_packets"`
	Tins         []Tin  `json:"tins,omitempty"` // CAKE: the first is tin 1
}

// A Tin holds CAKE's counters of one tin.
type Tin struct {
	Bytes        int64 `json:"bytes"`
	Packets      int64 `json:"packets"`
	Drops        int64 `json:"drops"`
	BacklogBytes int64 `json:"backlog_bytes"`
	AverageUs    int64 `json:"average_delay_us"`
	PeakUs       int64 `json:"peak_delay_us"`
	Flows        int64 `json:"flows"` // with packets queued now or recently
}

// ParseCounters reads `tc -s -d -j qdisc show` for one device (dev, since tc
// then prints no name) or for all ("").
func ParseCounters(b []byte, dev string) ([]Counters, error) {
	list, err := decodeList(b)
	if err != nil {
		return nil, err
	}
	var out []Counters
	for _, o := range list {
		c := Counters{Device: o.text("dev"), Kind: o.text("kind"), Handle: o.text("handle"), Parent: o.text("parent"),
			Bytes: count(o, "bytes"), Packets: count(o, "packets"), Drops: count(o, "drops"), Overlimits: count(o, "overlimits"),
			Marks: count(o, "ecn_mark"), BacklogBytes: count(o, "backlog"), BacklogPkts: count(o, "qlen")}
		if c.Kind == "" {
			return nil, fmt.Errorf("read counters: an entry without a kind")
		}
		if c.Device == "" {
			c.Device = dev
		}
		if o.text("root") == "true" {
			c.Parent = rootAt
		}
		tins, _ := o.get("tins")
		ts, _ := tins.([]any)
		for _, t := range ts {
			if tin, ok := t.(object); ok {
				c.Marks += count(tin, "ecn_mark")
				c.AckDrops += count(tin, "ack_drops")
				c.Tins = append(c.Tins, Tin{Bytes: count(tin, "sent_bytes"), Packets: count(tin, "sent_packets"), Drops: count(tin, "drops"),
					BacklogBytes: count(tin, "backlog_bytes"), AverageUs: count(tin, "avg_delay_us"), PeakUs: count(tin, "peak_delay_us"),
					Flows: count(tin, "sparse_flows") + count(tin, "bulk_flows") + count(tin, "unresponsive_flows")})
			}
		}
		out = append(out, c)
	}
	return out, nil
}

func count(o object, key string) int64 {
	n, _ := strconv.ParseInt(o.text(key), 10, 64)
	return n
}

// Rate returns the rate of the shaper at the tree's root, in bit/s; 0 if there
// is none that is known here.
func (t Tree) Rate() int64 {
	root, ok := t.Root()
	switch {
	case !ok:
		return 0
	case root.Kind == "cake":
		return atoi(root.Options["bandwidth"].Kernel)
	case root.Kind == "tbf":
		return atoi(root.Options["rate"].Kernel)
	}
	for _, c := range t.Classes {
		if c.Parent == root.Handle && c.Kind == "htb" {
			return atoi(c.Options["ceil"].Kernel)
		}
	}
	return 0
}

// Queue returns the kinds of the leaf qdiscs below the tree's shaper.
func (t Tree) Queue() string {
	root, ok := t.Root()
	if !ok {
		return ""
	}
	out := ""
	for _, q := range t.Qdiscs {
		if q.Parent != rootAt && q.Parent != ingressAt && out != q.Kind {
			if out != "" {
				out += ", "
			}
			out += q.Kind
		}
	}
	if out == "" {
		return root.Kind
	}
	return root.Kind + " + " + out
}
