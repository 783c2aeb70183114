// This part stands in for a router with OpenBSD: its files, its interfaces,
// and pfctl(8) from package pfctl.

package fake

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"unbloat/testkit/pfctl"
)

// PfConf is pf's own configuration.
const PfConf = "/etc/pf.conf"

// A Router is an OpenBSD router in memory.
type OpenBSD struct {
	*Machine
	Pfctl *pfctl.Program
}

// New returns a router with a small pf.conf, loaded: a current one, or one with
// ALTQ.
func NewOpenBSD(g pfctl.Grammar) *OpenBSD {
	text := "# caf\xe9: in Latin-1\next_if = \"em0\"\nset skip on lo\nblock return\npass out on $ext_if \\\n\tproto tcp\npass in on em1"
	if g != pfctl.Today {
		text += "\n" // of old, a last line without its end was a mistake
	}
	r := &OpenBSD{Machine: NewMachine(map[string]string{PfConf: text})}
	r.Pfctl = &pfctl.Program{
		Grammar:    g,
		Interfaces: interfaces(),
		File:       func(path string) (string, bool) { text, ok := r.Files[path]; return text, ok },
		Counts: func(string) pfctl.Count {
			return pfctl.Count{Packets: 1042, Bytes: 801234, Drops: 3, DroppedBytes: 4542}
		},
	}
	r.Tools["pfctl"] = Tool{
		Run: func(args []string, in []byte) (string, error) { r.Pfctl.Stdin = string(in); return r.pfctl(args...) },
		// Loading changes something; a check does not.
		Changes: func(args []string) bool {
			flags := strings.Join(args, " ")
			return strings.HasPrefix(flags, "-") && strings.Contains(flags, "f ") && !strings.Contains(flags, "n")
		},
	}
	release := "7.7"
	if g != pfctl.Today {
		release = "5.4"
	}
	r.SetRelease(release)
	r.Tools["ifconfig"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		for _, i := range r.Pfctl.Interfaces {
			if i.Name == args[0] {
				return i.Name + ": flags=8843<UP,BROADCAST,RUNNING>\n", nil
			}
		}
		return "", fmt.Errorf("ifconfig: %s: no such interface", args[0])
	}}
	r.Shows = func() string {
		out, err := r.pfctl("-vsq")
		if err != nil {
			return err.Error()
		}
		return out
	}
	if _, err := r.pfctl("-f", PfConf); err != nil {
		panic("load the stand-in's own pf.conf: " + err.Error())
	}
	return r
}

// SetRelease sets the release that uname(1) shows. pfctl's grammar stays the
// same.
func (r *OpenBSD) SetRelease(release string) {
	r.Tools["uname"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		switch strings.Join(args, " ") {
		case "-r":
			return release + "\n", nil
		case "-sr":
			return "OpenBSD " + release + "\n", nil
		}
		return "", fmt.Errorf("uname: the stand-in does not know %q", args)
	}}
}

func (r *OpenBSD) pfctl(args ...string) (string, error) {
	out, errs, exit := r.Pfctl.Run(args)
	if exit != 0 {
		return out, errors.New(strings.TrimSuffix(errs, "\n"))
	}
	return out, nil
}

// interfaces returns a router's interfaces: three Ethernet ports, a VLAN and a
// PPPoE session.
func interfaces() []pfctl.Interface {
	prefix := netip.MustParsePrefix
	return []pfctl.Interface{
		{Name: "lo0", MTU: 32768, Addresses: []netip.Prefix{prefix("127.0.0.1/8"), prefix("::1/128")}},
		{Name: "em0", Speed: 1e9, MTU: 1500, Addresses: []netip.Prefix{prefix("203.0.113.7/24")}},
		{Name: "em1", Speed: 1e9, MTU: 1500, Addresses: []netip.Prefix{prefix("192.168.1.1/24"), prefix("2001:db8:1::1/64")}},
		{Name: "em2", Speed: 1e9, MTU: 1500},
		{Name: "vlan100", Speed: 1e9, MTU: 1500, Addresses: []netip.Prefix{prefix("192.168.100.1/24")}},
		{Name: "pppoe0", MTU: 1492, Addresses: []netip.Prefix{prefix("198.51.100.7/32")}},
	}
}
