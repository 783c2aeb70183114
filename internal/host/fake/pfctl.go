package fake

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/mechanism/altq"
	"unbloat/internal/mechanism/pfqueue"
)

// An OpenBSD is a router with pf: pf.conf and its includes, and what of them
// pfctl(8) has loaded.
type OpenBSD struct {
	*Machine
	Altq       bool
	Interfaces []string
	Disabled   bool // pf is off

	queues pfqueue.Ruleset
	altq   altq.Ruleset
}

// NewOpenBSD returns a router with a small pf.conf, loaded.
func NewOpenBSD(old bool) *OpenBSD {
	o := &OpenBSD{Altq: old, Interfaces: []string{"lo0", "em0", "em1", "em2", "vlan100", "pppoe0"}}
	text := "# caf\xe9: in Latin-1\next_if = \"em0\"\nset skip on lo\nblock return\npass out on $ext_if \\\n\tproto tcp\npass in on em1"
	o.Machine = NewMachine(map[string]string{"/etc/pf.conf": text})
	o.Tools["pfctl"] = Tool{Run: o.pfctl, Changes: func(args []string) bool { return args[0] == "-f" }}
	o.Tools["ifconfig"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if !slices.Contains(o.Interfaces, args[0]) {
			return "", fmt.Errorf("ifconfig: %s: no such interface", args[0])
		}
		return args[0] + ": flags=8843<UP,BROADCAST,RUNNING>\n", nil
	}}
	o.Shows = func() string { return o.shown() }
	if _, err := o.pfctl([]string{"-f", "/etc/pf.conf"}, nil); err != nil {
		panic("load the fake's own pf.conf: " + err.Error())
	}
	return o
}

func (o *OpenBSD) pfctl(args []string, _ []byte) (string, error) {
	if len(args) == 3 && args[0] == "-n" && args[1] == "-f" {
		args = []string{"-nf", args[2]}
	}
	switch args[0] {
	case "-vsq":
		return o.shown(), nil
	case "-sr":
		var b strings.Builder
		for _, r := range o.queues.Rules {
			b.WriteString(strings.TrimSpace(r.Text) + "\n")
		}
		for _, r := range o.altq.Rules {
			b.WriteString(r.Text + "\n")
		}
		return b.String(), nil
	case "-si":
		if o.Disabled {
			return "Status: Disabled for 0 days 00:10:00\n", nil
		}
		return "Status: Enabled for 0 days 00:10:00              Debug: err\n", nil
	case "-nf", "-f":
		rs, old, err := o.parse(args[1])
		if err == nil && args[0] == "-f" {
			o.queues, o.altq = rs, old // loading is transactional
		}
		return "", err
	}
	return "", fmt.Errorf("pfctl: unknown option %s", args[0])
}

// parse reads a pf.conf as pfctl -n does: grammar, then what it checks of it as
// a whole, then that the interfaces of queues exist.
func (o *OpenBSD) parse(path string) (rs pfqueue.Ruleset, old altq.Ruleset, err error) {
	text, err := o.include(path, 0)
	if err != nil {
		return rs, old, err
	}
	if strings.Contains(text, "\x00") {
		return rs, old, errors.New("pf.conf:1: syntax error")
	}
	var used []string
	if o.Altq {
		if old, err = altq.Parse(text); err != nil {
			return rs, old, err
		}
		for _, i := range old.Interfaces {
			used = append(used, i.Device)
		}
	} else {
		if rs, err = pfqueue.Parse(text); err != nil {
			return rs, old, fmt.Errorf("%w\npfctl: Syntax error in config file: pf rules not loaded", err)
		}
		for _, q := range rs.Queues {
			if q.Parent == "" {
				used = append(used, q.Device)
			}
		}
	}
	for i, dev := range used {
		if !slices.Contains(o.Interfaces, dev) {
			return rs, old, fmt.Errorf("pfctl: %s: Device not configured", dev)
		}
		if slices.Contains(used[:i], dev) {
			return rs, old, errors.New("pf.conf:1: cannot add queue")
		}
	}
	return rs, old, nil
}

// include returns a file's text with its includes in place.
func (o *OpenBSD) include(path string, depth int) (string, error) {
	text, ok := o.Files[path]
	if !ok {
		return "", fmt.Errorf("pfctl: %s: No such file or directory\npfctl: Syntax error in config file: pf rules not loaded", path)
	}
	if depth > 8 {
		return "", errors.New("pfctl: too many nested includes")
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		file, ok := strings.CutPrefix(strings.TrimSpace(line), `include "`)
		if !ok {
			b.WriteString(line)
			continue
		}
		file, _, _ = strings.Cut(file, `"`)
		inner, err := o.include(file, depth+1)
		if err != nil {
			return "", err
		}
		b.WriteString(inner)
	}
	return b.String(), nil
}

const counters = "  [ pkts:       1042  bytes:     801234  dropped pkts:      3 bytes:   4542 ]\n  [ qlength:   0/1024 ]\n"

// shown prints what is loaded, as pfctl -vsq does, with its hidden queues.
func (o *OpenBSD) shown() string {
	var b strings.Builder
	for _, q := range o.queues.Queues {
		if q.Flows != 0 && q.Bandwidth != 0 && q.Parent == "" { // newer pfctls hide it themselves
			fmt.Fprintf(&b, "queue _root_%s on %s bandwidth %s\n", q.Device, q.Device, pfqueue.Rate(q.Bandwidth))
		}
		b.WriteString(q.Shown() + "\n" + counters)
	}
	queues := o.altq.Shown()
	for _, i := range o.altq.Interfaces {
		fmt.Fprintf(&b, "queue root_%s on %s bandwidth %s priority 0 {%s}\n%s", i.Device, i.Device, i.Bandwidth, strings.Join(i.Queues, ", "), counters)
		for _, line := range queues {
			if words := strings.Fields(line); words[3] == i.Device { // queue NAME on DEVICE …
				b.WriteString("queue  " + strings.TrimPrefix(line, "queue ") + " \n" + counters)
			}
		}
	}
	return b.String()
}
