package linux

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux/bpf"
	"unbloat/unit"
)

// self is this program as commands that change nothing call it.
func self(r platform.Runner) string {
	if l, local := r.(platform.Local); local {
		return cmp.Or(l.Self, "/proc/self/exe")
	}
	return tc.Self
}

// ask reads into v what BPF programs are and remember: this machine's in this process, another
// router's by the unbloat on it, if there is one. What can't be read is empty.
func ask(ctx context.Context, r platform.Runner, v any, here func(), stdin []byte, args ...string) {
	if l, local := r.(platform.Local); local && l.Self == "" {
		here()
	} else if out, _, err := r.Run(ctx, append([]string{self(r), "classifier"}, args...), stdin); err == nil {
		_ = json.Unmarshal(out, v)
	}
}

// programTables reads what the BPF programs of a plan remember; what they are not
// loaded with is empty.
func programTables(ctx context.Context, r platform.Runner, key string) (t bpf.Tables) {
	dir := path.Join(tc.Pins, key)
	ask(ctx, r, &t, func() { t, _ = bpf.Show(dir) }, nil, "show", dir)
	return t
}

// readPrograms lists a device's bpf filters, as unbloat itself reads them. Where it can't,
// none is ours.
func readPrograms(ctx context.Context, r platform.Runner, dev string) (list []tc.Attached) {
	ask(ctx, r, &list, func() { list, _ = bpf.Attached(dev) }, nil, "attached", dev)
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
func programFlow(t bpf.Tables, f classify.Flow) (seen bpf.Flow, ok bool) {
	number := f.Of(classify.Up).Protocol
	i := slices.IndexFunc(t.Flows, func(x bpf.Flow) bool {
		ends := func(home, far netip.AddrPort) bool { return x.Far == far && (x.Home == home || x.Seen == home) }
		return x.Protocol == number && (ends(f.Home, f.Far) || ends(f.Far, f.Home))
	})
	if i < 0 {
		return bpf.Flow{}, false
	}
	return t.Flows[i], true
}

// of is a direction of a flow.
func of(x bpf.Flow, d plan.Direction) bpf.Half {
	if d == plan.DirectionUp {
		return x.Up
	}
	return x.Down
}

// whyProgram answers by the programs' tables.
func whyProgram(ctx context.Context, r platform.Runner, p plan.Plan, f classify.Flow) platform.Answer {
	t := programTables(ctx, r, wantedPrograms(p).Keys[0])
	a := platform.Answer{Flow: f}
	x, known := programFlow(t, f)
	switch home := homeOf(ctx, r, p.WAN); {
	case known:
		a.Flow.Home, a.Flow.Far = x.Home, x.Far
	case home(f.Far.Addr()) && !home(f.Home.Addr()):
		a.Flow.Home, a.Flow.Far = f.Far, f.Home
	}
	a.Note = noteOf(f, a.Flow)
	sets, hidden := setsOf(ctx, r, p.WAN), ""
	if !known {
		hidden = unremembered(ctx, r, p)
	}
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		v := whyHalf(p, d, a.Flow, x, known, t, sets)
		if hidden != "" && !strings.HasPrefix(v.Rule, "rule ") {
			v.Rule = hidden + "; of a flow that is new: " + v.Rule
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	return a
}

// whyHalf says why a packet of a flow has its class in a direction: by a rule, by the row
// that decided its last packet, or, of a flow that is not there, its first.
func whyHalf(p plan.Plan, d plan.Direction, f classify.Flow, x bpf.Flow, known bool, t bpf.Tables, sets func(set, key string) bool) platform.Verdict {
	packet, carried := f.Of(d), x.Up.Bytes+x.Down.Bytes
	if i := classify.Match(p.Classes.Rules, &packet, carried, inSets(f, sets)); i >= 0 {
		return platform.Verdict{Direction: d, Class: p.Classes.Rules[i].Class, Rule: fmt.Sprintf("rule %d: %s", i+1, p.Classes.Rules[i])}
	}
	h := of(x, d)
	if !known || h.Lane == "" || f.Protocol == "tcp" && f.Packet <= classify.UsualAck {
		first := classify.New(p.Policy(), classify.Setting{Places: classify.PlacesFor(1)}).Decide(unit.Instant(time.Hour), &packet)
		h.Lane, h.Code = string(plan.Normal), first.Code
		if first.Lane != nil {
			h.Lane = first.Lane.Name
		}
	}
	class := plan.Class(h.Lane)
	if h.Lane == classify.AcksLane || h.Lane == "" {
		class = plan.Interactive
	}
	m := bpf.Machine{}
	if i := slices.IndexFunc(t.Machines, func(m bpf.Machine) bool { return m.Direction == d && m.Home == f.Home.Addr() }); i >= 0 {
		m = t.Machines[i]
	}
	says := words(p, d, f, h, m, carried)
	if !known {
		says = "a flow that is not there: " + says
	}
	return platform.Verdict{Direction: d, Class: class, Rule: says}
}

// inSets reports whether nftables' sets have the address that a rule knows by a MAC address or a
// domain, as classify.Match asks.
func inSets(f classify.Flow, sets func(set, key string) bool) func(rule int, far bool) bool {
	return func(rule int, far bool) bool {
		n, name, a := 6, "home", f.Home.Addr()
		if far {
			name, a = "far", f.Far.Addr()
		}
		if a.Is4() {
			n = 4
		}
		return sets(fmt.Sprintf("%s%d_%d", name, n, rule+1), a.String())
	}
}

// words say what a row of the table found, with the estimate and the limit.
func words(p plan.Plan, d plan.Direction, f classify.Flow, h bpf.Half, m bpf.Machine, carried unit.Size) string {
	b := p.Classes.Behaviour
	say := fmt.Sprintf
	light := say("light: %s of %s", h.Light.Short(), b.CalmRate.Short())
	switch h.Code {
	case classify.ByRule:
		return "a rule names it"
	case classify.ByDSCP:
		return say("its mark, DSCP %d, is trusted while it takes no more than %s, and its machine's no more than %s", f.DSCP, b.SteadyOf(d).Short(), b.SteadyOfMachine(d).Short())
	case classify.Names, classify.ManyNames:
		return say("DNS and ping of a machine, up to %d a second; above that it is normal", b.Names)
	case classify.Acknowledges:
		thinned := ""
		if d == plan.DirectionUp && b.Acks > 0 {
			thinned = say("; of slow connections' beyond %d a second, those that tell of no loss are left out, and every second of the others", b.Acks)
		}
		return say("an acknowledgement without data (a packet of %s), ahead of the rest of its class%s", f.Packet, thinned)
	case classify.First:
		return say("the first %s of a connection; it has carried %s", b.FirstOf(d), carried)
	case classify.Unprotected:
		return say("nothing protects %s, and no rule names it", f.Protocol)
	case classify.Swarm:
		return say("swarm: more than %d partners of this port within a minute", b.Peers)
	case classify.Unanswered:
		return "nobody has answered it yet, and only what is answered is protected"
	case classify.Crowd:
		return say("crowd: the light flows of its machine exceeded %s within the last 10 s", b.CalmOf(d).Short())
	case classify.LightTCP:
		return light + "; small segments of TCP"
	case classify.LightSmall:
		return light + "; small packets. Above, or with all light flows of its machine above " + b.CalmOf(d).Short() + ", it would lose its place"
	case classify.LightLarge:
		return say("%s; of packets larger than %s", light, b.SmallPacket)
	case classify.LightMixed:
		return light + "; with large packets too, and none overtakes another"
	case classify.Steady:
		return say("steady: %s of %s, and of its machine %s of %s; would lose its place above", h.Rate.Short(), b.SteadyOf(d).Short(), m.Steady.Short(), b.SteadyOfMachine(d).Short())
	case classify.TookMore, classify.BusySmall, classify.Sound:
		if h.Elastic > 0 {
			return say("elastic: it took more than %s, or its machine's together more than %s; it goes first again in %s; then twice as late each time", b.SteadyOf(d).Short(), b.SteadyOfMachine(d).Short(), h.Elastic.Round(time.Second))
		}
		return say("it took more than %s, the most a steady flow may have", b.SteadyOf(d).Short())
	case classify.Waits:
		return say("it was elastic before; it waits while its machine has a call, or while all datagrams of its machine take more than %s", b.SteadyOfMachine(d).Short())
	case classify.Long, classify.WasBulk:
		if carried > b.LongBytes {
			return say("it has carried %s, more than %s", carried, b.LongBytes)
		}
		return say("its machine had more than %d heavy connections (%s) one way when it became one", (b.HeavyOfHost+1)/2, b.HeavyBytes)
	}
	return "nothing sets it apart from the others"
}

// lightCodes are those of light flows.
var lightCodes = [...]classify.Code{classify.LightTCP, classify.LightSmall, classify.LightLarge, classify.LightMixed}

// Flows counts the flows of each home machine by state: "up calm", "up busy", "up steady",
// "down calm", "down busy", "down steady". What is steady is busy too.
func Flows(ctx context.Context, r platform.Runner) map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, key := range pinnedKeys(ctx, r) {
		for _, x := range programTables(ctx, r, key).Flows {
			for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
				h := of(x, d)
				var states []string
				switch {
				case slices.Contains(lightCodes[:], h.Code):
					states = []string{" calm"}
				case h.Code == classify.Steady:
					states = []string{" busy", " steady"}
				case slices.Contains([]classify.Code{classify.TookMore, classify.Waits, classify.Sound, classify.BusySmall}, h.Code):
					states = []string{" busy"}
				}
				home := x.Home.Addr().String()
				for _, s := range states {
					if out[home] == nil {
						out[home] = map[string]int{}
					}
					out[home][string(d)+s]++
				}
			}
		}
	}
	return out
}

