// Package linuxfake is a Linux router in memory, for tests. It accepts the commands
// of tc(8), ip(8), ethtool(8), cat(1) and unshare(1) that unbloat uses, stores
// values with the kernel's rounding, and prints them as iproute2 6.1 does. It
// returns the kernel's errors, such as for a second root qdisc, a class without
// its parent or a change of fq_codel's flows.
package linuxfake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// errExit is a tool's nonzero exit code.
var errExit = errors.New("exit status 2")

// A Kernel is one router, or one network namespace of it. It implements
// platform.Runner.
type Kernel struct {
	Devices []*Device
	// Missing are the kinds of qdisc, device and action that the kernel lacks.
	Missing []string
	// Fail, if set, is called before each command that changes something. If
	// fail is true the command fails, without effect or (after) with it.
	Fail func(argv []string) (fail, after bool)
	// Ran lists the commands that changed something.
	Ran []string
	// Table is unbloat's tables of nftables, "" if there is none.
	Table string
	// Lists, if set, converts a table to this router's listing by nft(8); nil:
	// as written.
	Lists func(table string) string
	// Old says that tc(8) is of iproute2 before 5.14: options of u32 are text among
	// the JSON.
	Old bool
	// Routes are the default routes as ip(8) prints them: "-4", "-6"; and "nexthop".
	Routes map[string]string
	// PPPoE is /proc/net/pppoe; "": there is none.
	PPPoE string
	// Others are other programs' tables of nftables, as nft(8) lists them, and
	// Policies what `ip rule` prints for both versions of IP.
	Others, Policies string
	// Pins are the keys of the BPF programs that are pinned, and Remembers what they say of flows
	// and machines, as `unbloat classifier show` prints it; "": nothing.
	Pins      []string
	Remembers string
}

// A Device is one network device.
type Device struct {
	Name     string
	Kind     string
	Up       bool
	MTU      int
	Features map[string]bool
	AltNames []string
	Link     string // below it; of a veth its other end
	Master   string // the bridge or bond that it is a port of
	// Queues is how many it sends by; with more than one it can have mq.
	Queues int

	qdiscs  []*qdisc
	classes []*class
	filters []*filter
}

type qdisc struct {
	kind, handle, parent string
	options, stab        map[string]string
}

type class struct {
	kind, id, parent string
	options          map[string]string
}

type filter struct {
	parent, protocol, kind     string
	pref                       string
	match                      [][3]string // value, mask, at
	classid, direction, action string
	dev                        string
	priority                   string // of a skbedit action
	cpmark                     string // of a ctinfo action
	handle                     string // of a fw filter; of a bpf filter its program, whose action says that it acts
	number                     string // of a bpf filter: its handle
}

// New returns a router with the interfaces wan and lan.
func New() *Kernel {
	features := func() map[string]bool {
		return map[string]bool{"tx-tcp-segmentation": true, "tx-tcp6-segmentation": true, "tx-tcp-ecn-segmentation": false,
			"generic-segmentation-offload": true, "generic-receive-offload": true}
	}
	return &Kernel{Devices: []*Device{
		{Name: "lo", Up: true, MTU: 65536},
		{Name: "wan", Kind: "veth", Up: true, MTU: 1500, Features: features()},
		{Name: "lan", Kind: "veth", Up: true, MTU: 1500, Features: features()},
	}}
}

// Run implements platform.Runner.
func (k *Kernel) Run(_ context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if len(argv) == 2 && (argv[1] == "-V" || argv[1] == "--version") {
		return []byte(argv[0] + " 6.1.0\n"), nil, nil
	}
	if argv[0] == "unshare" {
		return k.unshare(argv, stdin)
	}
	if slices.Contains(argv, "-batch") {
		return k.batch(argv[0], stdin)
	}
	changing := Changes(argv)
	fail, after := false, false
	if changing && k.Fail != nil {
		fail, after = k.Fail(argv)
	}
	if fail && !after {
		return nil, []byte("RTNETLINK answers: Cannot allocate memory"), errExit
	}
	out, err := k.do(argv)
	switch argv[0] {
	case "nft":
		out, err = k.nft(argv[1:], string(stdin))
	case "unbloat":
		out, err = k.unbloat(argv[1:], string(stdin))
	}
	if err != nil {
		return nil, []byte(err.Error()), errExit
	}
	if changing {
		k.Ran = append(k.Ran, strings.Join(argv, " "))
	}
	if fail {
		return nil, []byte("RTNETLINK answers: Interrupted system call"), errExit
	}
	return []byte(out), nil, nil
}

