// Package config reads the daemon's configuration: which WANs it keeps shaped,
// and to which rates. It is written in TOML, or on OpenWrt in UCI. The package is
// pure: it is given the file's text, and it can write
// new rates into that text without touching anything else in it.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Stop says what the end of the daemon leaves behind.
type Stop string

// What the end of the daemon leaves behind.
const (
	StopKeep   Stop = "keep"   // the shaping stays
	StopRevert Stop = "revert" // the routers are as they were before
)

// A Config is what the configuration says.
type Config struct {
	OnStop  Stop
	Metrics string // address and port where Prometheus may ask; "": nowhere
	UI      UI     // the router's page
	WANs    []WAN  // at least one, each interface of a router once

	// Server is the test server for tuning, and for delay where nothing else tells it;
	// as for `unbloat test --server`. "": a public one for tuning, and none for delay.
	Server   string
	History  string // SQLite file of results and of what lines did; "": in memory alone
	Schedule []Entry
	Notify   []Notify // who is told of incidents

	top    map[string]int // line of each key of the top level
	syntax Syntax
}

// Syntax is how the configuration is written.
func (c Config) Syntax() Syntax { return c.syntax }

// At returns an *Error about a key of the top level.
func (c Config) At(file, key string, err error) error {
	return &Error{File: file, Line: c.top[key], Key: key, Err: err}
}

// A WAN is one line that is kept shaped: a [[wan]] table of the file.
type WAN struct {
	Interface string // towards the internet
	LAN       string // towards the home; "": the driver finds out, or needs none
	Router    string // address of the router; "": this machine
	Platform  string // "": the router is asked

	Down, Up            unit.Rate           // what the line usually carries; 0: unknown
	ShapeDown, ShapeUp  plan.RatePreference // the shaper itself; zero: by the plan
	Follow              bool                // follow the line between the bounds
	Unwatched           bool                // nor measure the delay of one whose rates are held
	LeastDown, MostDown unit.Rate           // bounds; 0: none given
	LeastUp, MostUp     unit.Rate
	Reflectors          []netip.Addr // instead of the built-in ones
	Incidents           bool         // watch it closely, for what goes wrong on it
	Untold              bool         // nor tell what goes wrong where its delay is measured
	Learn               string       // file of the rates by the hour of the week; "": they are kept in memory
	Decisions           string       // file of all that is measured and decided; "": none

	Classes   string       // on, off or the path of a class file; "": by the plan
	First     []netip.Addr // machines of the home whose traffic goes first
	Last      []netip.Addr // machines of the home that get what the others leave
	OwnRules  []string     // as plan.ParseRule reads them
	Limits    []string     // as plan.ParseHardLimit reads them
	AQM       plan.AQM
	Side      plan.Side
	LinkLayer plan.LinkLayer
	Overhead  int           // bytes; 0: the link layer's usual
	Framing   string        // as measured (plan.Line.FramingText), where neither is given; "": not measured
	Goal      time.Duration // p95 increase to aim at; 0: by the plan

	Classifier plan.Classifier // "": by the plan
	Rules      []plan.Rule     // of the schedule, before those of Classes

	lines  map[string]int // line of each key; "" is the table itself
	syntax Syntax
}

// Syntax is how the WAN's configuration is written.
func (w WAN) Syntax() Syntax { return w.syntax }

// Name is how people see a WAN: its interface, and its router if that is another
// machine.
func (w WAN) Name() string {
	if w.Router == "" {
		return w.Interface
	}
	return w.Interface + " of " + w.Router
}

// Here reports whether the router is this machine, reached through its own API.
func (w WAN) Here() bool {
	scheme, rest, _ := strings.Cut(w.Router, "://")
	if scheme == "ssh" {
		return false
	}
	host, _, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], "/")
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().IsLoopback()
	}
	if at, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return at.IsLoopback()
	}
	name, _, _ := strings.Cut(host, ":")
	return name == "localhost"
}

// Says tells in a sentence what the WAN is to be.
func (w WAN) Says() string {
	says := w.Name() + ":"
	for _, d := range []struct {
		name  string
		line  unit.Rate
		shape plan.RatePreference
	}{{"down", w.Down, w.ShapeDown}, {"up", w.Up, w.ShapeUp}} {
		switch {
		case d.shape.Rate != 0:
			says += fmt.Sprintf(" %s shaped to %s,", d.name, d.shape.Rate)
		case d.line != 0:
			says += fmt.Sprintf(" %s carries %s,", d.name, d.line)
		default:
			says += fmt.Sprintf(" %s not shaped,", d.name)
		}
	}
	return strings.TrimSuffix(says, ",")
}

