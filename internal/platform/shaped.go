package platform

import (
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A Shaped device is one on which something other than the kernel's default was found.
type Shaped struct {
	Device     string        `json:"device"`
	Ours       bool          `json:"ours"`                  // made by unbloat
	Rate       unit.Rate     `json:"rate_bps"`              // 0: holds no rate that is known here
	Queue      string        `json:"queue"`                 // "cake", "htb + fq_codel"
	IngressTo  []string      `json:"ingress_to,omitempty"`  // where what arrives here is redirected
	OwnIngress bool          `json:"own_ingress,omitempty"` // that redirect is unbloat's
	Says       string        `json:"says"`                  // in one sentence
	Counters   []tc.Counters `json:"counters"`
}

// A Traffic is what the connections of one machine of the home in one class have
// carried so far. What waits and what is dropped no queue counts by machine.
type Traffic struct {
	Home  string     `json:"home"`
	Class plan.Class `json:"class"` // of the direction that carried more
	Flows int        `json:"flows"`
	Up    unit.Size  `json:"up_bytes"`
	Down  unit.Size  `json:"down_bytes"`
}
