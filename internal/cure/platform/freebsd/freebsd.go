// Package freebsd is the driver for FreeBSD routers: dnctl(8) makes pipes and
// schedulers, ipfw(8) sends packets into them, and an rc script restores them
// at boot. It implements platform.Backend.
package freebsd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Our files, and rc.conf, which gets a block.
const (
	RCConf    = "/etc/rc.conf"
	RulesFile = "/etc/unbloat.dummynet"
	Script    = "/usr/local/etc/rc.d/unbloat"
)

const (
	blockBegin = "# unbloat: `unbloat revert` removes this block\n"
	block      = blockBegin + "dummynet_enable=\"YES\"\nunbloat_enable=\"YES\"\n# unbloat: end\n"
	script     = `#!/bin/sh
# Made by unbloat; "unbloat revert" removes it.
#
# PROVIDE: unbloat
# REQUIRE: ipfw dnctl
# BEFORE: LOGIN

. /etc/rc.subr

name=unbloat
rcvar=unbloat_enable
start_cmd=unbloat_start
stop_cmd=:

unbloat_start()
{
	while read -r line; do
		case $line in
		"dnctl "*|"ipfw "*) $line ;;
		esac
	done < ` + RulesFile + `
}

load_rc_config $name
: ${unbloat_enable:=NO}
run_rc_command "$1"
`
)

// A Backend applies plans to one FreeBSD router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

// Observe reads our files, dummynet's objects and ipfw's rules.
func (b *Backend) Observe(ctx context.Context, _ plan.Plan, earlier platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, b.Runner, RulesFile, Script, RCConf)
	if err != nil {
		return nil, err
	}
	var shown []string
	for _, argv := range [][]string{{"dnctl", "pipe", "show"}, {"dnctl", "sched", "show"}, {"dnctl", "queue", "show"}, {"ipfw", "list"}, {"ipfw", "table", "all", "info"}} {
		out, err := platform.Output(ctx, b.Runner, argv...)
		if err != nil {
			return nil, b.Explain(fmt.Errorf("read the pipes: %w", err))
		}
		shown = append(shown, string(out))
	}
	return conf.Encode(conf.State{Files: files, Live: dummynet.ParseShown(shown[0], shown[1], shown[2], shown[3], shown[4]), Others: otherRules(shown[3]), Known: known(earlier)})
}

// known returns what an earlier state's rules file made.
func known(earlier platform.State) []string {
	if earlier == nil {
		return nil
	}
	s, err := conf.Decode(earlier)
	if err != nil {
		return nil
	}
	return ours(s).ShownLines()
}

// foreign returns what runs and is not ours. What has the kind and the number of an
// object of ours is that object, whatever its rate is now; several rules of ipfw may
// share a number, so those are ours only as we wrote them.
func foreign(s conf.State) []string {
	mine := append(ours(s).ShownLines(), s.Known...)
	rest := conf.Without(s.Live, ours(s).ShownLines())
	return slices.DeleteFunc(rest, func(line string) bool {
		w := strings.Fields(line)
		if !slices.Contains([]string{"pipe", "sched", "queue"}, w[0]) {
			return slices.Contains(s.Known, line)
		}
		return hasLine(mine, w[0]+" "+w[1]+" ")
	})
}

