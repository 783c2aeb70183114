// Package pfctl stands in for OpenBSD's pfctl(8): today's, with queues and flow
// queues, and that of ALTQ's time. It reads a pf.conf(5) as the real program
// does, says the same of what is wrong, and prints what it would load in the
// same form. It knows pf.conf from pf.conf(5) and from what the real programs
// answered (package verdicts), and shares no code with what it judges. What it
// does not know it refuses.
//
// Not known: fingerprints, pools of addresses, diverted packets, route-to,
// binat, tables and anchors in files, names that a resolver would have to look
// up, users other than root. Rules are printed as they were written: the
// optimizer of pfctl(8), which drops and reorders rules without changing what
// they do, is left out.
package pfctl

import (
	"fmt"
	"strings"
)

// A Grammar is a time in the life of pf.conf(5).
type Grammar int

const (
	// Today is OpenBSD's of 7.6 and 7.7.
	Today Grammar = iota
	// ALTQ is that of OpenBSD 4.5 and before, as recorded: no match rules.
	ALTQ
	// ALTQWithMatch is ALTQ's with the match rules that 4.6 brought. Nothing of
	// it was recorded.
	ALTQWithMatch
)

// A Count is what a queue counts.
type Count struct{ Packets, Bytes, Drops, DroppedBytes, Waiting int64 }

// A Program is pfctl(8) on one router, and what of its kernel it sees.
type Program struct {
	Grammar    Grammar
	Interfaces []Interface
	// File returns a file's text; false: it is not there.
	File func(path string) (string, bool)
	// Counts returns what a queue has counted; nil: nothing.
	Counts   func(queue string) Count
	Disabled bool // pf is off

	loaded ruleset
}

// A ruleset is what is loaded.
type ruleset struct {
	roots, children []*flow
	altqs           []altq
	scrubs          []rule
	nats            []rule
	rdrs            []rule
	rules           []rule
}

// A run is one call of the program.
type run struct {
	*Program
	verbose, noAction bool
	stdout, stderr    strings.Builder
	next              ruleset
	slots             []slot
	last              altq
}

// Run runs pfctl with arguments and returns what it prints and its exit code.
// What changes nothing in the kernel (-n) leaves the program as it was.
func (p *Program) Run(args []string) (stdout, stderr string, exit int) {
	r := &run{Program: p}
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(stopped); !ok {
				panic(e)
			}
			stdout, stderr, exit = r.stdout.String(), r.stderr.String(), 1
		}
	}()
	var show, file string
	for i := 0; i < len(args); i++ {
		flags, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			r.stop("the stand-in does not know the argument %s", args[i])
		}
		for k := 0; k < len(flags); k++ {
			value := func() string {
				v := flags[k+1:]
				if k = len(flags); v == "" {
					if i++; i == len(args) {
						r.stop("option requires an argument -- %s", flags[len(flags)-1:])
					}
					v = args[i]
				}
				return v
			}
			switch flags[k] {
			case 'n':
				r.noAction = true
			case 'v':
				r.verbose = true
			case 'f':
				file = value()
			case 's':
				show = value()
			default:
				r.stop("the stand-in does not know -%c", flags[k])
			}
		}
	}
	switch {
	case file != "":
		r.load(file)
	case show != "":
		r.show(show)
	}
	return r.stdout.String(), r.stderr.String(), 0
}

