package dnctl

import (
	"math"
	"strconv"
	"strings"
)

// What a command configures, deletes or lists.
const (
	pipeCommand = 1 + iota
	queueCommand
	schedCommand
)

const (
	maxID    = 0x10000
	redScale = 16
	pieScale = 1 << 13
)

// A statement is the part of a command after `config`.
type statement struct {
	*run
	av     []string
	sch    *Sched
	link   *Link
	fs     *FlowSet
	schPar *Params
	aqmPar *Params
	bw     bool // a bandwidth was given
}

// take returns the next word. Without one it ends the run with the message.
func (s *statement) take(missing string) string {
	if len(s.av) == 0 {
		s.fail(exitUsage, "%s", missing)
	}
	w := s.av[0]
	s.av = s.av[1:]
	return w
}

// need ends the run unless the command has the object that an option belongs
// to.
func (s *statement) need(has bool, message string) {
	if !has {
		s.fail(exitUsage, "%s", message)
	}
}

// config runs `pipe|queue|sched config N …`.
func (r *run) config(kind int, av []string) {
	n := -1
	if len(av) > 0 && digit(av[0]) {
		n, av = atoi(av[0]), av[1:]
	}
	if n <= 0 {
		r.fail(exitUsage, "need a pipe/flowset/sched number")
	}
	s := &statement{run: r, av: av, fs: &FlowSet{Par: [3]int{-1, -1, -1}}}
	switch kind {
	case pipeCommand:
		s.sch, s.link = &Sched{Number: n, Flags: FlagPipe}, &Link{Number: n}
		s.fs.Number, s.fs.Sched = n+2*maxID, n+maxID
	case queueCommand:
		s.fs.Number = n
	default:
		s.sch = &Sched{Number: n}
		s.fs.Number, s.fs.Sched = n+maxID, n
	}
	for len(s.av) > 0 {
		s.option(s.take(""))
	}
	s.check()
	s.send()
}

// send hands the objects to the kernel, in dnctl's order.
func (s *statement) send() {
	if s.testOnly {
		return
	}
	var all []Message
	add := func(m Message, is bool) {
		if is {
			all = append(all, m)
		}
	}
	add(s.schPar, s.schPar != nil)
	add(s.sch, s.sch != nil)
	add(s.link, s.link != nil)
	add(s.aqmPar, s.aqmPar != nil)
	add(s.fs, true)
	if s.Told != nil {
		for _, m := range all {
			s.out.WriteString(s.Told(m))
		}
		return
	}
	if !s.configure(all) {
		s.fail(1, "setsockopt(IP_DUMMYNET_CONFIGURE): Invalid argument")
	}
}

// option reads one option and its value.
func (s *statement) option(word string) {
	switch word {
	case "noerror":
		s.fs.Flags |= FlagNoError
	case "plr":
		f := min(max(strtod(s.take("plr needs argument 0..1\n")), 0), 1)
		s.fs.Loss = int(f * 0x7fffffff)
	case "queue":
		n, rest := strtoul(s.take("queue needs queue size\n"))
		size := uint32(n)
		switch {
		case strings.HasPrefix(rest, "K") || strings.HasPrefix(rest, "k"):
			s.fs.Flags |= FlagBytes
			size *= 1024
		case strings.HasPrefix(rest, "B") || s.begins(rest, "by", "bytes"):
			s.fs.Flags |= FlagBytes
		}
		s.fs.Size = int(int32(size))
	case "buckets":
		n, _ := strtoul(s.take("buckets needs argument\n"))
		if s.sch != nil {
			s.sch.Buckets = uint32(n)
		} else {
			s.fs.Buckets = uint32(n)
		}
	case "mask", "flow_mask", "sched_mask":
		s.mask()
	case "codel", "pie":
		s.fs.Flags = s.fs.Flags&^(FlagRED|FlagGentleRED) | FlagAQM
		s.aqmPar = &Params{Name: word, Par: unset()}
		s.parameters(s.aqmPar)
	case "fq_codel", "fq_pie":
		s.need(s.sch != nil, "fq_codel/fq_pie is only for schd")
		s.schPar = &Params{Scheduler: true, Name: word, Par: unset()}
		s.parameters(s.schPar)
	case "red", "gred":
		s.red(word, s.take("red/gred needs w_q/min_th/max_th/max_p\n"))
	case "ecn":
		s.fs.Flags |= FlagECN
	case "droptail":
		s.fs.Flags &^= FlagRED | FlagGentleRED
	case "bw", "bandwidth":
		s.need(s.link != nil, "bw is only for links")
		s.bandwidth(s.take("bw needs bandwidth or interface\n"))
	case "delay":
		s.need(s.link != nil, "delay is only for links")
		n, _ := strtoul(s.take("delay needs argument 0..10000ms\n"))
		s.link.Delay = uint32(n)
	case "type":
		s.schedulerType()
	case "weight", "lmax", "maxlen", "pri", "priority":
		i, of := map[string]int{"weight": 0, "lmax": 1, "maxlen": 1, "pri": 2, "priority": 2}[word], "weight"
		if i > 0 {
			of = []string{"lmax", "priority"}[i-1]
		}
		s.fs.Par[i] = strtol(s.take(of + " needs argument\n"))
	case "sched", "pipe":
		n, _ := strtoul(s.take("pipe/link/sched needs number\n"))
		s.fs.Sched = int(uint32(n))
	case "burst":
		s.need(s.link != nil, "burst")
		s.burst(s.take("burst needs argument\n"))
	case "profile":
		s.unknown("delay profiles")
	default:
		s.fail(exitData, "unrecognised option ``%s''", word)
	}
}