// decidedByProgram returns the classes of flows as the programs decided of their last packets.
func decidedByProgram(ctx context.Context, r platform.Runner, p plan.Plan) func(f classify.Flow, d plan.Direction, carried unit.Size) (platform.Decided, bool) {
	t, sets := programTables(ctx, r, wantedPrograms(p).Keys[0]), setsOf(ctx, r, p.WAN)
	return func(f classify.Flow, d plan.Direction, carried unit.Size) (platform.Decided, bool) {
		packet := f.Of(d)
		if i := classify.Match(p.Classes.Rules, &packet, carried, inSets(f, sets)); i >= 0 {
			return platform.Decided{Class: p.Classes.Rules[i].Class, Code: classify.ByRule, Rule: i}, true
		}
		x, ok := programFlow(t, f)
		h := of(x, d)
		if !ok || h.Lane == "" {
			return platform.Decided{Class: plan.Normal, Code: classify.Ordinary}, true
		}
		out := platform.Decided{Class: plan.Class(h.Lane), Code: h.Code}
		if h.Lane == classify.AcksLane {
			out.Class = plan.Interactive
		}
		return out, true
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
		if x.Protocol != classify.TCP && x.Protocol != classify.UDP {
			continue
		}
		all = append(all, platform.Connection{Protocol: classify.NameOf(x.Protocol), Home: x.Home, Far: x.Far, Up: carried(x.Up), Down: carried(x.Down)})
	}
	return all
}
