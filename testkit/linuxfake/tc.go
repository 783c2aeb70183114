package linuxfake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func (k *Kernel) tc(args []string) (string, error) {
	d, err := k.device(after(args, "dev"))
	if err != nil {
		return "", err
	}
	switch args[0] + " " + args[1] {
	case "qdisc show":
		return d.qdiscJSON(), nil
	case "class show":
		return d.classText(), nil
	case "filter show":
		return d.filterJSON(args[4:], k.Old), nil
	case "qdisc add":
		return "", k.addQdisc(d, args)
	case "qdisc change":
		return "", d.changeQdisc(args)
	case "qdisc del":
		return "", d.delQdisc(args[4])
	case "class add", "class change":
		return "", d.setClass(args)
	case "filter add":
		return "", k.addFilter(d, args)
	case "filter del":
		before := len(d.filters)
		d.filters = slices.DeleteFunc(d.filters, func(f *filter) bool {
			return f.kind == args[len(args)-1] && f.parent == after(args, "parent") && f.pref == after(args, "pref") && f.number == after(args, "handle")
		})
		if len(d.filters) == before {
			return "", errors.New("Error: Cannot find specified filter chain.") //nolint:staticcheck // as tc(8) says it
		}
		return "", nil
	}
	return "", fmt.Errorf("tc: %v is not understood", args)
}

// parentOf returns the parent in a qdisc command.
func parentOf(args []string) string {
	switch {
	case slices.Contains(args, "root"):
		return "root"
	case slices.Contains(args, "ingress") && !slices.Contains(args, "cake"):
		return "ffff:fff1"
	}
	return after(args, "parent")
}

// defaults returns a qdisc kind's default options as tc -j prints them; false
// for an unknown kind.
func defaults(kind string, mtu int) (map[string]string, bool) {
	switch kind {
	case "cake":
		return map[string]string{"bandwidth": "0", "diffserv": "diffserv3", "flowmode": "triple-isolate", "nat": "false", "wash": "false",
			"ingress": "false", "ack-filter": "disabled", "split_gso": "true", "rtt": "100000", "raw": "true", "atm": "noatm", "overhead": "0", "mpu": "0", "fwmark": "0"}, true
	case "fq_codel":
		return map[string]string{"limit": "10240", "flows": "1024", "quantum": strconv.Itoa(mtu + 14), "target": "4999", "interval": "99999",
			"memory_limit": "33554432", "ecn": "true", "drop_batch": "64"}, true
	case "htb":
		return map[string]string{"r2q": "10", "default": "0x0", "direct_packets_stat": "0", "ver": "3.17", "direct_qlen": "1000"}, true
	case "pfifo", "bfifo":
		return map[string]string{"limit": "1000"}, true
	case "tbf":
		return map[string]string{"mpu": "0", "linklayer": "ethernet"}, true
	case "ingress", "prio", "sfq", "mq":
		return map[string]string{}, true
	}
	return nil, false
}

func (k *Kernel) addQdisc(d *Device, args []string) error {
	q := &qdisc{parent: parentOf(args), handle: after(args, "handle")}
	switch {
	case q.parent == "ffff:fff1":
		q.handle = "ffff:"
	case q.handle == "": // the kernel assigns a free one from 8001: on
		for n := 0x8001; q.handle == "" || slices.ContainsFunc(d.qdiscs, func(o *qdisc) bool { return o.handle == q.handle }); n++ {
			q.handle = fmt.Sprintf("%x:", n)
		}
	}
	for _, other := range d.qdiscs {
		if other.parent == q.parent || other.handle == q.handle {
			return errors.New("Error: Exclusivity flag on, cannot modify.") //nolint:staticcheck // as tc(8) says it
		}
	}
	at := slices.IndexFunc(args, func(a string) bool { _, ok := defaults(a, 0); return ok })
	if at < 0 || k.lacks(args[at]) {
		return errors.New("Error: Specified qdisc kind is unknown.") //nolint:staticcheck // as tc(8) says it
	}
	if args[at] == "ingress" && q.parent != "ffff:fff1" {
		return errors.New("tc: ingress stands at ingress")
	}
	if args[at] == "mq" && (d.Queues < 2 || q.parent != "root") {
		return errors.New("RTNETLINK answers: Operation not supported")
	}
	if q.parent != "root" && q.parent != "ffff:fff1" && !d.sends(q.parent) && !slices.ContainsFunc(d.classes, func(c *class) bool { return c.id == q.parent }) {
		return errors.New("Error: Failed to find specified qdisc.") //nolint:staticcheck // as tc(8) says it
	}
	q.kind = args[at]
	q.options, _ = defaults(q.kind, d.MTU)
	if s := slices.Index(args, "stab"); s >= 0 {
		q.stab = map[string]string{"linklayer": "ethernet", "overhead": "0", "mpu": "0", "mtu": "2047", "tsize": "512"}
		for i := s + 1; i+1 < at; i += 2 {
			q.stab[args[i]] = args[i+1]
		}
	}
	if err := setOptions(q.kind, q.options, args[at+1:], false); err != nil {
		return err
	}
	d.qdiscs = append(d.qdiscs, q)
	return nil
}