// PlanLine returns the line as plan.Make takes it.
func (w WAN) PlanLine() plan.Line {
	l := plan.Line{Down: w.Down, Up: w.Up, LinkLayer: w.LinkLayer, Overhead: w.Overhead, Varies: w.Follow}
	if w.Framing != "" && w.LinkLayer == "" && w.Overhead == 0 {
		l, _ = l.WithFramingText(w.Framing) // it was read before
	}
	return l
}

// Preferences returns the preferences as plan.Make takes them. The classes of a
// class file are the caller's to add, who reads it; behind MachineRules.
func (w WAN) Preferences() plan.Preferences {
	p := plan.Preferences{Goal: w.Goal, AQM: w.AQM, Side: w.Side, Down: w.ShapeDown, Up: w.ShapeUp}
	if w.Classes == plan.ClassesOn || w.Classes == plan.ClassesOff {
		p.Classes.Use = w.Classes
	}
	p.Classes.Rules = w.MachineRules()
	for _, text := range w.Limits {
		l, _ := plan.ParseHardLimit(text) // it was read before
		p.Limits = append(p.Limits, l)
	}
	switch hasDown, hasUp := w.Down != 0 || !w.ShapeDown.IsZero(), w.Up != 0 || !w.ShapeUp.IsZero(); {
	case hasDown && !hasUp:
		p.Only = plan.DirectionDown
	case hasUp && !hasDown:
		p.Only = plan.DirectionUp
	}
	return p
}

// ClassFile returns the path of the WAN's class file; "" if it has none.
func (w WAN) ClassFile() string {
	if w.Classes == plan.ClassesOn || w.Classes == plan.ClassesOff {
		return ""
	}
	return w.Classes
}

// An Error is what is wrong with a configuration, and where.
type Error struct {
	File string
	Line int    // from 1; 0: the whole file
	Key  string // "" for none
	Err  error
}

func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Key != "" {
		at += ": " + e.Key
	}
	return at + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// At returns an *Error about a key of the WAN, or about the WAN as a whole if key
// is "" or not in the file.
func (w WAN) At(file, key string, err error) error {
	line, ok := w.lines[key]
	if !ok {
		line = w.lines[""]
	}
	return &Error{File: file, Line: line, Key: key, Err: err}
}

// file is the file's layout.
type file struct {
	OnStop   string        `toml:"on_stop"`
	WAN      []wanTable    `toml:"wan"`
	Server   string        `toml:"server"`
	Metrics  string        `toml:"metrics"`
	UI       *uiTable      `toml:"ui"`
	History  string        `toml:"history"`
	Schedule []EntryTable  `toml:"schedule"`
	Notify   []notifyTable `toml:"notify"`
}

type wanTable struct {
	Interface  string   `toml:"interface"`
	LAN        string   `toml:"lan"`
	Router     string   `toml:"router"`
	Platform   string   `toml:"platform"`
	Down       string   `toml:"down"`
	Up         string   `toml:"up"`
	ShapeDown  string   `toml:"shape_down"`
	ShapeUp    string   `toml:"shape_up"`
	Follow     bool     `toml:"follow"`
	Watch      bool     `toml:"watch"`
	LeastDown  string   `toml:"least_down"`
	MostDown   string   `toml:"most_down"`
	LeastUp    string   `toml:"least_up"`
	MostUp     string   `toml:"most_up"`
	Reflectors []string `toml:"reflectors"`
	Incidents  bool     `toml:"incidents"`
	Learn      string   `toml:"learn"`
	Decisions  string   `toml:"decisions"`
	Classes    string   `toml:"classes"`
	First      []string `toml:"first"`
	Last       []string `toml:"last"`
	Rules      []string `toml:"rules"`
	Limits     []string `toml:"limits"`
	AQM        string   `toml:"aqm"`
	Side       string   `toml:"side"`
	LinkLayer  string   `toml:"link_layer"`
	Overhead   int      `toml:"overhead"`
	Framing    string   `toml:"framing"`
	Goal       string   `toml:"goal"`
	Classifier string   `toml:"classifier"`
}