// Changes reports whether a command changes something.
func Changes(argv []string) bool {
	if argv[0] == "nft" {
		return argv[1] == "-f" || argv[1] == "delete"
	}
	if argv[0] == "unbloat" {
		return len(argv) > 2 && (argv[2] == "load" || argv[2] == "attach")
	}
	if argv[0] == "rm" {
		return true
	}
	return slices.ContainsFunc(argv[:min(len(argv), 3)], func(s string) bool {
		return slices.Contains([]string{"add", "del", "change", "set", "-K"}, s)
	})
}

// unshare runs a batch in a new namespace.
func (k *Kernel) unshare(argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if k.lacks("unshare") {
		return nil, []byte("unshare: unshare failed: Operation not permitted"), errExit
	}
	inner := &Kernel{Devices: []*Device{{Name: "lo", MTU: 65536}}, Missing: k.Missing, Lists: k.Lists, Old: k.Old}
	tool := argv[slices.Index(argv, "--")+1]
	if tool == "nft" {
		out, err := inner.nft([]string{"-f", "-"}, string(stdin))
		if err != nil {
			return nil, []byte(err.Error()), errExit
		}
		return []byte(out + inner.Table), nil, nil // as --echo does
	}
	if tool == "sh" {
		return inner.loadAndList(argv[len(argv)-1], string(stdin))
	}
	stdout, stderr, _ = inner.batch(tool, stdin)
	return stdout, stderr, nil
}

// batch runs a tool's lines, as -batch with -force does.
func (k *Kernel) batch(tool string, stdin []byte) (stdout, stderr []byte, err error) {
	for line := range strings.Lines(string(stdin)) {
		out, failed := k.do(append([]string{tool}, strings.Fields(line)...))
		if failed != nil {
			stderr, err = append(stderr, failed.Error()...), errExit
		}
		stdout = append(stdout, out...)
	}
	return stdout, stderr, err
}

// Text returns the kernel's whole state as text.
func (k *Kernel) Text() string {
	var b strings.Builder
	b.WriteString(k.Table)
	for _, key := range slices.Sorted(slices.Values(k.Pins)) {
		fmt.Fprintf(&b, "program %s\n", key)
	}
	for _, d := range k.Devices {
		fmt.Fprintf(&b, "link %s %s up=%v\n", d.Name, d.Kind, d.Up)
		for _, f := range slices.Sorted(maps.Keys(d.Features)) {
			fmt.Fprintf(&b, " feature %s %v\n", f, d.Features[f])
		}
		inOrder := *d // the kernel does not keep the order of creation
		inOrder.qdiscs = slices.SortedFunc(slices.Values(d.qdiscs), func(a, b *qdisc) int { return strings.Compare(a.parent, b.parent) })
		inOrder.classes = slices.SortedFunc(slices.Values(d.classes), func(a, b *class) int { return strings.Compare(a.id, b.id) })
		b.WriteString(" " + inOrder.qdiscJSON() + inOrder.classText())
		filters := slices.SortedStableFunc(slices.Values(d.filters), func(a, b *filter) int { return strings.Compare(a.parent, b.parent) })
		for _, f := range filters {
			fmt.Fprintf(&b, " filter %s\n", strings.Replace(fmt.Sprintf("%+v", *f), " number:}", "}", 1))
		}
	}
	return b.String()
}

