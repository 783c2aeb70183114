package fake

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/mechanism/dummynet"
)

// A FreeBSD is a router with ipfw and dummynet, and with their traps: what is no
// parameter is passed over with exit code 0, a fraction of a rate is lost, large
// numbers are lowered in silence, and what is shown of a rate is rounded.
type FreeBSD struct {
	*Machine
	Dnctl      Dnctl
	Interfaces []string
	Modules    []string
	Counted    map[int]dummynet.Count // by the queue's number; it is no state

	foreign []string // other rules of ipfw
}

// NewFreeBSD returns a router with a firewall and a pipe of its own.
func NewFreeBSD() *FreeBSD {
	f := &FreeBSD{Interfaces: []string{"lo0", "igb0", "igb1"}, Modules: []string{"ipfw", "dummynet"},
		foreign: []string{"00100 allow ip from any to any via lo0", "65535 deny ip from any to any"}}
	f.Machine = NewMachine(map[string]string{RCConf: "hostname=\"gate\"\ngateway_enable=\"YES\"\nfirewall_enable=\"YES\" # no end of line"})
	reads := func(words ...string) func([]string) bool {
		return func(args []string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(args, w) })
		}
	}
	f.Tools["dnctl"] = Tool{Run: f.dnctl, Changes: reads("show", "list")}
	f.Tools["ipfw"] = Tool{Run: f.ipfw, Changes: reads("show", "list")}
	f.Tools["kldstat"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if !slices.Contains(f.Modules, args[len(args)-1]) {
			return "", errors.New("")
		}
		return "", nil
	}}
	f.Tools["ifconfig"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if !slices.Contains(f.Interfaces, args[0]) {
			return "", fmt.Errorf("ifconfig: interface %s does not exist", args[0])
		}
		return args[0] + ": flags=8843<UP>\n", nil
	}}
	f.Shows = func() string {
		c := f.Dnctl.State // a scheduler of the type that a pipe has by itself is that pipe's own
		c.Scheds = slices.DeleteFunc(slices.Clone(c.Scheds), func(s dummynet.Sched) bool { return s.Type == "wf2q+" })
		return c.String() + f.rules()
	}
	if exit, out := f.Dnctl.Run(strings.Fields("dnctl pipe 77 config bw 3Mbit/s")); exit != 0 {
		panic(strings.Join(out, " "))
	}
	return f
}

// RCConf is where the system's switches are.
const RCConf = "/etc/rc.conf"

func (f *FreeBSD) dnctl(args []string, _ []byte) (string, error) {
	s := &f.Dnctl.State
	switch {
	case len(args) == 2 && (args[1] == "show" || args[1] == "list"):
		return f.show(args[0]), nil
	case len(args) == 3 && args[1] == "delete":
		n, _ := strconv.Atoi(args[2])
		before := len(s.Pipes) + len(s.Queues) + len(s.Scheds)
		switch args[0] {
		case "pipe":
			s.Pipes = slices.DeleteFunc(s.Pipes, func(p dummynet.Pipe) bool { return p.Number == n })
			s.Scheds = slices.DeleteFunc(s.Scheds, func(p dummynet.Sched) bool { return p.Number == n })
		case "sched":
			s.Scheds = slices.DeleteFunc(s.Scheds, func(p dummynet.Sched) bool { return p.Number == n })
		case "queue":
			s.Queues = slices.DeleteFunc(s.Queues, func(p dummynet.Queue) bool { return p.Number == n })
		}
		if len(s.Pipes)+len(s.Queues)+len(s.Scheds) == before {
			return "", errors.New("dnctl: rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument")
		}
		return "", nil
	}
	exit, out := f.Dnctl.Run(append([]string{"dnctl"}, args...))
	said := strings.Join(slices.DeleteFunc(out, func(l string) bool { return strings.HasPrefix(l, "kernel: ") }), "\n")
	if exit != 0 {
		return "", errors.New(said)
	}
	slices.SortStableFunc(s.Pipes, func(a, b dummynet.Pipe) int { return cmp.Compare(a.Number, b.Number) })
	slices.SortStableFunc(s.Scheds, func(a, b dummynet.Sched) int { return cmp.Compare(a.Number, b.Number) })
	slices.SortStableFunc(s.Queues, func(a, b dummynet.Queue) int { return cmp.Compare(a.Number, b.Number) })
	return said, nil
}

