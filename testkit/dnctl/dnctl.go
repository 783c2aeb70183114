// Package dnctl stands in for FreeBSD's dnctl(8), ipfw(8) and the kernel's
// dummynet in tests. It reads command lines as sbin/ipfw does (dummynet.c,
// ipfw2.c and main.c of 14-CURRENT), with the same messages and exit codes, and
// stores what the kernel (ip_dummynet.c) would store. Words that the real
// program ignores are ignored here, values above a limit are lowered, and
// listed rates are rounded.
//
// It shares no code with the product. What it does not know it refuses with
// exit code 70 and a message that begins with "stand-in".
package dnctl

import (
	"fmt"
	"slices"
	"strings"
)

// Exit codes of sysexits(3). The tools exit with 1 when the kernel refuses
// something.
const (
	exitUsage       = 64
	exitData        = 65
	exitNoHost      = 68
	exitUnavailable = 69
	exitUnknown     = 70 // only the stand-in's
)

// A Result is the exit code and the output of one run.
type Result struct {
	Exit           int
	Stdout, Stderr string
}

// A Machine is a kernel with dummynet and ipfw, and the two programs that
// configure it. The zero value has no pipes and no rules.
type Machine struct {
	// SlotLimit is net.inet.ip.dummynet.pipe_slot_limit; 0 means 100.
	SlotLimit int
	// Told, if set, gets each message instead of the kernel, and its result is
	// printed. Nothing is stored, clamped or refused then.
	Told func(Message) string
	// Counted are the counters that `dnctl queue show` prints, by the queue's
	// number.
	Counted map[int]Count

	scheds   map[int]*scheduler
	flowsets map[int]*flowset
	rules    []rule
	tables   map[string]*table
}

// A Count is what went through a queue, what waits in it, and what was dropped.
type Count struct{ Packets, Bytes, BacklogPackets, BacklogBytes, Drops int64 }

// A run is one run of a program.
type run struct {
	*Machine
	program         string // dnctl or ipfw
	name            string // the prefix of its messages
	testOnly, quiet bool
	out, errOut     strings.Builder
}

// An exit is the panic that ends a run from anywhere.
type exit struct{ code int }

// Run runs dnctl or ipfw (argv[0]). If the last argument is an absolute path,
// it is a file of commands, whose text read returns.
func (m *Machine) Run(argv []string, read func(path string) (string, bool)) (result Result) {
	r := &run{Machine: m, program: argv[0], name: argv[0]}
	defer func() {
		result.Stdout, result.Stderr = r.out.String(), r.errOut.String()
		if e := recover(); e != nil {
			x, ok := e.(exit)
			if !ok {
				panic(e)
			}
			result.Exit = x.code
		}
	}()
	if last := argv[len(argv)-1]; len(argv) > 1 && strings.HasPrefix(last, "/") {
		r.file(argv, read)
		return result
	}
	if r.line(joined(argv[1:])) {
		r.usage()
	}
	return result
}

func (r *run) usage() {
	r.fail(exitUsage, "usage: %s [options]\ndo \"%s -h\" or \"man %s\" for details", r.program, r.program, r.program)
}

// fail prints a message and ends the run.
func (r *run) fail(code int, format string, args ...any) {
	r.warn(format, args...)
	panic(exit{code})
}

// warn prints a message to standard error.
func (r *run) warn(format string, args ...any) {
	r.errOut.WriteString(r.name + ": " + fmt.Sprintf(format, args...) + "\n")
}

// unknown ends a run that needs something this stand-in does not know.
func (r *run) unknown(format string, args ...any) {
	r.fail(exitUnknown, "stand-in: does not know "+format, args...)
}

// file runs the commands of a file, up to the first one that ends the program.
func (r *run) file(argv []string, read func(string) (string, bool)) {
	flags := map[string]string{"dnctl": "nq", "ipfw": "cfNnqS"}[r.program]
	path := argv[len(argv)-1]
	for _, w := range argv[1 : len(argv)-1] {
		if !strings.HasPrefix(w, "-") || len(w) < 2 {
			r.fail(exitUsage, "extraneous filename arguments %s", path)
		}
		for _, c := range w[1:] {
			switch {
			case r.program == "ipfw" && c == 'p':
				r.unknown("-p: no preprocessor")
			case !strings.ContainsRune(flags, c):
				r.fail(exitUsage, "bad arguments, for usage summary ``%s''", r.program)
			case c == 'n':
				r.testOnly = true
			case c == 'q':
				r.quiet = true
			}
		}
	}
	text, ok := "", false
	if read != nil {
		text, ok = read(path)
	}
	if !ok {
		r.fail(exitUsage, "pathname: %s: No such file or directory", path)
	}
	for i, line := range strings.Split(text, "\n") {
		if len(line) > 4094 {
			r.unknown("lines of 4095 characters and more")
		}
		r.name = fmt.Sprintf("Line %d", i+1)
		r.line(words(line))
	}
}

