package bpf

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"unbloat/guard"
	"unbloat/internal/cure/classify"
)

// Built says whether this build has the program.
const Built = true

// prepared returns the program for a policy, ready to be loaded.
func prepared(p classify.Policy, s classify.Setting, test bool) (*ebpf.CollectionSpec, error) {
	c := classify.ConstantsOf(p, s)
	if test {
		c.Test = 1
	}
	spec, err := loadClassifier()
	if err != nil {
		return nil, fmt.Errorf("read the BPF object: %w", err)
	}
	if err := spec.Variables[classifierVarLimits].Set(c); err != nil {
		return nil, fmt.Errorf("set the BPF program's constants: %w", err)
	}
	for name, n := range map[string]int{
		classifierMapFlowsUp: s.Places.Flows, classifierMapFlowsDown: s.Places.Flows,
		classifierMapMachinesUp: s.Places.Machines, classifierMapMachinesDown: s.Places.Machines,
		classifierMapPortsUp: s.Places.Ports, classifierMapPortsDown: s.Places.Ports,
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone // that is for tc(8); these are pinned below
	}
	return spec, nil
}

// The map of the program's constants, and its pin: that has no dot.
const (
	rodata         = ".rodata"
	pinOfConstants = "constants"
)

// Load loads the programs and pins them and their maps in root/key, where root
// is a directory of the BPF file system. It replaces what is pinned there. The kernel's constants are read back and compared.
func Load(w Wanted, key, root string) error {
	if d, err := os.Open(filepath.Dir(filepath.Dir(root))); err == nil { // one at a time: the second WAN finds the first's numbers
		defer d.Close()
		_ = unix.Flock(int(d.Fd()), unix.LOCK_EX)
	}
	c, err := collection(w, key, root)
	if err != nil {
		return told(err)
	}
	defer c.Close()
	return told(pinned(c, root, filepath.Join(root, key)))
}

// told says what failed, and what to do.
func told(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load the classes as a BPF program: %w; plan without classes", err)
}

// numbers opens the table of the machines' numbers of the programs that are pinned in root; nil if
// none is. All WANs' programs share it: a packet from the LAN has one number, whatever WAN it
// leaves by.
func numbers(spec *ebpf.MapSpec, root string) map[string]*ebpf.Map {
	pins, _ := filepath.Glob(filepath.Join(root, "*", classifierMapMachinesLan))
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err == nil && spec.Compatible(m) == nil {
			return map[string]*ebpf.Map{classifierMapMachinesLan: m}
		}
		m.Close()
	}
	return nil
}

// collection loads the programs, and compares their constants with the wanted ones. They share
// a table with those that are pinned in root.
func collection(w Wanted, key, root string) (*ebpf.Collection, error) {
	if err := liftLimit(); err != nil {
		return nil, err
	}
	var seed [4]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	spec, err := prepared(w.Policy, w.setting(binary.NativeEndian.Uint32(seed[:])), false)
	if err != nil {
		return nil, err
	}
	for name, p := range spec.Programs {
		p.Name = name + "_" + key
	}
	limits := spec.Variables[classifierVarLimits]
	shared := numbers(spec.Maps[classifierMapMachinesLan], root)
	defer shared[classifierMapMachinesLan].Close()
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, err
	}
	var got []byte
	err = c.Maps[rodata].Lookup(uint32(0), &got)
	if err == nil && (len(got) < int(limits.Offset)+len(limits.Value) || !bytes.Equal(got[limits.Offset:][:len(limits.Value)], limits.Value)) {
		err = errors.New("they are not those that were given")
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("read the program's constants back: %w", err)
	}
	return c, nil
}

// pinned pins all of a collection in a directory.
func pinned(c *ebpf.Collection, root, dir string) error {
	if err := mounted(filepath.Dir(root)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what is pinned: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the pins: %w", err)
	}
	dir, err := guard.TrustedDir(dir) // some systems let anybody make directories in a BPF file system
	if err != nil {
		return err
	}
	if err := pin(c, dir); err != nil {
		os.RemoveAll(dir)
		return err
	}
	return nil
}

func pin(c *ebpf.Collection, dir string) error {
	for name, p := range c.Programs {
		if err := p.Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin the program %s: %w", name, err)
		}
	}
	for name, m := range c.Maps {
		if name == rodata {
			name = pinOfConstants
		}
		if err := m.Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin the map %s: %w", name, err)
		}
	}
	return nil
}

// mounted sees to it that the BPF file system is there.
func mounted(where string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(where, &st); err != nil {
		return fmt.Errorf("look for the BPF file system: %w", err)
	}
	if uint32(st.Type) == unix.BPF_FS_MAGIC { // its type differs between processors
		return nil
	}
	if err := unix.Mount("bpf", where, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system on %s: %w", where, err)
	}
	return nil
}

// liftLimit lets this process make maps. Before Linux 5.11 all maps of a user count
// as locked memory: beside those of a loaded program there is no room for another.
func liftLimit() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit of locked memory: %w", err)
	}
	return nil
}

// Known reports whether a program's tag, which is a hash of its instructions, is
// that of ours.
func Known(what, tag string) bool {
	return slices.ContainsFunc([][]byte{object(), foreign}, func(object []byte) bool {
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
		if err != nil || spec.Programs[what] == nil {
			return false
		}
		p := spec.Programs[what]
		same, err := p.Instructions.HasTag(tag, p.ByteOrder)
		return err == nil && same
	})
}

// Check tests whether the kernel takes the largest of the programs: a slow router takes seconds
// for all of them. It leaves nothing behind.
func Check(w Wanted) error {
	if err := liftLimit(); err != nil {
		return told(err)
	}
	spec, err := prepared(w.Policy, w.setting(0), false)
	if err != nil {
		return told(err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != ProgramUp })
	c, err := ebpf.NewCollection(spec)
	if err == nil {
		err = tryFilter(c.Programs[ProgramUp])
		c.Close()
	}
	return told(err)
}

// Altered reports whether the constants that are pinned for w are others than w
// says. What can't be read counts as unaltered: that it is missing is seen otherwise.
func Altered(w Wanted, root string) bool {
	dir := filepath.Join(root, w.Key())
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pinOfConstants), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return false
	}
	defer m.Close()
	c, err := pinnedConstants(dir)
	if err != nil {
		return true
	}
	want := classify.ConstantsOf(w.Policy, w.setting(c.Seed)) // the seed was drawn when it was loaded
	return want != c || !uses(filepath.Join(dir, ProgramUp), m) || !uses(filepath.Join(dir, ProgramDown), m)
}

// uses reports whether a pinned program uses a map.
func uses(pin string, m *ebpf.Map) bool {
	p, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		return false
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false
	}
	is, err := m.Info()
	if err != nil {
		return false
	}
	id, ok := is.ID()
	maps, known := info.MapIDs()
	return ok && known && slices.Contains(maps, id)
}

func object() []byte { return _ClassifierBytes }
