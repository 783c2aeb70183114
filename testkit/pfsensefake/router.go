package pfsensefake

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/testkit/dnctl"
	"unbloat/testkit/fake"
)

// Files of pfSense.
const (
	configFile  = "/cf/conf/config.xml"
	limiterFile = "/tmp/rules.limiter"
	rulesFile   = "/tmp/rules.debug"
)

// A Router is a pfSense with config.xml as its configuration. Its PHP shell
// runs its input at `exec`, prints errors and still exits 0. Saving records who
// made the change. A limiter deleted from config.xml stays in the kernel.
type Router struct {
	*fake.Machine
	Dnctl *dnctl.Machine
	// Old makes it pfSense 2.8 or older, which has parse_config() and older
	// syntax for pf's rules.
	Old bool
	// Now is the current time for schedules.
	Now time.Time
	// Log is what pfSense has logged since it started.
	Log []string

	config  *array // config.xml as PHP has read it
	phrases []phrase
}

const guests = `<?xml version="1.0"?>
<pfsense>
	<version>23.3</version>
	<interfaces>
		<wan><if>igb0</if><descr><![CDATA[WAN]]></descr><ipaddr>dhcp</ipaddr></wan>
		<lan><if>igb1</if><ipaddr>192.168.1.1</ipaddr></lan>
		<opt1><if>pppoe0</if></opt1>
	</interfaces>
	<filter>
		<rule>
			<type>pass</type><interface>lan</interface><ipprotocol>inet</ipprotocol>
			<descr><![CDATA[guests &amp; &lt;others&gt;]]></descr>
			<source><network>lan</network></source><destination><any/></destination>
			<dnpipe>guests_q</dnpipe>
		</rule>
		<separator><wan/></separator>
	</filter>
	<dnshaper>
		<queue>
			<name>guests</name><number>1</number><enabled>on</enabled>
			<bandwidth><item><bw>2.6</bw><bwscale>Mb</bwscale><bwsched>none</bwsched></item></bandwidth>
			<mask>none</mask><aqm>droptail</aqm><sched>fifo</sched>
			<queue><name>guests_q</name><number>1</number><enabled>on</enabled><mask>none</mask><aqm>droptail</aqm></queue>
		</queue>
	</dnshaper>
	<revision><time>1700000000</time><description><![CDATA[admin@192.168.1.2: guests]]></description></revision>
</pfsense>`

// New returns a router with a foreign limiter, loaded.
func New() *Router {
	r := &Router{Dnctl: &dnctl.Machine{}, Machine: fake.NewMachine(map[string]string{configFile: guests}), Now: time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC), phrases: phrases()}
	changes := func(args []string) bool { return !slices.Contains(args, "show") && !slices.Contains(args, "list") }
	r.Tools["dnctl"] = fake.Tool{Run: fake.Program(r.Dnctl, "dnctl", r.Files), Changes: changes}
	r.Tools["pfSsh.php"] = fake.Tool{Run: r.shell, Changes: func([]string) bool { return true }}
	r.Shows = r.Dnctl.State
	r.Load()
	return r
}

// Load does what happens at boot: PHP reads config.xml and makes its rules.
func (r *Router) Load() {
	v, err := readXML(r.Files[configFile], "pfsense")
	if err != nil {
		panic("read the stand-in's config.xml: " + err.Error())
	}
	r.config = v.(*array)
	r.configure()
}

// A php is one run of the PHP shell.
type php struct {
	*Router
	given    *array // the decoded value of $variable
	variable string
	theirs   [2]string // prefixes of our names
	required map[string]bool
	numbered []string // queues in pfSense's configuration
	ends     bool     // after an uncaught error
}

func (r *Router) shell(_ []string, in []byte) (string, error) {
	run := &php{Router: r, required: map[string]bool{}}
	var out, buffer []string
	for line := range strings.Lines(string(in)) {
		line = strings.TrimSuffix(line, "\n")
		switch strings.Fields(line + " .")[0] {
		case "exit":
			return strings.Join(out, "\n"), nil
		case "exec":
			out = append(out, run.eval(buffer)...)
			buffer = nil
		default:
			buffer = append(buffer, line)
		}
	}
	return strings.Join(out, "\n"), nil // lines after the last exec are not run
}

// A phrase is a PHP statement that the stand-in knows.
type phrase struct {
	re *regexp.Regexp
	do func(r *php, m []string) string
}

