package platform

import (
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A Shaped device has a queue other than the kernel's default.
type Shaped struct {
	Device     string        `json:"device"`
	Ours       bool          `json:"ours"`                  // made by unbloat
	Rate       unit.Rate     `json:"rate_bps"`              // 0: no shaper that is known here
	Queue      string        `json:"queue"`                 // "cake", "htb + fq_codel"
	IngressTo  []string      `json:"ingress_to,omitempty"`  // devices to which ingress packets are redirected
	OwnIngress bool          `json:"own_ingress,omitempty"` // that redirect is unbloat's
	Says       string        `json:"says"`                  // one sentence for people
	Counters   []tc.Counters `json:"counters"`
}

// A Traffic holds the bytes so far of one home machine's connections in one
// class. Queues do not count waiting or dropped packets by machine.
type Traffic struct {
	Home  string     `json:"home"`
	Class plan.Class `json:"class"` // in the direction that carried more
	Flows int        `json:"flows"`
	Up    unit.Size  `json:"up_bytes"`
	Down  unit.Size  `json:"down_bytes"`
}
