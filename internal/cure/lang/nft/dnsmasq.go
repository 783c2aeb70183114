package nft

import (
	"fmt"
	"strings"

	"unbloat/internal/cure/plan"
)

// ResolverMark is the first line of our dnsmasq(8) file. A file without it is
// not ours.
const ResolverMark = "# Made by unbloat; `unbloat revert` removes it."

// ResolverFile returns the file by which dnsmasq (2.87 or newer, built with nftset) fills the
// sets of rules that name domains; "" if no rule does.
func ResolverFile(p plan.Plan) string {
	lines, table := "", Family+"#"+plan.OwnName(p.WAN)
	if p.Classes != nil {
		for i, x := range p.Classes.Rules {
			if len(x.Domain) > 0 {
				lines += fmt.Sprintf("nftset=/%s/4#%s#far4_%d,6#%s#far6_%d\n", strings.Join(x.Domain, "/"), table, i+1, table, i+1)
			}
		}
	}
	if lines == "" {
		return ""
	}
	return ResolverMark + "\n" + lines
}

// CanFill reports whether dnsmasq can add addresses to nftables sets, from the
// compile time options in `dnsmasq --version`.
func CanFill(version string) bool {
	return strings.Contains(version, " nftset") // without it, the option is no-nftset
}

// ConfigDir returns the first directory from which dnsmasq reads .conf files,
// set on its command line or in its configuration file; "" if there is none.
func ConfigDir(args []string, config string) string {
	var dirs []string
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--conf-dir="); ok {
			dirs = append(dirs, v)
		} else if (a == "-7" || a == "--conf-dir") && i+1 < len(args) {
			dirs = append(dirs, args[i+1])
		} else if v, ok := strings.CutPrefix(a, "-7"); ok && v != "" {
			dirs = append(dirs, v)
		}
	}
	for line := range strings.Lines(config) {
		if v, ok := strings.CutPrefix(strings.ReplaceAll(strings.TrimSpace(line), " ", ""), "conf-dir="); ok {
			dirs = append(dirs, v)
		}
	}
	for _, d := range dirs {
		words := strings.Split(d, ",")
		fits, excludes := len(words) == 1, true
		for _, ending := range words[1:] { // "*.conf": only those; ".bak": all but those
			if only, ok := strings.CutPrefix(ending, "*"); ok {
				excludes, fits = false, fits || strings.HasSuffix(EarlierFile, only)
			} else if strings.HasSuffix(EarlierFile, ending) {
				fits, excludes = false, false
			}
		}
		if (fits || excludes) && strings.HasPrefix(words[0], "/") {
			return strings.TrimSuffix(words[0], "/")
		}
	}
	return ""
}

// EarlierFile is the file in that directory that earlier versions had for all WANs.
const EarlierFile = Earlier + ".conf"

// ResolverName returns the name of a WAN's file there.
func ResolverName(wan string) string { return plan.OwnName(wan) + ".conf" }

// ConfigFile returns the configuration file that dnsmasq's command line names.
func ConfigFile(args []string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--conf-file="); ok {
			return v
		}
		if (a == "-C" || a == "--conf-file") && i+1 < len(args) {
			return args[i+1]
		}
		if v, ok := strings.CutPrefix(a, "-C"); ok && v != "" {
			return v
		}
	}
	return "/etc/dnsmasq.conf"
}