// phrases returns all phrases; anything else is a parse error.
func phrases() []phrase {
	undefined := func(name string) string {
		return "PHP Fatal error:  Uncaught Error: Call to undefined function " + name + "() in /usr/local/sbin/pfSsh.php: eval()'d code"
	}
	needs := func(file, name string, do func(r *php, m []string) string) func(r *php, m []string) string {
		return func(r *php, m []string) string {
			if !r.required[file] {
				r.ends = true
				return undefined(name)
			}
			return do(r, m)
		}
	}
	read := func(r *php, _ []string) string {
		v, err := readXML(r.Files[configFile], "pfsense")
		if err != nil {
			r.ends = true
			return err.Error()
		}
		r.config = v.(*array)
		return ""
	}
	return []phrase{
		{regexp.MustCompile(`^global \$config;`), func(*php, []string) string { return "" }},
		{regexp.MustCompile(`^require_once\("(filter|shaper)\.inc"\);`), func(r *php, m []string) string { r.required[m[1]] = true; return "" }},
		{regexp.MustCompile(`^@unlink\("/tmp/config\.cache"\);`), func(*php, []string) string { return "" }},
		{regexp.MustCompile(`^parse_config\(true\);`), func(r *php, m []string) string {
			if !r.Old {
				r.ends = true
				return undefined("parse_config")
			}
			return read(r, m)
		}},
		{regexp.MustCompile(`^if \(function_exists\("config_read_file"\)\) \{ config_read_file\(false, false\); \} else \{ parse_config\(true\); \}`), read},
		{regexp.MustCompile(`^\$(\w+) = json_decode\('((?:[^'\\]|\\.)*)', true\);`), func(r *php, m []string) string {
			r.given = newArray()
			var v any
			if json.Unmarshal([]byte(strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(m[2])), &v) == nil {
				r.given, _ = fromJSON(v).(*array)
			}
			r.variable = m[1]
			return ""
		}},
		{regexp.MustCompile(`^\$theirs = function \(\$x\) use \(\$(\w+)\) \{ return strncmp\(\$x\["name"\] \?\? "", \$(\w+)\["limiter"\], strlen\(\$(\w+)\["limiter"\]\)\) != 0 ` +
			`&& strncmp\(\$x\["descr"\] \?\? "", \$(\w+)\["descr"\], strlen\(\$(\w+)\["descr"\]\)\) != 0; \};`),
			func(r *php, m []string) string {
				r.theirs = [2]string{text(get(r.given, "limiter")), text(get(r.given, "descr"))}
				return r.undefined(m[1:]...)
			}},
		{regexp.MustCompile(`^foreach \(array\("dnshaper" => "queue", "filter" => "rule"\) as \$section => \$list\) \{ if \(!is_array\(\$config\[\$section\] \?\? ""\)\) \{ \$config\[\$section\] = array\(\); \} ` +
			`\$old = \$config\[\$section\]\[\$list\] \?\? array\(\); \$old = array_values\(array_filter\(is_array\(\$old\) \? \$old : array\(\), \$theirs\)\); ` +
			`\$config\[\$section\]\[\$list\] = \$list == "queue" \? array_merge\(\$old, \$(\w+)\[\$list\]\) : array_merge\(\$(\w+)\[\$list\], \$old\); \}`),
			func(r *php, m []string) string { r.merge(); return r.undefined(m[1:]...) }},
		{regexp.MustCompile(`^write_config\("([^"]*)"\);`), func(r *php, m []string) string { return r.write(m[1]) }},
		{regexp.MustCompile(`^filter_configure_sync\(\);`), needs("filter", "filter_configure_sync", func(r *php, _ []string) string { r.configure(); return "" })},
		{regexp.MustCompile(`^\$given = array\(\); foreach \(get_unique_dnqueue_list\(\) as \$number\) \{ \$given\[\] = ltrim\(\$number, "\?"\); \}`),
			needs("shaper", "get_unique_dnqueue_list", func(r *php, _ []string) string {
				for _, n := range r.numbers(r.read()) {
					r.numbered = append(r.numbered, strings.TrimLeft(n, "?"))
				}
				return ""
			})},
		{regexp.MustCompile(`^foreach \(explode\("\\n", strval\(shell_exec\("/sbin/dnctl queue show 2>/dev/null"\)\)\) as \$l\) \{ ` +
			`if \(preg_match\('/\^q0\*\(\\d\+\) \.\* sched \(\\d\+\) /', \$l, \$m\) && in_array\(\$m\[2\], \$(\w+)\["pipes"\]\) && !in_array\(\$m\[1\], \$given\)\) ` +
			`\{ mwexec\("/sbin/dnctl queue delete " \. \$m\[1\]\); \} \}`),
			func(r *php, m []string) string { r.sweep(); return r.undefined(m[1:]...) }},
	}
}

