package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"unbloat/internal/cure/classify"
	"unbloat/unit"
)

// These are the records of the program's tables: the same fields in the same order.
type (
	address [16]byte

	estimate struct{ Window, At, Over uint64 }

	flowRecord struct {
		Home, Far                                     address
		HomePort, FarPort                             uint16
		Protocol                                      uint32
		Keep, Bytes                                   uint64
		Light, LightPackets, Rate, Small              estimate
		Busy, Mixed, Speaks, Elastic, Struck, Strikes uint64
		Machine                                       uint16
		Answered, Heavy, Bulk, Named, Lane, Code      uint8
		_                                             uint64
	}

	machineRecord struct {
		Key                                    address
		Keep, Crowd, Speaks, _                 uint64
		First, Light, Steady, Datagrams, Names estimate
		Heavy                                  [2]uint64
	}
)

func (a address) addr() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// Show reads what the programs remember that are pinned in dir.
func Show(dir string) (Tables, error) {
	t, err := show(dir)
	if err != nil {
		return Tables{}, fmt.Errorf("read the tables of the BPF program in %s: %w", dir, err)
	}
	return t, nil
}

func show(dir string) (Tables, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return Tables{}, fmt.Errorf("read the kernel's clock: %w", err)
	}
	now := classify.Tick(unit.Instant(ts.Nano()))
	numbers := []machineRecord{}
	if err := each(dir, classifierMapMachinesLan, func(m machineRecord) { numbers = append(numbers, m) }); err != nil {
		return Tables{}, err
	}
	home := func(a netip.Addr, number uint16) netip.Addr {
		if i := int(number) - 1; i >= 0 && i < len(numbers) && (!a.IsValid() || numbers[i].Key.addr().Is4() == a.Is4()) {
			return numbers[i].Key.addr()
		}
		return a
	}
	t := Tables{Flows: []Flow{}, Machines: []Machine{}}
	index := map[classify.FlowKey]int{}
	for _, x := range []struct {
		d               classify.Direction
		flows, machines string
	}{
		{classify.Up, classifierMapFlowsUp, classifierMapMachinesUp},
		{classify.Down, classifierMapFlowsDown, classifierMapMachinesDown},
	} {
		err := each(dir, x.flows, func(r flowRecord) {
			if r.Keep <= now {
				return
			}
			k := classify.FlowKey{Home: r.Home.addr(), Far: r.Far.addr(), HomePort: r.HomePort, FarPort: r.FarPort, Protocol: uint8(r.Protocol)}
			i, ok := index[k]
			if !ok {
				i = len(t.Flows)
				index[k] = i
				seen := netip.AddrPortFrom(k.Home, k.HomePort)
				t.Flows = append(t.Flows, Flow{Protocol: k.Protocol, Seen: seen, Home: netip.AddrPortFrom(home(k.Home, r.Machine), k.HomePort), Far: netip.AddrPortFrom(k.Far, k.FarPort)})
			}
			h := Half{Bytes: unit.Size(r.Bytes), Code: classify.Code(r.Code), Elastic: classify.Until(now, r.Elastic),
				Light: classify.RateOfSecond(r.Light.Window, r.Light.At, now), Rate: classify.RateOfWindow(r.Rate.Window, r.Rate.At, now)}
			if names := classify.LaneNames(); r.Lane >= 1 && int(r.Lane) <= len(names) {
				h.Lane = names[r.Lane-1]
			}
			if x.d == classify.Up {
				t.Flows[i].Up = h
			} else {
				t.Flows[i].Down = h
			}
		})
		if err == nil {
			err = each(dir, x.machines, func(r machineRecord) {
				if r.Keep <= now {
					return
				}
				a := r.Key.addr()
				if n := binary.NativeEndian.Uint32(r.Key[12:]); [12]byte(r.Key[:12]) == [12]byte{} {
					a = home(netip.Addr{}, uint16(n))
				}
				t.Machines = append(t.Machines, Machine{Home: a, Direction: x.d, Crowd: r.Crowd > now, Call: r.Speaks > now,
					Light: classify.RateOfSecond(r.Light.Window, r.Light.At, now), Steady: classify.RateOfWindow(r.Steady.Window, r.Steady.At, now)})
			})
		}
		if err != nil {
			return Tables{}, err
		}
	}
	return t, nil
}

// pinnedConstants reads those that the programs were loaded with.
func pinnedConstants(dir string) (c classify.Constants, err error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pinOfConstants), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return c, fmt.Errorf("open the program's constants: %w", err)
	}
	defer m.Close()
	spec, err := loadClassifier()
	if err != nil {
		return c, err
	}
	var got []byte
	limits := spec.Variables[classifierVarLimits]
	if err = m.Lookup(uint32(0), &got); err == nil && len(got) < int(limits.Offset)+len(limits.Value) {
		err = errors.New("they are of another build")
	}
	if err == nil {
		_, err = binary.Decode(got[limits.Offset:], binary.NativeEndian, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the program's constants: %w", err)
	}
	return c, nil
}

// each reads the places of a pinned table.
func each[R any](dir, name string, do func(R)) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open the map %s: %w", name, err)
	}
	defer m.Close()
	for i := range m.MaxEntries() {
		var bucket [classify.WaysOfBucket]R
		if err := m.Lookup(i, &bucket); err != nil {
			return fmt.Errorf("read the map %s: %w", name, err)
		}
		for _, r := range bucket {
			do(r)
		}
	}
	return nil
}
