// Package clearos renders and parses ClearOS's QoS settings: qos.conf, the
// speeds in network.conf, and an engine of our own that gives it HTB and
// fq_codel. Source: ClearOS's own bandwidth engine (libqos.lua of app-qos).
package clearos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Where ClearOS keeps its settings.
const (
	QoSConf       = "/etc/clearos/qos.conf"
	NetworkConf   = "/etc/clearos/network.conf"
	BandwidthConf = "/etc/clearos/bandwidth.conf"
	EngineFile    = "/etc/clearos/unbloat-qos.lua"
	// OwnEngineFile is the path of ClearOS's own engine in qos.conf.
	OwnEngineFile = "/usr/clearos/apps/qos/deploy/libqos.lua"
)

// Shares of ClearOS's seven classes, highest priority first, in percent of the
// rate: guarantee and limit. "*" means all interfaces.
const (
	reserved = "*:15:15:14:14:14:14:14"
	limits   = "*:100:100:100:100:100:100:100"
)

// A Setting is one KEY="value" line.
type Setting struct{ Key, Value string }

// Settings are the lines that unbloat sets in ClearOS's files; all others stay
// unchanged.
type Settings struct {
	QoS     []Setting // qos.conf
	Network []Setting // network.conf: speeds in kbit/s
}

// Render makes ClearOS's settings of a plan. With sfq they are the article's:
// ClearOS's own engine and the speeds. With fq_codel they select our engine,
// which runs tc. Notes list what can't be expressed.
func Render(p plan.Plan) (s Settings, notes []string, err error) {
	if err := checkName(p.WAN, p.AQM); err != nil {
		return Settings{}, nil, err
	}
	for _, d := range []struct {
		key string
		r   unit.Rate
	}{{"UPSTREAM", p.UpBps}, {"DOWNSTREAM", p.DownBps}} {
		if d.r%unit.KbitPerSecond != 0 {
			return Settings{}, nil, fmt.Errorf("%s: %s is not a whole number of kbit/s", d.key, d.r)
		}
		if d.r != 0 && HasSpeeds(p.WAN) {
			s.Network = append(s.Network, Setting{SpeedKey(p.WAN, d.key), strconv.FormatInt(int64(d.r/unit.KbitPerSecond), 10)})
		}
	}
	s.QoS = []Setting{{"QOS_ENABLE", "on"}}
	switch p.AQM {
	case plan.FQCoDel:
		s.QoS = append(s.QoS, Setting{"QOS_ENGINE", EngineFile})
		if !HasSpeeds(p.WAN) {
			notes = append(notes, fmt.Sprintf("the speeds are in unbloat's engine alone: %s is read by shells too, for which %s= would be no setting", NetworkConf, SpeedKey(p.WAN, "UPSTREAM")))
		}
	case plan.SFQ:
		if p.UpBps == 0 || p.DownBps == 0 {
			return Settings{}, nil, fmt.Errorf("ClearOS's engine crashes when an interface is shaped in one direction only; give both rates, or use fq_codel")
		}
		upRes, upLimit, downRes, downLimit := reserved, limits, reserved, limits
		if p.Classes != nil {
			if upRes, upLimit, err = reserve(p.Classes.Up, *p.Up); err != nil {
				return Settings{}, nil, fmt.Errorf("up: %w", err)
			}
			if downRes, downLimit, err = reserve(p.Classes.Down, *p.Down); err != nil {
				return Settings{}, nil, fmt.Errorf("down: %w", err)
			}
		}
		s.QoS = append(s.QoS,
			Setting{"QOS_ENABLE_IFB", "no"}, // its ifb mode never creates the ingress qdisc
			Setting{"QOS_UPSTREAM", p.WAN + ":auto"}, Setting{"QOS_DOWNSTREAM", p.WAN + ":auto"},
			Setting{"QOS_UPSTREAM_BWRES", upRes}, Setting{"QOS_DOWNSTREAM_BWRES", downRes},
			Setting{"QOS_UPSTREAM_BWLIMIT", upLimit}, Setting{"QOS_DOWNSTREAM_BWLIMIT", downLimit})
		if p.Classes != nil {
			s.QoS = append(s.QoS, Setting{RulesKey, rules(p)})
			notes = append(notes, "rules of your own in "+RulesKey+" go behind these, and win over them: the last that fits does")
		}
	default:
		return Settings{}, nil, &plan.UnsupportedAQMError{AQM: p.AQM, Platform: "ClearOS", Have: []plan.AQM{plan.FQCoDel, plan.SFQ}}
	}
	return s, append(notes, `the old bandwidth manager must be off: BANDWIDTH_QOS="off" in `+BandwidthConf), nil
}

