package opnsense

import (
	"slices"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/platform"
)

// Restore returns the requests that restore a snapshot from any state: our
// items of the snapshot are saved again, all others that may be ours are
// deleted (rules, then queues, then pipes), and the shaper is reloaded. Some
// may fail.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := decode(before)
	if err != nil {
		return nil, err
	}
	var steps []platform.Step
	for _, kind := range kinds() {
		for _, x := range s.Items {
			if x.Kind == kind {
				steps = append(steps, set(x))
			}
		}
	}
	for _, kind := range slices.Backward(kinds()) {
		for _, name := range dummynet.ItemNames(kind) {
			x := Item{Kind: kind, UUID: dummynet.UUID(kind + " " + name)}
			if _, there := s.find(x); !there {
				steps = append(steps, platform.Step{Argv: []string{"POST", settings + "del" + title(kind) + "/" + x.UUID}, Stdin: "{}"})
			}
		}
	}
	return append(steps, platform.Step{Argv: []string{"POST", reconfigure}, Stdin: "{}"}), nil
}
