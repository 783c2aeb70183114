package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"unbloat/internal/host/linux/fakekernel"
	"unbloat/internal/mechanism/sqm"
)

// SQMConfig is where sqm-scripts' settings are.
const SQMConfig = "/etc/config/sqm"

// A Linux is a Linux router with files and a kernel.
type Linux struct {
	*Machine
	Kernel *fakekernel.Kernel
}

// NewLinux returns a router with iproute2 and without files of interest.
func NewLinux() *Linux { return newLinux(map[string]string{}) }

// A Dnsmasq is the resolver of a Linux router: it knows what the files of its
// directory said when it started, and does not start with a line that it does
// not understand.
type Dnsmasq struct {
	Runs   bool
	Knows  string
	Starts int
}

// WithDnsmasq gives the router a resolver that reads /etc/dnsmasq.d, as Debian's
// does, and an init script that starts it again.
func (l *Linux) WithDnsmasq() *Dnsmasq {
	const dir = "/etc/dnsmasq.d/"
	d := &Dnsmasq{Runs: true}
	l.Files["/proc/77/cmdline"] = "/usr/sbin/dnsmasq\x00-7\x00/etc/dnsmasq.d,.dpkg-dist,.dpkg-old,.dpkg-new\x00"
	l.Files["/etc/init.d/dnsmasq"] = "#!/bin/sh\n"
	l.Tools["pidof"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] != "dnsmasq" || !d.Runs {
			return "", errors.New("")
		}
		return "77\n", nil
	}}
	l.Tools["ls"] = Tool{Run: func(args []string, _ []byte) (string, error) { return l.read("ls", args[len(args)-1]) }}
	bad := func(text string) error {
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			if key, _, is := strings.Cut(line, "="); line != "" && line[0] != '#' && (!is || key != "nftset" && key != "server") {
				return fmt.Errorf("dnsmasq: bad option at line %d", i+1)
			}
		}
		return nil
	}
	l.Tools["dnsmasq"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] == "--version" {
			return "Dnsmasq version 2.90\nCompile time options: IPv6 GNU-getopt DBus ipset nftset auth\n", nil
		}
		text, err := l.read("dnsmasq", strings.TrimPrefix(args[len(args)-1], "--conf-file="))
		if err == nil {
			err = bad(text)
		}
		return "", err
	}}
	l.Tools["/etc/init.d/dnsmasq"] = Tool{Run: func([]string, []byte) (string, error) {
		d.Runs, d.Knows = false, ""
		d.Starts++
		for _, name := range slices.Sorted(maps.Keys(l.Files)) {
			if strings.HasPrefix(name, dir) {
				if err := bad(l.Files[name]); err != nil {
					return "", err
				}
				d.Knows += l.Files[name]
			}
		}
		d.Runs = true
		return "", nil
	}, Changes: func([]string) bool { return true }}
	l.Shows = func() string { return fmt.Sprintf("%sdnsmasq runs %v, knows %q\n", l.Kernel.Text(), d.Runs, d.Knows) }
	return d
}

func newLinux(files map[string]string) *Linux {
	l := &Linux{Machine: NewMachine(files), Kernel: fakekernel.New()}
	for _, tool := range []string{"tc", "ip", "ethtool", "nft", "unshare"} {
		l.Tools[tool] = Tool{Run: func(args []string, in []byte) (string, error) {
			out, errOut, err := l.Kernel.Run(context.Background(), append([]string{tool}, args...), in)
			if err != nil {
				err = errors.New(string(errOut))
			}
			return string(out), err
		}, Changes: func(args []string) bool { return fakekernel.Changes(append([]string{tool}, args...)) }}
	}
	l.Shows = func() string { return l.Kernel.Text() }
	return l
}

// run runs a command on the kernel and ignores its failure, as scripts do.
func (l *Linux) run(format string, args ...any) {
	_, _, _ = l.Kernel.Run(context.Background(), strings.Fields(fmt.Sprintf(format, args...)), nil)
}

// An OpenWrt is a router with uci(1) and sqm-scripts.
type OpenWrt struct {
	*Linux
	Staged string // what `uci changes` says

	running map[string]string // by interface, the script of somebody that started it
}

// NewOpenWrt returns a router with sqm-scripts as it comes: one section, off.
func NewOpenWrt() *OpenWrt {
	o := &OpenWrt{running: map[string]string{}, Linux: newLinux(map[string]string{SQMConfig: "# by hand\nconfig queue 'eth1'\n\toption enabled '0'\n\toption interface 'eth1'\n\toption download '85000'\n\toption upload '10000'"})}
	o.Tools["uci"] = Tool{Run: o.uci}
	o.Tools["/etc/init.d/sqm"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] == "restart" {
			return "", o.restart()
		}
		return "", nil
	}, Changes: func(args []string) bool { return args[0] == "restart" }}
	o.Tools["sh"] = Tool{Run: func(args []string, _ []byte) (string, error) { // -c "A && B"
		for command := range strings.SplitSeq(args[1], " && ") {
			argv := strings.Fields(command)
			switch argv[0] {
			case "!": // ! grep -q WORD FILE
				if strings.Contains(o.Files[argv[4]], argv[3]) {
					return "", errors.New("")
				}
			default:
				if _, err := o.Tools[argv[0]].Run(argv[1:], nil); err != nil {
					return "", err
				}
			}
		}
		return "", nil
	}, Changes: func([]string) bool { return true }}
	return o
}

