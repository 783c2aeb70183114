// Package openbsd is the driver for OpenBSD routers, with current queues or
// with the ALTQ of 5.4 and before. A plan becomes a file of queues for each WAN
// and one line in /etc/pf.conf that includes it; pfctl(8) checks, loads and
// shows them. It implements platform.Backend.
package openbsd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// PfConf is pf's own configuration.
const PfConf = "/etc/pf.conf"

// A Backend applies plans to one OpenBSD router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
	Altq   bool // the old grammar, with queues of class ALTQ
}

// IncludeFile returns the file of our queues for a WAN.
func IncludeFile(wan string) string { return "/etc/pf.unbloat." + wan + ".conf" }

// includeLine is the one line that pf.conf gets for a WAN.
func includeLine(wan string) string {
	return fmt.Sprintf("include %q # unbloat: `unbloat revert` removes this line and the file\n", IncludeFile(wan))
}

// Observe reads pf.conf, our file, and the kernel's queues.
func (b *Backend) Observe(ctx context.Context, p plan.Plan, earlier platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, b.Runner, IncludeFile(p.WAN), PfConf)
	if err != nil {
		return nil, err
	}
	live, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	s := conf.State{Files: files, Live: live}
	if e, err := conf.Decode(earlier); err == nil {
		s.Known = b.ours(e, p.WAN)
	}
	return conf.Encode(s)
}

// foreign returns the queues that run and are not ours. A queue with the name and
// the interface of one of ours is ours, whatever its rate is now: an interface can
// have one of that name.
func (b *Backend) foreign(s conf.State, wan string) []string {
	own := b.ours(s, wan)
	if b.Altq { // it prints queues of its own making, which are told apart by all that they say
		return conf.Without(conf.Without(s.Live, own), s.Known)
	}
	mine := append(places(own), places(s.Known)...)
	var rest []string
	for i, place := range places(s.Live) {
		if !slices.Contains(mine, place) {
			rest = append(rest, s.Live[i])
		}
	}
	return rest
}

// places returns the interface and the name of each queue. pfctl shows the queues of
// an interface one after the other, its root first.
func places(queues []string) (out []string) {
	const on, device = 2, 3 // words of "queue outq on em0 …"
	at := ""
	for _, line := range queues {
		w := strings.Fields(line)
		if len(w) > device && w[on] == "on" {
			at = w[device]
		}
		out = append(out, at+" "+w[min(1, len(w)-1)])
	}
	return out
}

// live returns a canonical line for each queue that is loaded.
func (b *Backend) live(ctx context.Context) ([]string, error) {
	out, err := platform.Output(ctx, b.Runner, "pfctl", "-vsq")
	if err != nil {
		return nil, b.Explain(fmt.Errorf("read the queues: %w", err))
	}
	if b.Altq {
		return pf.ShownALTQ(string(out)), nil
	}
	queues, err := pf.ParseShown(string(out))
	if err != nil {
		return nil, fmt.Errorf("read the queues: %w", err)
	}
	return lines(queues), nil
}

func lines(queues []pf.Queue) []string {
	out := []string{}
	for _, q := range queues {
		out = append(out, q.String())
	}
	return out
}

// render returns the text of our file, and pfctl's output after loading it.
func (b *Backend) render(p plan.Plan) (text string, shown []string, err error) {
	if b.Altq {
		rs, _, err := pf.RenderALTQ(p)
		if p.Classes == nil {
			// The article's pass rule could let through what the router's own rules
			// block, and the queue is the default anyway.
			rs.Rules = nil
		}
		return rs.String(), rs.Shown(), err
	}
	rs, _, err := pf.Render(p)
	return rs.String(), lines(rs.Queues), err
}

// ours returns pfctl's output for our file as it is now.
func (b *Backend) ours(s conf.State, wan string) []string {
	text := s.Files.Text(IncludeFile(wan))
	if b.Altq {
		rs, err := pf.ParseALTQ(text)
		if err != nil {
			return nil
		}
		return rs.Shown()
	}
	rs, err := pf.Parse(text)
	if err != nil {
		return nil
	}
	return lines(rs.Queues)
}

