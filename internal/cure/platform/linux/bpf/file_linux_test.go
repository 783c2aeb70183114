package bpf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"unbloat/internal/cure/classify"
)

// The object for tc(8) is the one that unbloat loads, with a plan's constants, for either byte
// order; and it tells one with other constants apart.
func TestFile(t *testing.T) {
	w := Wanted{WAN: "wan", Major: 0xb10a, Policy: classify.Policy{Limits: classify.Limits{Flows: 8192, CalmRate: 200_000, Names: 60}}}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		text, err := w.File(order, 7)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var got classify.Constants
		if _, err := binary.Decode(spec.Variables[classifierVarLimits].Value, order, &got); err != nil || got != classify.ConstantsOf(w.Policy, w.setting(7)) {
			t.Errorf("%v: the constants are %+v (%v)", order, got, err)
		}
		places := classify.PlacesFor(8192)
		for name, n := range map[string]int{classifierMapFlowsUp: places.Flows, classifierMapMachinesDown: places.Machines, classifierMapPortsUp: places.Ports} {
			if m := spec.Maps[name]; m.Pinning != ebpf.PinByName || int(m.MaxEntries) != n {
				t.Errorf("%v: the table %s has %d buckets (want %d) and is pinned as %v", order, name, m.MaxEntries, n, m.Pinning)
			}
		}
		other := w
		other.Policy.Limits.Names++
		if !w.IsFile(text) || other.IsFile(text) || w.IsFile(text[:len(text)-1]) || w.IsFile(nil) {
			t.Errorf("%v: it does not know its own file, or takes another for it", order)
		}
	}
	w.Policy.Limits.Flows = 65536
	if _, err := w.File(binary.LittleEndian, 7); err == nil {
		t.Error("it takes more flows than the object has room for")
	}
}

// The tables are as large from the start as they ever are: no flow takes more. These are the
// figures of docs/class-rules.md.
func TestMemory(t *testing.T) {
	for flows, most := range map[int]int{1000: 700 << 10, 8192: 4800 << 10, 65_000: 36 << 20} {
		spec, err := prepared(classify.Policy{}, classify.Setting{Places: classify.PlacesFor(flows)}, false)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for name, m := range spec.Maps {
			if m.Type != ebpf.Array {
				t.Errorf("%s is of type %s, which is not allocated beforehand", name, m.Type)
			}
			bytes += int(m.ValueSize+7) &^ 7 * int(m.MaxEntries)
		}
		t.Logf("%d flows: %d kB", flows, bytes>>10)
		if bytes > most {
			t.Errorf("for %d flows the tables have %d bytes, more than %d", flows, bytes, most)
		}
	}
}