func (k *Kernel) device(name string) (*Device, error) {
	for _, d := range k.Devices {
		if d.Name == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("Cannot find device %q", name) //nolint:staticcheck // as ip(8) says it
}

func (k *Kernel) lacks(kind string) bool { return slices.Contains(k.Missing, kind) }

// do runs one command.
func (k *Kernel) do(argv []string) (string, error) {
	args := slices.DeleteFunc(slices.Clone(argv[1:]), func(a string) bool { return a == "-j" || a == "-d" || a == "-s" || a == "-force" })
	switch argv[0] {
	case "cat":
		if args[0] == "/proc/self/status" {
			return "CapEff:\t000001ffffffffff\n", nil
		}
		if args[0] == "/proc/net/pppoe" {
			return k.PPPoE, nil
		}
		return "1\n", nil
	case "ethtool":
		return k.ethtool(args)
	case "ip":
		return k.ip(args)
	case "tc":
		return k.tc(args)
	case "nft", "unbloat":
		return "", nil // see Run
	case "ls":
		if out, ok, err := k.ListPins(args); ok {
			return out, err
		}
	case "rm":
		if k.RemovePins(args) {
			return "", nil
		}
	}
	return "", fmt.Errorf("%s: command not found", argv[0])
}

func (k *Kernel) ethtool(args []string) (string, error) {
	d, err := k.device(args[1])
	if err != nil {
		return "", err
	}
	if args[0] == "-K" {
		for i := 2; i+1 < len(args); i += 2 {
			if _, ok := d.Features[args[i]]; !ok {
				return "", fmt.Errorf("ethtool: bad feature %s", args[i])
			}
			d.Features[args[i]] = args[i+1] == "on"
		}
		return "", nil
	}
	out := "Features for " + d.Name + ":\nrx-checksumming: on [fixed]\n"
	for _, f := range slices.Sorted(maps.Keys(d.Features)) {
		state := "off"
		if d.Features[f] {
			state = "on"
		}
		if strings.HasPrefix(f, "tx-tcp") && !strings.Contains(out, "tcp-segmentation-offload:") {
			out += "tcp-segmentation-offload: on\n"
		}
		indent := ""
		if strings.HasPrefix(f, "tx-") {
			indent = "\t"
		}
		out += indent + f + ": " + state + "\n"
	}
	return out, nil
}

func (k *Kernel) ip(args []string) (string, error) {
	switch {
	case args[0] == "nexthop" || len(args) > 1 && args[1] == "route":
		if out, ok := k.Routes[args[0]]; ok {
			return out, nil
		}
		return "[]\n", nil
	case args[0] == "link" && args[1] == "show":
		var out []string
		for _, d := range k.Devices {
			flags := `"BROADCAST"`
			if d.Up {
				flags = `"BROADCAST","UP","LOWER_UP"`
			}
			info := ""
			if d.Kind != "" {
				info = `,"linkinfo":{"info_kind":"` + d.Kind + `"}`
			}
			if d.Kind == "erspan" {
				info = `,"linkinfo":{"info_kind":"erspan","info_data":{"erspan_ver":2,"erspan_dir":"egress","erspan_hwid":"17":"0x11"}}`
			}
			if d.Link != "" {
				info += fmt.Sprintf(`,"link":%q`, d.Link)
			}
			if d.Master != "" {
				info += fmt.Sprintf(`,"master":%q`, d.Master)
			}
			if d.AltNames != nil {
				info += `,"altnames":["` + strings.Join(d.AltNames, `","`) + `"]`
			}
			out = append(out, fmt.Sprintf(`{"ifname":%q,"flags":[%s],"mtu":%d,"link_type":"ether"%s}`, d.Name, flags, d.MTU, info))
		}
		return "[" + strings.Join(out, ",") + "]\n", nil
	case args[len(args)-1] == "rule":
		return k.Policies, nil
	case args[0] == "link" && args[1] == "add":
		name := after(args, "name")
		if _, err := k.device(name); err == nil {
			return "", errors.New("RTNETLINK answers: File exists")
		}
		if k.lacks(after(args, "type")) {
			return "", errors.New("Error: Unknown device type.") //nolint:staticcheck // as ip(8) says it
		}
		k.Devices = append(k.Devices, &Device{Name: name, Kind: after(args, "type"), MTU: 1500})
		return "", nil
	}
	d, err := k.device(after(args, "dev"))
	if err != nil {
		return "", err
	}
	if args[1] == "del" {
		k.Devices = slices.DeleteFunc(k.Devices, func(x *Device) bool { return x == d })
		return "", nil
	}
	d.Up = args[len(args)-1] == "up"
	return "", nil
}

// after returns the word after key.
func after(args []string, key string) string {
	if i := slices.Index(args, key); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