// Desire returns the state that the plan asks for. The error is a
// *platform.PreconditionError if something prevents it.
func (b *Backend) Desire(ctx context.Context, p plan.Plan, now, _ platform.State) (platform.State, error) {
	if err := platform.CheckPlan(p, b.language()); err != nil {
		return nil, err
	}
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	if err := b.checkRelease(ctx); err != nil {
		return nil, err
	}
	text, shown, err := b.render(p)
	if err != nil {
		return nil, err
	}
	pf := s.Files.Get(PfConf)
	if !pf.Exists {
		return nil, &platform.PreconditionError{Doing: "shape " + p.WAN, What: PfConf + " is missing", Remedy: "set up pf first: its queues belong to its rules"}
	}
	for _, dev := range devices(p) {
		if _, err := platform.Output(ctx, b.Runner, "ifconfig", dev); err != nil {
			return nil, &platform.PreconditionError{Doing: "shape " + dev, What: "there is no such interface", Remedy: "name one of those of `ifconfig -a` with --wan or --lan", Err: err}
		}
	}
	rest := b.foreign(s, p.WAN)
	own := strings.Replace(string(pf.Content), includeLine(p.WAN), "", 1)
	if err := b.checkForeign(p, own, rest); err != nil {
		return nil, err
	}
	lost := string(pf.Content) != own && !s.Files.Get(IncludeFile(p.WAN)).Exists
	if err := b.checkLoaded(ctx, lost, own); err != nil {
		return nil, err
	}
	s.Files = s.Files.Put(IncludeFile(p.WAN), "# Made by unbloat; `unbloat revert` removes it.\n"+text, "600")
	s.Files = s.Files.Put(PfConf, b.include(own, p.WAN), "")
	s.Live, s.Known = append(rest, shown...), nil
	return conf.Encode(s)
}

func (b *Backend) language() *plan.Language {
	if b.Altq {
		return LanguageAltq()
	}
	return Language()
}

// Releases of OpenBSD between which pf.conf's queues changed: 5.5 brought
// today's queues and renamed ALTQ's to `oldqueue`, 5.6 dropped ALTQ, 6.2 brought
// flow queues. Ours were tried with ALTQ before 5.5 and with today's of 7.
const (
	newQueues  = 5.5
	flowQueues = 6.2
)

// checkRelease returns an error for a release without our grammar. An unknown
// release is left to pfctl(8), which checks its input.
func (b *Backend) checkRelease(ctx context.Context) error {
	out, err := platform.Output(ctx, b.Runner, "uname", "-r")
	if err != nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	release, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil, b.Altq && release < newQueues, !b.Altq && release >= flowQueues:
		return nil
	case b.Altq && release >= flowQueues:
		return &platform.PreconditionError{Doing: "shape with ALTQ", What: "OpenBSD " + text + " has no ALTQ, which went with 5.6", Remedy: "shape with today's queues: --for openbsd"}
	case release < newQueues:
		return &platform.PreconditionError{Doing: "shape with pf", What: "OpenBSD " + text + " has ALTQ's queues, not today's", Remedy: "shape with ALTQ: --for openbsd-altq"}
	}
	return &platform.PreconditionError{Doing: "shape with pf", What: "OpenBSD " + text + " is between two kinds of queues: ALTQ as unbloat writes it ended with 5.4, and flow queues began with 6.2",
		Remedy: "upgrade OpenBSD to 6.2 or newer"}
}

// include inserts our line into pf.conf: at the top, or where ALTQ's order
// requires it.
func (b *Backend) include(own, wan string) string {
	if b.Altq {
		return pf.PlaceALTQ(own, includeLine(wan))
	}
	return includeLine(wan) + own
}

// checkForeign returns an error for devices with foreign queues.
func (b *Backend) checkForeign(p plan.Plan, own string, live []string) error {
	others := includedWANs(own)
	if b.Altq && len(others) > 0 {
		return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "unbloat shapes another WAN here already (" + others[0] + "), and ALTQ's queues have one name for all interfaces", Remedy: "run `unbloat revert` first"}
	}
	if b.Altq && p.Classes != nil && pf.Translates(own) {
		return &platform.PreconditionError{Doing: "shape " + p.WAN, What: PfConf + " has translation rules (OpenBSD 4.6 and before), which have to stand behind queues and before the rules that send packets to them",
			Remedy: "put the line `set require-order no` at its top", Or: &platform.Setting{Key: "classes", Value: plan.ClassesOff}}
	}
	found := slices.Clone(live)
	if rs, err := pf.Parse(own); err == nil && !b.Altq {
		found = append(found, lines(rs.Queues)...)
	}
	if rs, err := pf.ParseALTQ(own); err == nil && b.Altq {
		found = append(found, rs.Shown()...)
	}
	for _, line := range found {
		words := strings.Fields(line)
		for _, dev := range devices(p) {
			if i := slices.Index(words, "on"); i >= 0 && i+1 < len(words) && words[i+1] == dev {
				if len(others) > 0 {
					return &platform.PreconditionError{Doing: "shape " + dev, What: "it has a queue already: `" + line + "`, and unbloat shapes " + strings.Join(others, ", ") + " here too",
						Remedy: "shape only the upload of one of them, or remove that queue"}
				}
				return &platform.PreconditionError{Doing: "shape " + dev, What: "it has a queue already, which unbloat did not make: `" + line + "`",
					Remedy: "remove it from " + PfConf + " and load that (pfctl -f " + PfConf + "), then try again"}
			}
		}
	}
	return nil
}

