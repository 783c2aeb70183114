package host

import (
	"unbloat/internal/mechanism/tc"
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
