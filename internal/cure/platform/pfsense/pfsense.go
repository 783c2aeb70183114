// Package pfsense is the driver for pfSense routers: a plan becomes two
// limiters and their floating rules in config.xml. They are set with pfSense's
// PHP shell, so the web interface shows them and pfSense's own code generates
// rules.limiter and pf's rules. It implements platform.Backend.
package pfsense

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"unbloat/guard"
	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/conf"
)

// Files of pfSense.
const (
	Config       = "/cf/conf/config.xml"
	RulesLimiter = "/tmp/rules.limiter" // what it made of the limiters
	RulesDebug   = "/tmp/rules.debug"   // what it loaded into pf
	Shell        = "pfSsh.php"          // its PHP shell, which exits 0 whatever happens
)

const first = dummynet.FirstLimiter

// Names of our elements in config.xml.
const (
	ourLimiter = "unbloat_"
	ourRule    = "unbloat: "
)

// A Backend applies plans to one pfSense router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

// Observe reads config.xml, the files that pfSense generated from our part, and
// our part of the kernel's state.
func (b *Backend) Observe(ctx context.Context, _ plan.Plan, _ platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, b.Runner, Config)
	if err != nil {
		return nil, err
	}
	if !files.Get(Config).Exists {
		return nil, &platform.PreconditionError{Doing: "read " + Config, What: "there is no such file", Remedy: "is this a pfSense router? choose another with --for"}
	}
	root, err := bsd.ParseConfig(files.Text(Config))
	if err != nil {
		return nil, &platform.PreconditionError{Doing: "read " + Config, What: err.Error(), Remedy: "mend that file first (Diagnostics: Backup & Restore has older ones)", Err: err}
	}
	s := conf.State{Files: files, Facts: items(root)}
	limiters, err := b.made(ctx, RulesLimiter)
	if err != nil {
		return nil, err
	}
	rules, err := b.made(ctx, RulesDebug)
	if err != nil {
		return nil, err
	}
	given := numbersOf(root, limiters)
	s.Live = append(s.Live, limiterLines(limiters, given)...)
	s.Live = append(s.Live, ruleLines(rules, given)...)
	kernel, err := b.kernel(ctx)
	if err != nil {
		return nil, err
	}
	s.Facts = append(s.Facts, kernelFacts(kernel, given)...)
	return conf.Encode(s)
}

// made reads a file that pfSense made of its configuration; "" if it has not yet. They are
// in /tmp, where anybody may have made one that looks like it.
func (b *Backend) made(ctx context.Context, file string) (string, error) {
	text, err := platform.ReadTrusted(ctx, b.Runner, file)
	var strange *guard.UntrustedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.As(err, &strange):
		return "", &platform.PreconditionError{Doing: "read what pfSense made of its configuration", What: err.Error(), Remedy: "remove it, and have pfSense make it: Status: Filter Reload", Err: err}
	case err != nil:
		return "", fmt.Errorf("read what pfSense made of its configuration: %w", err)
	}
	return string(text), nil
}

// kernel returns a line for each pipe, scheduler and queue that dummynet holds.
func (b *Backend) kernel(ctx context.Context) ([]string, error) {
	var shown []string
	for _, kind := range []string{"pipe", "sched", "queue"} {
		out, err := platform.Output(ctx, b.Runner, "dnctl", kind, "show")
		var refused *platform.CommandError
		if errors.As(err, &refused) && strings.Contains(refused.Stderr, "Protocol not available") {
			return nil, nil // no limiter was ever made, so the module isn't loaded
		}
		if err != nil {
			return nil, b.Explain(fmt.Errorf("read the limiters: %w", err))
		}
		shown = append(shown, string(out))
	}
	return withoutWeights(dummynet.ParseShown(shown[0], shown[1], shown[2], "", "")), nil
}

// withoutWeights removes the weights of fq_codel queues, which pfSense doesn't
// set and fq_codel ignores.
func withoutWeights(lines []string) []string {
	for i, l := range lines {
		if before, after, ok := strings.Cut(l, " weight "); ok && strings.HasPrefix(l, "queue ") && !strings.Contains(after, " codel ") {
			lines[i] = before
		}
	}
	return lines
}

// Kinds of facts: our elements of config.xml, as JSON; and what dummynet holds, by
// its number.
const (
	queueElement conf.Kind = "queue element"
	ruleElement  conf.Kind = "rule element"
	pipe         conf.Kind = "pipe"
)