// Keys of the file's top level, and of [[wan]].
func topKeys() []string {
	return []string{"on_stop", "metrics", "server", "history", "ui", "wan", "schedule", "notify"}
}

func wanKeys() []string {
	return []string{"interface", "lan", "down", "up", "shape_down", "shape_up", "follow", "watch", "least_down", "most_down", "least_up", "most_up",
		"incidents", "reflectors", "learn", "decisions", "router", "platform", "classes", "first", "last", "rules", "limits", "aqm", "side", "classifier", "link_layer", "overhead", "framing", "goal"}
}

// Parse reads a configuration. name is the file's, for errors, which are *Error: the first
// of what is wrong.
func Parse(name string, text []byte) (Config, error) {
	c, wrong := read(name, text)
	if len(wrong) > 0 {
		return c, wrong[0]
	}
	return c, nil
}

// Mistakes returns what is wrong with a configuration, in the order of the file: each
// unknown key, and of each table the first thing besides.
func Mistakes(name string, text []byte) []error {
	_, wrong := read(name, text)
	slices.SortStableFunc(wrong, func(a, b error) int {
		var x, y *Error
		errors.As(a, &x)
		errors.As(b, &y)
		return cmp.Compare(x.Line, y.Line)
	})
	return wrong
}

func read(name string, text []byte) (c Config, wrong []error) {
	f, at, wrong, err := decode(name, text)
	if err != nil {
		return c, append(wrong, err)
	}
	bad := func(err error) { wrong = append(wrong, err) }
	syntax := SyntaxOf(name, text)
	c = Config{OnStop: Stop(f.OnStop), Server: f.Server, History: f.History, top: at.top, syntax: syntax}
	switch c.OnStop {
	case "":
		c.OnStop = StopKeep
	case StopKeep, StopRevert:
	default:
		bad(&Error{name, at.top["on_stop"], "on_stop", fmt.Errorf("%q: must be %q (the shaping stays when the daemon ends) or %q", f.OnStop, StopKeep, StopRevert)})
	}
	if _, given := at.top["metrics"]; given {
		if a, err := netip.ParseAddrPort(f.Metrics); err != nil || a.Port() == 0 {
			bad(&Error{name, at.top["metrics"], "metrics", fmt.Errorf("%q: must be an address and a port, as in %s", f.Metrics, syntax.Sets(Setting{Key: "metrics", Value: "127.0.0.1:9836"}))})
		}
		c.Metrics = f.Metrics
	}
	if f.UI != nil {
		if err := c.UI.read(name, syntax, *f.UI, at); err != nil {
			bad(err)
		}
	}
	if _, given := at.top["server"]; given && (f.Server == "" || strings.ContainsAny(f.Server, " \t\n")) {
		bad(c.At(name, "server", fmt.Errorf("%q: must be a test server, as in %s; remove the line if you have none", f.Server, syntax.Sets(Setting{Key: "server", Value: "test.example.net"}))))
	}
	if _, given := at.top["history"]; given && !strings.HasPrefix(f.History, "/") {
		bad(c.At(name, "history", fmt.Errorf("%q: must be the whole path of a file on a disk, as in %s; without the line the last day is in memory", f.History, syntax.Sets(Setting{Key: "history", Value: "/var/lib/unbloat/history.db"}))))
	}
	if len(f.WAN) == 0 {
		bad(&Error{File: name, Err: fmt.Errorf("there is no %s: give one for each line, with interface, down and up", syntax.Table("wan"))})
		return c, wrong
	}
	if len(f.WAN) != len(at.wans) {
		bad(&Error{File: name, Line: max(at.top["wan"], 1), Err: errors.New("each line is a table of its own, which begins with [[wan]]")})
		return c, wrong
	}
	before := len(wrong)
	for i, t := range f.WAN {
		w := t.wan()
		w.lines, w.syntax = at.wans[i], syntax
		_, given := w.lines["watch"]
		w.Unwatched = given && !t.Watch
		_, given = w.lines["incidents"]
		w.Untold = given && !t.Incidents
		err := w.read(name, t)
		if err == nil {
			err = w.check(name, t)
		}
		for _, other := range c.WANs {
			if err == nil && other.Interface == w.Interface && other.Router == w.Router {
				err = w.At(name, "interface", fmt.Errorf("%s is in another %s already; give each interface once", w.Name(), syntax.Table("wan")))
			}
			for _, x := range []struct{ key, file, theirs string }{{"learn", w.Learn, other.Learn}, {"decisions", w.Decisions, other.Decisions}} {
				if err == nil && x.file != "" && x.theirs == x.file {
					err = w.At(name, x.key, fmt.Errorf("%s is the file of %s already; give each line its own", x.file, other.Name()))
				}
			}
		}
		if err != nil {
			bad(err)
		}
		c.WANs = append(c.WANs, w)
	}
	if len(f.Schedule) != len(at.schedule) {
		bad(&Error{File: name, Line: max(at.top["schedule"], 1), Key: "schedule", Err: errors.New("each entry is a table of its own, which begins with [[schedule]]")})
		return c, wrong
	}
	if len(f.Notify) != len(at.notify) {
		bad(&Error{File: name, Line: max(at.top["notify"], 1), Key: "notify", Err: errors.New("each receiver is a table of its own, which begins with [[notify]]")})
		return c, wrong
	}
	for i, t := range f.Notify {
		n, err := t.notify(name, at.notify[i])
		if err != nil {
			bad(err)
		}
		c.Notify = append(c.Notify, n)
	}
	if len(wrong) > before { // entries are about lines, which must be right first
		return c, wrong
	}
	for i, t := range f.Schedule {
		e, err := t.entry(name, at.schedule[i], c.WANs)
		if err != nil {
			bad(err)
		}
		c.Schedule = append(c.Schedule, e)
	}
	return c, wrong
}

