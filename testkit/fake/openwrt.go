package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"unbloat/testkit/linuxfake"
	"unbloat/testkit/openwrtfake"
)

// SQMConfig is the path of sqm-scripts' settings.
const SQMConfig = "/etc/config/sqm"

// A Linux is a Linux router with files and a kernel.
type Linux struct {
	*Machine
	Kernel *linuxfake.Kernel
}

// NewLinux returns a router with iproute2 and no files of interest.
func NewLinux() *Linux { return newLinux(map[string]string{}) }

// Commands is Machine's. The kernel's own list begins anew too.
func (l *Linux) Commands() []string {
	l.Kernel.Ran = nil
	return l.Machine.Commands()
}

// A Dnsmasq is the resolver of a Linux router. It uses the files of its
// directory as they were when it started, and does not start if it does not
// understand a line.
type Dnsmasq struct {
	Runs   bool
	Knows  string
	Starts int
}

// WithDnsmasq gives the router a resolver that reads /etc/dnsmasq.d, as on
// Debian, and an init script that restarts it.
func (l *Linux) WithDnsmasq() *Dnsmasq {
	const dir = "/etc/dnsmasq.d/"
	d := &Dnsmasq{Runs: true}
	l.Files["/proc/77/cmdline"] = "/usr/sbin/dnsmasq\x00-7\x00/etc/dnsmasq.d,.dpkg-dist,.dpkg-old,.dpkg-new\x00"
	l.Files["/etc/init.d/dnsmasq"] = "#!/bin/sh\n"
	l.Whose["/etc/dnsmasq.d"] = "drwxr-xr-x 2 0 0"
	l.Tools["pidof"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] != "dnsmasq" || !d.Runs {
			return "", errors.New("")
		}
		return "77\n", nil
	}}
	l.Tools["grep"] = Tool{Run: func(args []string, _ []byte) (string, error) { // -rlsiE PATTERN DIRECTORY
		fits, err := regexp.Compile("(?im)" + args[1])
		out := ""
		for _, name := range slices.Sorted(maps.Keys(l.Files)) {
			if err == nil && strings.HasPrefix(name, args[2]) && fits.MatchString(l.Files[name]) {
				out += name + "\n"
			}
		}
		if out == "" {
			return "", cmp.Or(err, errors.New(""))
		}
		return out, nil
	}}
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
	l := &Linux{Machine: NewMachine(files), Kernel: linuxfake.New()}
	for _, tool := range []string{"tc", "ip", "ethtool", "nft", "unshare", "unbloat"} {
		l.Install(tool)
	}
	list, remove := l.Tools["ls"], l.Tools["rm"]
	l.Tools["ls"] = Tool{Run: func(args []string, in []byte) (string, error) {
		if out, ok, err := l.Kernel.ListPins(args); ok {
			return out, err
		}
		return list.Run(args, in)
	}}
	l.Tools["rm"] = Tool{Run: func(args []string, in []byte) (string, error) {
		if l.Kernel.RemovePins(args) {
			return "", nil
		}
		return remove.Run(args, in)
	}, Changes: remove.Changes}
	l.Shows = func() string { return l.Kernel.Text() }
	return l
}

// Install gives the router a program that its kernel answers.
func (l *Linux) Install(tool string) {
	l.Tools[tool] = Tool{Run: func(args []string, in []byte) (string, error) {
		out, errOut, err := l.Kernel.Run(context.Background(), append([]string{tool}, args...), in)
		if err != nil {
			err = errors.New(string(errOut))
		}
		return string(out), err
	}, Changes: func(args []string) bool { return linuxfake.Changes(append([]string{tool}, args...)) }}
}

// kernel runs a command that may come from another program than unbloat. It
// translates other spellings into those that the kernel's stand-in knows.
func (l *Linux) kernel(argv []string, stdin string) (string, error) {
	words := slices.Clone(argv)
	switch text := strings.Join(argv, " "); {
	case strings.HasPrefix(text, "ip link delete dev "):
		words = []string{"ip", "link", "del", "dev", argv[4]}
	case strings.HasPrefix(text, "tc qdisc del ") && strings.HasSuffix(text, " ingress"):
		words = []string{"tc", "qdisc", "del", "dev", argv[4], "ingress"}
	case strings.HasPrefix(text, "tc filter add "):
		for i, w := range words {
			words[i] = map[bool]string{true: "pref", false: w}[w == "prio"]
			if w == "flowid" {
				words[i] = "classid"
			}
		}
	case strings.HasPrefix(text, "tc qdisc add "):
		for i := 1; i < len(words); i++ {
			if slices.Contains([]string{"target", "interval", "rtt"}, words[i-1]) {
				if d, err := time.ParseDuration(words[i]); err == nil {
					words[i] = fmt.Sprintf("%dus", d.Microseconds())
				}
			}
		}
	}
	out, errOut, err := l.Kernel.Run(context.Background(), words, []byte(stdin))
	if err != nil {
		return "", errors.New(strings.TrimSpace(string(errOut)))
	}
	return string(out), nil
}

// An OpenWrt is a router with uci(1) and sqm-scripts.
type OpenWrt struct {
	*Linux
	Staged string   // the changes that `uci changes` shows
	Log    []string // messages of sqm-scripts, whose exit code is always 0

	scripts *openwrtfake.Scripts
}

