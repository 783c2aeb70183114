package iptables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of matches and limits of the program.
const (
	mostMeterName = 15
	mostPorts     = 15
	mostSeconds   = 1<<31 - 1
)

// match reads a match by -m, and its options.
func (r *reader) match(name string) error {
	switch name {
	case "tcp":
		if r.protocol != "tcp" {
			return fmt.Errorf("iptables: No chain/target/match by that name.")
		}
		r.loaded[name] = true
		return r.transport()
	case "length":
		return r.length()
	case "connmark":
		o := r.options([]string{"--mark"}, nil)
		text, not := one(o, "--mark")
		value, mask, err := valueAndMask(text)
		if err != nil {
			return fmt.Errorf("iptables v1.4.21: connmark: option \"--mark\" must be specified")
		}
		r.add(func(w *walk) bool { return (w.c.Mark&mask == value) != not })
		return nil
	case "connbytes":
		return r.connbytes()
	case "conntrack":
		return r.conntrack()
	case "dscp":
		o := r.options([]string{"--dscp"}, nil)
		text, not := one(o, "--dscp")
		v, err := strconv.ParseUint(text, 0, 8)
		if err != nil || v > 63 {
			return fmt.Errorf("iptables v1.4.21: dscp: bad value for option \"--dscp\", or out of range (0-63)")
		}
		r.add(func(w *walk) bool { return (w.p.DSCP == uint8(v)) != not })
		return nil
	case "multiport":
		return r.multiport()
	case "recent":
		return r.recent()
	case "hashlimit":
		return r.hashlimit()
	}
	return fmt.Errorf("iptables v1.4.21: Couldn't load match `%s':No such file or directory", name)
}

// one returns the value of an option, and whether "!" stood before it.
func one(o map[string]string, name string) (text string, not bool) {
	if v, is := o["!"+name]; is {
		return v, true
	}
	return o[name], false
}

// numbers reads FROM:TO within what is possible. Without TO (and open) it is the most.
func numbers(text string, most uint64, open bool) (a, b uint64, err error) {
	from, to, isRange := strings.Cut(text, ":")
	if a, err = strconv.ParseUint(from, 10, 64); err != nil {
		return 0, 0, err
	}
	switch {
	case !isRange && open, isRange && to == "":
		b = most
	case !isRange:
		b = a
	default:
		b, err = strconv.ParseUint(to, 10, 64)
	}
	if err == nil && (a > b || b > most) {
		err = fmt.Errorf("%s is no range", text)
	}
	return a, b, err
}

// transport reads options of TCP and UDP.
func (r *reader) transport() error {
	if r.protocol != "tcp" && r.protocol != "udp" {
		return fmt.Errorf("iptables v1.4.21: unknown option \"%s\"", r.w[0])
	}
	for len(r.w) > 0 {
		switch r.w[0] {
		case "--sport", "--dport":
			option := r.next()
			a, b, err := numbers(r.next(), 65535, false)
			if err != nil {
				return fmt.Errorf("iptables v1.4.21: invalid port/service specified")
			}
			r.add(func(w *walk) bool { n := w.port(option == "--dport"); return uint64(n) >= a && uint64(n) <= b })
		case "--syn":
			r.next()
			if r.protocol != "tcp" {
				return fmt.Errorf("iptables v1.4.21: unknown option \"--syn\"")
			}
			r.add(func(w *walk) bool { return w.p.Flags&0x17 == 0x02 })
		case "--tcp-flags":
			r.next()
			mask, okA := flags(r.next())
			set, okB := flags(r.next())
			if r.protocol != "tcp" || !okA || !okB {
				return fmt.Errorf("iptables v1.4.21: Unknown TCP flag")
			}
			r.add(func(w *walk) bool { return w.p.Flags&mask == set })
		default:
			return nil
		}
	}
	return nil
}