// element is one of ours in config.xml.
func element(kind conf.Kind, v any) conf.Fact {
	words := map[conf.Kind]string{queueElement: "config: queue ", ruleElement: "config: rule "}
	return conf.Fact{Kind: kind, Of: text(v), Text: words[kind] + text(v)}
}

// items returns our elements of config.xml.
func items(root *bsd.ConfigNode) (out []conf.Fact) {
	for _, q := range root.Child("dnshaper").All("queue") {
		if strings.HasPrefix(q.Value("name"), ourLimiter) {
			out = append(out, element(queueElement, q.Array()))
		}
	}
	for _, r := range root.Child("filter").All("rule") {
		if strings.HasPrefix(r.Value("descr"), ourRule) {
			out = append(out, element(ruleElement, r.Array()))
		}
	}
	return out
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("marshal an element: " + err.Error()) // strings, maps and lists of them
	}
	return string(b)
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
	root, err := bsd.ParseConfig(s.Files.Text(Config))
	if err != nil {
		return nil, err
	}
	ls, _, err := dummynet.RenderLimiters(p, first)
	if err != nil {
		return nil, &platform.InputError{Why: err.Error()}
	}
	wan, err := interfaceOf(root, p.WAN)
	if err != nil {
		return nil, err
	}
	if err := checkForeign(root, p.WAN, wan); err != nil {
		return nil, err
	}
	if err := checkQueues(root, p.WAN); err != nil {
		return nil, err
	}
	rules, err := ls.Rules(p)
	if err != nil {
		return nil, &platform.InputError{Why: err.Error()}
	}
	live, facts := wanted(ls, rules, wan)
	return conf.Encode(conf.State{Files: conf.Set{{Path: Config + conf.Suffix}}, Live: live, Facts: facts})
}

// wanted returns what Observe reads after pfSense has generated its rules.
func wanted(ls dummynet.Limiters, rules []dummynet.LimiterRule, wan string) (lines []string, facts []conf.Fact) {
	section, err := bsd.ParseConfig(ls.String())
	if err != nil {
		panic("read our own limiters: " + err.Error())
	}
	for _, q := range section.All("queue") {
		facts = append(facts, element(queueElement, q.Array()))
	}
	var live []string
	for i, r := range rules {
		rule := map[string]any{
			"tracker": strconv.Itoa(1700007001 + i), "type": "match", "interface": wan, "ipprotocol": r.Family, "statetype": "keep state",
			"source": end(r.From), "destination": end(r.To), "descr": ourRule + r.Name,
			"floating": "yes", "direction": r.Direction, "dnpipe": r.In,
		}
		if r.Out != "" {
			rule["pdnpipe"] = r.Out
		}
		if r.Protocol != "" {
			rule["protocol"] = r.Protocol
		}
		facts = append(facts, element(ruleElement, rule))
		live = append(live, ruleLine(r))
	}
	lines, kernel, err := generated(section, ls)
	if err != nil {
		panic("read our own rules.limiter: " + err.Error())
	}
	return append(lines, live...), append(facts, kernel...)
}

// generated returns what Observe reads of rules.limiter and of the kernel after
// pfSense has loaded the limiters ls, which are those of section.
func generated(section *bsd.ConfigNode, ls dummynet.Limiters) (lines []string, kernel []conf.Fact, err error) {
	made := ls.RulesLimiter(1) // which numbers is all the same: they are compared by name
	given := numbersOf(&bsd.ConfigNode{Children: []*bsd.ConfigNode{section}}, made)
	c, _, err := dummynet.Parse(made)
	if err != nil {
		return nil, nil, err
	}
	return limiterLines(made, given), kernelFacts(withoutWeights(c.ShownLines()), given), nil
}

// ruleLine is a rule's line in a state.
func ruleLine(r dummynet.LimiterRule) string {
	queues := r.In
	if r.Out != "" {
		queues += "," + r.Out
	}
	return "rule: " + r.Direction + " dnqueue " + queues + " (" + r.Name + ")"
}

// end is a rule's source or destination in config.xml.
func end(e dummynet.RuleEnd) map[string]any {
	m := map[string]any{"any": ""}
	if e.Address != "" {
		m = map[string]any{"address": e.Address}
	}
	if e.Port != "" {
		m["port"] = e.Port
	}
	return m
}