// words splits a line of a file into words. A # begins a comment, and blanks
// after a comma do not separate words.
func words(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	var out []string
	for _, w := range strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t\f\v\n\r", c) }) {
		if n := len(out); n > 0 && strings.HasSuffix(out[n-1], ",") {
			out[n-1] += w
			continue
		}
		out = append(out, w)
	}
	return out
}

// joined returns the arguments of a command line. A single argument is split
// like a line of a file. Of several, one that ends with a comma is joined with
// the next.
func joined(args []string) []string {
	if len(args) == 1 {
		return words(args[0])
	}
	var out []string
	open := false
	for _, a := range args {
		if open {
			out[len(out)-1] += a
		} else {
			out = append(out, a)
		}
		open = strings.HasSuffix(a, ",")
	}
	return out
}

// line runs one command. It reports whether the line was empty.
func (r *run) line(av []string) (none bool) {
	if len(av) == 0 {
		return true
	}
	for len(av) > 0 && len(av[0]) > 1 && av[0][0] == '-' {
		for _, c := range av[0][1:] {
			switch {
			case c == 'n':
				r.testOnly = true
			case r.program == "ipfw" && c == 'q':
				r.quiet = true
			case r.program == "ipfw" && strings.ContainsRune("ef", c):
			case c == 'h' || c == 'v' || c == 's' || r.program == "ipfw" && strings.ContainsRune("abcdDiNpStT", c):
				r.unknown("the option -%c", c)
			default:
				r.errOut.WriteString(r.program + ": illegal option -- " + string(c) + "\n")
				return true
			}
		}
		av = av[1:]
	}
	if len(av) == 0 {
		r.fail(exitUsage, "bad arguments, for usage summary ``ipfw''")
	}
	if len(av) > 1 && digit(av[0]) {
		av = slices.Clone(av)
		av[0], av[1] = av[1], av[0]
	}
	kind := 0
	switch w := av[0]; {
	case r.program == "ipfw" && strings.HasPrefix("nat", w), r.program == "ipfw" && strings.HasPrefix("set", w):
		r.unknown("%s", w)
	case strings.HasPrefix("pipe", w):
		kind = pipeCommand
	case r.matches(w, "queue"), r.matches(w, "flowset"):
		kind = queueCommand
	case r.matches(w, "sched"):
		kind = schedCommand
	}
	if kind != 0 {
		av = slices.Clone(av[1:])
	}
	if len(av) == 0 {
		r.fail(exitUsage, "missing command")
	}
	if kind != 0 && len(av) > 1 && digit(av[0]) {
		av[0], av[1] = av[1], av[0]
	}
	switch w := av[0]; {
	case r.program == "dnctl" && kind == 0:
		r.unknown("`dnctl %s`: it prints a summary", w)
	case r.program == "ipfw" && r.matches(w, "add"):
		r.add(av[1:])
	case kind != 0 && r.matches(w, "config"):
		r.config(kind, av[1:])
	case r.matches(w, "delete"):
		r.remove(kind, av[1:])
	case r.matches(w, "flush"):
		r.flush(kind)
	case r.matches(w, "print"), r.matches(w, "list"), r.matches(w, "show"):
		if kind == 0 && r.matches(w, "show") {
			r.unknown("`ipfw show`: it counts nothing")
		}
		r.list(kind, av[1:])
	case r.program == "ipfw" && w == "table":
		r.table(av[1:])
	case r.program == "ipfw" && slices.Contains([]string{"set", "enable", "disable", "zero", "resetlog", "internal"}, w):
		r.unknown("`ipfw %s`", w)
	default:
		r.fail(exitUsage, "bad command `%s'", w)
	}
	return false
}

// matches reports whether a word is a keyword or its beginning, which is said to
// be deprecated.
func (r *run) matches(word, keyword string) bool {
	if !strings.HasPrefix(keyword, word) {
		return false
	}
	if word != keyword {
		r.warn("DEPRECATED: '%s' matched '%s' as a sub-string", word, keyword)
	}
	return true
}

func digit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }
