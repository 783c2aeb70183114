package linux

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"unbloat/internal/classify"
	"unbloat/internal/lang/nft"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/linux/bpf"
)

// programTables reads what the BPF programs of a plan remember; what they are not
// loaded with, or where this program cannot run, is empty.
func programTables(ctx context.Context, r platform.Runner, key string) bpf.Tables {
	var t bpf.Tables
	if out, err := platform.Output(ctx, r, self(r), "classifier", "show", path.Join(tc.Pins, key)); err == nil {
		_ = json.Unmarshal(out, &t) // what cannot be read is empty
	}
	return t
}

// self is this program as commands that only read call it.
func self(r platform.Runner) string {
	if _, local := r.(platform.Local); local {
		return "/proc/self/exe"
	}
	return tc.Self
}

// readPrograms lists a device's bpf filters, as unbloat itself reads them; none where
// it can't.
func readPrograms(ctx context.Context, r platform.Runner, dev string) []tc.Attached {
	var list []tc.Attached
	if out, err := platform.Output(ctx, r, self(r), "classifier", "attached", dev); err == nil {
		_ = json.Unmarshal(out, &list) // what cannot be read is a filter that is not ours
	}
	return list
}

// pinnedKeys are the keys of all pinned programs.
func pinnedKeys(ctx context.Context, r platform.Runner) []string {
	out, err := platform.Output(ctx, r, "ls", tc.Pins)
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// programFlow finds a flow in the programs' tables, by its machine's address or as
// the WAN sees it, with either end first. ok is false if it is not there.
func programFlow(t bpf.Tables, f nft.Flow) (seen bpf.Flow, ok bool) {
	i := slices.IndexFunc(t.Flows, func(x bpf.Flow) bool {
		ends := func(home, far netip.AddrPort) bool { return x.Far == far && (x.Home == home || x.Seen == home) }
		return x.Protocol == classify.Number(f.Protocol) && (ends(f.Home, f.Far) || ends(f.Far, f.Home))
	})
	if i < 0 {
		return bpf.Flow{}, false
	}
	return t.Flows[i], true
}

// connectionOf is the connection as the rules see it.
func connectionOf(x bpf.Flow) nft.Connection {
	return nft.Connection{Known: true, Answered: x.Up.Packets > 0 && x.Down.Packets > 0, Bytes: x.Up.Bytes + x.Down.Bytes, Mark: x.Mark}
}

// programSets returns a function that looks up keys in the programs' tables, for a
// flow of which x is the record.
func programSets(t bpf.Tables, x bpf.Flow) func(set, key string) bool {
	return func(set, key string) bool {
		for _, h := range []struct {
			d    classify.Direction
			half bpf.Half
		}{{classify.Up, x.Up}, {classify.Down, x.Down}} {
			n := "6"
			if x.Far.Addr().Is4() {
				n = "4"
			}
			if name, ok := strings.CutSuffix(set, n+"_"+string(h.d)); ok && slices.Contains(h.half.In, name) {
				return true
			}
			switch set {
			case "calm" + n + "_" + string(h.d):
				return h.half.Calm
			case "busy" + n + "_" + string(h.d):
				return h.half.Busy
			case "swarm" + n + "_" + string(h.d):
				return slices.Contains(t.Sets[set], nftPort(x.Seen))
			}
		}
		return slices.Contains(t.Sets[set], key)
	}
}

// nftPort is a home's end as a set of ports has it.
func nftPort(a netip.AddrPort) string { return fmt.Sprintf("%s . %d", a.Addr(), a.Port()) }

// whyProgram answers by the programs' tables.
func whyProgram(ctx context.Context, r platform.Runner, p plan.Plan, f nft.Flow) platform.Answer {
	t := programTables(ctx, r, wantedPrograms(p).Keys[0])
	a := platform.Answer{Flow: f}
	x, ok := programFlow(t, f)
	c := nft.Connection{}
	in := func(set, key string) bool { return slices.Contains(t.Sets[set], key) }
	switch home := homeOf(ctx, r, p.WAN); {
	case ok:
		a.Flow.Home, a.Flow.Far = x.Home, x.Far
		c, in = connectionOf(x), programSets(t, x)
	case home(f.Far.Addr()) && !home(f.Home.Addr()):
		a.Flow.Home, a.Flow.Far = f.Far, f.Home
	}
	a.Note = noteOf(f, a.Flow)
	if learned := in; len(p.Classes.Rules) > 0 { // nftables has what rules know by domain or MAC address
		in = func(set, key string) bool { return learned(set, key) || inTable(ctx, r, set, key) }
	}
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		a.Verdicts = append(a.Verdicts, nft.Decide(p, d, a.Flow, c, in))
	}
	return a
}

// programFlows counts calm and busy flows by machine, as Flows does.
func programFlows(ctx context.Context, r platform.Runner, out map[string]map[string]int) {
	for _, key := range pinnedKeys(ctx, r) {
		for _, x := range programTables(ctx, r, key).Flows {
			for _, h := range []struct {
				d    classify.Direction
				half bpf.Half
			}{{classify.Up, x.Up}, {classify.Down, x.Down}} {
				steady := slices.Contains(h.half.In, "steady")
				if !h.half.Busy && !h.half.Calm && !steady {
					continue
				}
				home := x.Home.Addr().String()
				if out[home] == nil {
					out[home] = map[string]int{}
				}
				if h.half.Busy {
					out[home][string(h.d)+" busy"]++
				} else if h.half.Calm {
					out[home][string(h.d)+" calm"]++
				}
				if steady {
					out[home][string(h.d)+" steady"]++
				}
			}
		}
	}
}

// programConnections are the connections in the programs' tables, each with the class
// that its last packet got.
func programConnections(ctx context.Context, r platform.Runner, p plan.Plan) []platform.Connection {
	carried := func(h bpf.Half) platform.Carried {
		x := platform.Carried{Bytes: h.Bytes, Class: plan.Class(h.Lane), Why: h.Code.Name()}
		if h.Lane == classify.AcksLane {
			x.Class = plan.Interactive
		}
		return x
	}
	var all []platform.Connection
	for _, x := range programTables(ctx, r, wantedPrograms(p).Keys[0]).Flows {
		all = append(all, platform.Connection{Protocol: classify.NameOf(x.Protocol), Home: x.Home, Far: x.Far, Up: carried(x.Up), Down: carried(x.Down)})
	}
	return all
}