// NewOpenWrt returns a router with sqm-scripts, whose sections are disabled: the one
// as installed, edited by hand, and one that LuCI has added.
func NewOpenWrt() *OpenWrt {
	o := &OpenWrt{Linux: newLinux(map[string]string{SQMConfig: "# by hand\nconfig global\n\toption verbosity '5'\nconfig queue 'eth1'\n\toption enabled '0'  # not yet\n\toption interface 'eth1'; option download '85000'\n\toption upload '10000'\nconfig queue\n\toption enabled '0'\n\toption interface \"the kids' line\""})}
	o.scripts = &openwrtfake.Scripts{Kernel: sqmKernel{o}, File: func(name string) (string, bool) {
		text, ok := o.Files[path.Join("/usr/lib/sqm", name)]
		return text, ok
	}}
	o.Tools["uci"] = Tool{Run: o.uci}
	o.Tools["/etc/init.d/sqm"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if args[0] == "restart" {
			return "", o.restart()
		}
		return "", nil
	}, Changes: func(args []string) bool { return args[0] == "restart" }}
	o.Tools["sh"] = Tool{Run: func(args []string, _ []byte) (string, error) { // -c "A && B"
		for command := range strings.SplitSeq(args[1], " && ") {
			command, not := strings.CutPrefix(command, "! ")
			argv := strings.Fields(command)
			if _, err := o.Tools[argv[0]].Run(argv[1:], nil); (err == nil) == not {
				return "", cmp.Or(err, errors.New(""))
			}
		}
		return "", nil
	}, Changes: func([]string) bool { return true }}
	o.Tools["grep"] = Tool{Run: func(args []string, _ []byte) (string, error) { // -q WORD FILE
		if !strings.Contains(o.Files[args[2]], args[1]) {
			return "", errors.New("")
		}
		return "", nil
	}}
	o.Tools["find"] = Tool{Run: func(args []string, _ []byte) (string, error) { // DIR… -name act_KIND*
		name := strings.TrimSuffix(args[len(args)-1], "*")
		if slices.Contains(o.Kernel.Missing, strings.TrimPrefix(name, "act_")) {
			return "", nil
		}
		return "/lib/modules/6.6.110/" + name + ".ko\n", nil
	}}
	delete(o.Tools, "unshare") // a package of its own
	for _, name := range []string{"env", "nice", "xargs"} {
		o.Tools[name] = Tool{Run: o.applet}
	}
	return o
}

// applet runs a program as busybox's env, nice and xargs do on OpenWrt (FEATURE_PREFER_APPLETS): one
// that busybox has itself is busybox's, whatever is in PATH. Its ip knows no -j.
func (o *OpenWrt) applet(args []string, stdin []byte) (string, error) {
	for len(args) > 0 && strings.Contains(args[0], "=") {
		args = args[1:]
	}
	if args[0] == "ip" {
		return "", errors.New("ip: unrecognized option: j\nBusyBox v1.36.1 multi-call binary.")
	}
	tool, ok := o.Tools[args[0]]
	if !ok {
		return "", fmt.Errorf("env: can't execute '%s': No such file or directory", args[0])
	}
	return tool.Run(args[1:], stdin)
}

func (o *OpenWrt) uci(args []string, _ []byte) (string, error) {
	switch {
	case args[0] == "changes":
		return o.Staged, nil
	case args[0] != "export" || args[1] != "sqm":
		return "", fmt.Errorf("the stand-in has no uci %q", args)
	}
	c, err := openwrtfake.ParseConfig(o.Files[SQMConfig])
	if err != nil {
		return "", err
	}
	return c.Export("sqm"), nil
}

// restart stops every instance and starts those that are enabled. What fails is
// logged, and the exit code is 0. An error means that this stand-in does not
// know the answer.
func (o *OpenWrt) restart() error {
	for _, do := range []func() (openwrtfake.Result, error){
		func() (openwrtfake.Result, error) { return o.scripts.Stop("") },
		func() (openwrtfake.Result, error) { return o.scripts.Start(o.Files[SQMConfig]) },
	} {
		got, err := do()
		if o.Log = append(o.Log, got.Says...); err != nil {
			return err
		}
	}
	return nil
}

// A sqmKernel is the router as its sqm-scripts see it.
type sqmKernel struct{ o *OpenWrt }

// MTU implements openwrt/fake.Kernel.
func (k sqmKernel) MTU(name string) (int, bool) {
	for _, d := range k.o.Kernel.Devices {
		if d.Name == name {
			return d.MTU, true
		}
	}
	return 0, false
}

// Knows implements openwrt/fake.Kernel.
func (k sqmKernel) Knows(qdisc string) bool { return !slices.Contains(k.o.Kernel.Missing, qdisc) }

var ifbWord = regexp.MustCompile(`"(ifb[^"]*)"`)

// Redirect implements openwrt/fake.Kernel.
func (k sqmKernel) Redirect(device string) string {
	out, err := k.o.kernel([]string{"tc", "filter", "show", "dev", device, "parent", "ffff:"}, "")
	if m := ifbWord.FindStringSubmatch(out); err == nil && m != nil {
		return m[1]
	}
	return ""
}

// Run implements openwrt/fake.Kernel.
func (k sqmKernel) Run(argv []string, stdin string) (string, int) {
	var err error
	switch argv[0] {
	case "tc", "ip", "nft":
		_, err = k.o.kernel(argv, stdin)
	default:
		tool, ok := k.o.Tools[argv[0]]
		if !ok {
			return argv[0] + ": not found", 127
		}
		_, err = tool.Run(argv[1:], []byte(stdin))
	}
	if err != nil {
		return err.Error(), 2
	}
	return "", 0
}
