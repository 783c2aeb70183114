// Package iptables stands in for iptables(8) 1.4.21 and the modules of Linux 3.10 in
// tests: commands and files of iptables-restore go in, and packets are walked through
// the rules as the kernel does. It knows what ClearOS's engine and our plans write,
// with the limits that iptables-extensions(8) names, and refuses the rest. It shares
// no code with what renders rules.
package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Table is the table mangle.
type Table struct {
	chains map[string][]*rule
	order  []string
	meters map[string]*meters
	lists  map[string]*list
}

// A rule is one as it was given, and what it means.
type rule struct {
	text    string // after -A CHAIN
	matches []match
	act     action
}

// A match tells whether a packet fits.
type match func(w *walk) bool

// An action is what a rule does to packets that fit.
type action struct {
	to       string // a chain of the user's
	comeBack bool   // -j, not -g
	ends     bool   // ACCEPT
	returns  bool
	class    string
	setMark  func(mark uint32) uint32
}

// builtIn are the chains of the table mangle.
func builtIn() []string {
	return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
}

// New returns an empty table.
func New() *Table {
	t := &Table{meters: map[string]*meters{}, lists: map[string]*list{}}
	t.Flush()
	return t
}

// Flush removes all rules and the chains of the user's, as a start of ClearOS's
// firewall does. What meters and lists hold goes with the last rule that names them.
func (t *Table) Flush() {
	t.chains, t.order = map[string][]*rule{}, builtIn()
	for _, c := range builtIn() {
		t.chains[c] = nil
	}
	clear(t.meters)
	clear(t.lists)
}

// Clone returns a table with the same rules, and empty meters and lists.
func (t *Table) Clone() *Table {
	c := New()
	for _, name := range t.order {
		if !slices.Contains(builtIn(), name) {
			if err := c.Command([]string{"-N", name}); err != nil {
				panic(err)
			}
		}
	}
	for _, name := range t.order {
		for _, r := range t.chains[name] {
			if err := c.Command(append([]string{"-A", name}, strings.Fields(r.text)...)); err != nil {
				panic(err)
			}
		}
	}
	return c
}

// Command runs the words of `iptables -t mangle …`: -N, -A, -I, -F or -X with a chain.
// The errors are those of the program, or say that this stand-in knows no such thing.
func (t *Table) Command(w []string) error {
	if len(w) < 2 {
		return fmt.Errorf("iptables: the stand-in knows no %q", w)
	}
	name := w[1]
	_, there := t.chains[name]
	switch {
	case w[0] == "-N" && len(w) == 2:
		switch {
		case there:
			return fmt.Errorf("iptables: Chain already exists.")
		case len(name) > mostChain:
			return fmt.Errorf("iptables v1.4.21: chain name `%s' too long (must be under %d chars)", name, mostChain+1)
		}
		t.chains[name] = nil
		t.order = append(t.order, name)
		return nil
	case !there:
		return fmt.Errorf("iptables: No chain/target/match by that name.")
	case (w[0] == "-A" || w[0] == "-I") && len(w) > 2:
		r, err := t.rule(name, w[2:])
		if err != nil {
			return err
		}
		if w[0] == "-I" {
			t.chains[name] = slices.Insert(t.chains[name], 0, r)
		} else {
			t.chains[name] = append(t.chains[name], r)
		}
		return nil
	}
	return fmt.Errorf("iptables: the stand-in knows no %q", w)
}

// mostChain is the length of the longest name of a chain.
const mostChain = 28

// Restore runs what `iptables-restore --noflush` reads: nothing of it if there is an error.
func (t *Table) Restore(text string) error {
	trial := t.Clone()
	begun, done := false, false
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		w := strings.Fields(line)
		var err error
		switch {
		case len(w) == 0 || line[0] == '#':
		case line == "*mangle" && !begun:
			begun = true
		case line == "COMMIT" && begun && !done:
			done = true
		case !begun || done:
			err = fmt.Errorf("the stand-in knows the table mangle alone")
		case line[0] == ':' && len(w) == 3:
			if name := w[0][1:]; !slices.Contains(builtIn(), name) {
				err = trial.Command([]string{"-N", name})
			}
		default:
			err = trial.Command(w)
		}
		if err != nil {
			return fmt.Errorf("iptables-restore: line %d failed: %w", i+1, err)
		}
	}
	if !done {
		return fmt.Errorf("iptables-restore: COMMIT expected")
	}
	*t = *trial
	return nil
}

