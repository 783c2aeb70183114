package linux

import (
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux/bpf"
)

// Name is the platform's name.
const Name = "linux"

// Language returns what a Linux router with tc(8) and nft(8) supports.
func Language() *plan.Language {
	l := tc.Language(Name)
	l.PacketRules, l.BPF, l.BPFOmitted = true, true, !bpf.Built
	return l
}
