package scenario

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"unbloat/unit"
)

// An Error is a fault in a scenario file, at a line of it (from 1; 0 where no
// one line is to blame).
type Error struct {
	File string
	Line int
	Key  string
	Why  string
	Err  error // what the system said; may be nil
}

// Unwrap returns what the system said.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Key != "" {
		return fmt.Sprintf("%s: %s: %s", where, e.Key, e.Why)
	}
	return fmt.Sprintf("%s: %s", where, e.Why)
}

// Limits of what a scenario may ask for, so that a bad file is refused rather
// than left to exhaust the machine.
const (
	maxFlows = 1000
	maxHosts = 32
	maxCases = 64
	maxLoads = 64
	maxBytes = 1 << 20
	maxRules = 32
)

// Parse reads a scenario. file names it in errors, which are of type *Error.
func Parse(file string, text []byte) (*Scenario, error) {
	if len(text) > maxBytes {
		return nil, &Error{File: file, Why: "larger than 1 MiB"}
	}
	var root map[string]any
	if err := toml.Unmarshal(text, &root); err != nil {
		e := &Error{File: file, Why: strings.TrimPrefix(err.Error(), "toml: ")}
		if d, ok := err.(*toml.DecodeError); ok {
			e.Line, _ = d.Position()
		}
		return nil, e
	}
	p := &parser{file: file, lines: index(text)}
	s := p.scenario(table{p: p, m: root})
	if p.err != nil {
		return nil, p.err
	}
	return s, nil
}

func (p *parser) home(t table) Home {
	h := Home{Away: t.durations("away", maxHosts, time.Minute), ECN: t.boolean("ecn"), Queues: t.integer("queues", 0, 1, 16)}
	t.end()
	return h
}

// parser walks the decoded file and keeps the first fault. Every reader method
// marks its key as known, so that what is left over is a misspelt key.
type parser struct {
	file  string
	lines map[string]int // "load[0].flows" → line
	err   *Error
}

func (p *parser) fail(key, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{File: p.file, Line: p.line(key), Key: key, Why: fmt.Sprintf(format, args...)}
	}
}

// line finds the line of a key, or of the nearest thing that contains it.
func (p *parser) line(key string) int {
	for key != "" {
		if n, ok := p.lines[key]; ok {
			return n
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			break
		}
		key = key[:cut]
	}
	return 0
}

var (
	nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	ruleShape = regexp.MustCompile(`^class=[a-z]+(,[a-z_]+=[^,=]+)*$`)
	// No path: a scenario of elsewhere reads no file of elsewhere.
	traceShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	ccShape    = regexp.MustCompile(`^[a-z0-9_]{1,15}$`)
)

func (p *parser) scenario(t table) *Scenario {
	s := &Scenario{
		Name:   t.name("name"),
		Title:  t.text("title"),
		Source: t.text("source"),
		Line:   p.accessLine(t.table("line", true)),
		Probe:  p.probe(t.table("probe", false)),
		Test:   p.test(t.table("test", false)),
		Home:   p.home(t.table("home", false)),
	}
	for _, l := range t.tables("load", maxLoads) {
		s.Loads = append(s.Loads, p.load(l))
		p.within(l, &s.Loads[len(s.Loads)-1], s.LoadedFor())
	}
	cases := t.tables("case", maxCases)
	if len(cases) == 0 {
		p.fail("case", "at least one [[case]] is needed, such as name = \"before\" with router = \"none\"")
	}
	seen := map[string]bool{}
	for _, c := range cases {
		k := Case{Name: c.name("name"), Router: p.router(c), Marked: c.oneOf("marked", "", "af41", "nqb", "ef")}
		if seen[k.Name] {
			p.fail(c.key("name"), "two cases are named %q", k.Name)
		}
		seen[k.Name] = true
		s.Cases = append(s.Cases, k)
		c.end()
	}
	t.end()
	return s
}

func (p *parser) accessLine(t table) Line {
	l := Line{
		Down: t.rate("down", true), Up: t.rate("up", true),
		RTT:       t.duration("rtt", true, time.Minute),
		HeadDrop:  t.duration("head_drop", false, time.Second),
		EchoOnly:  t.boolean("echo_only"),
		Jitter:    t.duration("jitter", false, time.Minute),
		Loss:      t.fraction("loss"),
		Overhead:  t.integer("overhead", 0, -14, 256),
		MPU:       t.integer("mpu", 0, 0, 256),
		LinkLayer: t.oneOf("link_layer", "", "ethernet", "docsis", "atm", "ptm"),
	}
	if l.HeadDrop == 0 {
		l.BufferDown, l.BufferUp = t.size("buffer_down"), t.size("buffer_up")
	}
	for _, v := range t.tables("vary", 1000) {
		l.Vary = append(l.Vary, Change{
			At: v.duration("at", true, time.Hour), Down: v.rate("down", false), Up: v.rate("up", false),
			More: v.duration("more", false, 10*time.Second), Silent: v.boolean("silent"),
		})
		v.end()
	}
	if l.Trace = t.text("trace"); l.Trace != "" {
		switch {
		case !traceShape.MatchString(l.Trace):
			p.fail(t.key("trace"), "%q is no file's name: letters, digits, ., - and _, beside the scenario's file", l.Trace)
		case l.Vary != nil:
			p.fail(t.key("trace"), "the line changes by vary or by trace, not by both")
		}
	}
	if l.TraceFrom = t.duration("trace_from", false, time.Hour); l.TraceFrom > 0 && l.Trace == "" {
		p.fail(t.key("trace_from"), "there is no trace")
	}
	t.end()
	return l
}