// load reads a pf.conf and, without -n, puts it in place of what is loaded: all
// of it or nothing.
func (r *run) load(path string) {
	old := r.Grammar != Today
	text, ok := r.File(path)
	if !ok {
		if old {
			r.warn("%s: No such file or directory", path)
		} else {
			r.warn("pushfile: %s: No such file or directory", path)
		}
		r.warn("cannot open the main config file!: No such file or directory")
		r.failed("Syntax error in config file: pf rules not loaded")
	}
	p := &parser{run: r, rules: &r.next.rules}
	p.lexer = lexer{old: old, words: keywords(r.Grammar), macros: map[string]string{}, complain: p.errorf}
	p.include(path, text)
	if p.parse(); p.errors > 0 {
		r.failed("Syntax error in config file: pf rules not loaded")
	}
	if !old {
		if !r.checkQueues() {
			r.failed("Unable to load queues into kernel")
		}
		for _, q := range r.next.roots {
			for _, one := range q.all(q.iface) {
				r.say("%s\n", one.text())
			}
		}
	}
	for _, list := range [][]rule{r.next.scrubs, r.next.nats, r.next.rdrs, r.next.rules} {
		r.say("%s", rulesText(list, old, 0))
	}
	if old && !r.checkALTQ() {
		r.stop("errors in altq config")
	}
	if r.noAction {
		return
	}
	for _, a := range r.next.altqs {
		if !r.exists(a.iface) {
			r.stop("DIOCADDALTQ: Device not configured")
		}
	}
	r.loaded = r.next
}

// rulesText prints rules, those of anchors deeper.
func rulesText(list []rule, old bool, depth int) string {
	var b strings.Builder
	for _, one := range list {
		b.WriteString(strings.Repeat("  ", depth) + one.text(old))
		if one.body != nil && len(*one.body) > 0 {
			b.WriteString(" {\n" + rulesText(*one.body, old, depth+1) + strings.Repeat("  ", depth) + "}")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// show prints what is loaded.
func (r *run) show(what string) {
	old := r.Grammar != Today
	switch {
	case strings.HasPrefix("queue", what):
		if old {
			r.showAllALTQ()
			return
		}
		for _, q := range r.loaded.roots {
			for _, one := range q.all(q.iface) {
				if r.verbose {
					r.print("%s", one.counted(r.counts(one.name)))
				} else {
					r.print("%s\n", one.text())
				}
			}
		}
	case strings.HasPrefix("rules", what):
		list := r.loaded.rules
		if old {
			list = append(append([]rule{}, r.loaded.scrubs...), list...)
		}
		r.print("%s", rulesText(list, old, 0))
	case strings.HasPrefix("info", what):
		state := "Enabled"
		if r.Disabled {
			state = "Disabled"
		}
		r.print("Status: %-29s %20s\n", state+" for 0 days 00:10:00", "Debug: err")
	default:
		r.stop("the stand-in does not know -s %s", what)
	}
}

func (r *run) showAllALTQ() {
	if len(r.loaded.altqs) == 0 {
		r.print("No queue in use\n")
	}
	for _, q := range r.loaded.altqs {
		if q.name != "" && q.parent == "" {
			r.showALTQ(&r.stdout, q, 0, r.verbose)
		}
	}
}

func (p *Program) counts(queue string) Count {
	if p.Counts == nil {
		return Count{}
	}
	return p.Counts(queue)
}

func (p *Program) find(name string) (Interface, bool) {
	for _, i := range p.Interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}

func (p *Program) exists(name string) bool { _, ok := p.find(name); return ok }

// mtu is how large an interface's packets are. It stops where there is none.
func (r *run) mtu(name string) int {
	i, ok := r.find(name)
	if !ok {
		r.stop("SIOCGIFMTU: Device not configured")
	}
	return i.MTU
}

// print prints; say does so with -v only.
func (r *run) print(format string, args ...any) { fmt.Fprintf(&r.stdout, format, args...) }

func (r *run) say(format string, args ...any) {
	if r.verbose {
		r.print(format, args...)
	}
}

// errln and warn write to standard error, warn with the program's name.
func (r *run) errln(format string, args ...any) { fmt.Fprintf(&r.stderr, format+"\n", args...) }

func (r *run) warn(format string, args ...any) { r.errln("pfctl: "+format, args...) }

// stop ends the program with what is wrong.
func (r *run) stop(format string, args ...any) {
	r.warn(format, args...)
	panic(stopped{})
}

// failed ends the program after what is wrong was said; why is added where
// something should have been loaded.
func (r *run) failed(why string) {
	if !r.noAction {
		r.warn("%s", why)
	}
	panic(stopped{})
}