func (f *FreeBSD) show(kind string) string {
	var b strings.Builder
	s := f.Dnctl.State
	switch kind {
	case "pipe":
		for _, p := range s.Pipes {
			fmt.Fprintf(&b, "%s\nq%06d %3d sl. 0 flows (1 buckets) sched %d weight 0 lmax 0 pri 0 droptail\n sched %d type FIFO flags 0x0 0 buckets 0 active\n",
				p.Shown(), p.Number+131072, slots(p.Slots), p.Number+65536, p.Number+65536)
		}
	case "sched":
		for _, p := range s.Pipes {
			b.WriteString(p.Shown() + "\n")
			i := slices.IndexFunc(s.Scheds, func(x dummynet.Sched) bool { return x.Number == p.Number })
			if i < 0 {
				fmt.Fprintf(&b, " sched %d type WF2Q+ flags 0x0 0 buckets 0 active\n", p.Number)
				continue
			}
			b.WriteString(s.Scheds[i].Shown())
			fmt.Fprintf(&b, "   Children flowsets: %d \n", p.Number)
		}
		for _, x := range s.Scheds { // those whose pipe was never made
			if !slices.ContainsFunc(s.Pipes, func(p dummynet.Pipe) bool { return p.Number == x.Number }) {
				b.WriteString(dummynet.Pipe{Number: x.Number}.Shown() + "\n" + x.Shown())
			}
		}
	case "queue":
		for _, q := range s.Queues {
			b.WriteString(q.Shown() + "\n")
			if c, ok := f.Counted[q.Number]; ok { // what nothing has come to has no flow
				fmt.Fprintf(&b, "BKT Prot ___Source IP/port____ ____Dest. IP/port____ Tot_pkt/bytes Pkt/Byte Drp\n"+
					"  0 ip           0.0.0.0/0             0.0.0.0/0     %4d %8d %2d %4d %3d\n", c.Packets, c.Bytes, c.BacklogPkts, c.BacklogSize, c.Drops)
			}
		}
	}
	return b.String()
}

func (f *FreeBSD) rules() string {
	lines := slices.Clone(f.foreign)
	for _, r := range f.Dnctl.State.Rules {
		lines = append(lines, r.Shown())
	}
	slices.Sort(lines) // numbers have five digits
	return strings.Join(lines, "\n") + "\n"
}

func (f *FreeBSD) ipfw(args []string, _ []byte) (string, error) {
	s := &f.Dnctl.State
	switch {
	case len(args) == 1 && args[0] == "list":
		return f.rules(), nil
	case len(args) >= 2 && args[0] == "delete": // each that is there, whatever is not
		var missing error
		for _, number := range args[1:] {
			before := len(s.Rules)
			s.Rules = slices.DeleteFunc(s.Rules, func(r dummynet.Rule) bool { return strconv.Itoa(r.Number) == number })
			if len(s.Rules) == before {
				missing = fmt.Errorf("ipfw: rule %s: setsockopt(IP_FW_XDEL): Invalid argument", number)
			}
		}
		return "", missing
	}
	if n, err := strconv.Atoi(args[min(1, len(args)-1)]); err == nil && args[0] == "add" && len(args) > 3 && args[2] != "queue" && args[2] != "pipe" {
		f.foreign = append(f.foreign, fmt.Sprintf("%05d %s", n, strings.Join(args[2:], " "))) // no rule of dummynet's
		return f.foreign[len(f.foreign)-1] + "\n", nil
	}
	exit, out := f.Dnctl.Run(append([]string{"ipfw"}, args...))
	if exit != 0 {
		return "", errors.New(strings.Join(out, "\n"))
	}
	slices.SortStableFunc(s.Rules, func(a, b dummynet.Rule) int { return cmp.Compare(a.Number, b.Number) })
	return strings.Join(out, "\n"), nil
}