// List prints the table as `iptables -t mangle -S` does, but the words of rules as
// they were given.
func (t *Table) List() string {
	var b strings.Builder
	for _, c := range builtIn() {
		fmt.Fprintf(&b, "-P %s ACCEPT\n", c)
	}
	names := slices.Sorted(maps.Keys(t.chains))
	for _, c := range names {
		if !slices.Contains(builtIn(), c) {
			fmt.Fprintf(&b, "-N %s\n", c)
		}
	}
	for _, c := range append(builtIn(), slices.DeleteFunc(names, func(c string) bool { return slices.Contains(builtIn(), c) })...) {
		for _, r := range t.chains[c] {
			fmt.Fprintf(&b, "-A %s %s\n", c, r.text)
		}
	}
	return b.String()
}

// A reader reads the words of one rule.
type reader struct {
	table    *Table
	chain    string
	w        []string
	protocol string
	loaded   map[string]bool // matches by -m
	rule     *rule
}

// next returns the next word; "" if there is none.
func (r *reader) next() string {
	if len(r.w) == 0 {
		return ""
	}
	s := r.w[0]
	r.w = r.w[1:]
	return s
}

// options takes the options that follow a match, up to what belongs to none of them.
// Each has one word after it, or (flag) none. "!" before one is kept in its name.
func (r *reader) options(valued, flags []string) map[string]string {
	out := map[string]string{}
	for len(r.w) > 0 {
		name, not := r.w[0], ""
		rest := r.w[1:]
		if name == "!" && len(rest) > 0 {
			name, not, rest = rest[0], "!", rest[1:]
		}
		if _, twice := out[name]; twice {
			return out
		}
		switch {
		case slices.Contains(valued, name) && len(rest) > 0:
			out[not+name], r.w = rest[0], rest[1:]
		case slices.Contains(flags, name):
			out[not+name], r.w = "yes", rest
		default:
			return out
		}
	}
	return out
}

func (r *reader) add(m match) { r.rule.matches = append(r.rule.matches, m) }

