package linuxfake

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// pins is where programs are pinned, each in a directory of its own.
const pins = "/sys/fs/bpf/unbloat"

// unbloat is the program on the router itself: it loads BPF programs, attaches them, and
// says what is attached. A kernel that lacks bpf takes none.
func (k *Kernel) unbloat(args []string, stdin string) (string, error) {
	if len(args) < 2 || args[0] != "classifier" {
		return "", fmt.Errorf("unbloat: the stand-in does not know %q", args)
	}
	if slices.Contains([]string{"able", "check", "load"}, args[1]) && k.lacks("bpf") {
		return "", errors.New("load the classes as a BPF program: try a BPF filter (cls_bpf; on OpenWrt kmod-sched-bpf): no such file or directory")
	}
	switch verb, rest := args[1], args[2:]; {
	case verb == "able" && len(rest) == 1:
		return "", nil
	case verb == "check" && json.Valid([]byte(stdin)):
		return "", nil
	case verb == "altered" && json.Valid([]byte(stdin)):
		return "false\n", nil
	case verb == "load" && len(rest) == 1 && json.Valid([]byte(stdin)):
		if !slices.Contains(k.Pins, rest[0]) {
			k.Pins = append(k.Pins, rest[0])
		}
		return "", nil
	case verb == "show" && len(rest) == 1 && slices.Contains(k.Pins, path.Base(rest[0])):
		if k.Remembers != "" {
			return k.Remembers, nil
		}
		return `{"flows":[],"machines":[]}` + "\n", nil
	case verb == "attach" && len(rest) >= 4:
		return "", k.attach(rest)
	case verb == "attached" && len(rest) == 1:
		d, err := k.device(rest[0])
		if err != nil {
			return "", err
		}
		return d.attached(), nil
	}
	return "", fmt.Errorf("unbloat %s: the stand-in does not know it, or nothing is pinned there", strings.Join(args, " "))
}

// attach attaches a pinned program: device, parent, preference, pin, and for one that acts
// a last word. What enters has a handle for each WAN, and gets its qdisc.
func (k *Kernel) attach(args []string) error {
	d, err := k.device(args[0])
	if err != nil {
		return err
	}
	parent := args[1]
	if parent == "ingress" {
		parent = "ffff:"
	}
	key, number := path.Base(path.Dir(args[3])), "0x1"
	at := func(q *qdisc) bool { return q.handle == parent }
	if parent == "ffff:" {
		if number = "0x1" + key[:4]; !slices.ContainsFunc(d.qdiscs, at) {
			d.qdiscs = append(d.qdiscs, &qdisc{kind: "ingress", handle: parent, parent: "ffff:fff1", options: map[string]string{}})
		}
	}
	switch {
	case !slices.ContainsFunc(d.qdiscs, at):
		return fmt.Errorf("attach the BPF program %s to %s of %s: no such file or directory (Specified qdisc not found)", args[3], args[1], args[0])
	case path.Dir(path.Dir(args[3])) != pins || !slices.Contains(k.Pins, key):
		return fmt.Errorf("attach the BPF program %s to %s of %s: no such file or directory", args[3], args[1], args[0])
	}
	same := func(f *filter) bool { return f.parent == parent && f.pref == args[2] && f.number == number }
	if slices.ContainsFunc(d.filters, same) {
		return fmt.Errorf("attach the BPF program %s to %s of %s: file exists", args[3], args[1], args[0])
	}
	d.filters = append(d.filters, &filter{kind: "bpf", parent: parent, protocol: "all", pref: args[2], number: number,
		handle: path.Base(args[3]) + "_" + key, action: strings.Join(args[4:], " ")})
	return nil
}

// AttachedBefore has the filters of programs be as an earlier version of unbloat attached them,
// which gave no handles.
func (k *Kernel) AttachedBefore() {
	for _, d := range k.Devices {
		for _, f := range d.filters {
			if f.kind == "bpf" {
				f.number = "0x1"
			}
		}
	}
}

// attached lists a device's BPF filters.
func (d *Device) attached() string {
	out := []string{}
	for _, f := range d.filters {
		if f.kind != "bpf" {
			continue
		}
		parent := f.parent
		if parent == "ffff:" {
			parent = "ingress"
		}
		out = append(out, fmt.Sprintf(`{"parent":%q,"pref":%s,"handle":%q,"name":%q,"tag":"0123456789abcdef","acts":%v,"as_built":true}`, parent, f.pref, f.number, f.handle, f.action != ""))
	}
	return "[" + strings.Join(out, ",") + "]\n"
}

// ListPins is ls(1) of the directory of pins; ok is false for another.
func (k *Kernel) ListPins(args []string) (out string, ok bool, err error) {
	if !slices.Equal(args, []string{pins}) {
		return "", false, nil
	}
	if len(k.Pins) == 0 {
		return "", true, fmt.Errorf("ls: %s: No such file or directory", pins)
	}
	return strings.Join(slices.Sorted(slices.Values(k.Pins)), "\n") + "\n", true, nil
}

// RemovePins is rm(1) with -r of pinned programs; ok is false for anything else.
func (k *Kernel) RemovePins(args []string) (ok bool) {
	last := args[len(args)-1]
	if path.Dir(last) != pins {
		return false
	}
	k.Pins = slices.DeleteFunc(k.Pins, func(key string) bool { matched, _ := path.Match(path.Base(last), key); return matched })
	return true
}