func (p *parser) probe(t table) Probe {
	pr := Probe{Interval: t.duration("interval", false, 10*time.Second), Bytes: t.integer("bytes", 0, 0, 1472)}
	if pr.Interval != 0 && pr.Interval < time.Millisecond {
		p.fail(t.key("interval"), "below 1 ms")
	}
	t.end()
	return pr
}

func (p *parser) test(t table) Test {
	x := Test{
		Seconds:   t.duration("seconds", false, time.Hour),
		Idle:      t.duration("idle", false, time.Hour),
		FlowsDown: t.integer("flows_down", 0, 1, maxFlows),
		FlowsUp:   t.integer("flows_up", 0, 1, maxFlows),
		Goal:      t.duration("goal", false, 10*time.Second),
		Whole:     t.boolean("whole"),
	}
	t.end()
	return x
}

func (p *parser) router(t table) Router {
	switch v := t.take("router").(type) {
	case nil:
		p.fail(t.key("router"), `missing; give "none", "tune" or a table such as { aqm = "fq_codel", up = "950 kbit/s" }`)
	case string:
		if v == ModeNone || v == ModeTune {
			return Router{Mode: v}
		}
		p.fail(t.key("router"), `%q is unknown; give "none", "tune" or a table`, v)
	case map[string]any:
		d := table{p: p, m: v, path: t.key("router")}
		var r Router
		switch {
		case v[ModeDaemon] != nil:
			r = Router{Mode: ModeDaemon, Daemon: p.daemon(d.table(ModeDaemon, true))}
		case v[ModeAutorate] != nil:
			r = Router{Mode: ModeAutorate, Daemon: p.daemon(d.table(ModeAutorate, true))}
			if b := r.Daemon; b.LeastDown*b.MostDown*b.LeastUp*b.MostUp == 0 {
				p.fail(d.key(ModeAutorate), "it needs all bounds: least_down, most_down, least_up, most_up")
			}
		case v[ModeOracle] != nil:
			if r = (Router{Mode: ModeOracle, Oracle: d.fraction(ModeOracle)}); r.Oracle == 0 {
				p.fail(d.key(ModeOracle), "the share of the line that the shapers have must be above 0")
			}
		}
		if r.Mode != "" {
			d.end()
			return r
		}
		return Router{Mode: ModeFix, Fix: p.fix(table{p: p, m: v, path: t.key("router")})}
	default:
		p.fail(t.key("router"), `must be "none", "tune" or a table, not %T`, v)
	}
	return Router{}
}

// daemon reads the keys of [[wan]] that lab and simulator have a use for, also for
// what is compared with the daemon.
func (p *parser) daemon(t table) *Daemon {
	d := &Daemon{
		Down: t.rate("down", true), Up: t.rate("up", true), Follow: t.boolean("follow"),
		LeastDown: t.rate("least_down", false), MostDown: t.rate("most_down", false),
		LeastUp: t.rate("least_up", false), MostUp: t.rate("most_up", false),
	}
	for _, b := range []struct {
		key                string
		least, usual, most unit.Rate
	}{{"down", d.LeastDown, d.Down, d.MostDown}, {"up", d.LeastUp, d.Up, d.MostUp}} {
		if !d.Follow && b.least+b.most > 0 {
			p.fail(t.key(b.key), "bounds need follow = true")
		}
		if b.least > b.usual || b.most > 0 && b.most < b.usual {
			p.fail(t.key(b.key), "%v is not between its bounds", b.usual)
		}
	}
	t.end()
	return d
}

func (p *parser) fix(t table) *Fix {
	f := &Fix{
		AQM:  t.oneOf("aqm", "", "cake", "fq_codel", "fifo"),
		Down: t.rate("down", false), Up: t.rate("up", false),
		Target:     t.duration("target", false, 10*time.Second),
		Interval:   t.duration("interval", false, 100*time.Second),
		Limit:      t.integer("limit", 0, 1, 1<<20),
		Quantum:    unit.Size(t.integer("quantum", 0, 64, 65535)),
		Side:       t.oneOf("side", "", "ifb", "lan"),
		Table:      t.boolean("flow_table"),
		Tins:       t.oneOf("tins", "", "besteffort", "precedence", "diffserv3", "diffserv4", "diffserv8"),
		Classes:    t.oneOf("classes", "", "on", "off"),
		Classifier: t.oneOf("classifier", "", "nft", "bpf"),
		Framing:    t.text("framing"),
		Rules:      t.texts("rules", maxRules),
	}
	for _, r := range f.Rules {
		if !ruleShape.MatchString(r) {
			p.fail(t.key("rules"), "%q is no rule; write it like \"class=interactive,protocol=udp,far_port=3478-3497\"", r)
		}
	}
	if len(f.Rules) > 0 && f.Classes == "off" {
		p.fail(t.key("rules"), "a rule needs classes, and classes is off")
	}
	if v := t.take("ecn"); v != nil {
		b, ok := v.(bool)
		if !ok {
			p.fail(t.key("ecn"), "must be true or false")
		}
		f.ECN = &b
	}
	if f.Down == 0 && f.Up == 0 {
		p.fail(t.path, "shapes nothing: give up, down or both")
	}
	t.end()
	return f
}