// eval parses the whole text before it runs any of it. A statement may span
// several lines.
func (r *php) eval(lines []string) (out []string) {
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	type statement struct {
		do func(r *php, m []string) string
		m  []string
	}
	var program []statement
	for text := strings.Join(lines, " "); text != ""; {
		i := slices.IndexFunc(r.phrases, func(p phrase) bool { return p.re.MatchString(text) })
		if i < 0 {
			return []string{fmt.Sprintf("PHP Parse error:  syntax error, unexpected %.40q in /usr/local/sbin/pfSsh.php : eval()'d code", text)}
		}
		m := r.phrases[i].re.FindStringSubmatch(text)
		program = append(program, statement{r.phrases[i].do, m})
		text = strings.TrimSpace(text[len(m[0]):])
	}
	for _, s := range program {
		if said := s.do(r, s.m); said != "" {
			out = append(out, said)
		}
		if r.ends {
			break
		}
	}
	return out
}

// undefined ends the run if a variable is not the one that was set.
func (r *php) undefined(names ...string) string {
	for _, name := range names {
		if name != r.variable {
			r.ends = true
			return "PHP Warning:  Undefined variable $" + name
		}
	}
	return ""
}

// fromJSON converts to PHP's values. Keys of an object are in alphabetical
// order, in which the JSON was written.
func fromJSON(v any) value {
	switch x := v.(type) {
	case map[string]any:
		a := newArray()
		for _, k := range slices.Sorted(maps.Keys(x)) {
			a.set(k, fromJSON(x[k]))
		}
		return a
	case []any:
		a := newArray()
		for i, e := range x {
			a.set(strconv.Itoa(i), fromJSON(e))
		}
		return a
	case string:
		return x
	}
	panic(unknown{"numbers and truths in JSON"})
}

// merge puts our limiters after the foreign ones, and our rules before the
// foreign ones.
func (r *php) merge() {
	for _, s := range [][2]string{{"dnshaper", "queue"}, {"filter", "rule"}} {
		section, ok := r.config.of[s[0]].(*array)
		if !ok {
			section = newArray()
			r.config.set(s[0], section)
		}
		var old, ours []value
		if list, ok := section.of[s[1]].(*array); ok {
			for _, v := range list.list() {
				if !strings.HasPrefix(text(get(v, "name")), r.theirs[0]) && !strings.HasPrefix(text(get(v, "descr")), r.theirs[1]) {
					old = append(old, v)
				}
			}
		}
		if list, ok := get(r.given, s[1]).(*array); ok {
			ours = list.list()
		}
		merged := append(old, ours...)
		if s[1] == "rule" {
			merged = append(ours, old...)
		}
		list := newArray()
		for i, v := range merged {
			list.set(strconv.Itoa(i), v)
		}
		section.set(s[1], list)
	}
}

// write saves config.xml with the reason of the change, and reads it again.
func (r *php) write(why string) string {
	revision := newArray()
	revision.set("time", "1700000060")
	revision.set("description", "(system): "+why)
	r.config.set("revision", revision)
	r.Files[configFile] = writeXML(r.config, "pfsense")
	v, err := readXML(r.Files[configFile], "pfsense")
	if err != nil {
		r.ends = true
		return err.Error()
	}
	r.config = v.(*array)
	return ""
}

// sweep deletes those queues of some pipes that are not in pfSense's
// configuration.
func (r *php) sweep() {
	var pipes []string
	if list, ok := get(r.given, "pipes").(*array); ok {
		for _, v := range list.list() {
			pipes = append(pipes, text(v))
		}
	}
	shown := r.Dnctl.Run([]string{"dnctl", "queue", "show"}, nil)
	re := regexp.MustCompile(`(?m)^q0*(\d+) .* sched (` + strings.Join(pipes, "|") + `) `)
	for _, m := range re.FindAllStringSubmatch(shown.Stdout, -1) {
		if !slices.Contains(r.numbered, m[1]) {
			r.Dnctl.Run([]string{"dnctl", "queue", "delete", m[1]}, nil)
		}
	}
}

// read makes limiters from the configuration that PHP has read.
func (r *Router) read() *shaper {
	s := &shaper{now: r.Now, config: r.config}
	s.read()
	return s
}

