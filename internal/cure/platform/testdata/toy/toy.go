// Package toy is a platform that nobody has: a driver and a router in memory,
// in one directory. A test runs the program on it, to show that a platform
// needs no more than this and one line in the list of drivers.
package toy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/reason"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// Name is the platform's name.
const Name = "toy"

// Driver returns the toy's driver. The toy is configured by toyctl(8).
func Driver() *platform.Driver {
	return &platform.Driver{
		Language:   Language(),
		Is:         func(_ context.Context, _ platform.Runner, kernel, _ string) bool { return kernel == "Toy" },
		DefaultWAN: func(context.Context, platform.Runner) (string, error) { return platform.OneLine(nil, nil) },
		Render:     text,
		Checks: func(e *platform.Examination) []platform.Check {
			e.ReadShapers()
			return []platform.Check{e.Applied(), {Name: "clockwork", Run: func() {
				if strings.TrimSpace(e.Read("toyctl", "spring")) != "wound" {
					e.Find(platform.Finding{ID: "run-down", Blocking: true, What: "the spring has run down", Why: "nothing moves", Remedy: "wind it up"})
				}
			}}}
		},
		Backend:   func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:  platform.LastingDir,
		Simulated: platform.Simulated{CoDel: "freebsd", Shaper: platform.Pipe},
	}
}

// Language returns what toyctl can express: a rate and a FIFO.
func Language() *plan.Language {
	return &plan.Language{
		Platform: Name, WAN: "t0", LAN: "t1", AQMs: []plan.AQM{plan.FIFO}, Sides: []plan.Side{plan.SideIn},
		Step: unit.BitPerSecond, MaxRate: 10 * unit.GbitPerSecond, Limit: 1 << 16, FIFOLimit: 1 << 16, Flows: 1, Quantum: 1514,
		NoCoDel: reason.Written("toys have none"), NoECN: reason.Written("toys have none"), NoOverhead: reason.Written("toys count packets"),
		ClassesUnasked: reason.Written("toys have one queue"), ClassesLost: reason.Written("toys have one queue"),
		Article: plan.Article{Down: 1, Up: 1, AQM: plan.FIFO},
	}
}

// shapes returns the shapers that a plan asks for, by "DEVICE DIRECTION".
func shapes(p plan.Plan) map[string]string {
	out := map[string]string{}
	for way, s := range map[plan.Direction]*plan.Shaper{plan.DirectionUp: p.Up, plan.DirectionDown: p.Down} {
		if s != nil {
			out[p.WAN+" "+string(way)] = fmt.Sprintf("%d %d unbloat", int64(s.Rate), s.Limit)
		}
	}
	return out
}

func text(p plan.Plan) ([]platform.PlanPart, []string, error) {
	var commands [][]string
	want := shapes(p)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		commands = append(commands, set(key, want[key]))
	}
	return []platform.PlanPart{{Where: "wind it up, then:", Text: platform.PlanLines(commands)}}, nil, nil
}

func set(key, value string) []string {
	return append([]string{"toyctl", "set"}, strings.Fields(key+" "+value)...)
}

// A Backend configures a toy.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

type state map[string]string // shapers by "DEVICE DIRECTION"

func (s state) ours(key string) bool { return strings.HasSuffix(s[key], " unbloat") }

func decode(raw platform.State) (state, error) {
	s := state{}
	if len(raw) == 0 {
		return s, nil
	}
	return s, json.Unmarshal(raw, &s)
}