// sends reports whether a parent is one of the queues by which mq sends.
func (d *Device) sends(parent string) bool {
	return slices.ContainsFunc(d.qdiscs, func(q *qdisc) bool {
		number, of := strings.CutPrefix(parent, q.handle)
		n, err := strconv.ParseInt(number, 16, 16)
		return of && q.kind == "mq" && err == nil && n >= 1 && int(n) <= d.Queues
	})
}

func (d *Device) changeQdisc(args []string) error {
	for _, q := range d.qdiscs {
		if q.handle == after(args, "handle") && q.parent == parentOf(args) {
			at := slices.Index(args, q.kind)
			if at < 0 || q.kind == "htb" || q.kind == "ingress" {
				return errors.New("Error: Change operation not supported by specified qdisc.") //nolint:staticcheck // as tc(8) says it
			}
			next := maps.Clone(q.options)
			if err := setOptions(q.kind, next, args[at+1:], true); err != nil {
				return err
			}
			q.options = next
			return nil
		}
	}
	return errors.New("RTNETLINK answers: No such file or directory")
}

func (d *Device) delQdisc(where string) error {
	gone := func(parent string) bool { return (parent == "ffff:fff1") != (where == "root") }
	before := len(d.qdiscs)
	d.qdiscs = slices.DeleteFunc(d.qdiscs, func(q *qdisc) bool { return gone(q.parent) })
	if len(d.qdiscs) == before {
		return errors.New("Error: Cannot delete qdisc with handle of zero.") //nolint:staticcheck // as tc(8) says it
	}
	if where == "root" {
		d.classes = nil
	}
	d.filters = slices.DeleteFunc(d.filters, func(f *filter) bool { return (f.parent == "ffff:") != (where == "root") })
	return nil
}

func (d *Device) setClass(args []string) error {
	id, parent := after(args, "classid"), after(args, "parent")
	i := slices.IndexFunc(d.classes, func(c *class) bool { return c.id == id })
	known := slices.ContainsFunc(d.classes, func(c *class) bool { return c.id == parent }) ||
		slices.ContainsFunc(d.qdiscs, func(q *qdisc) bool { return q.handle == parent && q.kind == "htb" })
	switch {
	case !known:
		return errors.New("Error: Failed to find specified qdisc.") //nolint:staticcheck // as tc(8) says it
	case args[1] == "add" && i >= 0:
		return errors.New("RTNETLINK answers: File exists")
	case args[1] == "change" && i < 0:
		return errors.New("RTNETLINK answers: No such file or directory")
	}
	c := &class{kind: "htb", id: id, parent: parent, options: map[string]string{"prio": "0", "quantum": "1000", "burst": "1600", "cburst": "1600"}}
	if i >= 0 {
		c.options = maps.Clone(d.classes[i].options)
	}
	at := slices.Index(args, "htb")
	for j := at + 1; j+1 < len(args); j += 2 {
		v := args[j+1]
		if args[j] == "rate" || args[j] == "ceil" {
			v = strconv.FormatInt(rateArg(v)/8, 10)
		}
		c.options[args[j]] = v
	}
	if after(args, "ceil") == "" {
		c.options["ceil"] = c.options["rate"] // as tc(8) does
	}
	for _, r := range [][2]string{{"rate", "burst"}, {"ceil", "cburst"}} {
		n, bps := intArg(c.options[r[1]]), intArg(c.options[r[0]])
		if v := after(args, r[1]); v != "" && bps > 0 {
			c.options[r[1]] = strconv.FormatInt(bucketKernel(bps, n), 10)
		}
	}
	if i >= 0 {
		d.classes[i] = c
	} else {
		d.classes = append([]*class{c}, d.classes...) // tc lists the newest first
	}
	return nil
}