// decode reads a file's layout, in whichever syntax it is, where its keys are, and which of
// them there are not.
func decode(name string, text []byte) (_ file, _ placed, unknown []error, _ error) {
	if SyntaxOf(name, text) == UCI {
		return decodeUCI(name, text)
	}
	var f file
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	var strict *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case errors.As(err, &strict):
		for _, e := range strict.Errors {
			unknown = append(unknown, unknownKey(name, e))
		}
	case errors.As(err, &bad):
		line, _ := bad.Position()
		return f, placed{}, nil, &Error{File: name, Line: line, Err: errors.New(meant(bad))}
	case err != nil:
		return f, placed{}, nil, &Error{File: name, Err: err}
	}
	return f, positions(text), unknown, nil
}

// unknownKey says in which line a key is that there is not, and which there are.
func unknownKey(name string, e toml.DecodeError) error {
	line, _ := e.Position()
	path := e.Key()
	known := topKeys()
	switch {
	case len(path) > 1 && path[0] == "wan":
		known = wanKeys()
	case len(path) > 1 && path[0] == "ui":
		known = uiKeys()
	case len(path) > 1 && path[0] == "schedule":
		known = scheduleKeys()
	case len(path) > 1 && path[0] == "notify":
		known = notifyKeys()
	}
	return &Error{File: name, Line: line, Err: &UnknownKeyError{Key: path[len(path)-1], Known: known}}
}

// An UnknownKeyError says that there is no such key.
type UnknownKeyError struct {
	Key     string
	Known   []string // where it is
	section string   // of UCI; "": the file is TOML
}

func (e *UnknownKeyError) Error() string {
	if e.section != "" {
		return fmt.Sprintf("there is no option %q here; the options of %s are %s", e.Key, e.section, strings.Join(e.Known, ", "))
	}
	return fmt.Sprintf("there is no key %q here; the keys are %s", e.Key, strings.Join(e.Known, ", "))
}