// Observe reads all shapers.
func (b *Backend) Observe(ctx context.Context, _ plan.Plan, _ platform.State) (platform.State, error) {
	s, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

func (b *Backend) read(ctx context.Context) (state, error) {
	out, err := platform.Output(ctx, b.Runner, "toyctl", "show")
	if err != nil {
		return nil, err
	}
	s := state{}
	for line := range strings.Lines(string(out)) {
		w := strings.Fields(line)
		if len(w) != 5 {
			return nil, fmt.Errorf("read the toy's shapers: %q has %d words, not 5", line, len(w))
		}
		s[w[0]+" "+w[1]] = strings.Join(w[2:], " ")
	}
	return s, nil
}

// Desire returns the state with the plan's shapers; all others are as in
// origin.
func (b *Backend) Desire(_ context.Context, p plan.Plan, now, origin platform.State) (platform.State, error) {
	s, err := b.without(now, origin)
	if err != nil {
		return nil, err
	}
	maps.Copy(s, shapes(p))
	return json.Marshal(s)
}

// Baseline returns the state without unbloat's shapers.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := b.without(now, origin)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

func (b *Backend) without(now, origin platform.State) (state, error) {
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(s, func(key, _ string) bool { return s.ours(key) })
	before, err := decode(origin)
	if err != nil {
		return nil, err
	}
	maps.Copy(s, before)
	return s, nil
}

// Compare returns a command for each difference.
func (b *Backend) Compare(actual, wanted platform.State) (steps []platform.Step, differences []string, err error) {
	is, err := decode(actual)
	if err != nil {
		return nil, nil, err
	}
	want, err := decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, stays := want[key]; !stays {
			steps = append(steps, platform.Step{Argv: append([]string{"toyctl", "clear"}, strings.Fields(key)...)})
			differences = append(differences, key+" is there")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if is[key] != want[key] {
			steps = append(steps, platform.Step{Argv: set(key, want[key])})
			differences = append(differences, fmt.Sprintf("%s is %q, not %q", key, is[key], want[key]))
		}
	}
	return steps, differences, nil
}

// Restore returns the commands that clear what is to be, and set what was there.
func (b *Backend) Restore(before, wanted platform.State) ([]platform.Step, error) {
	steps, _, err := b.Compare(wanted, before)
	return steps, err
}

// Shapers describes the current shapers.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]platform.Shaped, error) {
	s, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	out := []platform.Shaped{}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		device, way, _ := strings.Cut(key, " ")
		rate, err := strconv.ParseInt(strings.Fields(s[key])[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the rate of %s: %w", key, err)
		}
		x := platform.Shaped{Device: device, Ours: s.ours(key), Rate: unit.Rate(rate), Queue: "a FIFO", Counters: []tc.Counters{}}
		whose := "somebody's"
		if x.Ours {
			whose = "unbloat's"
		}
		x.Says = fmt.Sprintf("%s of %s is held to %s (%s)", way, device, x.Rate, whose)
		out = append(out, x)
	}
	return out, nil
}

// NewRouter returns a toy that already has a shaper for guests.
func NewRouter() *fake.Machine {
	const spring = "/toy/spring"
	shapers := map[string]string{"guests up": "3000000 50 parents"}
	show := func() string {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(shapers)) {
			b.WriteString(key + " " + shapers[key] + "\n")
		}
		return b.String()
	}
	m := fake.NewMachine(map[string]string{spring: "wound\n"})
	m.Shows = show
	m.Tools["uname"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "Toy 1.0\n", nil }}
	m.Tools["toyctl"] = fake.Tool{
		Changes: func(args []string) bool { return args[0] == "set" || args[0] == "clear" },
		Run: func(args []string, _ []byte) (string, error) {
			switch {
			case args[0] == "show" && len(args) == 1:
				return show(), nil
			case args[0] == "spring" && len(args) == 1:
				return m.Files[spring], nil
			case args[0] == "set" && len(args) == 6:
				shapers[args[1]+" "+args[2]] = strings.Join(args[3:], " ")
				return "", nil
			case args[0] == "clear" && len(args) == 3:
				delete(shapers, args[1]+" "+args[2])
				return "", nil
			}
			return "", errors.New("toyctl: usage: show | spring | set DEVICE WAY RATE LIMIT OWNER | clear DEVICE WAY")
		},
	}
	return m
}
