package linux

import (
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux/bpf"
)

// Name is the platform's name.
const Name = "linux"

// Language returns what a Linux router with tc(8) and nft(8) supports.
func Language() *plan.Language {
	l := tc.Language(Name)
	l.PacketRules, l.BPFOmitted = true, !bpf.Built
	return l
}
