package tc

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Device is the state of one network device that unbloat reads and may
// change.
type Device struct {
	Name     string          `json:"name"`
	Exists   bool            `json:"exists"`
	Kind     string          `json:"kind,omitempty"` // ip-link(8) type: ifb, veth, …; "" for hardware
	Up       bool            `json:"up,omitempty"`
	Carrier  bool            `json:"carrier,omitempty"`
	MTU      int             `json:"mtu,omitempty"`
	Flaps    int             `json:"flaps,omitempty"`  // carrier changes so far; 0: not read
	Steady   bool            `json:"steady,omitempty"` // wanted only: the carrier must not change in between
	Tree     Tree            `json:"tree"`
	Shared   bool            `json:"shared,omitempty"`   // actual only: other WANs number its machines too, see WithoutOthers
	Beneath  bool            `json:"beneath,omitempty"`  // below the WAN or LAN: its queues are somebody else's matter, and not read
	Features map[string]bool `json:"features,omitempty"` // changeable offload features, by ethtool's leaf names
}

// A State is a set of devices, actual or wanted.
type State struct {
	Devices []Device `json:"devices"`
}

// Device returns the device with this name; if the state has none, a device
// with Exists false.
func (s State) Device(name string) Device {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return Device{Name: name}
	}
	return s.Devices[i]
}

// Clone returns a copy; it shares nothing that Desire changes.
func (s State) Clone() State {
	out := State{Devices: slices.Clone(s.Devices)}
	for i := range out.Devices {
		out.Devices[i].Features = maps.Clone(out.Devices[i].Features)
	}
	return out
}

// set puts d into the state in place of the device of the same name.
func (s *State) set(d Device) {
	i := slices.IndexFunc(s.Devices, func(x Device) bool { return x.Name == d.Name })
	if i < 0 {
		s.Devices = append(s.Devices, d)
		return
	}
	s.Devices[i] = d
}

// creatable reports whether unbloat makes and removes devices of this kind.
func (d Device) creatable() bool { return d.Kind == "ifb" }

// comparable reports whether d can be compared with the wanted w. A missing
// device that unbloat can't create has nothing to restore.
func (d Device) comparable(w Device) bool { return d.Exists || !w.Exists || w.creatable() }

// Commands renders the commands that change actual into wanted; nil if they are
// equal. An ifb's tree is built before the redirect into it, and the redirect
// is removed first.
func Commands(actual, wanted State) []Command {
	var out []Command
	each := func(f func(a, w Device) []Command) {
		for _, w := range wanted.Devices {
			if a := actual.Device(w.Name); a.comparable(w) {
				out = append(out, f(a, w)...)
			}
		}
	}
	each(dropIngress)
	each(makeLink)
	each(setFeatures)
	each(setRoot)
	each(addIngress)
	each(dropLink)
	return out
}

// Restoring renders the commands that lead to before from any state on the way to
// wanted, without looking. Those that remove something fail where it is not. What
// can't be made again was never changed, and neither was somebody else's that is
// wanted as it was.
func Restoring(before, wanted State) []Command {
	var out []Command
	blank := before.Clone()
	for i, d := range before.Devices {
		for feature, on := range d.Features {
			blank.Devices[i].Features[feature] = !on
		}
		if d.Beneath {
			continue
		}
		stays := func(is, want Tree) bool {
			return is.Unrebuildable() != nil || !is.Empty() && !is.OwnRoot() && !is.OwnIngress() && is.patchTo(d.Name, want).diffs == nil
		}
		root, in := d.Tree.Split()
		wroot, win := wanted.Device(d.Name).Tree.Split()
		if !stays(in, win) {
			drop := []Command{{"tc", "qdisc", "del", "dev", d.Name, "ingress"}, {"tc", "qdisc", "del", "dev", d.Name, "clsact"}}
			if d.Shared {
				drop = Join(in, win).dropFilters(d.Name)
			}
			out, in = append(out, drop...), Tree{}
		}
		if !stays(root, wroot) {
			out = append(out, Command{"tc", "qdisc", "del", "dev", d.Name, "root"})
			root = Tree{}
		}
		if !d.Exists {
			out = append(out, Command{"ip", "link", "del", "dev", d.Name})
		}
		blank.Devices[i].Tree = Join(root, in)
	}
	return append(out, Commands(blank, before)...)
}

// partTo returns how to get from one part of dev's queues to the wanted one. A part
// that can't be made again was never changed, unless it is ours: what differs there
// is somebody else's matter.
func partTo(dev string, is, want Tree) patch {
	ours := func(t Tree) bool { return t.OwnRoot() || t.OwnIngress() }
	if !ours(is) && !ours(want) && want.Unrebuildable() != nil {
		return patch{}
	}
	return is.patchTo(dev, want)
}

// ingress returns the ingress parts of both and reports whether they are equal.
func ingress(a, w Device) (is, want Tree, equal bool) {
	_, is = a.Tree.Split()
	_, want = w.Tree.Split()
	return is, want, len(partTo(w.Name, is, want).diffs) == 0
}