// begins matches a unit by its beginning, as the tool does: "by" and any
// letters after it mean bytes.
func (s *statement) begins(word, with, whole string) bool {
	if !strings.HasPrefix(word, with) {
		return false
	}
	if word != whole {
		s.warn("DEPRECATED: '%s' matched '%s'", word, whole)
	}
	return true
}

// bandwidth reads digits, a prefix such as M, and B for bytes. It ignores what
// follows.
func (s *statement) bandwidth(word string) {
	if s.bw {
		s.warn("duplicate token, override bandwidth value!")
	}
	if word != "" && word[0] >= 'a' && word[0] <= 'z' {
		s.fail(1, "no if support")
	}
	n, rest := strtoul(word)
	if rest != "" {
		of := map[byte]uint64{'k': 1e3, 'K': 1e3, 'm': 1e6, 'M': 1e6, 'g': 1e9, 'G': 1e9}[rest[0]]
		if of != 0 {
			n, rest = n*of, rest[1:]
		}
	}
	if strings.HasPrefix(rest, "B") && !s.begins(rest, "Bi", "Bit/s") || s.begins(rest, "by", "bytes") {
		n *= 8
	}
	if n > math.MaxUint32 {
		s.fail(exitData, "bandwidth too large")
	}
	s.link.Bandwidth, s.bw = uint32(n), n != math.MaxUint32
}

// burst reads a number as expand_number(3) does, with at most one letter of
// unit.
func (s *statement) burst(word string) {
	n, rest := strtoul(word)
	shift := 0
	if rest != "" {
		shift = 10 * (1 + strings.IndexByte("kmgtpe", strings.ToLower(rest)[0]))
	}
	if !digit(word) || shift == 0 && rest != "" && rest[0] != 'b' && rest[0] != 'B' {
		s.fail(exitData, "burst: invalid argument")
	}
	if n > (1<<48-1)>>shift {
		s.fail(exitData, "burst: out of range (0..2^48-1)")
	}
	s.link.Burst = n << shift
}

// schedulerType reads the name after `type`. It leaves fq_codel and fq_pie to
// the loop over the options, which reads their parameters too. The loop does
// not know them in capitals.
func (s *statement) schedulerType() {
	s.need(s.sch != nil, "type is only for schedulers")
	name := s.take("type needs a string")
	if name == "" || len(name) > 15 {
		s.fail(1, "type %s too long\n", name)
	}
	s.sch.Type = name
	if strings.EqualFold(name, "fq_codel") || strings.EqualFold(name, "fq_pie") {
		s.schPar = &Params{Scheduler: true, Name: name, Par: unset()}
		s.av = append([]string{name}, s.av...)
	}
}

func (s *statement) red(kind, word string) {
	s.fs.Flags |= FlagRED
	if kind == "gred" {
		s.fs.Flags |= FlagGentleRED
	}
	for i, part := range strings.SplitN(word, "/", 4) {
		switch i {
		case 0:
			f := strtod(part)
			if !(f > 0 && f <= 1) {
				s.fail(exitData, "0 < w_q <= 1")
			}
			s.fs.RED[0] = int(f * (1 << redScale))
		case 3:
			f := strtod(part)
			if !(f >= 0 && f <= 1) {
				s.fail(exitData, "0 <= max_p <= 1")
			}
			s.fs.RED[3] = int(f * (1 << redScale))
		default:
			n, rest := strtoul(part)
			if strings.HasPrefix(rest, "K") || strings.HasPrefix(rest, "k") {
				n *= 1024
			}
			s.fs.RED[i] = int(int32(n))
		}
	}
}