// meant explains which value a key takes, after one of another type.
func meant(e *toml.DecodeError) string {
	said := strings.TrimPrefix(e.Error(), "toml: ")
	path := e.Key()
	if len(path) == 0 {
		return said
	}
	key := path[len(path)-1]
	rates := []string{"down", "up", "least_down", "most_down", "least_up", "most_up", "shape_down", "shape_up"}
	mistyped := strings.Contains(said, "cannot decode") || strings.Contains(said, "cannot store")
	switch {
	case !mistyped:
		return key + ": " + said
	case slices.Contains(rates, key):
		return fmt.Sprintf(`%s takes a rate with its unit in quotes, as in %s = "50 Mbit/s"`, key, key)
	case plainly(key):
		return key + " is true or false, without quotes"
	case key == "overhead":
		return "overhead takes a number of bytes without quotes"
	case key == "tls":
		return "tls is true or false, without quotes"
	case key == "first", key == "last":
		return key + ` takes a list of addresses of machines, as in ` + key + ` = ["192.168.1.7"]`
	case key == "rules":
		return `rules takes a list of rules, as in rules = ["class=voice,home=192.168.1.7,protocol=udp,port=3478-3497"]`
	case key == "limits":
		return `limits takes a list of machines and their rates, as in limits = ["192.168.1.7 5 Mbit/s"]`
	case key == "allow":
		return `allow takes a list of networks, as in allow = ["10.8.0.0/24"]`
	case key == "names":
		return `names takes a list of names of this router, as in names = ["router.example"]`
	case key == "ui":
		return "ui is a table of its own, which begins with [ui]"
	case key == "reflectors":
		return `reflectors takes a list of addresses, as in reflectors = ["192.0.2.1", "192.0.2.2"]`
	case key == "days":
		return `days takes a list, as in days = ["mon", "tue"]`
	case key == "notify":
		return "notify is a table of its own for each receiver, which begins with [[notify]]"
	case key == "most":
		return "most takes a number of messages an hour without quotes"
	case key == "recipients":
		return `recipients takes a list of addresses, as in recipients = ["me@example.net"]`
	case key == "schedule":
		return "schedule is a table of its own for each entry, which begins with [[schedule]]"
	case key == "wan":
		return "wan is a table of its own for each line, which begins with [[wan]]"
	}
	return key + " takes a text in quotes"
}

func (t wanTable) wan() WAN {
	return WAN{
		Interface: t.Interface, LAN: t.LAN, Router: t.Router, Platform: t.Platform,
		Follow: t.Follow, Incidents: t.Incidents, Learn: t.Learn, Decisions: t.Decisions, Classes: t.Classes, AQM: plan.AQM(t.AQM), Side: plan.Side(t.Side), LinkLayer: plan.LinkLayer(t.LinkLayer), Overhead: t.Overhead, Framing: t.Framing, Classifier: plan.Classifier(t.Classifier),
	}
}

// read reads the values that are texts with a unit.
func (w *WAN) read(name string, t wanTable) error {
	for _, x := range []struct {
		key, text string
		to        *unit.Rate
	}{{"down", t.Down, &w.Down}, {"up", t.Up, &w.Up}, {"least_down", t.LeastDown, &w.LeastDown}, {"most_down", t.MostDown, &w.MostDown},
		{"least_up", t.LeastUp, &w.LeastUp}, {"most_up", t.MostUp, &w.MostUp}} {
		if _, given := w.lines[x.key]; !given {
			continue
		}
		r, err := unit.ParseRate(x.text)
		if err == nil && r <= 0 {
			err = errors.New("must be above 0; remove the key if it is not known")
		}
		if err != nil {
			return w.At(name, x.key, err)
		}
		*x.to = r
	}
	for _, x := range []struct {
		key, text string
		to        *plan.RatePreference
	}{{"shape_down", t.ShapeDown, &w.ShapeDown}, {"shape_up", t.ShapeUp, &w.ShapeUp}} {
		var err error
		if *x.to, err = plan.ParseRatePreference(x.text); err != nil {
			return w.At(name, x.key, err)
		}
	}
	if w.Framing != "" {
		if _, err := (plan.Line{}).WithFramingText(w.Framing); err != nil {
			return w.At(name, "framing", err)
		}
	}
	if _, given := w.lines["goal"]; given {
		var err error
		if w.Goal, err = unit.ParseDuration(t.Goal); err == nil && w.Goal <= 0 {
			err = errors.New("must be above 0")
		}
		if err != nil {
			return w.At(name, "goal", err)
		}
	}
	return nil
}

