package openwrtfake

import (
	"slices"
	"strings"
)

// A Bench is the kernel of the recordings: devices, HTB, TBF and plain queues,
// without CAKE, CoDel and the fw filter. It accepts commands for missing
// modules and ignores them.
type Bench struct {
	devices map[string]*device
}

type device struct {
	mtu     int
	kind    string // of the root queue; "": none
	handle  string // "1:"
	classes []string
	leaves  []string // classes that have a queue
	ingress bool
	to      string // the ifb of the ingress
}

// NewBench returns a kernel with devices of an MTU in bytes; one without a name is none.
func NewBench(mtu int, names ...string) *Bench {
	b := &Bench{devices: map[string]*device{}}
	for _, name := range names {
		if name != "" {
			b.devices[name] = &device{mtu: mtu}
		}
	}
	return b
}

// MTU implements Kernel.
func (b *Bench) MTU(name string) (int, bool) {
	d := b.devices[name]
	if d == nil {
		return 0, false
	}
	return d.mtu, true
}

// Knows implements Kernel. In the recordings the test for a missing module
// succeeded.
func (b *Bench) Knows(string) bool { return true }

// Redirect implements Kernel. The recordings show no filters.
func (b *Bench) Redirect(string) string { return "" }

// Run implements Kernel.
func (b *Bench) Run(argv []string, _ string) (string, int) {
	after := func(word string) string {
		if i := slices.Index(argv, word); i >= 0 && i+1 < len(argv) {
			return argv[i+1]
		}
		return ""
	}
	if strings.HasSuffix(argv[0], "tables") {
		if slices.Contains(argv, "-D") || slices.Contains(argv, "-X") {
			return "", 1
		}
		return "", 0
	}
	switch argv[0] {
	case "ip":
		return b.link(argv, after)
	case "nft", "tee", "rm", "unbloat": // with whatever programs
		return "", 0
	}
	ingress := argv[len(argv)-1] == "ingress" && !slices.Contains(argv, "root")
	d := b.devices[after("dev")]
	if d == nil {
		return `Cannot find device "` + after("dev") + `"`, 1
	}
	switch argv[1] {
	case "class":
		return d.class(after("parent"), after("classid"))
	case "filter":
		switch parent := after("parent"); {
		case argv[2] == "show": // those of programs, which the bench does not have
			return "", 0
		case parent == "ffff:" && d.ingress:
			d.to = argv[len(argv)-1]
		case parent == "ffff:" || d.kind == "" || strings.TrimSuffix(parent, "0") != d.handle && parent != d.handle:
			return "Error: Parent Qdisc doesn't exists.\nWe have an error talking to the kernel", 2
		}
		return "", 0
	}
	switch {
	case argv[2] == "del" && ingress:
		if !d.ingress {
			return "Error: Cannot find specified qdisc on specified device.", 2
		}
		d.ingress, d.to = false, ""
	case argv[2] == "del":
		if d.kind == "" {
			return "Error: Cannot delete qdisc with handle of zero.", 2
		}
		d.kind, d.handle, d.classes, d.leaves = "", "", nil, nil
	case ingress:
		if d.ingress {
			return "Error: Exclusivity flag on, cannot modify.", 2
		}
		d.ingress = true
	case after("parent") != "":
		return d.leaf(argv, after("parent"))
	default:
		kind := b.kind(argv)
		if d.kind != "" {
			return "Error: Exclusivity flag on, cannot modify.", 2
		}
		if kind != "" {
			d.kind, d.handle = kind, after("handle")
		}
	}
	return "", 0
}

// kind returns the kind of queue that a command makes, if the bench has it.
func (b *Bench) kind(argv []string) string {
	for _, w := range argv {
		if slices.Contains([]string{"htb", "tbf", "pfifo", "bfifo", "pfifo_fast"}, w) {
			return w
		}
	}
	return ""
}

func (b *Bench) link(argv []string, after func(string) string) (string, int) {
	name := after("name")
	if name == "" {
		name = after("dev")
	}
	switch argv[2] {
	case "add":
		if b.devices[name] != nil {
			return "RTNETLINK answers: File exists", 2
		}
		b.devices[name] = &device{mtu: 1500}
	case "del", "delete":
		if b.devices[name] == nil {
			return `Cannot find device "` + name + `"`, 1
		}
		delete(b.devices, name)
	}
	return "", 0
}

func (d *device) class(parent, id string) (string, int) {
	switch {
	case d.kind != "htb" || !strings.HasPrefix(parent, d.handle):
		return "RTNETLINK answers: No such file or directory", 2
	case slices.Contains(d.classes, id):
		return "RTNETLINK answers: File exists", 2
	}
	d.classes = append(d.classes, id)
	return "", 0
}

func (d *device) leaf(argv []string, parent string) (string, int) {
	known := slices.Contains(d.classes, parent)
	switch {
	case d.kind == "" || !strings.HasPrefix(parent, d.handle):
		return "Error: Failed to find specified qdisc.", 2
	case d.kind == "htb" && !known:
		return "Error: Specified class not found.", 2
	case slices.Contains(d.leaves, parent):
		return "Error: Exclusivity flag on, cannot modify.", 2
	}
	if slices.ContainsFunc(argv, func(w string) bool { return strings.HasSuffix(w, "fifo") }) {
		d.leaves = append(d.leaves, parent)
	}
	return "", 0
}