// checkName returns an error for names that don't match the pattern of
// ClearOS's engine, letters and digits: eth0.100, br-lan.
func checkName(wan string, aqm plan.AQM) error {
	for _, c := range []byte(wan) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && aqm == plan.SFQ {
			return fmt.Errorf("ClearOS's engine cannot shape %q: it knows interface names of letters and digits alone; use fq_codel, which does not go through it", wan)
		}
	}
	return nil
}

// HasSpeeds reports whether network.conf can hold an interface's speeds: their
// keys must be names of shell variables, which those of eth0.100 and br-lan are
// not.
func HasSpeeds(device string) bool {
	for i, c := range []byte(device) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return device != ""
}

// SpeedKey returns network.conf's key of an interface's speed, as in
// PPP0_MAX_UPSTREAM.
func SpeedKey(device, direction string) string {
	return strings.ToUpper(device) + "_MAX_" + direction
}

// Speeds returns the interface's rates from network.conf; 0: none. The error
// names a value that is not whole kbit/s.
func (s Settings) Speeds(device string) (down, up unit.Rate, err error) {
	rate := func(direction string) unit.Rate {
		v := Get(s.Network, SpeedKey(device, direction))
		if v == "" {
			return 0
		}
		n, e := strconv.ParseInt(v, 10, 64)
		if e != nil || n < 0 || n > int64(plan.MaxRate/unit.KbitPerSecond) {
			err = fmt.Errorf("%s=%s is not a whole number of kbit/s", SpeedKey(device, direction), v)
		}
		return unit.Rate(n) * unit.KbitPerSecond
	}
	down, up = rate("DOWNSTREAM"), rate("UPSTREAM")
	return down, up, err
}

// Get returns a setting's value, "" if it is not set.
func Get(list []Setting, key string) string {
	for _, s := range list {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// Format writes one line per setting. qos.conf quotes its values, network.conf
// does not.
func Format(list []Setting, quoted bool) string {
	var b strings.Builder
	for _, s := range list {
		if quoted {
			fmt.Fprintf(&b, "%s=\"%s\"\n", s.Key, s.Value)
		} else {
			fmt.Fprintf(&b, "%s=%s\n", s.Key, s.Value)
		}
	}
	return b.String()
}

// Parse reads a file of KEY=value and KEY="value" lines. A value may continue
// on the next line after a backslash.
func Parse(text string) ([]Setting, error) {
	var out []Setting
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimSpace(lines[i])
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSpace(line[:len(line)-1]) + " " + strings.TrimSpace(lines[i])
		}
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || key == "" || strings.ContainsAny(key, " \t\"") {
			return nil, fmt.Errorf("line %d: %q is not KEY=value", at, line)
		}
		if value = strings.TrimSpace(value); strings.HasPrefix(value, `"`) {
			if len(value) < 2 || strings.Index(value[1:], `"`) != len(value)-2 {
				return nil, fmt.Errorf("line %d: %s: a quote that is not closed, or text behind it", at, key)
			}
			value = value[1 : len(value)-1]
		}
		out = append(out, Setting{key, value})
	}
	return out, nil
}