// mask reads which bits tell flows apart. It ends at the first word that is not
// a field.
func (s *statement) mask() {
	m := &s.fs.Mask
	flags := &s.fs.Flags
	if s.sch != nil {
		m, flags = &s.sch.Mask, &s.sch.Flags
	}
	*m = Mask{}
	if len(s.av) == 0 {
		s.fail(exitUsage, "mask needs mask specifier\n")
	}
	for len(s.av) > 0 {
		field := s.av[0]
		switch field {
		case "all":
			*m = Mask{math.MaxUint32, math.MaxUint32, math.MaxUint16, math.MaxUint16, math.MaxUint8, 128, 128, math.MaxUint32, false}
			*flags |= FlagMask
			s.av = s.av[1:]
			return
		case "queue":
			m.Queue = true
			*flags |= FlagMask
			s.av = s.av[1:]
			return
		case "dst-ip", "src-ip", "dst-ip6", "dst-ipv6", "src-ip6", "src-ipv6", "flow-id", "dst-port", "src-port", "proto":
		default:
			return
		}
		s.av = s.av[1:]
		word := s.take("mask: value missing")
		v6 := strings.Contains(field, "ip6") || strings.Contains(field, "ipv6")
		var a uint32
		if rest, bits := strings.CutPrefix(word, "/"); bits {
			n, _ := strtoul(rest)
			a = uint32(n)
			if !v6 {
				if a == 32 {
					a = math.MaxUint32
				} else {
					a = 1<<(a%32) - 1
				}
			}
		} else {
			n, _ := strtoul(word)
			a = uint32(n)
		}
		atMost := func(most uint32, message string) {
			if a > most {
				s.fail(exitData, "%s", message)
			}
		}
		switch field {
		case "dst-ip":
			m.Dst = a
		case "src-ip":
			m.Src = a
		case "dst-port":
			atMost(0xffff, "port mask must be 16 bit")
			m.DstPort = uint16(a)
		case "src-port":
			atMost(0xffff, "port mask must be 16 bit")
			m.SrcPort = uint16(a)
		case "flow-id":
			atMost(0xfffff, "flow_id mask must be 20 bit")
			m.FlowID = a
		case "proto":
			atMost(0xff, "proto mask must be 8 bit")
			m.Proto = uint8(a)
		default:
			atMost(128, "in6addr invalid mask len")
			if strings.HasPrefix(field, "dst") {
				m.Dst6 = int(a)
			} else {
				m.Src6 = int(a)
			}
		}
		if a != 0 {
			*flags |= FlagMask
		}
	}
}

// check makes the checks that dnctl makes itself, after it has read the whole
// command.
func (s *statement) check() {
	if s.link != nil {
		if s.link.Delay > 10000 {
			s.fail(exitData, "delay must be < 10000")
		}
		if !s.bw {
			s.link.Bandwidth = 0
		}
	}
	most := s.SlotLimit
	if most == 0 {
		most = 100
	}
	switch {
	case s.fs.Flags&FlagBytes != 0 && s.fs.Size > 1<<20:
		s.fail(exitData, "queue size must be < %dB", 1<<20)
	case s.fs.Flags&FlagBytes == 0 && s.fs.Size > most:
		s.fail(exitData, "2 <= queue size <= %d", most)
	}
	if s.fs.Flags&FlagECN != 0 && s.fs.Flags&(FlagRED|FlagAQM) == 0 {
		s.fail(exitUsage, "ECN can be used with red/gred/codel/fq_codel only!")
	}
	if s.fs.Flags&FlagRED != 0 {
		low, high := s.fs.RED[1], s.fs.RED[2]
		switch ecn := s.fs.Flags&FlagECN != 0; {
		case !ecn && low >= high:
			s.fail(exitData, "min_th %d must be < than max_th %d", low, high)
		case ecn && low > high:
			s.fail(exitData, "min_th %d must be =< than max_th %d", low, high)
		case high == 0:
			s.fail(exitData, "max_th must be > 0")
		}
	}
}

// atoi is C's: it returns 0 for what is not a number.
func atoi(s string) int { return int(int32(strtolBase(s, 10))) }

// strtol reads a number of any base, cut to an int.
func strtol(s string) int { return int(int32(strtolBase(s, 0))) }

func strtolBase(s string, base int) int64 {
	n, _ := strtoulBase(s, base)
	return int64(n)
}

// strtoul is C's with base 0. It also returns what follows the digits. A minus
// negates, and a number that is too large becomes the largest one.
func strtoul(s string) (n uint64, rest string) { return strtoulBase(s, 0) }

func strtoulBase(s string, base int) (uint64, string) {
	t := strings.TrimLeft(s, " \t\n\v\f\r")
	negative := strings.HasPrefix(t, "-")
	if negative || strings.HasPrefix(t, "+") {
		t = t[1:]
	}
	isDigit := func(i, base int) bool {
		if i >= len(t) {
			return false
		}
		_, err := strconv.ParseUint(t[i:i+1], base, 8)
		return err == nil
	}
	if base == 0 {
		switch {
		case len(t) > 2 && t[0] == '0' && (t[1] == 'x' || t[1] == 'X') && isDigit(2, 16):
			base, t = 16, t[2:]
		case strings.HasPrefix(t, "0"):
			base = 8
		default:
			base = 10
		}
	}
	end := 0
	for isDigit(end, base) {
		end++
	}
	if end == 0 {
		return 0, s
	}
	n, err := strconv.ParseUint(t[:end], base, 64)
	if err != nil {
		n = math.MaxUint64
	} else if negative {
		n = -n
	}
	return n, t[end:]
}

// strtod returns the number at the beginning of a word, or 0.
func strtod(s string) float64 {
	for end := len(s); end > 0; end-- {
		if f, err := strconv.ParseFloat(s[:end], 64); err == nil && !strings.Contains(s[:end], "_") {
			return f
		}
	}
	return 0
}