// bucketKernel converts bytes to 64-ns ticks and back, truncating each step to
// an integer, as iproute2 6.1 does.
func bucketKernel(bps, n int64) int64 {
	us := n * 1000000 / bps
	ticks := us * 125 / 8
	back := ticks * 8 / 125
	return bps * back / 1000000
}

func intArg(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimRight(s, "b"), 10, 64)
	return n
}

func rateArg(s string) int64 {
	for suffix, of := range map[string]int64{"kbit": 1e3, "mbit": 1e6, "gbit": 1e9} {
		if num, ok := strings.CutSuffix(s, suffix); ok {
			return intArg(num) * of
		}
	}
	return intArg(strings.TrimSuffix(s, "it"))
}

// setOptions reads a qdisc's arguments as tc(8) does.
func setOptions(kind string, o map[string]string, args []string, change bool) error {
	for i := 0; i < len(args); i++ {
		next := func() string {
			i++
			if i < len(args) {
				return args[i]
			}
			return ""
		}
		switch kind + " " + args[i] {
		case "cake bandwidth":
			o["bandwidth"] = strconv.FormatInt(rateArg(next())/8, 10)
		case "cake rtt":
			o["rtt"] = strings.TrimSuffix(next(), "us")
		case "cake mpu":
			o["mpu"] = next()
		case "cake overhead":
			o["overhead"], o["raw"] = next(), "false"
		case "cake raw":
			o["raw"], o["overhead"], o["atm"] = "true", "0", "noatm"
		case "fq_codel flows":
			v := next()
			if change && v != o["flows"] {
				return errors.New("RTNETLINK answers: Invalid argument")
			}
			o["flows"] = v
		case "fq_codel target", "fq_codel interval":
			key := args[i]
			us := intArg(strings.TrimSuffix(next(), "us"))
			o[key] = strconv.FormatInt(us*1000/1024*1024/1000, 10)
		case "fq_codel ecn":
			o["ecn"] = "true"
		case "fq_codel noecn":
			delete(o, "ecn")
		case "htb default":
			o["default"] = "0x" + next()
		case "tbf rate":
			o["rate"] = strconv.FormatInt(rateArg(next())/8, 10)
		case "tbf burst":
			o["burst"] = strconv.FormatInt(bucketKernel(intArg(o["rate"]), intArg(next())), 10)
		default:
			if kind == "cake" && cakeWord(o, args[i]) {
				continue
			}
			key := args[i]
			if v := next(); v != "" {
				o[key] = v
				continue
			}
			return fmt.Errorf("What is %q?", key) //nolint:staticcheck // as tc(8) says it
		}
	}
	return nil
}

// cakeWord sets an option that CAKE takes as a single word.
func cakeWord(o map[string]string, w string) bool {
	for key, words := range map[string][]string{
		"diffserv": {"besteffort", "diffserv3", "diffserv4", "diffserv8", "precedence"},
		"flowmode": {"triple-isolate", "dual-srchost", "dual-dsthost", "flows", "hosts", "flowblind", "srchost", "dsthost"},
		"atm":      {"noatm", "atm", "ptm"},
	} {
		if slices.Contains(words, w) {
			o[key] = w
			return true
		}
	}
	for on, key := range map[string]string{"nat": "nat", "wash": "wash", "ingress": "ingress", "split-gso": "split_gso"} {
		if w == on || w == "no"+on || w == "no-"+on || on == "ingress" && w == "egress" {
			o[key] = strconv.FormatBool(w == on)
			return true
		}
	}
	switch w {
	case "ack-filter":
		o["ack-filter"] = "enabled"
	case "no-ack-filter":
		o["ack-filter"] = "disabled"
	default:
		return false
	}
	return true
}
