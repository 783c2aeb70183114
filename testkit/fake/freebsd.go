package fake

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/testkit/dnctl"
)

// RCConf is the file of the system's switches.
const RCConf = "/etc/rc.conf"

// A FreeBSD is a router with a firewall and a foreign pipe.
type FreeBSD struct {
	*Machine
	Dnctl      *dnctl.Machine
	Interfaces []string
	Modules    []string
}

// NewFreeBSD returns a router with ipfw and dummynet loaded.
func NewFreeBSD() *FreeBSD {
	f := &FreeBSD{Dnctl: &dnctl.Machine{}, Interfaces: []string{"lo0", "igb0", "igb1"}, Modules: []string{"ipfw", "dummynet"}}
	f.Machine = NewMachine(map[string]string{RCConf: "hostname=\"gate\"\ngateway_enable=\"YES\"\nfirewall_enable=\"YES\" # no end of line"})
	for _, rule := range []string{"00100 allow ip from any to any via lo0", "65535 deny ip from any to any"} {
		f.Dnctl.Load(rule)
	}
	changes := func(args []string) bool {
		return !slices.Contains(args, "show") && !slices.Contains(args, "list") && !slices.Contains(args, "info")
	}
	for _, program := range []string{"dnctl", "ipfw"} {
		f.Tools[program] = Tool{Run: Program(f.Dnctl, program, f.Files), Changes: changes}
	}
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
	f.Shows = f.Dnctl.State
	if r := f.Dnctl.Run(strings.Fields("dnctl pipe 77 config bw 3Mbit/s"), nil); r.Exit != 0 {
		panic(r.Stderr)
	}
	return f
}

// Program is dnctl or ipfw of a machine, as a tool of its router.
func Program(m *dnctl.Machine, name string, files map[string]string) func(args []string, stdin []byte) (string, error) {
	return func(args []string, _ []byte) (string, error) {
		r := m.Run(append([]string{name}, args...), func(path string) (string, bool) {
			text, ok := files[path]
			return text, ok
		})
		if r.Exit != 0 {
			return r.Stdout, errors.New(strings.TrimSuffix(r.Stderr, "\n"))
		}
		return r.Stdout, nil
	}
}
