package linux

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux/bpf"
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
	// Object is what the router's tc(8) loads, where unbloat is not. Files are the keys of those that
	// are there, and WAN is whose programs these are: an undo by the router alone removes the others.
	Object *object  `json:"object,omitempty"`
	Files  []string `json:"files,omitempty"`
	WAN    string   `json:"wan,omitempty"`
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
	w := bpf.Wanted{WAN: p.WAN, Major: rootMajor, Policy: p.Policy()}
	if p.AQM != plan.CAKE {
		w.First = uint16(plan.Tin(0).HTBMinor())
	}
	return &programs{Keys: []string{w.Key()}, Load: &w}
}

// attachPrograms adds the filters of a plan's programs to the wanted queues.
func attachPrograms(want *tc.State, p plan.Plan, w *programs) error {
	if w == nil {
		return nil
	}
	program := func(parent, what string, n int, acts bool) tc.Filter {
		f := tc.Program(parent, what, w.Keys[0], n, acts)
		if w.Object != nil {
			f = f.ByTC()
		}
		return f
	}
	want.Attach(p.Up.Device, program(tc.OurRoot, bpf.ProgramUp, 0, false))
	if p.Classes.Behaviour.Acks > 0 {
		want.Attach(p.Up.Device, program(tc.OurRoot, bpf.ProgramOut, 1, true))
	}
	want.Attach(p.Down.Device, program(tc.OurRoot, bpf.ProgramDown, 0, false))
	if !want.Attach(p.Classes.LAN, program(tc.AtIngress, bpf.ProgramLAN, 0, true)) {
		return &platform.PreconditionError{Doing: "number the machines that enter " + p.Classes.LAN, What: "what arrives there meets filters already that are not unbloat's",
			Or: withoutClasses()}
	}
	return nil
}

// observePrograms lists what is pinned for the plan's WAN, and what its queues use.
func observePrograms(ctx context.Context, r platform.Runner, p plan.Plan, s tc.State, earlier *programs) *programs {
	used := attachedPrograms(s)
	if !p.Classes.ByBPF() && earlier == nil && len(used) == 0 {
		return nil
	}
	out := &programs{WAN: p.WAN, Files: objectFiles(ctx, r)}
	names, err := platform.Output(ctx, r, "ls", tc.Pins)
	if err != nil {
		return out // there is no such directory: nothing is pinned
	}
	wanted := []*programs{wantedPrograms(p), earlier}
	for _, name := range strings.Fields(string(names)) {
		if slices.ContainsFunc(wanted, func(w *programs) bool { return w.altered(ctx, r, name, out.Files) }) {
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

// kept are the programs that queues use now and that an undo could not load again: a router
// that undoes by itself loads none.
func (b *Backend) kept(now state) []string {
	return slices.DeleteFunc(attachedPrograms(now.State), func(key string) bool {
		return !b.Remote && now.Programs != nil && now.Programs.Load != nil && now.Programs.Load.Key() == key
	})
}

// altered reports whether what is pinned for a key has other constants than are
// wanted for it; files are the keys of those that tc(8) loads.
func (p *programs) altered(ctx context.Context, r platform.Runner, key string, files []string) bool {
	if p == nil || p.Load == nil || p.Load.Key() != key {
		return false
	}
	if slices.Contains(files, key) {
		text, err := platform.Output(ctx, r, "cat", tc.ObjectOf(key))
		return err != nil || !p.Load.IsFile(text)
	}
	var is bool
	ask(ctx, r, &is, func() { is = bpf.Altered(*p.Load, tc.Pins) }, []byte(asInput(*p.Load)), "altered")
	return is
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
	if wanted.Object != nil {
		return []platform.Step{wanted.Object.step(*wanted.Load)}
	}
	return []platform.Step{{Argv: []string{exe, "classifier", "load", wanted.Load.Key()}, Stdin: asInput(*wanted.Load)}}
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
		argv := []string{"rm", "-r", path.Join(tc.Pins, key)}
		if slices.Contains(actual.Files, key) {
			argv = append(argv, path.Join(tc.Objects, key))
		}
		out = append(out, platform.Step{Argv: argv})
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

// checkPrograms tests whether the kernel takes the programs, before anything is
// touched.
func (b *Backend) checkPrograms(ctx context.Context, p plan.Plan, now, want *programs) error {
	if want == nil || want.Load == nil {
		return nil
	}
	if b.Preview || len(loadPrograms(b.exe(), now, want)) == 0 {
		return nil
	}
	if want.Object != nil {
		return want.Object.check(ctx, b.Runner, *want.Load)
	}
	return check(ctx, b.Runner, b.exe(), p.WAN, *want.Load)
}

// check tests whether the router's kernel takes the programs.
func check(ctx context.Context, r platform.Runner, exe, wan string, w bpf.Wanted) error {
	_, said, err := r.Run(ctx, []string{exe, "classifier", "check"}, []byte(asInput(w)))
	if err == nil {
		return nil
	}
	return refused(wan, said, err)
}

func refused(wan string, said []byte, err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	return &platform.PreconditionError{Doing: "load the classes of " + wan + " as a BPF program", What: "the kernel does not take it: " + cmp.Or(line, err.Error()), Or: withoutClasses(), Err: err}
}

// CheckPrograms tests whether the router's kernel takes the programs of a plan; nil if the
// plan has none.
func CheckPrograms(ctx context.Context, r platform.Runner, p plan.Plan) error {
	w := wantedPrograms(p)
	if w == nil {
		return nil
	}
	return check(ctx, r, self(r), p.WAN, *w.Load)
}

// ProgramKey is that of a plan's programs; "" if it has none.
func ProgramKey(p plan.Plan) string {
	if w := wantedPrograms(p); w != nil {
		return w.Keys[0]
	}
	return ""
}

// Programs are a plan's for scripts that start it.
func Programs(p plan.Plan) sqm.Program {
	x := sqm.Program{Pins: path.Join(tc.Pins, bpf.Prefix(p.WAN)) + "*"}
	if w := wantedPrograms(p); w != nil {
		x.Key, x.Load = w.Keys[0], asInput(*w.Load)
	}
	return x
}

// ProgramsOn returns the keys of the programs on the shapers of devices, all that have some
// alike; "" if none has.
func ProgramsOn(ctx context.Context, r platform.Runner, devices ...string) string {
	var keys []string
	for _, dev := range devices {
		t, err := ReadTree(ctx, r, dev)
		if err != nil {
			continue // it is not there
		}
		for _, f := range t.Filters {
			if key := path.Base(path.Dir(f.Pinned)); f.Pinned != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return strings.Join(keys, ", ")
}

// exe is this program as steps call it: on another machine the one that is there.
func (b *Backend) exe() string {
	if b.Exe == "" || b.Remote {
		return "unbloat"
	}
	return b.Exe
}

// unjudged is why no BPF program judges how flows behave on a router, or why that would
// cost it much, and what brings it; empty: one does.
type unjudged struct{ none, slow, remedy string }

// facts are those of the plan.
func (u unjudged) facts() (none, slow string) {
	if u.none != "" {
		return u.none + "; to have it: " + u.remedy, ""
	}
	if u.slow != "" {
		return "", u.slow + "; to have it cheaply: " + u.remedy
	}
	return "", ""
}

// Linux from here on takes the program, and has a compiler for 32 bits of MIPS.
const (
	leastLinux   = 5<<8 | 10
	compilesMIPS = 5<<8 | 16
)

// probeBPF finds out whether a BPF program can judge how flows behave. Who may not load
// programs can't tell: apply will.
func probeBPF(ctx context.Context, r platform.Runner) unjudged {
	line, absent, err := able(ctx, r)
	version, machine := kernelOf(ctx, r)
	const none = "the router takes no BPF program, which judges how flows behave: "
	switch {
	case err == nil, absent && version >= leastLinux && loadsByFile(ctx, r):
	case absent:
		return unjudged{none: line, remedy: "install unbloat there, of this version, or: " + InstallCommand(ctx, r, "iproute2", "tc-bpf kmod-sched-bpf") + " (Debian 12 or newer, OpenWrt)"}
	default:
		if ok, known := Privileged(ctx, r); known && !ok {
			return unjudged{}
		}
		switch {
		case version > 0 && version < leastLinux:
			return unjudged{none: none + fmt.Sprintf("its Linux is %d.%d", version>>8, version&255), remedy: "a system with Linux 5.10 or newer (OpenWrt 22.03, Debian 11)"}
		case strings.Contains(line, "cls_bpf"):
			return unjudged{none: none + "its kernel has no BPF filters (module cls_bpf)", remedy: ModuleCommand(ctx, r, "cls_bpf")}
		}
		return unjudged{none: none + cmp.Or(line, err.Error()), remedy: "a kernel with CONFIG_BPF_SYSCALL, and without lockdown"}
	}
	if out, err := platform.Output(ctx, r, "cat", "/proc/sys/net/core/bpf_jit_enable"); err == nil && strings.TrimSpace(string(out)) == "0" {
		return unjudged{slow: "the kernel interprets BPF programs (net.core.bpf_jit_enable=0)", remedy: "sysctl -w net.core.bpf_jit_enable=1"}
	}
	if machine == "mips" && version > 0 && version < compilesMIPS {
		return unjudged{slow: fmt.Sprintf("the kernel interprets BPF programs: Linux %d.%d does not compile them on MIPS", version>>8, version&255), remedy: "a system with Linux 5.16 or newer (OpenWrt 24.10)"}
	}
	return unjudged{}
}

// kernelOf returns the kernel's version, as in 5<<8 | 10, and its machine; zero if unknown.
func kernelOf(ctx context.Context, r platform.Runner) (version int, machine string) {
	out, err := platform.Output(ctx, r, "uname", "-mr")
	var major, minor int
	if err != nil {
		return 0, ""
	}
	if _, err := fmt.Sscanf(string(out), "%d.%d", &major, &minor); err != nil {
		return 0, ""
	}
	_, machine, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return major<<8 | minor, machine
}
