package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Rival is a program whose settings can be taken over.
type Rival string

// Rivals.
const (
	RivalSQM      Rival = "sqm"           // sqm-scripts: /etc/config/sqm
	RivalAutorate Rival = "cake-autorate" // its config.*.sh
	RivalQoSmate  Rival = "qosmate"       // /etc/config/qosmate
)

// Rivals returns all of them.
func Rivals() []Rival { return []Rival{RivalSQM, RivalAutorate, RivalQoSmate} }

// Stop is the command that ends the rival, at the next boot too. sqm-scripts stay: on
// OpenWrt unbloat may shape with them.
func (r Rival) Stop() string {
	if r == RivalSQM {
		return "uci show sqm | sed -n 's/[.]enabled=.1.$/.enabled=0/p' | xargs -n 1 uci set; uci commit sqm; /etc/init.d/sqm restart"
	}
	return fmt.Sprintf("/etc/init.d/%s stop; /etc/init.d/%s disable", string(r), string(r))
}

// A Taken is a rival's settings as ours.
type Taken struct {
	Text string // a configuration, in TOML
	// Left are settings that have no counterpart, each with what that means.
	Left []string
}

// TakeOver reads a rival's settings, and writes what they mean as a configuration of
// ours. An error is an *Error.
func TakeOver(r Rival, name string, text []byte) (t Taken, err error) {
	var lines []taken
	switch r {
	case RivalSQM:
		lines, t.Left, err = takeSQM(name, text)
	case RivalAutorate:
		lines, t.Left, err = takeAutorate(name, text)
	case RivalQoSmate:
		lines, t.Left, err = takeQoSmate(name, text)
	default:
		return t, &Error{File: name, Err: fmt.Errorf("%q is none of %v", string(r), Rivals())}
	}
	if err != nil {
		return t, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Made from the settings of %s by `unbloat import`. Stop that first:\n#   %s\n", r, r.Stop())
	for _, l := range lines {
		b.WriteString("\n[[wan]]\n")
		for _, s := range l {
			value := s.written()
			if s.Key == "overhead" { // a number
				value = s.Value
			}
			b.WriteString(s.Key + " = " + value + "\n")
		}
	}
	t.Text = b.String()
	for _, s := range slices.Concat(lines...) {
		if _, err := strconv.ParseUint(s.Value, 10, 16); s.Key == "overhead" && err != nil {
			return t, &Error{File: name, Key: s.Key, Err: fmt.Errorf("%q: must be a number of bytes", s.Value)}
		}
	}
	if _, err := Parse(name, []byte(t.Text)); err != nil {
		var bad *Error
		if errors.As(err, &bad) {
			err = fmt.Errorf("%s: %w", bad.Key, bad.Err)
		}
		return t, &Error{File: name, Err: fmt.Errorf("it has no counterpart that unbloat accepts: %w", err)}
	}
	return t, nil
}

// A taken is one [[wan]].
type taken []Setting

func (t *taken) put(key, value string) {
	if value != "" {
		*t = append(*t, Setting{Key: key, Value: value})
	}
}

// kbit puts a rate that a file has in kbit/s; "" and 0 are none.
func (t *taken) kbit(key, value, file, of string) error {
	n, err := strconv.ParseInt(cmp.Or(value, "0"), 10, 64)
	if err != nil || n < 0 || n > 1e9 {
		return &Error{File: file, Key: of, Err: fmt.Errorf("%q: must be a number of kbit/s", value)}
	}
	if n > 0 {
		t.put(key, (unit.Rate(n) * unit.KbitPerSecond).String())
	}
	return nil
}

// trifles are settings whose absence changes nothing.
func trifles() []string {
	return []string{"enabled", "debug_logging", "verbosity", "qdisc_advanced", "qdisc_really_really_advanced", "linklayer_advanced"}
}

// takeSQM reads /etc/config/sqm.
func takeSQM(name string, text []byte) (all []taken, left []string, err error) {
	f, err := parseUCI(name, text)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range f.Sections {
		if s.Type != "queue" {
			continue
		}
		if s.Get("enabled") != "1" {
			left = append(left, fmt.Sprintf("section %s is off, and left out", s.Name))
			continue
		}
		var t taken
		t.put("interface", s.Get("interface"))
		for _, way := range [][2]string{{"download", "shape_down"}, {"upload", "shape_up"}} {
			if err := t.kbit(way[1], s.Get(way[0]), name, way[0]); err != nil {
				return nil, nil, err
			}
		}
		used := []string{"interface", "download", "upload", "qdisc", "script", "linklayer", "overhead"}
		switch q := s.Get("qdisc"); q {
		case "", string(plan.CAKE):
		case string(plan.FQCoDel):
			t.put("aqm", q)
		default:
			left = append(left, "qdisc "+q+": the best queue there is, CAKE, is used")
		}
		switch script := s.Get("script"); script {
		case "piece_of_cake.qos", "simplest.qos", "simplest_tbf.qos":
			t.put("classes", plan.ClassesOff)
		case "", "layer_cake.qos", "simple.qos":
		default:
			left = append(left, "script "+script+": classes are ours (docs/classes.md)")
		}
		switch l := s.Get("linklayer"); l {
		case "", "none":
		case string(plan.Ethernet), string(plan.ATM):
			t.put("link_layer", l)
		default:
			left = append(left, "linklayer "+l)
		}
		if v := s.Get("overhead"); v != "" && v != "0" {
			t.put("overhead", v)
		}
		for _, o := range s.Options {
			if !slices.Contains(used, o.Name) && !slices.Contains(trifles(), o.Name) {
				left = append(left, fmt.Sprintf("%s %q", o.Name, s.Get(o.Name)))
			}
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, nil, &Error{File: name, Err: errors.New("no section of it is on: there is nothing to take over")}
	}
	return all, left, nil
}

// takeQoSmate reads /etc/config/qosmate.
func takeQoSmate(name string, text []byte) (all []taken, left []string, err error) {
	f, err := parseUCI(name, text)
	if err != nil {
		return nil, nil, err
	}
	var t taken
	get := func(kind, option string) string {
		for _, s := range f.Sections {
			if s.Type == kind && s.Get(option) != "" {
				return s.Get(option)
			}
		}
		return ""
	}
	if get("settings", "WAN") == "" {
		return nil, nil, &Error{File: name, Key: "WAN", Err: errors.New("there is none in its section settings: there is nothing to take over")}
	}
	t.put("interface", get("settings", "WAN"))
	for _, x := range [][2]string{{"DOWNRATE", "shape_down"}, {"UPRATE", "shape_up"}} {
		if err := t.kbit(x[1], get("settings", x[0]), name, x[0]); err != nil {
			return nil, nil, err
		}
	}
	switch l := get("advanced", "COMMON_LINK_PRESETS"); l {
	case "", "none", "raw", "conservative":
		if l == "conservative" {
			left = append(left, "COMMON_LINK_PRESETS conservative: `unbloat test --framing` measures what the line adds")
		}
	case "ethernet", "docsis":
		t.put("link_layer", l)
	default:
		switch {
		case strings.Contains(l, "ptm"):
			t.put("link_layer", string(plan.PTM))
		case strings.Contains(l, "atm") || strings.Contains(l, "vcmux") || strings.Contains(l, "llcsnap") || strings.HasSuffix(l, "-llc"):
			t.put("link_layer", string(plan.ATM))
		default:
			left = append(left, "COMMON_LINK_PRESETS "+l)
		}
	}
	t.put("overhead", get("advanced", "OVERHEAD"))
	var last []string
	for _, key := range []string{"LOWPRIOLAN4", "LOWPRIOLAN6"} {
		for _, a := range strings.FieldsFunc(get("advanced", key), func(r rune) bool { return r == ' ' || r == ',' }) {
			if _, err := netip.ParseAddr(a); err == nil {
				last = append(last, a)
			} else {
				left = append(left, key+" "+a)
			}
		}
	}
	if len(last) > 0 {
		t = append(t, Setting{Key: "last", List: last})
	}
	if q := get("settings", "ROOT_QDISC"); q != "" && q != "cake" {
		left = append(left, "ROOT_QDISC "+q+": CAKE, or the best queue there is, is used; games and calls go first by how they behave")
	}
	used := []string{"WAN", "DOWNRATE", "UPRATE", "ROOT_QDISC", "COMMON_LINK_PRESETS", "OVERHEAD", "LOWPRIOLAN4", "LOWPRIOLAN6"}
	for _, s := range f.Sections {
		switch s.Type {
		case "rule", "ipset", "ratelimit":
			left = append(left, fmt.Sprintf("%s %s: write it as a rule (docs/classes.md)", s.Type, s.Get("name")))
		case "settings", "advanced":
			for _, o := range s.Options {
				if v := s.Get(o.Name); v != "" && v != "0" && !slices.Contains(used, o.Name) {
					left = append(left, fmt.Sprintf("%s %q", o.Name, v))
				}
			}
		}
	}
	return []taken{t}, left, nil
}

// assignment is a line of a shell script that sets a variable to a plain value.
var assignment = regexp.MustCompile(`^\s*([A-Za-z_]\w*)=(?:"([^"$\x60]*)"|'([^']*)'|([^\s"'$\x60;()#]*))\s*(?:#.*)?$`)

// takeAutorate reads a configuration of cake-autorate: assignments of shell variables.
// What a shell would have to compute is left out, and said.
func takeAutorate(name string, text []byte) (all []taken, left []string, err error) {
	set, order := map[string]string{}, []string{}
	var reflectors []string
	inside := false
	for n, line := range strings.Split(string(text), "\n") {
		bare, _, _ := strings.Cut(line, "#")
		bare = strings.TrimSpace(bare)
		switch m := assignment.FindStringSubmatch(strings.TrimRight(line, "\r")); {
		case inside || strings.HasPrefix(bare, "reflectors=("):
			words := strings.TrimPrefix(bare, "reflectors=(")
			inside = !strings.Contains(words, ")")
			words, _, _ = strings.Cut(words, ")")
			for _, a := range strings.Fields(words) {
				a = strings.Trim(a, `"'`)
				if _, err := netip.ParseAddr(a); err != nil {
					left = append(left, "reflector "+a+": give addresses, not names")
				} else if !slices.Contains(reflectors, a) {
					reflectors = append(reflectors, a)
				}
			}
		case bare == "":
		case m != nil:
			if _, is := set[m[1]]; !is {
				order = append(order, m[1])
			}
			set[m[1]] = m[2] + m[3] + m[4]
		default:
			left = append(left, fmt.Sprintf("line %d, which a shell would have to work out: %s", n+1, bare))
		}
	}
	if set["ul_if"] == "" {
		return nil, nil, &Error{File: name, Key: "ul_if", Err: errors.New("it is not set: this is no configuration of cake-autorate, or it has it from elsewhere")}
	}
	var t taken
	used := []string{"ul_if", "dl_if", "adjust_dl_shaper_rate", "adjust_ul_shaper_rate"}
	t.put("interface", set["ul_if"])
	for _, x := range [][2]string{{"dl", "down"}, {"ul", "up"}} {
		for _, y := range [][2]string{{"base", ""}, {"min", "least_"}, {"max", "most_"}} {
			key := y[0] + "_" + x[0] + "_shaper_rate_kbps"
			used = append(used, key)
			if err := t.kbit(y[1]+x[1], set[key], name, key); err != nil {
				return nil, nil, err
			}
		}
		if set["adjust_"+x[0]+"_shaper_rate"] == "0" {
			left = append(left, "adjust_"+x[0]+"_shaper_rate 0: both directions follow the line, or none; hold the "+x[1]+"load with equal bounds")
		}
		if set["base_"+x[0]+"_shaper_rate_kbps"] == "" {
			return nil, nil, &Error{File: name, Key: "base_" + x[0] + "_shaper_rate_kbps", Err: errors.New("it is not set; add it: the defaults of cake-autorate fit no line but by chance")}
		}
	}
	t = append(t, Setting{Key: "follow", Value: "true"})
	if len(reflectors) > 0 {
		t = append(t, Setting{Key: "reflectors", List: reflectors})
	}
	for _, key := range order {
		if v := set[key]; v != "" && !slices.Contains(used, key) && !strings.HasPrefix(key, "output_") && !strings.HasPrefix(key, "log_") && key != "debug" {
			left = append(left, fmt.Sprintf("%s %q", key, v))
		}
	}
	return []taken{t}, left, nil
}