func hasLine(lines []string, prefix string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

// otherRules returns ipfw's rules with one of our numbers that don't send
// packets to a queue or pipe.
func otherRules(list string) (out []string) {
	for line := range strings.Lines(list) {
		w := strings.Fields(line)
		if len(w) > 1 && ruleOfOurs(w[0]) && w[1] != "queue" && w[1] != "pipe" {
			out = append(out, strings.Join(w, " "))
		}
	}
	return out
}

// ruleOfOurs reports whether a rule's number may be one of ours.
func ruleOfOurs(number string) bool {
	n, err := strconv.Atoi(number)
	return err == nil && slices.Contains(dummynet.Numbers(), dummynet.Numbered{Kind: "rule", Number: n})
}

// ours returns the configuration in our rules file.
func ours(s conf.State) dummynet.Config {
	c, _, err := dummynet.Parse(s.Files.Text(RulesFile))
	if err != nil {
		return dummynet.Config{}
	}
	return c
}

// Desire returns the state that the plan asks for.
func (b *Backend) Desire(ctx context.Context, p plan.Plan, now, _ platform.State) (platform.State, error) {
	if err := platform.CheckPlan(p, Language()); err != nil {
		return nil, err
	}
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	c, _, err := dummynet.Render(p)
	if err != nil {
		return nil, err
	}
	if err := b.checkModules(ctx); err != nil {
		return nil, err
	}
	if _, err := platform.Output(ctx, b.Runner, "ifconfig", p.WAN); err != nil {
		return nil, &platform.PreconditionError{Doing: "shape " + p.WAN, What: "there is no such interface", Remedy: "name one of those of `ifconfig -l` with --wan", Err: err}
	}
	if err := b.checkOrder(ctx, p.WAN); err != nil {
		return nil, err
	}
	was := ours(s)
	rest := foreign(s)
	if err := checkForeign(p, c, was, append(slices.Clone(rest), s.Others...)); err != nil {
		return nil, err
	}
	s.Files = s.Files.Put(RulesFile, "# Made by unbloat; `unbloat revert` removes it.\n"+c.String(), "644")
	s.Files = s.Files.Put(Script, script, "755")
	s.Files = s.Files.Put(RCConf, withBlock(s.Files.Text(RCConf)), "644")
	s.Live, s.Known = append(rest, c.ShownLines()...), nil
	return conf.Encode(s)
}

func withBlock(text string) string {
	own := withoutBlock(text)
	if own != "" && !strings.HasSuffix(own, "\n") {
		own += "\n"
	}
	return own + block
}

func withoutBlock(text string) string { return strings.Replace(text, block, "", 1) }

// checkModules returns an error if ipfw or dummynet is not loaded: loading ipfw
// could block all traffic, logins too.
func (b *Backend) checkModules(ctx context.Context) error {
	for _, m := range []string{"ipfw", "dummynet"} {
		if _, err := platform.Output(ctx, b.Runner, "kldstat", "-q", "-m", m); err == nil {
			continue
		}
		remedy := "load it with: kldload -n dummynet"
		if m == "ipfw" {
			remedy = "a newly loaded ipfw denies everything, your login too; so: kenv net.inet.ip.fw.default_to_accept=1 && kldload -n ipfw"
		}
		return &platform.PreconditionError{Doing: "shape with dummynet", What: "the kernel module " + m + " is not loaded", Remedy: remedy}
	}
	return nil
}

// checkOrder returns an error if an ipfw rule accepts the WAN's packets before
// our rules. The first accepting rule wins. Ours come after the firewall's,
// since a packet that leaves a pipe is accepted (net.inet.ip.fw.one_pass).
func (b *Backend) checkOrder(ctx context.Context, wan string) error {
	out, err := platform.Output(ctx, b.Runner, "ipfw", "list")
	if err != nil {
		return b.Explain(err)
	}
	for line := range strings.Lines(string(out)) {
		w := strings.Fields(line)
		n, err := 0, error(nil)
		if len(w) > 1 {
			n, err = strconv.Atoi(w[0])
		}
		if len(w) < 2 || err != nil || n >= dummynet.FirstRule || !slices.Contains([]string{"allow", "accept", "pass", "permit", "check-state", "fwd"}, w[1]) {
			continue
		}
		if len(w) > 2 && (w[2] == "icmp" || w[2] == "ipv6-icmp") {
			continue // it passes by our rules too, or should
		}
		elsewhere := false
		for i, word := range w[:len(w)-1] {
			elsewhere = elsewhere || slices.Contains([]string{"via", "recv", "xmit"}, word) && w[i+1] != wan && w[i+1] != "any"
		}
		if !elsewhere {
			return &platform.PreconditionError{Doing: "shape " + wan, What: fmt.Sprintf("ipfw's rule `%s` lets packets pass before they come to a pipe (ours begin at %d)", strings.Join(w, " "), dummynet.FirstRule),
				Remedy: "put the queue rules of `unbloat plan --for freebsd` before it in your firewall's script, or move that rule behind"}
		}
	}
	return nil
}

// checkForeign returns an error if one of our numbers is used by others.
func checkForeign(p plan.Plan, c, was dummynet.Config, rest []string) error {
	for _, r := range was.Rules {
		if !slices.Contains(strings.Fields(r.Match), p.WAN) {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "unbloat shapes another WAN here already, and has numbers for one",
				Remedy: "run `unbloat revert` first"}
		}
	}
	taken := func(kind string, number int) error {
		for _, line := range rest {
			w := strings.Fields(line)
			n, err := strconv.Atoi(w[0])
			if len(w) > 1 && (w[0] == kind && w[1] == strconv.Itoa(number) || kind == "rule" && err == nil && n == number) {
				return &platform.PreconditionError{Doing: "shape " + p.WAN, What: fmt.Sprintf("%s %d is there already, and unbloat did not make it: `%s`", kind, number, line),
					Remedy: "remove it, or give it another number, then try again"}
			}
		}
		return nil
	}
	var errs []error
	for _, x := range c.Pipes {
		errs = append(errs, taken("pipe", x.Number), taken("sched", x.Number))
	}
	for _, x := range c.Queues {
		errs = append(errs, taken("queue", x.Number))
	}
	for _, x := range c.Rules {
		errs = append(errs, taken("rule", x.Number))
	}
	for _, x := range c.Tables {
		if hasLine(rest, "table "+x.Name+" ") {
			errs = append(errs, &platform.PreconditionError{Doing: "shape " + p.WAN, What: "ipfw has a table " + x.Name + " already, and unbloat did not make it",
				Remedy: "remove it with: ipfw table " + x.Name + " destroy"})
		}
	}
	return errors.Join(errs...)
}

