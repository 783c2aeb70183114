package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"unbloat/internal/cure/plan"
)

// A UI says where the router's page is served, and to whom.
type UI struct {
	Listen netip.AddrPort // invalid: nowhere
	TLS    bool           // with a certificate of its own
	Allow  []netip.Prefix // networks that may see it besides this machine and the home
	Names  []string       // of this machine, besides its own name
}

// Equal says whether both serve the same page.
func (u UI) Equal(v UI) bool {
	return u.Listen == v.Listen && u.TLS == v.TLS && slices.Equal(u.Allow, v.Allow) && slices.Equal(u.Names, v.Names)
}

type uiTable struct {
	Listen string   `toml:"listen"`
	TLS    bool     `toml:"tls"`
	Allow  []string `toml:"allow"`
	Names  []string `toml:"names"`
}

func uiKeys() []string { return []string{"listen", "tls", "allow", "names"} }

// PageListen is a setting that switches the router's page on, as an example.
func PageListen() Setting { return Setting{Key: "listen", Value: "192.168.1.1:7690"} }

// read reads the table [ui].
func (u *UI) read(name string, syntax Syntax, t uiTable, at placed) error {
	bad := func(key, format string, args ...any) error {
		line, ok := at.ui[key]
		if !ok {
			line = at.ui[""]
		}
		return &Error{name, line, key, fmt.Errorf(format, args...)}
	}
	var err error
	if u.Listen, err = netip.ParseAddrPort(t.Listen); err != nil || u.Listen.Port() == 0 {
		return bad("listen", "%q: must be an address and a port, as in %s; without it there is no page: remove %s", t.Listen, syntax.Sets(PageListen()), syntax.Table("ui"))
	}
	u.TLS = t.TLS
	for _, s := range t.Allow {
		p, err := netip.ParsePrefix(s)
		if a, e := netip.ParseAddr(s); e == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return bad("allow", "%q is no network; write it as in 10.8.0.0/24", s)
		}
		u.Allow = append(u.Allow, p.Masked())
	}
	for _, s := range t.Names {
		if s == "" || strings.ContainsAny(s, " :/\t\n[]") || len(s) > 253 {
			return bad("names", "%q is not the name of a machine; write it without https:// and without a port", s)
		}
		u.Names = append(u.Names, strings.ToLower(s))
	}
	return nil
}

// machines reads the machines that have a rule of their own.
func (w *WAN) machines(name string, t wanTable) error {
	for _, x := range []struct {
		key  string
		list []string
		to   *[]netip.Addr
	}{{"first", t.First, &w.First}, {"last", t.Last, &w.Last}} {
		for _, s := range x.list {
			a, err := netip.ParseAddr(s)
			switch {
			case err != nil || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "":
				return w.At(name, x.key, fmt.Errorf("%q is not the address of a machine", s))
			case slices.Contains(w.First, a) || slices.Contains(w.Last, a):
				return w.At(name, x.key, fmt.Errorf("%s is there twice; give each machine once, in first or in last", a))
			}
			*x.to = append(*x.to, a)
		}
		if len(x.list) > 0 && w.Classes == plan.ClassesOff {
			return w.At(name, x.key, fmt.Errorf("needs classes, and %s", w.syntax.Sets(Setting{Key: "classes", Value: plan.ClassesOff})))
		}
	}
	for _, s := range t.Rules {
		if _, err := plan.ParseRule(s); err != nil {
			return w.At(name, "rules", err)
		}
		if w.Classes == plan.ClassesOff {
			return w.At(name, "rules", fmt.Errorf("needs classes, and %s", w.syntax.Sets(Setting{Key: "classes", Value: plan.ClassesOff})))
		}
	}
	for _, s := range t.Limits {
		if _, err := plan.ParseHardLimit(s); err != nil {
			return w.At(name, "limits", err)
		}
	}
	w.OwnRules, w.Limits = t.Rules, t.Limits
	return nil
}

// MachineRules returns what the schedule says now of machines, the rules of those that are to
// go first, of those that only get what the others leave, and the configuration's own. They
// come before all other rules.
func (w WAN) MachineRules() []plan.Rule {
	out := slices.Clone(w.Rules)
	for _, x := range []struct {
		name  string
		class plan.Class
		list  []netip.Addr
	}{{"first", plan.Voice, w.First}, {"last", plan.Bulk, w.Last}} {
		if len(x.list) == 0 {
			continue
		}
		r := plan.Rule{Name: x.name, Class: x.class}
		for _, a := range x.list {
			r.Home = append(r.Home, a.String())
		}
		out = append(out, r)
	}
	for _, text := range w.OwnRules {
		r, _ := plan.ParseRule(text) // it was read before
		out = append(out, r)
	}
	return out
}
