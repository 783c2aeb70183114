package bpf

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"

	"unbloat/internal/classify"
	"unbloat/unit"
)

// Names of the programs, which are also those of their pins.
const (
	ProgramUp   = "up"   // on the WAN's CAKE
	ProgramDown = "down" // on the CAKE of what arrives
	ProgramLAN  = "lan"  // where packets enter from the LAN: it numbers the machines
	ProgramOut  = "out"  // behind up: it drops what that decided to leave out
)

// Wanted is what a plan asks the kernel to have loaded.
type Wanted struct {
	WAN    string          `json:"wan"`
	Major  uint16          `json:"major"` // of CAKE's handle: 0xb10a is b10a:
	Policy classify.Policy `json:"policy"`
}

// Key tells apart programs for different WANs, policies, and builds of the
// program. The programs' names end in it. It begins with Prefix.
func (w Wanted) Key() string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("bpf: write a policy: %v", err)) // it is plain data
	}
	return Prefix(w.WAN) + hashed(text, object())[:6]
}

// Prefix is that of the keys of a WAN's programs.
func Prefix(wan string) string { return hashed([]byte(wan))[:4] }

func hashed(parts ...[]byte) string {
	h := fnv.New32a()
	for _, p := range parts {
		h.Write(p)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// setting returns what the program is loaded with.
func (w Wanted) setting(hz classify.Ticks, seed uint32) Setting {
	return Setting{Major: w.Major, Ticks: hz, Places: classify.PlacesFor(w.Policy.Limits.Flows), Seed: seed, Numbered: true}
}

// Tables are what the loaded programs remember now.
type Tables struct {
	Flows []Flow `json:"flows"`
	// Sets are the keys in the table's sets that have no meter, as nftables writes
	// them: busy flows, machines whose calm flows are too many, ports of swarms.
	Sets map[string][]string `json:"sets"`
}

// A Flow is one connection.
type Flow struct {
	Protocol uint8          `json:"protocol"`
	Home     netip.AddrPort `json:"home"` // the machine's own address, if it is known
	Seen     netip.AddrPort `json:"seen"` // the home's end as the WAN sees it
	Far      netip.AddrPort `json:"far"`
	Up       Half           `json:"up"`
	Down     Half           `json:"down"`
	Mark     uint32         `json:"mark,omitempty"`
}

// A Half is one direction of a connection.
type Half struct {
	Bytes   unit.Size     `json:"bytes"`
	Packets uint64        `json:"packets"`
	Lane    string        `json:"lane,omitempty"` // what its last packet got; "": none has come
	Code    classify.Code `json:"code,omitempty"` // why
	Calm    bool          `json:"calm,omitempty"` // by that reason
	Busy    bool          `json:"busy,omitempty"` // within the last 10 s
	In      []string      `json:"in,omitempty"`   // sets of steady flows that it is in, as package classify names them
}