// Merge returns text with the lines of these keys replaced, and new keys at the
// end. All other lines stay, comments included.
func Merge(text string, list []Setting, quoted bool) string {
	if len(list) == 0 {
		return text
	}
	done := map[string]bool{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	var out []string
	for i := 0; i < len(lines); i++ {
		key, _, ok := strings.Cut(strings.TrimSpace(lines[i]), "=")
		j := index(list, key)
		if !ok || j < 0 {
			out = append(out, lines[i])
			continue
		}
		for strings.HasSuffix(strings.TrimSpace(lines[i]), `\`) && i+1 < len(lines) {
			i++ // skip the value's continuation lines
		}
		if !done[key] {
			out = append(out, strings.TrimSuffix(Format(list[j:j+1], quoted), "\n"))
		}
		done[key] = true
	}
	for j, s := range list {
		if !done[s.Key] {
			out = append(out, strings.TrimSuffix(Format(list[j:j+1], quoted), "\n"))
		}
	}
	return strings.Join(out, "\n") + "\n"
}

func index(list []Setting, key string) int {
	for i, s := range list {
		if s.Key == key {
			return i
		}
	}
	return -1
}

// Engine writes our engine in Lua: it runs the commands, which package tc
// renders. ClearOS runs it at every start of the firewall, so it first removes
// what the last run made on these devices; the first time that fails. The error
// names a command that Lua can't quote.
func Engine(devices []string, commands [][]string) (string, error) {
	var b strings.Builder
	b.WriteString("-- Made by unbloat: HTB and fq_codel in place of ClearOS's own classes.\n")
	b.WriteString("function RunBandwidthExternal()\n    echo(\"Running unbloat's QoS engine\")\n")
	for _, d := range devices {
		for _, where := range []string{"root", "ingress"} {
			fmt.Fprintf(&b, "    os.execute(\"tc qdisc del dev %s %s 2>/dev/null\")\n", d, where)
		}
	}
	for _, argv := range commands {
		line := strings.Join(argv, " ")
		if strings.HasPrefix(line, "ip link add ") && len(argv) > 4 { // made by the last run
			fmt.Fprintf(&b, "    os.execute(\"ip link del dev %s 2>/dev/null\")\n", argv[4])
		}
		if strings.ContainsAny(line, "\"\\\n;|&$`") {
			return "", fmt.Errorf("command %q cannot be written into a Lua string", line)
		}
		fmt.Fprintf(&b, "    execute(\"%s\")\n", line)
	}
	b.WriteString("end\n")
	return b.String(), nil
}

// An EngineShaper is what an engine of ours holds to a rate.
type EngineShaper struct {
	Device string
	Enters bool // ingress of Device, by way of an ifb; otherwise egress
	Rate   unit.Rate
}

// EngineShapers returns what an engine that Engine wrote shapes when ClearOS runs it. Other
// engines' text gives nothing. The error names a rate that can't be read.
func EngineShapers(text string) ([]EngineShaper, error) {
	rates := map[string]unit.Rate{}
	var order []string
	behind := map[string]string{} // by ifb: the device whose ingress it shapes
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), `execute("`)
		if !ok {
			continue
		}
		w := strings.Fields(strings.TrimSuffix(command, `")`))
		after := func(word string) string {
			if i := slices.Index(w, word); i >= 0 && i+1 < len(w) {
				return w[i+1]
			}
			return ""
		}
		dev := after("dev")
		_, known := rates[dev]
		switch {
		case len(w) < 3 || w[0] != "tc" || w[2] != "add":
		case w[1] == "class" && !known: // the first class is the root's
			r, err := unit.ParseRate(after("rate"))
			if err != nil {
				return nil, fmt.Errorf("read %s: the rate of %s: %w", EngineFile, dev, err)
			}
			rates[dev], order = r, append(order, dev)
		case w[1] == "filter" && w[len(w)-2] == "dev":
			behind[w[len(w)-1]] = dev
		}
	}
	var out []EngineShaper
	for _, dev := range order {
		e := EngineShaper{Device: dev, Rate: rates[dev]}
		if of, is := behind[dev]; is {
			e.Device, e.Enters = of, true
		}
		out = append(out, e)
	}
	return out, nil
}
