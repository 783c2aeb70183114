//go:build !omit_bpf

package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"unbloat/internal/classify"
	"unbloat/unit"
)

// These are the records of the program's tables: the same fields in the same order.
type (
	address [16]byte

	flowRecord struct {
		Home, Far                                     address
		HomePort, FarPort                             uint16
		Protocol                                      uint32
		Keep, Bytes, Packets, Busy                    uint64
		Mixed, Steady, Lost, Struck, Greedy           uint64
		OfPackets, OfBytes, OfAcks, OfSteady, OfSmall classify.OwnBucket
		Mark                                          uint32
		Machine                                       uint16
		Answered, Lane, Code                          uint8
		_                                             [7]uint8
	}

	machineRecord struct {
		Key                                         address
		Keep, Crowd, Speaker, Trial, Full, _        uint64
		Calm, Names, Heavy, Starts, Steady, Waiting classify.OwnBucket
	}

	portRecord struct {
		Home        address
		Port, _     uint32
		Keep, Swarm uint64
		Partners    classify.OwnBucket
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
	now, err := jiffies()
	if err != nil {
		return Tables{}, err
	}
	numbers := []machineRecord{}
	if err := each(dir, classifierMapMachinesLan, func(m machineRecord) { numbers = append(numbers, m) }); err != nil {
		return Tables{}, err
	}
	home := func(a netip.Addr, number uint16) netip.Addr {
		if i := int(number) - 1; i >= 0 && i < len(numbers) && numbers[i].Key.addr().Is4() == a.Is4() {
			return numbers[i].Key.addr()
		}
		return a
	}
	t := Tables{Sets: map[string][]string{}}
	index := map[classify.Key]int{}
	family := func(a netip.Addr) string {
		if a.Is4() {
			return "4"
		}
		return "6"
	}
	add := func(set string, a netip.Addr, d classify.Direction, key string) {
		name := set + family(a) + "_" + string(d)
		if !slices.Contains(t.Sets[name], key) {
			t.Sets[name] = append(t.Sets[name], key)
		}
	}
	for _, x := range []struct {
		d                      classify.Direction
		flows, machines, ports string
	}{
		{classify.Up, classifierMapFlowsUp, classifierMapMachinesUp, classifierMapPortsUp},
		{classify.Down, classifierMapFlowsDown, classifierMapMachinesDown, classifierMapPortsDown},
	} {
		err := each(dir, x.flows, func(r flowRecord) {
			if r.Keep <= now {
				return
			}
			k := classify.Key{Home: r.Home.addr(), Far: r.Far.addr(), HomePort: r.HomePort, FarPort: r.FarPort, Protocol: uint8(r.Protocol)}
			i, ok := index[k]
			if !ok {
				i = len(t.Flows)
				index[k] = i
				seen := netip.AddrPortFrom(k.Home, k.HomePort)
				t.Flows = append(t.Flows, Flow{Protocol: k.Protocol, Seen: seen, Home: netip.AddrPortFrom(home(k.Home, r.Machine), k.HomePort), Far: netip.AddrPortFrom(k.Far, k.FarPort)})
			}
			f := &t.Flows[i]
			f.Mark |= r.Mark
			h := Half{Bytes: unit.Size(r.Bytes), Packets: r.Packets, Code: classify.Code(r.Code), Busy: r.Busy > now}
			if r.Lane >= 1 && int(r.Lane) <= len(lanes()) {
				h.Lane = lanes()[r.Lane-1]
			}
			h.Calm = slices.Contains([]classify.Code{classify.CalmTCP, classify.Mixed, classify.CalmSmall, classify.CalmLarge}, h.Code)
			for _, in := range []struct {
				set   string
				until uint64
			}{{"mixed", r.Mixed}, {"steady", r.Steady}, {"lost", r.Lost},
				{"struck", r.Struck}, {"greedy", r.Greedy}} {
				if in.until > now {
					h.In = append(h.In, in.set)
				}
			}
			if x.d == classify.Up {
				f.Up = h
			} else {
				f.Down = h
			}
		})
		if err == nil {
			err = each(dir, x.machines, func(r machineRecord) {
				for _, in := range []struct {
					set   string
					until uint64
				}{{"crowd", r.Crowd}, {"speaker", r.Speaker}, {"trial", r.Trial}, {"full", r.Full}} {
					if in.until <= now {
						continue
					}
					a := r.Key.addr()
					if n := binary.NativeEndian.Uint32(r.Key[12:]); [12]byte(r.Key[:12]) == [12]byte{} {
						a = home(netip.IPv4Unspecified(), uint16(n))
						if !a.IsValid() || a.IsUnspecified() {
							a = home(netip.IPv6Unspecified(), uint16(n))
						}
					}
					add(in.set, a, x.d, a.String())
				}
			})
		}
		if err == nil {
			err = each(dir, x.ports, func(r portRecord) {
				if r.Swarm > now {
					add("swarm", r.Home.addr(), x.d, fmt.Sprintf("%s . %d", r.Home.addr(), r.Port))
				}
			})
		}
		if err != nil {
			return Tables{}, err
		}
	}
	return t, nil
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

// jiffies is the kernel's time as the programs count it.
func jiffies() (uint64, error) {
	c, err := clock()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	s, err := sampled(c)
	return s.Jiffies, err
}
