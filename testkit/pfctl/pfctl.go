// Package pfctl stands in for OpenBSD's pfctl(8): the current one, with queues
// and flow queues, and the old one with ALTQ. It reads a pf.conf(5) as the real
// program does, reports the same errors, and prints what it would load in the
// same form. It follows pf.conf(5) and the recorded answers of the real
// programs (package verdicts), shares no code with the product, and refuses
// what it does not know.
//
// Not known are: fingerprints, pools of addresses, diverted packets, route-to,
// binat, tables and anchors in files, host names, and users other than root.
// Rules are printed in the order in which they were written: pfctl's optimizer,
// which drops and reorders rules without changing what they do, is left out.
package pfctl

import (
	"fmt"
	"strings"
)

// A Grammar is a generation of pf.conf(5).
type Grammar int

const (
	// Today is the grammar of OpenBSD 7.6 and 7.7.
	Today Grammar = iota
	// ALTQ is that of OpenBSD 4.5 and before, without match rules, as recorded.
	ALTQ
	// ALTQWithMatch is ALTQ's with the match rules of OpenBSD 4.6. There are no
	// recordings of it.
	ALTQWithMatch
)

// A Count holds a queue's counters.
type Count struct{ Packets, Bytes, Drops, DroppedBytes, Waiting int64 }

// A Program is pfctl(8) on one router, and the state of the kernel that it
// shows.
type Program struct {
	Grammar    Grammar
	Interfaces []Interface
	// File returns a file's text, and false if the file does not exist.
	File func(path string) (string, bool)
	// Counts returns a queue's counters; nil: all are 0.
	Counts   func(queue string) Count
	Disabled bool // pf is off
	// Stdin is the standard input of the next Run, which reads it with -f -.
	Stdin string

	loaded ruleset
}

// A ruleset is what the kernel has loaded.
type ruleset struct {
	roots, children []*flow
	altqs           []altq
	scrubs          []rule
	nats            []rule
	rdrs            []rule
	rules           []rule
}

// A run is one run of the program.
type run struct {
	*Program
	verbose, noAction bool
	stdout, stderr    strings.Builder
	next              ruleset
	slots             []slot
	last              altq
}

// Run runs pfctl with arguments and returns what it prints and its exit code.
// With -n it changes nothing.
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

// load reads a pf.conf. Without -n the new rules replace the loaded ones: all
// of them, or none after an error.
func (r *run) load(path string) {
	old := r.Grammar != Today
	text, ok := r.Stdin, true
	if path == "-" {
		path = "stdin"
	} else {
		text, ok = r.File(path)
	}
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

// rulesText prints rules. Those of anchors are indented.
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

// mtu returns the MTU of an interface in bytes. It ends the program if the
// interface does not exist.
func (r *run) mtu(name string) int {
	i, ok := r.find(name)
	if !ok {
		r.stop("SIOCGIFMTU: Device not configured")
	}
	return i.MTU
}

// print writes to standard output, say only with -v.
func (r *run) print(format string, args ...any) { fmt.Fprintf(&r.stdout, format, args...) }

func (r *run) say(format string, args ...any) {
	if r.verbose {
		r.print(format, args...)
	}
}

// errln and warn write to standard error, warn with the program's name before
// the message.
func (r *run) errln(format string, args ...any) { fmt.Fprintf(&r.stderr, format+"\n", args...) }

func (r *run) warn(format string, args ...any) { r.errln("pfctl: "+format, args...) }

// stop prints a message and ends the program.
func (r *run) stop(format string, args ...any) {
	r.warn(format, args...)
	panic(stopped{})
}

// failed ends the program after an error was reported. Without -n it first
// prints why nothing is loaded.
func (r *run) failed(why string) {
	if !r.noAction {
		r.warn("%s", why)
	}
	panic(stopped{})
}