// Baseline removes our parts; everything else stays.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	was := conf.File{}
	if origin != nil {
		o, err := conf.Decode(origin)
		if err != nil {
			return nil, err
		}
		was = o.Files.Get(RCConf)
	}
	s.Live, s.Known = foreign(s), nil
	rc := s.Files.Get(RCConf)
	switch own := withoutBlock(string(rc.Content)); {
	case rc.Exists && origin != nil && withBlock(string(was.Content)) == string(rc.Content):
		s.Files = s.Files.With(conf.File{Path: RCConf, Exists: was.Exists, Content: was.Content})
	case rc.Exists:
		s.Files = s.Files.Put(RCConf, own, "")
	}
	s.Files = s.Files.Without(RulesFile).Without(Script)
	return conf.Encode(s)
}

// Compare returns the steps from actual to wanted. Each state's rules file says
// what is ours in the kernel.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := conf.Decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := conf.Decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	steps := conf.Steps(a.Files, w.Files, nil)
	diffs := append(conf.Differences(a.Files, w.Files), conf.LiveDifferences(a.Live, w.Live)...)
	if len(diffs) > 0 {
		steps = append(steps, change(a, w)...)
	}
	return steps, diffs, nil
}

// change returns the commands that load w's rules file into the kernel and
// remove what only a has.
func change(a, w conf.State) []platform.Step {
	is, want := ours(a), ours(w)
	gone := surplus(a.Live, w.Live)
	var out []platform.Step
	run := func(argv ...string) { out = append(out, platform.Step{Argv: argv}) }
	for _, line := range gone { // rules first: they must not refer to deleted objects
		if f := strings.Fields(line); !slices.Contains([]string{"pipe", "sched", "queue", "table"}, f[0]) {
			run("ipfw", "delete", f[0])
		}
	}
	for _, line := range gone { // and not to deleted tables
		if f := strings.Fields(line); f[0] == "table" {
			run("ipfw", "-q", "table", f[1], "destroy")
		}
	}
	missing := surplus(w.Live, a.Live)
	remade := map[int]bool{}
	for _, x := range dummynet.Numbers() { // a scheduler is deleted with its pipe, never alone
		surplus := hasNumber(a.Live, x.Kind, x.Number) && !hasNumber(w.Live, x.Kind, x.Number)
		retyped := x.Kind == "pipe" && hasNumber(a.Live, x.Kind, x.Number) && typeChanges(a.Live, w.Live, x.Number)
		if surplus && x.Kind != "sched" || retyped {
			run("dnctl", x.Kind, "delete", strconv.Itoa(x.Number))
			remade[x.Number] = true
		}
	}
	retuned := retunes(is, want)
	for _, q := range want.Queues { // the kernel refuses to change CoDel on a busy queue, and dnctl exits 0
		line := (dummynet.Config{Queues: []dummynet.Queue{q}}).ShownLines()[0]
		if q.CoDel != "" && hasNumber(a.Live, "queue", q.Number) && !remade[q.Number] && slices.Contains(missing, line) {
			run("dnctl", "queue", "delete", strconv.Itoa(q.Number))
		}
	}
	for _, argv := range want.Commands() {
		f := argv[1:]
		n, _ := strconv.Atoi(f[1])
		if f[0] == "add" {
			if rule := (dummynet.Config{Rules: parseOne(argv).Rules}).ShownLines(); slices.Contains(missing, rule[0]) {
				run(argv...)
			}
			continue
		}
		shown := parseOne(argv).ShownLines()
		if remade[n] || retuned[strings.Join(argv, " ")] || len(shown) == 0 || slices.Contains(missing, shown[0]) {
			run(argv...)
		}
	}
	return out
}