// rule reads a rule of a chain.
func (t *Table) rule(chain string, words []string) (*rule, error) {
	r := &reader{table: t, chain: chain, w: slices.Clone(words), loaded: map[string]bool{}, rule: &rule{text: strings.Join(words, " ")}}
	jumped := false
	for len(r.w) > 0 {
		word, not := r.next(), false
		if word == "!" {
			word, not = r.next(), true
		}
		var err error
		switch word {
		case "-p":
			err = r.proto(r.next(), not)
		case "-s", "-d":
			err = r.address(word, r.next(), not)
		case "-i", "-o":
			err = r.device(word, r.next(), not)
		case "-m":
			if not {
				return nil, fmt.Errorf("iptables v1.4.21: unexpected ! flag before --match")
			}
			err = r.match(r.next())
		case "--sport", "--dport", "--syn": // of the protocol, which -p has loaded
			r.w = append([]string{word}, r.w...)
			if not {
				r.w = append([]string{"!"}, r.w...)
			}
			err = r.transport()
		case "-j", "-g":
			if jumped || not {
				return nil, fmt.Errorf("iptables v1.4.21: multiple -j flags not allowed")
			}
			jumped = true
			err = r.target(word, r.next())
		default:
			err = fmt.Errorf("iptables v1.4.21: unknown option \"%s\"", word)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.rule, nil
}

// numbers of protocols.
func protocolNumber(name string) (uint8, bool) {
	n, ok := map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "sctp": 132}[name]
	if v, err := strconv.ParseUint(name, 10, 8); err == nil {
		return uint8(v), v > 0
	}
	return n, ok
}

func (r *reader) proto(name string, not bool) error {
	n, ok := protocolNumber(name)
	if !ok {
		return fmt.Errorf("iptables v1.4.21: unknown protocol \"%s\" specified", name)
	}
	if r.protocol != "" {
		return fmt.Errorf("iptables v1.4.21: multiple -p flags not allowed")
	}
	r.protocol = name
	if not {
		r.protocol = "!" + name
	}
	r.add(func(w *walk) bool { return (w.p.Protocol == n) != not })
	return nil
}

func (r *reader) address(option, text string, not bool) error {
	net, err := netip.ParsePrefix(text)
	if err != nil {
		a, e := netip.ParseAddr(text)
		if e != nil || !a.Is4() {
			return fmt.Errorf("iptables v1.4.21: host/network `%s' not found", text)
		}
		net = netip.PrefixFrom(a, 32)
	}
	if !net.Addr().Is4() {
		return fmt.Errorf("iptables v1.4.21: host/network `%s' not found", text)
	}
	r.add(func(w *walk) bool {
		a := w.p.Source.Addr()
		if option == "-d" {
			a = w.p.Destination.Addr()
		}
		return net.Contains(a) != not
	})
	return nil
}

func (r *reader) device(option, name string, not bool) error {
	switch {
	case name == "" || len(name) > 15:
		return fmt.Errorf("iptables v1.4.21: interface name `%s' must be shorter than IFNAMSIZ (15)", name)
	case option == "-i" && (r.chain == "POSTROUTING" || r.chain == "OUTPUT"):
		return fmt.Errorf("iptables v1.4.21: Can't use -i with %s", r.chain)
	case option == "-o" && (r.chain == "PREROUTING" || r.chain == "INPUT"):
		return fmt.Errorf("iptables v1.4.21: Can't use -o with %s", r.chain)
	}
	r.add(func(w *walk) bool {
		d := w.p.In
		if option == "-o" {
			d = w.p.Out
		}
		return (d == name) != not
	})
	return nil
}

// target reads a target, or a chain.
func (r *reader) target(flag, name string) error {
	a := &r.rule.act
	if _, is := r.table.chains[name]; is && !slices.Contains(builtIn(), name) {
		if name == r.chain {
			return fmt.Errorf("iptables: Too many levels of symbolic links.") // ELOOP
		}
		a.to, a.comeBack = name, flag == "-j"
		return nil
	}
	if flag == "-g" {
		return fmt.Errorf("iptables v1.4.21: goto '%s' is not a chain", name)
	}
	switch name {
	case "ACCEPT":
		a.ends = true
	case "RETURN":
		a.returns = true
	case "CLASSIFY":
		o := r.options([]string{"--set-class"}, nil)
		major, minor, ok := strings.Cut(o["--set-class"], ":")
		x, errX := strconv.ParseUint(major, 16, 16)
		y, errY := strconv.ParseUint(minor, 16, 16)
		if !ok || errX != nil || errY != nil {
			return fmt.Errorf("iptables v1.4.21: Bad class value `%s'", o["--set-class"])
		}
		if r.chain == "PREROUTING" || r.chain == "INPUT" {
			return fmt.Errorf("iptables: Invalid argument. Run `dmesg' for more information.")
		}
		a.class = fmt.Sprintf("%x:%x", x, y)
	case "CONNMARK":
		o := r.options([]string{"--set-xmark", "--set-mark"}, []string{"--restore-mark", "--save-mark"})
		text, whole := o["--set-xmark"], false
		if text == "" {
			text, whole = o["--set-mark"], true
		}
		if len(o) == 1 && text == "" { // copies between packet and connection: no load of ours has a packet's mark
			a.setMark = func(m uint32) uint32 { return m }
			return nil
		}
		value, mask, err := valueAndMask(text)
		if err != nil || len(o) != 1 {
			return fmt.Errorf("iptables v1.4.21: CONNMARK: bad value for option \"--set-xmark\", or out of range (0-4294967295)")
		}
		if whole {
			mask |= value
		}
		a.setMark = func(m uint32) uint32 { return m&^mask ^ value }
	case "MARK", "IMQ": // of ClearOS's own engine
		if o := r.options([]string{"--set-mark", "--todev"}, nil); len(o) != 1 {
			return fmt.Errorf("iptables v1.4.21: %s: the stand-in wants one option", name)
		}
	default:
		return fmt.Errorf("iptables v1.4.21: Couldn't load target `%s':No such file or directory", name)
	}
	return nil
}

// valueAndMask reads VALUE[/MASK].
func valueAndMask(text string) (value, mask uint32, err error) {
	a, b, has := strings.Cut(text, "/")
	v, err := strconv.ParseUint(a, 0, 32)
	if err != nil {
		return 0, 0, err
	}
	m := uint64(1<<32 - 1)
	if has {
		m, err = strconv.ParseUint(b, 0, 32)
	}
	return uint32(v), uint32(m), err
}