// interfaceOf returns a device's name in config.xml: wan, lan, opt1.
func interfaceOf(root *bsd.ConfigNode, device string) (string, error) {
	var known []string
	if list := root.Child("interfaces"); list != nil {
		for _, n := range list.Children {
			if n.Value("if") == device {
				return n.Name, nil
			}
			known = append(known, n.Value("if"))
		}
	}
	return "", &platform.PreconditionError{Doing: "shape " + device, What: "pfSense has assigned no such interface", Remedy: "name one of " + strings.Join(known, ", ") + " with --wan"}
}

// checkForeign returns an error for a WAN with a foreign limiter rule, for our
// limiters on another WAN, and for numbers in use.
func checkForeign(root *bsd.ConfigNode, device, wan string) error {
	refuse := func(what, remedy string) error {
		return &platform.PreconditionError{Doing: "shape " + device, What: what, Remedy: remedy}
	}
	for _, r := range root.Child("filter").All("rule") {
		on := slices.Contains(strings.Split(r.Value("interface"), ","), wan)
		own := strings.HasPrefix(r.Value("descr"), ourRule)
		switch {
		case own && !on:
			return refuse("unbloat shapes "+r.Value("interface")+" here already, and has limiters for one WAN", "run `unbloat revert` first")
		case !own && on && r.Value("dnpipe") != "" && r.Child("disabled") == nil:
			return refuse(fmt.Sprintf("the firewall rule %q sends it through the limiter %s already", r.Value("descr"), r.Value("dnpipe")), "switch that rule off in Firewall: Rules, then try again")
		}
	}
	for _, q := range root.Child("dnshaper").All("queue") {
		if strings.HasPrefix(q.Value("name"), ourLimiter) {
			continue
		}
		if ours(q.Value("number")) {
			return refuse("the limiter "+q.Value("name")+" has the number "+q.Value("number")+", which unbloat takes", "make that limiter anew: pfSense gives it another number")
		}
	}
	return nil
}

// Baseline removes our parts. If nothing else has changed, config.xml is the
// original, byte by byte.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	w := conf.State{Files: s.Files.Without(Config + conf.Suffix), Live: []string{}}
	if !slices.ContainsFunc(s.Facts, func(f conf.Fact) bool { return f.Kind == queueElement || f.Kind == ruleElement }) {
		return conf.Encode(w)
	}
	w.Files = conf.Set{{Path: Config + conf.Suffix}}
	if origin != nil {
		o, err := conf.Decode(origin)
		if err != nil {
			return nil, err
		}
		if was := o.Files.Get(Config); was.Exists && plain(string(was.Content)) == plain(s.Files.Text(Config)) {
			w.Files = o.Files.Without(Config + conf.Suffix)
		}
	}
	return conf.Encode(w)
}

// plain returns config.xml without our elements and the last revision.
func plain(config string) string {
	root, err := bsd.ParseConfig(config)
	if err != nil {
		return config
	}
	return root.Without(func(n *bsd.ConfigNode) bool {
		return n.Name == "revision" || strings.HasPrefix(n.Value("name"), ourLimiter) || strings.HasPrefix(n.Value("descr"), ourRule) ||
			(n.Name == "dnshaper" || n.Name == "filter") && n.Text == "" && onlyOurs(n)
	}).String()
}

// onlyOurs reports whether a section contains only our elements.
func onlyOurs(section *bsd.ConfigNode) bool {
	return !slices.ContainsFunc(section.Children, func(n *bsd.ConfigNode) bool {
		return !strings.HasPrefix(n.Value("name"), ourLimiter) && !strings.HasPrefix(n.Value("descr"), ourRule)
	})
}

// Explain turns a tool's error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var missing *platform.MissingToolError
	var c *platform.CommandError
	switch {
	case errors.As(err, &missing) && missing.Tool == "dnctl":
		return &platform.PreconditionError{Doing: "change pfSense's limiters", What: "there is no dnctl(8)", Remedy: "it came with pfSense 2.7; on an older one paste what `unbloat plan --for pfsense` prints", Err: err}
	case errors.As(err, &missing):
		return &platform.PreconditionError{Doing: "change pfSense's limiters", What: "there is no " + missing.Tool, Remedy: "is this a pfSense router? choose another with --for", Err: err}
	case errors.As(err, &c) && (strings.Contains(c.Stderr, "Operation not permitted") || strings.Contains(c.Stderr, "ermission denied")):
		return &platform.PreconditionError{Doing: "change pfSense's limiters", What: "this user may not", Remedy: "run it as root (the user admin)", Err: err}
	}
	return err
}