// flags reads FIN,SYN,….
func flags(text string) (v uint8, ok bool) {
	known := map[string]uint8{"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "ALL": 63, "NONE": 0}
	for name := range strings.SplitSeq(text, ",") {
		bit, is := known[name]
		if !is {
			return 0, false
		}
		v |= bit
	}
	return v, true
}

func (r *reader) length() error {
	text, not := one(r.options([]string{"--length"}, nil), "--length")
	a, b, err := numbers(text, 65535, false)
	if err != nil {
		return fmt.Errorf("iptables v1.4.21: length: bad value for option \"--length\", or out of range (0-65535)")
	}
	r.add(func(w *walk) bool { n := uint64(w.p.Length); return (n >= a && n <= b) != not })
	return nil
}

func (r *reader) connbytes() error {
	o := r.options([]string{"--connbytes", "--connbytes-dir", "--connbytes-mode"}, nil)
	text, not := one(o, "--connbytes")
	a, b, err := numbers(text, 1<<64-1, true)
	if err != nil {
		return fmt.Errorf("iptables v1.4.21: connbytes: bad value for option \"--connbytes\", or out of range")
	}
	if o["--connbytes-dir"] != "both" {
		return fmt.Errorf("the stand-in knows connbytes of both directions alone, not %q", o["--connbytes-dir"])
	}
	mode := o["--connbytes-mode"]
	if mode != "bytes" && mode != "packets" {
		return fmt.Errorf("the stand-in knows connbytes in bytes and packets, not %q", mode)
	}
	r.add(func(w *walk) bool {
		n := w.c.Bytes
		if mode == "packets" {
			n = w.c.Packets
		}
		return (n >= a && n <= b) != not
	})
	return nil
}

func (r *reader) conntrack() error {
	o := r.options([]string{"--ctstate", "--ctstatus"}, nil)
	if len(o) != 1 {
		return fmt.Errorf("iptables v1.4.21: conntrack: At least one option is required")
	}
	state, notNew := one(o, "--ctstate")
	status, not := one(o, "--ctstatus")
	switch {
	case state == "NEW":
		r.add(func(w *walk) bool { return w.c.Replied == notNew })
	case status == "SEEN_REPLY":
		r.add(func(w *walk) bool { return w.c.Replied != not })
	default:
		return fmt.Errorf("iptables v1.4.21: Bad ctstate or ctstatus \"%s%s\"", state, status)
	}
	return nil
}

func (r *reader) multiport() error {
	o := r.options([]string{"--sports", "--dports"}, nil)
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, r.protocol) {
		return fmt.Errorf("iptables v1.4.21: multiport needs `-p tcp', `-p udp', `-p udplite', `-p sctp' or `-p dccp'")
	}
	if len(o) != 1 {
		return fmt.Errorf("iptables v1.4.21: multiport expection an option")
	}
	text, to := o["--sports"], false
	if text == "" {
		text, to = o["--dports"], true
	}
	var list [][2]uint64
	n := 0
	for part := range strings.SplitSeq(text, ",") {
		a, b, err := numbers(part, 65535, false)
		if err != nil {
			return fmt.Errorf("iptables v1.4.21: invalid port/service `%s' specified", part)
		}
		if n++; strings.Contains(part, ":") {
			n++
		}
		list = append(list, [2]uint64{a, b})
	}
	if n > mostPorts {
		return fmt.Errorf("iptables v1.4.21: too many ports specified")
	}
	r.add(func(w *walk) bool {
		p := uint64(w.port(to))
		return slices.ContainsFunc(list, func(x [2]uint64) bool { return p >= x[0] && p <= x[1] })
	})
	return nil
}

// recent reads the match of lists of addresses.
func (r *reader) recent() error {
	o := r.options([]string{"--name", "--seconds"}, []string{"--set", "--rcheck", "--rsource", "--rdest"})
	name := o["--name"]
	if name == "" || len(name) > 200 || (o["--set"] == "") == (o["--rcheck"] == "") || o["--rsource"] != "" && o["--rdest"] != "" {
		return fmt.Errorf("iptables v1.4.21: recent: you must specify one of `--set', `--rcheck' `--update' or `--remove'")
	}
	seconds := uint64(0)
	if s := o["--seconds"]; s != "" {
		var err error
		if seconds, err = strconv.ParseUint(s, 10, 32); err != nil || seconds == 0 || seconds > mostSeconds || o["--set"] != "" {
			return fmt.Errorf("iptables v1.4.21: recent: bad value for option \"--seconds\"")
		}
	}
	t := r.table
	if t.lists[name] == nil {
		t.lists[name] = &list{}
	}
	set, to := o["--set"] != "", o["--rdest"] != ""
	r.add(func(w *walk) bool {
		a := w.p.Source.Addr()
		if to {
			a = w.p.Destination.Addr()
		}
		if set {
			t.lists[name].put(a, w.tick)
			return true
		}
		return t.lists[name].holds(a, w.tick, int64(seconds)*ticks)
	})
	return nil
}

// hashlimit reads the match of meters.
func (r *reader) hashlimit() error {
	o := r.options([]string{"--hashlimit-upto", "--hashlimit-above", "--hashlimit-burst", "--hashlimit-mode", "--hashlimit-name",
		"--hashlimit-htable-size", "--hashlimit-htable-max", "--hashlimit-htable-expire"}, nil)
	upto, above, name := o["--hashlimit-upto"], o["--hashlimit-above"], o["--hashlimit-name"]
	switch {
	case (upto == "") == (above == ""):
		return fmt.Errorf("iptables v1.4.21: hashlimit: You have to specify --hashlimit-upto or --hashlimit-above")
	case name == "":
		return fmt.Errorf("iptables v1.4.21: hashlimit: option \"--hashlimit-name\" must be specified")
	case len(name) > mostMeterName:
		return fmt.Errorf("iptables v1.4.21: hashlimit: Value for option \"--hashlimit-name\" is too long")
	}
	m := &meters{expire: 10_000, size: 1024}
	if err := m.rate(upto+above, o["--hashlimit-burst"]); err != nil {
		return err
	}
	for word := range strings.SplitSeq(o["--hashlimit-mode"], ",") {
		if !slices.Contains([]string{"srcip", "srcport", "dstip", "dstport"}, word) {
			return fmt.Errorf("iptables v1.4.21: hashlimit: bad value for option \"--hashlimit-mode\"")
		}
		m.mode = append(m.mode, word)
	}
	for option, to := range map[string]*int64{"--hashlimit-htable-size": &m.size, "--hashlimit-htable-max": &m.most, "--hashlimit-htable-expire": &m.expire} {
		if text := o[option]; text != "" {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil || n == 0 {
				return fmt.Errorf("iptables v1.4.21: hashlimit: bad value for option \"%s\"", option)
			}
			*to = int64(n)
		}
	}
	if m.most == 0 {
		m.most = 8 * m.size
	}
	m.most = max(m.most, m.size)
	// A rule that names a meter that is there takes it as it is, with its rate.
	if r.table.meters[name] == nil {
		m.keys = map[meterKey]*credit{}
		r.table.meters[name] = m
	}
	at := r.table.meters[name]
	over := above != ""
	r.add(func(w *walk) bool { return at.within(w) != over })
	return nil
}
