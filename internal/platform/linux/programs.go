package linux

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/linux/bpf"
)

// programs are the BPF programs that are pinned for a WAN.
type programs struct {
	Keys []string `json:"keys,omitempty"`
	// Keep are those that stay until the next change: queues used them before this
	// one, and an undo could not load them again, as another unbloat has loaded them.
	Keep []string `json:"keep,omitempty"`
	// Load is what they are loaded with, if they are not pinned. Of what was observed
	// it is known if this unbloat has loaded it.
	Load *bpf.Wanted `json:"load,omitempty"`
}

func (p *programs) keys() []string {
	if p == nil {
		return nil
	}
	return p.Keys
}

// rootMajor is the number of tc.OurRoot.
const rootMajor = 0xb10a

// wantedPrograms are those of a plan; nil if it has none.
func wantedPrograms(p plan.Plan) *programs {
	if !p.Classes.ByBPF() {
		return nil
	}
	policy, _, _ := p.Parts()
	w := bpf.Wanted{WAN: p.WAN, Major: rootMajor, Policy: policy}
	return &programs{Keys: []string{w.Key()}, Load: &w}
}

// attachPrograms adds the filters of a plan's programs to the wanted queues.
func attachPrograms(want *tc.State, p plan.Plan) error {
	w := wantedPrograms(p)
	if w == nil {
		return nil
	}
	key := w.Keys[0]
	want.Attach(p.Up.Device, tc.Program(tc.OurRoot, bpf.ProgramUp, key, 0, false))
	if p.Classes.Behaviour.Acks > 0 {
		want.Attach(p.Up.Device, tc.Program(tc.OurRoot, bpf.ProgramOut, key, 1, true))
	}
	want.Attach(p.Down.Device, tc.Program(tc.OurRoot, bpf.ProgramDown, key, 0, false))
	if !want.Attach(p.Classes.LAN, tc.Program(tc.AtIngress, bpf.ProgramLAN, key, 0, true)) {
		return &platform.PreconditionError{Doing: "number the machines that enter " + p.Classes.LAN, What: "what arrives there meets filters already that are not unbloat's",
			Or: byNFT()}
	}
	return nil
}

// observePrograms lists what is pinned for the plan's WAN, and what its queues use.
func observePrograms(ctx context.Context, r platform.Runner, p plan.Plan, s tc.State, earlier *programs) *programs {
	used := attachedPrograms(s)
	if !p.Classes.ByBPF() && earlier == nil && len(used) == 0 {
		return nil
	}
	out := &programs{}
	names, err := platform.Output(ctx, r, "ls", tc.Pins)
	if err != nil {
		return out // there is no such directory: nothing is pinned
	}
	wanted := []*programs{wantedPrograms(p), earlier}
	for _, name := range strings.Fields(string(names)) {
		if slices.ContainsFunc(wanted, func(w *programs) bool { return w.altered(ctx, r, name) }) {
			continue // it is loaded again
		}
		if strings.HasPrefix(name, bpf.Prefix(p.WAN)) || slices.Contains(used, name) {
			out.Keys = append(out.Keys, name)
			if earlier != nil && earlier.Load != nil && earlier.Load.Key() == name {
				out.Load = earlier.Load
			}
		}
	}
	return out
}

// kept are the programs that queues use now and that an undo could not load again.
func kept(now state) []string {
	return slices.DeleteFunc(attachedPrograms(now.State), func(key string) bool {
		return now.Programs != nil && now.Programs.Load != nil && now.Programs.Load.Key() == key
	})
}

// altered reports whether what is pinned for a key has other constants than are
// wanted for it.
func (p *programs) altered(ctx context.Context, r platform.Runner, key string) bool {
	if p == nil || p.Load == nil || p.Load.Key() != key {
		return false
	}
	said, _, err := r.Run(ctx, []string{self(r), "classifier", "altered"}, []byte(asInput(*p.Load)))
	return err == nil && strings.TrimSpace(string(said)) == "true"
}

// attachedPrograms are the keys of the programs that queues use.
func attachedPrograms(s tc.State) []string {
	var out []string
	for _, d := range s.Devices {
		for _, f := range d.Tree.Filters {
			if key := path.Base(path.Dir(f.Pinned)); f.Pinned != "" && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// loadPrograms are the steps that come before the queues: a filter needs its program.
func loadPrograms(exe string, actual, wanted *programs) []platform.Step {
	if wanted == nil || wanted.Load == nil || slices.Contains(actual.keys(), wanted.Keys[0]) {
		return nil
	}
	return []platform.Step{{Argv: []string{exe, "classifier", "load"}, Stdin: asInput(*wanted.Load)}}
}

func asInput(w bpf.Wanted) string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("linux: write a policy: %v", err)) // it is plain data
	}
	return string(text) + "\n"
}

// leftPrograms are the pinned programs that are neither wanted nor kept.
func leftPrograms(actual, wanted *programs) []string {
	var out []string
	for _, key := range actual.keys() {
		if !slices.Contains(wanted.keys(), key) && (wanted == nil || !slices.Contains(wanted.Keep, key)) {
			out = append(out, key)
		}
	}
	return out
}

// dropPrograms are the steps that come after the queues.
func dropPrograms(actual, wanted *programs) []platform.Step {
	var out []platform.Step
	for _, key := range leftPrograms(actual, wanted) {
		out = append(out, platform.Step{Argv: []string{"rm", "-r", path.Join(tc.Pins, key)}})
	}
	return out
}

// programDifferences says which pinned programs are missing or left over, for people.
func programDifferences(actual, wanted *programs) []string {
	out := missingPrograms(actual, wanted)
	for _, key := range leftPrograms(actual, wanted) {
		out = append(out, fmt.Sprintf("%s: a BPF program is there and should not be", path.Join(tc.Pins, key)))
	}
	return out
}

func missingPrograms(actual, wanted *programs) []string {
	var out []string
	for _, key := range wanted.keys() {
		if !slices.Contains(actual.keys(), key) {
			out = append(out, fmt.Sprintf("%s: the BPF program is not loaded, or has other constants", path.Join(tc.Pins, key)))
		}
	}
	return out
}

// byNFT is the setting for a router that can't have the programs.
func byNFT() *platform.Setting {
	return &platform.Setting{Key: "classifier", Value: string(plan.ByNFT)}
}

// checkPrograms tests whether the kernel takes the programs, before anything is
// touched.
func (b *Backend) checkPrograms(ctx context.Context, p plan.Plan, now, want *programs) error {
	if want == nil || want.Load == nil {
		return nil
	}
	fail := func(what string, err error) error {
		return &platform.PreconditionError{Doing: "load the classes of " + p.WAN + " as a BPF program", What: what, Or: byNFT(), Err: err}
	}
	if b.Remote {
		return fail("unbloat has to run on the router for it, not beside it", nil)
	}
	if b.Preview || len(loadPrograms(b.exe(), now, want)) == 0 {
		return nil
	}
	_, said, err := b.Runner.Run(ctx, []string{b.exe(), "classifier", "check"}, []byte(asInput(*want.Load)))
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return fail("the kernel does not take it: "+line, err)
	}
	return nil
}

// exe is this program as steps call it.
func (b *Backend) exe() string {
	if b.Exe == "" {
		return "unbloat"
	}
	return b.Exe
}
