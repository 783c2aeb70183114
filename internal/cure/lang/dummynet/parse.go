package dummynet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// A Trap is input that the tools accept with exit code 0 but misread.
type Trap struct {
	Means string // the effect
}

// Parse reads dnctl(8) and ipfw(8) commands, a line each, with or without the
// program's name: a rules file, pfSense's rules.limiter or a shell script.
// Other lines are ignored. Errors are those that make the tools fail.
func Parse(text string) (Config, []Trap, error) {
	var c Config
	var traps []Trap
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		t, err := c.exec(strings.Fields(line))
		if err != nil {
			return Config{}, nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		traps = append(traps, t...)
	}
	return c, traps, nil
}

// exec adds one command to the configuration, as the kernel would store it.
func (c *Config) exec(argv []string) ([]Trap, error) {
	if len(argv) > 0 && (argv[0] == "dnctl" || argv[0] == "ipfw") {
		argv = argv[1:]
	}
	for len(argv) > 0 && strings.HasPrefix(argv[0], "-") {
		argv = argv[1:]
	}
	if len(argv) < 2 {
		return nil, nil
	}
	if argv[0] == "table" {
		return nil, c.createTable(argv[1:])
	}
	if argv[0] == "add" {
		return nil, c.addRule(argv[1:])
	}
	kind := argv[0]
	if !slices.Contains([]string{"pipe", "sched", "queue"}, kind) || len(argv) < 3 || argv[2] != "config" {
		return nil, nil
	}
	number, err := strconv.Atoi(argv[1])
	switch {
	case err != nil || number <= 0:
		return nil, fmt.Errorf("%q is no number of a %s", argv[1], kind)
	case number > MaxNumber:
		return nil, fmt.Errorf("%s %d: numbers end at %d", kind, number, MaxNumber)
	}
	s := statement{config: c, kind: kind, words: argv[3:]}
	switch kind {
	case "pipe":
		return s.pipe(number)
	case "sched":
		return s.sched(number)
	default:
		return s.queue(number)
	}
}

// A statement is the rest of one `config`.
type statement struct {
	config *Config
	kind   string
	words  []string
	traps  []Trap
}

// next takes the next word.
func (s *statement) next() (string, bool) {
	if len(s.words) == 0 {
		return "", false
	}
	w := s.words[0]
	s.words = s.words[1:]
	return w, true
}

func (s *statement) trap(format string, args ...any) {
	s.traps = append(s.traps, Trap{fmt.Sprintf(format, args...)})
}

// number takes a number; what is not one is 0, as in strtoul(3).
func (s *statement) number() int {
	w, _ := s.next()
	n, err := strconv.Atoi(strings.TrimRight(w, "abcdefghijklmnopqrstuvwxyz"))
	if err != nil {
		return 0
	}
	return n
}

func (s *statement) slots() (int, error) {
	n := s.number()
	if n < MinSlots || n > MaxSlots {
		return 0, fmt.Errorf("a queue of %d slots is not within %d…%d", n, MinSlots, MaxSlots)
	}
	return n, nil
}

func (s *statement) pipe(number int) ([]Trap, error) {
	p := Pipe{Number: number}
	for word, ok := s.next(); ok; word, ok = s.next() {
		var err error
		switch word {
		case "bw", "bandwidth":
			p.Bandwidth, err = s.bandwidth()
		case "queue":
			p.Slots, err = s.slots()
		case "delay", "burst", "mask", "buckets", "plr":
			_, _ = s.next()
		case "droptail", "noerror":
		case "codel", "pie":
			p.CoDel = strings.Join(s.words, " ")
			s.words = nil
		case "type": // OPNsense: scheduler of the pipe
			if err = s.addSched(Sched{Number: number, Pipe: number}); err != nil {
				return nil, err
			}
		default:
			err = fmt.Errorf("%q is no option of a %s", word, s.kind)
		}
		if err != nil {
			return nil, err
		}
	}
	s.config.Pipes = upsert(s.config.Pipes, p, func(x Pipe) bool { return x.Number == number })
	return s.traps, nil
}

// bandwidth reads a rate as dnctl does: the leading digits, a prefix letter,
// and B for bytes.
func (s *statement) bandwidth() (unit.Rate, error) {
	word, _ := s.next()
	end := strings.IndexFunc(word, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(word)
	}
	n, err := strconv.ParseUint(word[:end], 10, 63)
	if err != nil {
		return 0, fmt.Errorf("the bandwidth %q is no number", word)
	}
	rest := word[end:]
	if strings.HasPrefix(rest, ".") {
		s.trap("bw %s is read as %d bit/s: fractions are not understood", word, n)
	}
	of := uint64(1)
	if rest != "" {
		switch rest[0] {
		case 'k', 'K':
			of, rest = 1e3, rest[1:]
		case 'm', 'M':
			of, rest = 1e6, rest[1:]
		case 'g', 'G':
			of, rest = 1e9, rest[1:]
		}
	}
	if strings.HasPrefix(rest, "by") || strings.HasPrefix(rest, "B") && !strings.HasPrefix(rest, "Bi") {
		of *= 8
	}
	if n > math.MaxUint32/of {
		return 0, fmt.Errorf("the bandwidth %s is more than 32 bits", word)
	}
	if n*of == math.MaxUint32 {
		s.trap("bw %s becomes 0, which is unlimited", word)
		return 0, nil
	}
	return unit.Rate(n * of), nil
}