func (o *OpenWrt) uci(args []string, _ []byte) (string, error) {
	if args[0] == "changes" {
		return o.Staged, nil
	}
	sections, err := sqm.Parse(o.Files[SQMConfig])
	if err != nil {
		return "", errors.New("uci: Parse error")
	}
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "sqm.%s=queue\n", s.Name)
		for _, x := range s.Options {
			fmt.Fprintf(&b, "sqm.%s.%s='%s'\n", s.Name, x.Key, x.Value)
		}
	}
	return b.String(), nil
}

// restart is sqm-scripts: it stops every instance and starts those that are
// enabled. An interface that is absent, or a rate that is no number, is a line in
// the log, and exit code 0.
func (o *OpenWrt) restart() error {
	stuck := o.stopOwn()
	for _, d := range o.Kernel.Devices {
		if d.Kind != "ifb" && !slices.Contains(stuck, d.Name) {
			o.run("tc qdisc del dev %s root", d.Name)
			o.run("tc qdisc del dev %s ingress", d.Name)
		}
	}
	sections, err := sqm.Parse(o.Files[SQMConfig])
	if err != nil {
		return nil
	}
	for i := len(o.Kernel.Devices) - 1; i >= 0; i-- {
		if d := o.Kernel.Devices[i]; d.Kind == "ifb" && !slices.Contains(stuck, strings.TrimPrefix(d.Name, "ifb4")) {
			o.run("ip link del dev %s", d.Name)
		}
	}
	for _, s := range sections {
		if s.Get("enabled") == "1" && !slices.Contains(stuck, s.Get("interface")) {
			o.start(s)
		}
	}
	return nil
}

// stopOwn stops what scripts of others started, and returns the interfaces that
// it cannot: an instance whose script is gone stays, and keeps a new one away.
func (o *OpenWrt) stopOwn() (stuck []string) {
	for dev, script := range o.running {
		text, ok := o.Files[script]
		if !ok {
			stuck = append(stuck, dev)
			continue
		}
		o.function(text, "sqm_stop", nil)
		delete(o.running, dev)
	}
	return stuck
}

// function runs a function of a script: its commands one by one, until one fails
// whose line says that this ends it.
func (o *OpenWrt) function(text, name string, variables map[string]string) {
	_, body, _ := strings.Cut(text, "\n"+name+"() {\n")
	lines := strings.Split(body, "\n")
	for i := 0; i < len(lines) && lines[i] != "}"; i++ {
		command, ends := strings.CutSuffix(strings.TrimSpace(lines[i]), " || return 1")
		var in strings.Builder
		if before, isDocument := strings.CutSuffix(command, " <<'END'"); isDocument {
			for i++; lines[i] != "END"; i++ {
				in.WriteString(lines[i] + "\n")
			}
			command = before
		}
		for name, value := range variables {
			command = strings.ReplaceAll(command, "${"+name+"}", value)
		}
		failed := false
		for alternative := range strings.SplitSeq(strings.TrimSuffix(command, " 2>/dev/null"), " || sqm_unmarked ") {
			argv := strings.Fields(alternative)
			if !slices.Contains([]string{"tc", "ip", "nft"}, argv[0]) {
				break
			}
			_, _, err := o.Kernel.Run(context.Background(), argv, []byte(in.String()))
			if failed = err != nil; !failed {
				break
			}
		}
		if failed && ends {
			return
		}
	}
}

func (o *OpenWrt) start(s sqm.Section) {
	down, up, err := s.Rates()
	dev := s.Get("interface")
	if err != nil {
		return
	}
	if script := path.Join(sqm.ScriptDir, s.Get("script")); o.Files[script] != "" {
		o.running[dev] = script
		o.function(o.Files[script], "sqm_start", map[string]string{"UPLINK": s.Get("upload"), "DOWNLINK": s.Get("download")})
		return
	}
	shape := func(dev string, kbit int64) {
		if s.Get("qdisc") == "cake" && s.Get("script") == "piece_of_cake.qos" {
			o.run("tc qdisc add dev %s root handle 8001: cake bandwidth %dkbit besteffort", dev, kbit)
			return
		}
		o.run("tc qdisc add dev %s root handle 1: htb default 10", dev)
		o.run("tc class add dev %s parent 1: classid 1:1 htb rate %dkbit ceil %dkbit burst 1749 cburst 1749", dev, kbit, kbit)
		o.run("tc class add dev %s parent 1:1 classid 1:10 htb rate %dkbit ceil %dkbit burst 1749 cburst 1749 prio 0", dev, kbit, kbit)
		o.run("tc qdisc add dev %s parent 1:10 handle 110: fq_codel limit 1001", dev)
	}
	if up > 0 {
		shape(dev, int64(up/1000))
	}
	if down > 0 {
		ifb := "ifb4" + dev
		o.run("ip link add name %s type ifb", ifb)
		o.run("ip link set dev %s up", ifb)
		shape(ifb, int64(down/1000))
		o.run("tc qdisc add dev %s handle ffff: ingress", dev)
		o.run("tc filter add dev %s parent ffff: protocol all pref 10 u32 match u32 0 0 at 0 classid 1:1 action mirred egress redirect dev %s", dev, ifb)
	}
}