// check refuses what makes no sense on any platform.
func (w *WAN) check(name string, t wanTable) error {
	bad := func(key, format string, args ...any) error { return w.At(name, key, fmt.Errorf(format, args...)) }
	if w.Interface == "" {
		return bad("", "a %s needs %s, the interface towards the internet", w.syntax.Table("wan"), w.syntax.Sets(Setting{Key: "interface", Value: "eth0"}))
	}
	if strings.ContainsAny(w.Interface, "/ \t\n") || w.Interface[0] == '.' || w.Interface[0] == '-' || len(w.Interface) > 64 {
		return bad("interface", "%q is not the name of an interface", w.Interface)
	}
	if w.Router != "" && !strings.Contains(w.Router, "://") {
		return bad("router", "%q: must be ssh://user@host[:port] or opnsense+https://host[:port]", w.Router)
	}
	if _, given := w.lines["classifier"]; given && w.Classifier != plan.ByNFT && w.Classifier != plan.ByBPF {
		return bad("classifier", "%q: use %q, or %q for a BPF program on CAKE, or remove the line", string(w.Classifier), string(plan.ByNFT), string(plan.ByBPF))
	}
	if w.Follow {
		holds := w.syntax.Sets(Setting{Key: "follow", Value: "false"})
		switch {
		case w.Router != "" && !w.Here():
			return bad("follow", "only the router itself can follow its line: from here neither its counters nor the line's delay can be read often enough; run the daemon there, or use %s, which holds the rates", holds)
		case w.Down == 0 || w.Up == 0:
			return bad("follow", "needs down and up, what the line usually carries")
		case w.AQM == plan.FIFO:
			return bad("follow", "needs a queue that keeps its own delay short, so that the line's delay shows: remove aqm, or use %s, which holds the rates", holds)
		}
	}
	if w.Incidents && w.Router != "" && !w.Here() {
		return bad("incidents", "only the router itself can watch its line; run the daemon there, or remove the line")
	}
	if w.Down == 0 && w.Up == 0 && w.ShapeDown.IsZero() && w.ShapeUp.IsZero() {
		return bad("", "nothing says how fast the line is: give down and up, what the line usually carries")
	}
	for key, s := range map[string]struct {
		share plan.RatePreference
		of    unit.Rate
		name  string
	}{"shape_down": {w.ShapeDown, w.Down, "down"}, "shape_up": {w.ShapeUp, w.Up, "up"}} {
		if s.share.Fraction != 0 && s.of == 0 {
			return bad(key, "is a share of the line's rate, which nobody gave; add %s", s.name)
		}
	}
	for _, d := range []struct {
		name               string
		least, usual, most unit.Rate
	}{{"down", w.LeastDown, w.Down, w.MostDown}, {"up", w.LeastUp, w.Up, w.MostUp}} {
		given := "least_" + d.name
		if d.least == 0 {
			given = "most_" + d.name
		}
		switch {
		case d.least == 0 && d.most == 0:
		case d.usual == 0:
			return bad(given, "is a bound of %s, which nobody gave; add %s", d.name, d.name)
		case d.least > d.usual:
			return bad("least_"+d.name, "%s is more than the line usually carries (%s = %s); it must be at most that", d.least, d.name, d.usual)
		case d.most != 0 && d.most < d.usual:
			return bad("most_"+d.name, "%s is less than the line usually carries (%s = %s); it must be at least that", d.most, d.name, d.usual)
		}
	}
	for _, s := range t.Reflectors {
		a, err := netip.ParseAddr(s)
		if err != nil || a.IsUnspecified() || a.IsMulticast() {
			return bad("reflectors", "%q is not the address of a host; give addresses, not names", s)
		}
		if slices.Contains(w.Reflectors, a) {
			return bad("reflectors", "%s is in the list twice", a)
		}
		w.Reflectors = append(w.Reflectors, a)
	}
	if err := w.machines(name, t); err != nil {
		return err
	}
	for _, x := range []struct{ key, file, end string }{{"learn", w.Learn, ".rates"}, {"decisions", w.Decisions, ".log"}} {
		if _, set := w.lines[x.key]; set && !strings.HasPrefix(x.file, "/") {
			return bad(x.key, "%q: must be the whole path of a file, as in %s", x.file, w.syntax.Sets(Setting{Key: x.key, Value: "/var/lib/unbloat/" + w.Interface + x.end}))
		}
	}
	if !w.Follow {
		for _, key := range []string{"least_down", "most_down", "least_up", "most_up", "learn", "decisions"} {
			if _, set := w.lines[key]; set {
				return bad(key, "is for %s, and this %s holds its rates; remove it", w.syntax.Sets(Setting{Key: "follow", Value: "true"}), w.syntax.Table("wan"))
			}
		}
	}
	return nil
}