// numbers returns the numbers of all enabled limiters and queues by name: "2"
// for a limiter, "?5" for a queue.
func (r *Router) numbers(s *shaper) map[string]string {
	out := map[string]string{}
	for _, p := range s.pipes {
		if !p.Enabled {
			continue
		}
		if p.Number != nil {
			out[p.Name] = *p.Number
		}
		for _, c := range p.children {
			if c.Enabled {
				out[c.Name] = "?" + strconv.Itoa(c.Number)
			}
		}
	}
	return out
}

// configure writes rules.limiter and rules.debug from the configuration that
// PHP has read, and loads them. If no limiter is enabled rules.limiter is not
// changed.
func (r *Router) configure() {
	s := r.read()
	if rules, slots := s.build(); rules != "" {
		r.Dnctl.SlotLimit, _ = strconv.Atoi(slots)
		r.Files[limiterFile] = rules
		r.Dnctl.Run([]string{"dnctl", limiterFile}, func(path string) (string, bool) { t, ok := r.Files[path]; return t, ok })
	}
	r.Log = append(r.Log, s.log...)
	numbers := r.numbers(s)
	var b strings.Builder
	if list, ok := get(r.config, "filter", "rule").(*array); ok {
		for _, v := range list.list() {
			rule := v.(*array)
			if _, off := rule.of["disabled"]; off {
				continue
			}
			b.WriteString(r.rule(rule, numbers))
		}
	}
	r.Files[rulesFile] = b.String()
}

// rule writes a rule for each address family, as filter.inc does.
func (r *Router) rule(rule *array, numbers map[string]string) string {
	field := func(name string) string { return text(rule.of[name]) }
	families := []string{field("ipprotocol")}
	if families[0] == "inet46" {
		families = []string{"inet", "inet6"}
	}
	direction := field("direction")
	if direction == "" {
		direction = "in"
	}
	device := "$" + strings.ToUpper(field("interface"))
	if _, floating := rule.of["floating"]; floating {
		device = ""
		for _, i := range strings.Split(field("interface"), ",") {
			device += " " + text(get(r.config, "interfaces", i, "if")) + " "
		}
		device = "{ " + device + " }"
	}
	queues := ""
	if in, ok := numbers[field("dnpipe")]; ok {
		open := " dnpipe ( "
		if strings.HasPrefix(in, "?") {
			open, in = " dnqueue( ", in[1:]
		}
		queues = open + in
		if back := field("pdnpipe"); back != "" {
			n := numbers[back]
			if strings.HasPrefix(open, " dnqueue") && n != "" {
				n = n[1:] // filter.inc removes the first character, whatever it is
			}
			queues += "," + n
		}
		queues += ") "
	}
	out, flags := "", ""
	if field("protocol") == "tcp" {
		if field("tcpflags1")+field("tcpflags2")+field("tcpflags_any") != "" {
			panic(unknown{"TCP flags of a rule"})
		}
		flags = "flags S/SA "
	}
	for _, f := range families {
		proto := ""
		if of := field("protocol"); of == "icmp" && f == "inet6" {
			proto = " proto ipv6-icmp "
		} else if of != "" {
			proto = " proto " + of + " "
		}
		id, label := "ridentifier ", `label "id=`+field("tracker")+`" label "tags=user_rule" label "descr=`+field("descr")+`"`
		if r.Old {
			id, label = "tracker ", `label "USER_RULE: `+field("descr")+`"`
		}
		out += fmt.Sprintf("%s  %s  on %s %s%s from %s to %s %s%s %s%s%s\n", field("type"), direction, device, f, proto,
			end(rule.of["source"]), end(rule.of["destination"]), id, field("tracker"), flags, queues, label)
	}
	return out
}

// end writes a source or destination as filter.inc does.
func end(v value) string {
	s := "any"
	if a := text(get(v, "address")); a != "" {
		s = a
	}
	if n := text(get(v, "network")); n != "" {
		s = "$" + strings.ToUpper(n) + "__NETWORK"
	}
	if port := text(get(v, "port")); port != "" {
		s += " port " + port
		if low, high, ok := strings.Cut(port, "-"); ok {
			from, errFrom := strconv.Atoi(low)
			to, errTo := strconv.Atoi(high)
			if errFrom != nil || errTo != nil {
				panic(unknown{"the ports " + quoted(port)})
			}
			s = strings.TrimSuffix(s, port) + fmt.Sprintf("%d >< %d", from-1, to+1)
		}
	}
	return s
}
