package openwrtfake

import (
	"regexp"
	"slices"
	"strings"
)

// Statements that this shell understands.
var (
	opening  = regexp.MustCompile(`^([a-z_]+)\(\) \{$`)
	heredoc  = regexp.MustCompile(`^(.*?) <<'END'( \|\| return 1| \|\| [a-z_]+)?$`)
	modules  = regexp.MustCompile(`^for m in [a-z_ ]+; do \[ -d /sys/module/\$m \] \|\| \$\{INSMOD:-insmod\} \$m 2>/dev/null; done$`)
	earlier  = regexp.MustCompile(`^nft list table inet unbloat >/dev/null 2>&1 \|\| rm -f (\S+)$`)
	cleaning = regexp.MustCompile(`^\[ -e (\S+) \] && rm -f (\S+) && (/etc/init\.d/\S+ restart)$`)
	unused   = regexp.MustCompile(`^\[ -n "\$\(tc filter show dev (\S+) ingress 2>/dev/null\)" \] \|\| tc qdisc del dev (\S+) ingress 2>/dev/null$`)
)

// custom runs a function of a script that is not part of sqm-scripts, and
// reports whether it returned 0. It is a shell with very few statements and
// refuses all others.
func (r *run) custom(text, function string) bool {
	functions, ok := r.functions(text)
	if !ok {
		return false
	}
	return r.call(functions, function, nil)
}

// functions returns the lines of a script's functions.
func (r *run) functions(text string) (map[string][]string, bool) {
	out := map[string][]string{}
	name := ""
	within := false // inside a here document
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		m := opening.FindStringSubmatch(line)
		switch {
		case within:
			out[name] = append(out[name], line)
			within = line != "END"
		case name == "" && m != nil:
			name = m[1]
			out[name] = []string{}
		case name == "" && (line == "" || line[0] == '#' || line == ". ${SQM_LIB_DIR}/defaults.sh"):
		case name != "" && line == "}":
			name = ""
		case name != "" && strings.HasPrefix(line, "\t"):
			out[name] = append(out[name], line)
			within = heredoc.MatchString(line)
		default:
			r.refuse("the script's line %q", line)
			return nil, false
		}
	}
	if name != "" || out["sqm_start"] == nil || out["sqm_stop"] == nil || out["sqm_prepare_script"] == nil {
		r.refuse("a script without sqm_start, sqm_stop or sqm_prepare_script")
		return nil, false
	}
	return out, true
}

// call runs a function's statements one by one.
func (r *run) call(functions map[string][]string, name string, args []string) bool {
	lines, status := functions[name], true
	for i := 0; i < len(lines) && r.refused == nil; i++ {
		line := strings.TrimSpace(lines[i])
		stdin := ""
		if m := heredoc.FindStringSubmatch(line); m != nil {
			line = m[1] + m[2]
			for i++; i < len(lines) && lines[i] != "END"; i++ {
				stdin += lines[i] + "\n"
			}
		}
		line, ends := strings.CutSuffix(line, " || return 1")
		switch {
		case line == "return 0", line == "return 1":
			return line == "return 0"
		case line == "do_modules", modules.MatchString(line):
			continue
		case functions[line] != nil:
			status = r.call(functions, line, nil)
		default:
			status = r.alternatives(functions, line, stdin, args)
		}
		if !status && ends {
			return false
		}
	}
	return status
}

// alternatives runs a command and, if it fails, the function after ||.
func (r *run) alternatives(functions map[string][]string, line, stdin string, args []string) bool {
	if m := cleaning.FindStringSubmatch(line); m != nil {
		if m[1] != m[2] {
			r.refuse("the script's line %q", line)
		}
		_, rc := r.do([]string{"rm", "-f", m[1]}, "")
		if rc == 0 {
			_, rc = r.do(strings.Fields(m[3]), "")
		}
		return rc == 0
	}
	if m := unused.FindStringSubmatch(line); m != nil {
		if m[1] != m[2] {
			r.refuse("the script's line %q", line)
		}
		says, rc := r.do([]string{"tc", "filter", "show", "dev", m[1], "ingress"}, "")
		if filters := strings.Join(says, ""); rc != 0 || filters == "" || filters == "[]" { // stand-ins always print JSON
			_, rc = r.do([]string{"tc", "qdisc", "del", "dev", m[1], "ingress"}, "")
		}
		return rc == 0
	}
	if m := earlier.FindStringSubmatch(line); m != nil {
		_, rc := r.do([]string{"nft", "list", "table", "inet", "unbloat"}, "")
		if rc != 0 {
			_, rc = r.do([]string{"rm", "-f", m[1]}, "")
		}
		return rc == 0
	}
	if warned, is := strings.CutPrefix(line, `sqm_warn "`); is && strings.Count(line, `"`) == 2 {
		r.log(levelWarning, "%s", strings.TrimSuffix(warned, `"`))
		return true
	}
	command, other, has := strings.Cut(line, " || ")
	argv, silent := strings.Fields(command), false
	if n := len(argv); n > 0 && argv[n-1] == "2>/dev/null" {
		argv, silent = argv[:n-1], true
	}
	if len(argv) == 1 && argv[0] == `"$@"` {
		argv = args
	}
	for i, w := range argv {
		argv[i] = strings.NewReplacer("${UPLINK}", r.env["UPLINK"], "${DOWNLINK}", r.env["DOWNLINK"]).Replace(w)
	}
	if len(argv) == 3 && argv[0] == "cat" && argv[1] == ">" {
		argv = []string{"tee", argv[2]}
	}
	if len(argv) == 3 && argv[0] == "rm" && argv[1] == "-rf" && strings.HasPrefix(argv[2], "/sys/fs/bpf/") {
		_, rc := r.do(argv, "")
		return rc == 0
	}
	known := []string{"tc", "ip", "nft", "tee", "unbloat", "/etc/init.d/dnsmasq"}
	if len(argv) == 0 || !slices.Contains(known, argv[0]) || strings.ContainsAny(strings.Join(argv, ""), "$`|&;<>\"'\\*?()") {
		r.refuse("the script's line %q", line)
		return false
	}
	says, rc := r.do(argv, stdin)
	if rc != 0 && !silent {
		r.Says = append(r.Says, says...)
	}
	if rc == 0 || !has {
		return rc == 0
	}
	words := strings.Fields(other)
	if functions[words[0]] == nil {
		r.refuse("the script's line %q", line)
		return false
	}
	return r.call(functions, words[0], words[1:])
}