func (s *statement) sched(number int) ([]Trap, error) {
	sched := Sched{Number: number}
	for word, ok := s.next(); ok; word, ok = s.next() {
		switch word {
		case "pipe":
			sched.Pipe = s.number()
		case "mask":
			field, _ := s.next()
			value, _ := s.next()
			sched.Mask = field + " " + value
		case "type":
			if err := s.addSched(sched); err != nil {
				return nil, err
			}
			return s.traps, nil
		default:
			return nil, fmt.Errorf("%q is no option of a %s", word, s.kind)
		}
	}
	return s.traps, s.addSchedNamed(sched, "")
}

// addSched reads everything after `type`.
func (s *statement) addSched(sched Sched) error {
	name, _ := s.next()
	return s.addSchedNamed(sched, name)
}

func (s *statement) addSchedNamed(sched Sched, name string) error {
	sched.Type = name
	switch name {
	case "fq_codel":
		s.fqCodel(&sched)
	case "", "wf2q+", "fifo", "qfq", "rr", "prio", "fq_pie":
		s.words = nil
	default:
		return fmt.Errorf("%q is no type of a scheduler", name)
	}
	s.config.Scheds = upsert(s.config.Scheds, sched, func(x Sched) bool { return x.Number == sched.Number })
	return nil
}

// fqCodel reads fq_codel's parameters. dnctl warns about unknown ones, ignores
// them and exits 0.
func (s *statement) fqCodel(to *Sched) {
	for word, ok := s.next(); ok; word, ok = s.next() {
		switch word {
		case "target":
			to.Target = min(s.span(), MaxTarget)
		case "interval":
			to.Interval = min(s.span(), MaxInterval)
		case "quantum":
			to.Quantum = s.clamped("quantum", MaxQuantum)
		case "limit":
			to.Limit = s.clamped("limit", MaxLimit)
		case "flows":
			to.Flows = s.clamped("flows", MaxFlows)
		case "ecn":
			to.NoECN = false
		case "noecn":
			to.NoECN = true
		default:
			s.trap("%q is not a parameter of fq_codel and is ignored; put pipe, mask and queue before type", word)
		}
	}
}

// clamped takes a number that the kernel silently lowers to most.
func (s *statement) clamped(name string, most int) int {
	n := s.number()
	if n > most {
		s.trap("%s %d is lowered to %d", name, n, most)
		return most
	}
	return max(n, 1)
}

// span reads a time; the default unit is ms.
func (s *statement) span() time.Duration {
	word, _ := s.next()
	num := strings.TrimRight(word, "musec")
	n, err := strconv.ParseInt(num, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	switch word[len(num):] {
	case "us":
		return time.Duration(n) * time.Microsecond
	case "s":
		return time.Duration(n) * time.Second
	default:
		return time.Duration(n) * time.Millisecond
	}
}

func (s *statement) queue(number int) ([]Trap, error) {
	q := Queue{Number: number}
	for word, ok := s.next(); ok; word, ok = s.next() {
		var err error
		switch word {
		case "sched", "pipe":
			q.Sched = s.number()
		case "weight":
			q.Weight = s.number()
			if kept := min(max(q.Weight, 1), MaxWeight); kept != q.Weight {
				s.trap("weight %d is read as %d", q.Weight, kept)
				q.Weight = kept
			}
		case "queue":
			q.Slots, err = s.slots()
		case "mask", "buckets":
			_, _ = s.next()
		case "droptail", "noerror":
		case "codel", "pie":
			q.CoDel = strings.Join(s.words, " ")
			s.words = nil
		default:
			err = fmt.Errorf("%q is no option of a %s", word, s.kind)
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Sched == 0 {
		return nil, fmt.Errorf("queue %d has no scheduler", number)
	}
	s.config.Queues = upsert(s.config.Queues, q, func(x Queue) bool { return x.Number == number })
	return s.traps, nil
}

// addRule reads `NUMBER queue N match…`.
func (c *Config) addRule(words []string) error {
	number, err := strconv.Atoi(words[0])
	if err != nil || len(words) < 4 || words[1] != "queue" && words[1] != "pipe" {
		return nil // some other rule
	}
	if number < 1 || number > MaxRule {
		return fmt.Errorf("a rule's number %d is not within 1…%d", number, MaxRule)
	}
	target, err := strconv.Atoi(words[2])
	if words[2] == tablearg {
		target, err = 0, nil
	} else if err != nil || target < 1 || target > MaxNumber {
		return fmt.Errorf("%q is no number of a %s", words[2], words[1])
	}
	for i, w := range words[3:] {
		if w == "dscp" && i+4 < len(words) && slices.ContainsFunc(strings.Split(words[i+4], ","), unknownDSCP) {
			return fmt.Errorf("%q has an unknown code point", words[i+4])
		}
	}
	c.Rules = append(c.Rules, Rule{Number: number, Action: words[1], Target: target, Match: strings.Join(words[3:], " ")})
	return nil
}

// unknownDSCP reports whether ipfw(8) doesn't know the code; its names are lower case.
func unknownDSCP(s string) bool {
	if n, err := strconv.Atoi(s); err == nil {
		return n < 0 || n > 63
	}
	for n := range uint8(64) {
		if s == dscpName(n) || s == "cs0" {
			return false
		}
	}
	return true
}

// upsert replaces the first element for which same is true, or appends.
func upsert[T any](list []T, v T, same func(T) bool) []T {
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = v
		return list
	}
	return append(list, v)
}
