package linux

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux/bpf"
)

// A router that is reached by SSH has a tc(8) that loads BPF objects itself, if that was built
// with libbpf. It gets the object as a file, with the constants written in. Each filter loads
// its own program, and finds the tables of the others by their names below TC_BPF_MNT, which
// differ between WANs.

// An object is how one is made for a router.
type object struct {
	Big  bool   `json:"big,omitempty"` // its processor has the big end first
	Seed uint32 `json:"seed"`          // of the tables' hashes
}

// loadsByFile reports whether the router's tc(8) loads BPF objects.
func loadsByFile(ctx context.Context, r platform.Runner) bool {
	if _, local := r.(platform.Local); local || !bpf.Built {
		return false
	}
	out, err := platform.Output(ctx, r, "tc", "-V")
	return err == nil && strings.Contains(string(out), "libbpf")
}

// Absent reports whether no unbloat that loads this one's programs is on the router.
func Absent(ctx context.Context, r platform.Runner) bool {
	_, absent, _ := able(ctx, r)
	return absent
}

// able asks the unbloat on the router whether its kernel takes the programs, and returns what
// it says; absent is true if there is none, or another version.
func able(ctx context.Context, r platform.Runner) (said string, absent bool, err error) {
	_, out, err := r.Run(ctx, []string{self(r), "classifier", "able", bpf.Build()}, nil)
	said, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	var missing *platform.MissingToolError
	if errors.As(err, &missing) {
		return "that takes unbloat on the router itself, or its tc(8) built with libbpf", true, err
	}
	return said, strings.Contains(said, "another version"), err
}

// unremembered says why what the programs of a plan remember can't be read; "": it can.
func unremembered(ctx context.Context, r platform.Runner, p plan.Plan) string {
	if _, local := r.(platform.Local); local || !p.Classes.ByBPF() || !Absent(ctx, r) {
		return ""
	}
	return "which flows the classes know can't be read over SSH, as unbloat is not on the router"
}

// objectFor returns how the object for a router is made; nil where unbloat loads it itself.
func (b *Backend) objectFor(ctx context.Context, p plan.Plan) (*object, error) {
	if !b.Remote || !p.Classes.ByBPF() || !Absent(ctx, b.Runner) || !loadsByFile(ctx, b.Runner) {
		return nil, nil
	}
	const order, big = 5, 2 // where an ELF file says its byte order
	program, err := platform.Output(ctx, b.Runner, "head", "-c", "6", "/proc/self/exe")
	if err == nil && len(program) <= order {
		err = errors.New("head(1) printed no program")
	}
	if err != nil {
		return nil, fmt.Errorf("find out the byte order of the router: %w", err)
	}
	address, _ := platform.Output(ctx, b.Runner, "cat", "/sys/class/net/"+p.WAN+"/address") // a tunnel has none
	h := fnv.New32a()
	h.Write(address)
	return &object{Big: program[order] == big, Seed: h.Sum32()}, nil
}

// text returns the object for tc(8), as shell commands that write it to its file.
func (o object) text(w bpf.Wanted) (string, error) {
	order := binary.ByteOrder(binary.LittleEndian)
	if o.Big {
		order = binary.BigEndian
	}
	file, err := w.File(order, o.Seed)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if _, err := z.Write(file); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	key := w.Key()
	var b strings.Builder
	fmt.Fprintf(&b, "mkdir -p %s %s\n{\n", path.Join(tc.Pins, key), path.Join(tc.Objects, key))
	for all := packed.Bytes(); len(all) > 0; {
		const line = 64
		b.WriteString("printf '")
		for _, c := range all[:min(line, len(all))] {
			if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		b.WriteString("'\n")
		all = all[min(line, len(all)):]
	}
	fmt.Fprintf(&b, "} | gunzip >%s\n", tc.ObjectOf(key))
	return b.String(), nil
}

// step writes the object to the router.
func (o object) step(w bpf.Wanted) platform.Step {
	text, err := o.text(w)
	if err != nil { // see check
		text = "false\n"
	}
	return platform.Step{Argv: []string{"sh"}, Stdin: "set -e\numask 077\ngrep -q ' /sys/fs/bpf bpf ' /proc/mounts || mount -t bpf bpf /sys/fs/bpf\n" + text}
}

// check tests whether the router's tc(8) and kernel take the programs, in namespaces of its
// own, of which nothing is left. Where unshare(1) is missing the change itself shows it.
func (o object) check(ctx context.Context, r platform.Runner, w bpf.Wanted) error {
	text, err := o.text(w)
	if err != nil {
		return refused(w.WAN, nil, err)
	}
	script := "set -e\nmount -t bpf bpf /sys/fs/bpf\nmount -t tmpfs tmpfs " + path.Dir(tc.Objects) + "\n" + text + "tc qdisc add dev lo clsact\n"
	for _, what := range []string{bpf.ProgramUp, bpf.ProgramDown, bpf.ProgramLAN} {
		f := tc.Program("clsact", what, w.Key(), 0, false).ByTC()
		f.Parent = "ffff:fff2"
		script += strings.Join(tc.Tree{Filters: []tc.Filter{f}}.Build("lo")[0], " ") + "\ntc filter del dev lo ingress\n"
	}
	_, said, err := r.Run(ctx, []string{"unshare", "--net", "--mount", "--", "sh"}, []byte(script))
	var missing *platform.MissingToolError
	if err == nil || errors.As(err, &missing) {
		return nil
	}
	return refused(w.WAN, said, err)
}

// objectFiles are the keys of the objects that are on a router that is reached by SSH.
func objectFiles(ctx context.Context, r platform.Runner) []string {
	if _, local := r.(platform.Local); local {
		return nil
	}
	out, err := platform.Output(ctx, r, "ls", tc.Objects)
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// forgetOthers removes all of a WAN's programs but some: a router that undoes a change by itself
// does not know what the change had loaded.
func forgetOthers(wan string, keep []string) platform.Step {
	prefix := bpf.Prefix(wan)
	const script = `for d in "$@"; do case " $KEEP " in *" ${d##*/} "*) ;; *) rm -rf "$d" ;; esac; done`
	return platform.Step{Argv: []string{"sh", "-c", "KEEP='" + strings.Join(keep, " ") + "'; set -- " + tc.Pins + "/" + prefix + "* " + tc.Objects + "/" + prefix + "*; " + script}}
}