// checkLoaded returns an error if pf is disabled, or if the present pf.conf
// does not load: an undo would have to load it. If our own file is lost, which it
// includes, what counts is the rest of it.
func (b *Backend) checkLoaded(ctx context.Context, lost bool, own string) error {
	out, err := platform.Output(ctx, b.Runner, "pfctl", "-si")
	if err != nil {
		return b.Explain(err)
	}
	if strings.Contains(string(out), "Status: Disabled") {
		return &platform.PreconditionError{Doing: "shape with pf", What: "pf is off", Remedy: "switch it on with: pfctl -e"}
	}
	if lost {
		_, said, err := b.Runner.Run(ctx, []string{"pfctl", "-nf", "-"}, []byte(own))
		if err == nil || errors.Is(err, platform.ErrUnreachable) {
			return err
		}
		return &platform.PreconditionError{Doing: "shape with pf", What: PfConf + " can't be loaded without our queues: " + strings.TrimSpace(string(said)), Remedy: "mend it first, until `pfctl -nf " + PfConf + "` says nothing", Err: err}
	}
	if _, err := platform.Output(ctx, b.Runner, "pfctl", "-nf", PfConf); err != nil {
		return &platform.PreconditionError{Doing: "shape with pf", What: PfConf + " can't be loaded as it is now: " + err.Error(), Remedy: "mend it first, until `pfctl -nf " + PfConf + "` says nothing", Err: err}
	}
	return nil
}

func devices(p plan.Plan) []string {
	var out []string
	for _, s := range []*plan.Shaper{p.Up, p.Down} {
		if s != nil && !slices.Contains(out, s.Device) {
			out = append(out, s.Device)
		}
	}
	return out
}

// Baseline removes our lines, files and queues; everything else stays as it is
// now.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	was := ""
	if origin != nil {
		o, err := conf.Decode(origin)
		if err != nil {
			return nil, err
		}
		was = o.Files.Text(PfConf)
	}
	for _, f := range s.Files {
		wan, ok := strings.CutPrefix(f.Path, "/etc/pf.unbloat.")
		if !ok || strings.HasSuffix(f.Path, conf.Suffix) {
			continue
		}
		wan = strings.TrimSuffix(wan, ".conf")
		s.Live = b.foreign(s, wan)
		s.Files = s.Files.Without(f.Path)
		if pf := s.Files.Get(PfConf); pf.Exists {
			own := strings.Replace(string(pf.Content), includeLine(wan), "", 1)
			if was != "" && b.include(was, wan) == string(pf.Content) {
				own = was // to the byte: a last line may have had no end
			}
			s.Files = s.Files.Put(PfConf, own, "")
		}
	}
	s.Known = nil
	return conf.Encode(s)
}

// Compare returns the steps from actual to wanted: write the files, check each
// pf.conf before it replaces the old one, and load once.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	check := func(path, temp string) *platform.Step {
		if path != PfConf {
			return nil
		}
		return &platform.Step{Argv: []string{"pfctl", "-nf", temp}}
	}
	return conf.Compare(actual, wanted, check, load())
}

func load() []platform.Step {
	return []platform.Step{{Argv: []string{"pfctl", "-nf", PfConf}}, {Argv: []string{"pfctl", "-f", PfConf}}}
}

// Restore returns the commands that restore a snapshot from any state.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	return append(s.Files.Restore(), load()[1:]...), err
}

// Explain turns pfctl(8)'s error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var c *platform.CommandError
	var missing *platform.MissingToolError
	switch {
	case errors.As(err, &missing) && missing.Tool == "pfctl":
		return &platform.PreconditionError{Doing: "change pf's queues", What: "there is no pfctl(8)", Remedy: "is this an OpenBSD router? choose another with --for", Err: err}
	case errors.As(err, &c) && strings.Contains(c.Stderr, "ermission denied"):
		return &platform.PreconditionError{Doing: "change pf's queues", What: "this user may not", Remedy: "run it as root: doas unbloat …", Err: err}
	case errors.As(err, &c) && slices.Contains(c.Argv, "-nf"):
		return fmt.Errorf("check pf.conf: %w; nothing was loaded", err)
	}
	return err
}