func dropIngress(a, w Device) []Command {
	is, want, equal := ingress(a, w)
	if equal || is.Empty() || !w.Exists {
		return nil
	}
	if a.Shared || is.numbers() && want.numbers() {
		return is.dropFilters(w.Name)
	}
	kind := is.Qdiscs[0].Kind
	return []Command{{"tc", "qdisc", "del", "dev", w.Name, kind}}
}

func addIngress(a, w Device) []Command {
	is, want, equal := ingress(a, w)
	if equal || !w.Exists {
		return nil
	}
	if a.Shared || want.numbers() && (is.numbers() || !want.Filters[0].OfFile()) { // unbloat itself makes what is missing, as two WANs may do at once
		want.Qdiscs = nil
	}
	return want.build(w.Name)
}

// dropFilters renders the commands that remove single filters of what enters.
func (t Tree) dropFilters(dev string) (out []Command) {
	for _, f := range t.Filters {
		out = append(out, Command{"tc", "filter", "del", "dev", dev, "parent", "ffff:", "protocol", f.Protocol, "pref", strconv.Itoa(f.Pref), "handle", f.Handle, f.Kind})
	}
	return out
}

// WithoutOthers leaves out, of what enters the devices, programs whose keys do not begin with a
// WAN's prefix: they are other WANs', which share its LAN. What they are on is theirs too.
func (s State) WithoutOthers(prefix string) {
	for i := range s.Devices {
		t, all := &s.Devices[i].Tree, len(s.Devices[i].Tree.Filters)
		t.Filters = slices.DeleteFunc(t.Filters, func(f Filter) bool {
			return f.Parent == ingressAt && f.Pinned != "" && !strings.HasPrefix(path.Base(path.Dir(f.Pinned)), prefix)
		})
		s.Devices[i].Shared = len(t.Filters) < all
		if root, in := t.Split(); s.Devices[i].Shared && len(in.Filters) == 0 {
			*t = root
		}
	}
}

func makeLink(a, w Device) []Command {
	var out []Command
	if !w.Exists || !w.creatable() {
		return nil
	}
	if !a.Exists {
		out = append(out, Command{"ip", "link", "add", "name", w.Name, "type", w.Kind})
	}
	if a.Up != w.Up {
		dir := "down"
		if w.Up {
			dir = "up"
		}
		out = append(out, Command{"ip", "link", "set", "dev", w.Name, dir})
	}
	return out
}

func dropLink(a, w Device) []Command {
	if !w.Exists && a.Exists && a.creatable() {
		return []Command{{"ip", "link", "del", "dev", w.Name}}
	}
	return nil
}

func setRoot(a, w Device) []Command {
	if !w.Exists {
		return nil
	}
	is, _ := a.Tree.Split()
	want, _ := w.Tree.Split()
	p := partTo(w.Name, is, want)
	switch {
	case len(p.diffs) == 0:
		return nil
	case !p.rebuild:
		return p.commands
	}
	var out []Command
	if !is.Empty() {
		out = append(out, Command{"tc", "qdisc", "del", "dev", w.Name, "root"})
	}
	return append(out, want.build(w.Name)...)
}

func setFeatures(a, w Device) []Command {
	c := Command{"ethtool", "-K", w.Name}
	for _, k := range slices.Sorted(maps.Keys(w.Features)) {
		if is, ok := a.Features[k]; ok && is != w.Features[k] {
			c = append(c, k, onOff(w.Features[k]))
		}
	}
	if len(c) == 3 {
		return nil
	}
	return []Command{c}
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// Differences lists where actual differs from wanted, in the kernel's values,
// for people; nil if they are equal.
func Differences(actual, wanted State) []string {
	var out []string
	for _, w := range wanted.Devices {
		a := actual.Device(w.Name)
		if !a.comparable(w) {
			continue
		}
		switch {
		case a.Exists != w.Exists:
			out = append(out, fmt.Sprintf("%s: %s", w.Name, existence(w.Exists)))
			continue
		case !w.Exists:
			continue
		case w.creatable() && a.Up != w.Up:
			out = append(out, fmt.Sprintf("%s: up is %v, not %v", w.Name, a.Up, w.Up))
		}
		if w.Steady && a.Flaps != w.Flaps {
			out = append(out, fmt.Sprintf("%s: the carrier has changed %d times meanwhile; wait until the interface is steady", w.Name, a.Flaps-w.Flaps))
		}
		for _, k := range slices.Sorted(maps.Keys(w.Features)) {
			if is, ok := a.Features[k]; ok && is != w.Features[k] {
				out = append(out, fmt.Sprintf("%s: %s is %s, not %s", w.Name, k, onOff(is), onOff(w.Features[k])))
			}
		}
		ar, ai := a.Tree.Split()
		wr, wi := w.Tree.Split()
		out = append(out, partTo(w.Name, ar, wr).diffs...)
		out = append(out, partTo(w.Name, ai, wi).diffs...)
	}
	return out
}

func existence(wanted bool) string {
	if wanted {
		return "the device is missing"
	}
	return "the device is there and should not be"
}

// String returns the command as typed in a shell.
func (c Command) String() string { return strings.Join(c, " ") }
