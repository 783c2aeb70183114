package bpf

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/unit"
)

// Names of the programs, which are also those of their pins.
const (
	ProgramUp   = "up"   // on the WAN's shaper
	ProgramDown = "down" // on the shaper of what arrives
	ProgramLAN  = "lan"  // where packets enter from the LAN: it numbers the machines
	ProgramOut  = "out"  // behind up: it drops what that decided to leave out
)

// Wanted is what a plan asks the kernel to have loaded.
type Wanted struct {
	WAN    string          `json:"wan"`
	Major  uint16          `json:"major"`           // of the shaper's handle: 0xb10a is b10a:
	First  uint16          `json:"first,omitempty"` // as classify.Setting.First
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
func (w Wanted) setting(seed uint32) classify.Setting {
	return classify.Setting{Major: w.Major, First: w.First, Places: classify.PlacesFor(w.Policy.Limits.Flows), Seed: seed, Numbered: true}
}

// Tables are what the loaded programs remember now.
type Tables struct {
	Flows    []Flow    `json:"flows"`
	Machines []Machine `json:"machines"`
}

// A Flow is one connection.
type Flow struct {
	Protocol uint8          `json:"protocol"`
	Home     netip.AddrPort `json:"home"` // the machine's own address, if it is known
	Seen     netip.AddrPort `json:"seen"` // the home's end as the WAN sees it
	Far      netip.AddrPort `json:"far"`
	Up       Half           `json:"up"`
	Down     Half           `json:"down"`
}

// A Half is one direction of a connection.
type Half struct {
	Bytes   unit.Size     `json:"bytes"`
	Lane    string        `json:"lane,omitempty"`    // what its last packet got; "": none has come
	Code    classify.Code `json:"code,omitempty"`    // why
	Light   unit.Rate     `json:"light,omitempty"`   // what it carries, over about a second
	Rate    unit.Rate     `json:"rate,omitempty"`    // what of it went first as steady, over about a quarter
	Elastic time.Duration `json:"elastic,omitempty"` // for so long it does not go first
}

// A Machine is one of the home's, with what its flows have in front in a direction.
type Machine struct {
	Home      netip.Addr         `json:"home"`
	Direction classify.Direction `json:"direction"`
	Light     unit.Rate          `json:"light"`
	Steady    unit.Rate          `json:"steady"`
	Crowd     bool               `json:"crowd,omitempty"` // its light flows had too much within the last 10 s
	Call      bool               `json:"call,omitempty"`  // one of its flows spoke within the last 5 s
}

// Build tells this build's program from others.
func Build() string { return hashed(object()) }