// retunes returns the commands of want that are not in is. The tools print
// rounded values, which hide a small change.
func retunes(is, want dummynet.Config) map[string]bool {
	out := map[string]bool{}
	for _, argv := range want.Commands() {
		out[strings.Join(argv, " ")] = true
	}
	for _, argv := range is.Commands() {
		delete(out, strings.Join(argv, " "))
	}
	return out
}

func parseOne(argv []string) dummynet.Config {
	c, _, _ := dummynet.Parse(strings.Join(argv, " "))
	return c
}

func hasNumber(live []string, kind string, n int) bool {
	return hasLine(live, fmt.Sprintf("%s %d ", kind, n))
}

// typeChanges reports whether the pipe's scheduler is fq_codel on one side
// only: `pipe config` does not change the scheduler.
func typeChanges(a, w []string, n int) bool {
	return hasNumber(a, "sched", n) != hasNumber(w, "sched", n)
}

func surplus(a, b []string) []string {
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, l)
		}
	}
	return out
}

// Restore returns the commands that restore a snapshot from any state:
// everything that may be ours is deleted, and the snapshot's part rebuilt.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	c := ours(s)
	var rest []platform.Step
	rules := []string{"ipfw", "delete"} // it continues after a missing number
	others := append(foreign(s), s.Others...)
	for _, x := range dummynet.Numbers() {
		if x.Kind == "rule" {
			if hasLine(others, fmt.Sprintf("%05d ", x.Number)) {
				continue // a foreign rule of the snapshot: not ours
			}
			rules = append(rules, strconv.Itoa(x.Number))
		} else if x.Kind != "sched" && !hasNumber(others, x.Kind, x.Number) {
			rest = append(rest, platform.Step{Argv: []string{"dnctl", x.Kind, "delete", strconv.Itoa(x.Number)}})
		}
	}
	out := append(s.Files.Restore(), platform.Step{Argv: rules})
	for _, t := range dummynet.OurTables() {
		if !hasLine(others, "table "+t.Name+" ") { // -q: one that is not there is no error
			out = append(out, platform.Step{Argv: []string{"ipfw", "-q", "table", t.Name, "destroy"}})
		}
	}
	out = append(out, rest...)
	for _, argv := range c.Commands() {
		out = append(out, platform.Step{Argv: argv})
	}
	return out, nil
}

// Explain turns a tool's error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var c *platform.CommandError
	var missing *platform.MissingToolError
	switch {
	case errors.As(err, &missing):
		return &platform.PreconditionError{Doing: "change dummynet's pipes", What: "there is no " + missing.Tool + "(8)", Remedy: "dnctl came with FreeBSD 13.1; is this a FreeBSD router? choose another with --for", Err: err}
	case errors.As(err, &c) && strings.Contains(c.Stderr, "Operation not permitted"):
		return &platform.PreconditionError{Doing: "change dummynet's pipes", What: "this user may not", Remedy: "run it as root", Err: err}
	case errors.As(err, &c) && strings.Contains(c.Stderr, "Protocol not available"):
		return &platform.PreconditionError{Doing: "change dummynet's pipes", What: "the kernel has no ipfw or no dummynet", Remedy: "kenv net.inet.ip.fw.default_to_accept=1 && kldload -n ipfw dummynet", Err: err}
	}
	return err
}
