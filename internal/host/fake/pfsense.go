package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"unbloat/internal/mechanism/configxml"
	"unbloat/internal/mechanism/dummynet"
)

// A PfSense is a router whose one configuration is config.xml. Its PHP shell runs
// what it has read at `exec`, prints what is wrong, and exits 0 all the same; it
// takes config.xml from a cache unless told otherwise; saving notes who changed
// it; and a limiter that is gone from config.xml stays in the kernel.
type PfSense struct {
	*FreeBSD
	cache *configxml.Node // what PHP believes config.xml to be
}

// Files of pfSense.
const (
	pfConfig  = "/cf/conf/config.xml"
	pfLimiter = "/tmp/rules.limiter"
	pfRules   = "/tmp/rules.debug"
)

const pfSenseXML = `<?xml version="1.0"?>
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
			<descr><![CDATA[guests & <others>]]></descr>
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

// NewPfSense returns a router with a limiter of somebody else's, loaded.
func NewPfSense() *PfSense {
	p := &PfSense{FreeBSD: NewFreeBSD()}
	p.Dnctl = Dnctl{}
	p.Files = map[string]string{pfConfig: pfSenseXML}
	p.Machine.Files = p.Files
	delete(p.Tools, "ipfw")
	p.Tools["pfSsh.php"] = Tool{Run: p.shell, Changes: func([]string) bool { return true }}
	p.Shows = func() string { return p.Dnctl.State.String() }
	p.Load()
	return p
}

// Load is what happens at boot: PHP reads config.xml and makes its rules of it.
func (p *PfSense) Load() {
	root, err := configxml.Parse(p.Files[pfConfig])
	if err != nil {
		panic("read the fake's config.xml: " + err.Error())
	}
	p.cache = root
	p.configure()
}

// A php is one run of the PHP shell.
type php struct {
	*PfSense
	ours     map[string][]any
	theirs   [2]string // what begins with these isn't
	required map[string]bool
	ends     bool // an error that nobody caught
}

func (p *PfSense) shell(_ []string, in []byte) (string, error) {
	run := &php{PfSense: p, required: map[string]bool{}}
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
	return strings.Join(out, "\n"), nil // what was not executed is lost
}

// pfStatements are the PHP that the fake knows.
func pfStatements() []struct {
	re *regexp.Regexp
	do func(r *php, m []string) string
} {
	type s = struct {
		re *regexp.Regexp
		do func(r *php, m []string) string
	}
	undefined := func(r *php, name, file string) string {
		if r.required[file] {
			return ""
		}
		r.ends = true
		return "PHP Fatal error:  Uncaught Error: Call to undefined function " + name + "() in /usr/local/sbin/pfSsh.php: eval()'d code"
	}
	return []s{
		{regexp.MustCompile(`^global \$config;$`), func(*php, []string) string { return "" }},
		{regexp.MustCompile(`^require_once\("(filter|shaper)\.inc"\);$`), func(r *php, m []string) string { r.required[m[1]] = true; return "" }},
		{regexp.MustCompile(`^@unlink\("/tmp/config\.cache"\);$`), func(*php, []string) string { return "" }},
		{regexp.MustCompile(`^parse_config\((true)?\);$`), func(r *php, m []string) string {
			root, err := configxml.Parse(r.Files[pfConfig])
			if m[1] == "" {
				return ""
			}
			if err != nil {
				r.ends = true
				return "XML error: " + err.Error()
			}
			r.cache = root
			return ""
		}},
		{regexp.MustCompile(`^\$ours = json_decode\('((?:[^'\\]|\\.)*)', true\);$`), func(r *php, m []string) string {
			if json.Unmarshal([]byte(strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(m[1])), &r.ours) != nil {
				r.ours = nil
			}
			return ""
		}},
		{regexp.MustCompile(`^\$theirs = function\(\$x\) \{ return strncmp\(\$x\["name"\] \?\? "", "([^"]*)", \d+\) != 0 && strncmp\(\$x\["descr"\] \?\? "", "([^"]*)", \d+\) != 0; \};$`),
			func(r *php, m []string) string { r.theirs = [2]string{m[1], m[2]}; return "" }},
		{regexp.MustCompile(`^foreach \(array\("dnshaper" => "queue", "filter" => "rule"\) as \$section => \$list\) \{ .* \}$`), func(r *php, _ []string) string { r.merge(); return "" }},
		{regexp.MustCompile(`^write_config\("([^"]*)"\);$`), func(r *php, m []string) string { r.write(m[1]); return "" }},
		{regexp.MustCompile(`^filter_configure_sync\(\);$`), func(r *php, _ []string) string {
			if said := undefined(r, "filter_configure_sync", "filter"); said != "" {
				return said
			}
			r.configure()
			return ""
		}},
	}
}

// eval parses the whole text before it runs any of it.
func (r *php) eval(lines []string) (out []string) {
	statements := pfStatements()
	find := func(line string) int {
		for i, s := range statements {
			if s.re.MatchString(line) {
				return i
			}
		}
		return -1
	}
	for i, line := range lines {
		if find(line) < 0 {
			return []string{fmt.Sprintf("PHP Parse error:  syntax error, unexpected %q in /usr/local/sbin/pfSsh.php : eval()'d code on line %d", line, i+4)}
		}
	}
	for _, line := range lines {
		s := statements[find(line)]
		if said := s.do(r, s.re.FindStringSubmatch(line)); said != "" {
			out = append(out, said)
		}
		if r.ends {
			break
		}
	}
	return out
}

// merge puts our elements where they belong in the list of theirs: ours last
// among limiters is as good as first, so the order is PHP's, ours first.
func (r *php) merge() {
	for _, section := range []struct{ name, list string }{{"dnshaper", "queue"}, {"filter", "rule"}} {
		node := r.cache.Child(section.name)
		if node == nil {
			node = &configxml.Node{Name: section.name}
			r.cache.Children = append(r.cache.Children, node)
		}
		keys := func(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
		list := configxml.From(section.list, r.ours[section.list], keys)
		if r.ours[section.list] == nil {
			list = nil
		}
		for _, n := range node.Children {
			if n.Name == section.list && (strings.HasPrefix(n.Value("name"), r.theirs[0]) || strings.HasPrefix(n.Value("descr"), r.theirs[1])) {
				continue
			}
			list = append(list, n)
		}
		node.Children = list
	}
}

// write saves config.xml in PHP's form, with who changed it.
func (r *php) write(why string) {
	for _, n := range r.cache.Children {
		if n.Name == "revision" {
			n.Children = []*configxml.Node{{Name: "time", Text: "1700000060"}, {Name: "description", Text: "(system): " + why}}
		}
	}
	r.Files[pfConfig] = "<?xml version=\"1.0\"?>\n" + r.cache.String()
}

// configure makes rules.limiter and rules.debug of what PHP believes, and loads
// them; a limiter that is off, or gone, stays as it was in the kernel.
func (p *PfSense) configure() {
	section := p.cache.Child("dnshaper")
	if section == nil {
		section = &configxml.Node{Name: "dnshaper"}
	}
	var ls dummynet.Limiters
	if parsed, err := dummynet.ParseLimiters(section.String()); err == nil {
		ls = parsed
	}
	p.Files[pfLimiter] = ls.RulesLimiter()
	for line := range strings.Lines(p.Files[pfLimiter]) {
		if w := strings.Fields(line); len(w) > 0 {
			_, _ = p.dnctl(w, nil)
		}
	}
	numbers := map[string]int{}
	for _, l := range ls.Queues {
		for _, q := range l.Children {
			numbers[q.Name] = q.Number
		}
	}
	var b strings.Builder
	for _, r := range p.cache.Child("filter").All("rule") {
		if r.Child("disabled") != nil {
			continue
		}
		p.rule(&b, r, numbers)
	}
	p.Files[pfRules] = b.String()
}

// rule writes a rule for each address family, as filter.inc does.
func (p *PfSense) rule(b *strings.Builder, r *configxml.Node, numbers map[string]int) {
	families := []string{r.Value("ipprotocol")}
	if families[0] == "inet46" {
		families = []string{"inet", "inet6"}
	}
	direction := r.Value("direction")
	if direction == "" {
		direction = "in"
	}
	for _, f := range families {
		proto := ""
		if of := r.Value("protocol"); of == "icmp" && f == "inet6" {
			proto = "proto ipv6-icmp "
		} else if of != "" {
			proto = "proto " + of + " "
		}
		fmt.Fprintf(b, "%s  %s  on {  %s  } %s %sfrom %s to %s tracker %s", r.Value("type"), direction, p.cache.Child("interfaces").Child(r.Value("interface")).Value("if"), f,
			proto, ruleEnd(r.Child("source")), ruleEnd(r.Child("destination")), r.Value("tracker"))
		if n, ok := numbers[r.Value("dnpipe")]; ok {
			fmt.Fprintf(b, "  dnqueue( %d", n)
			if n, ok := numbers[r.Value("pdnpipe")]; ok {
				fmt.Fprintf(b, ",%d", n)
			}
			b.WriteString(")")
		}
		fmt.Fprintf(b, "  label \"USER_RULE: %s\"\n", r.Value("descr"))
	}
}

// ruleEnd writes a source or destination as filter.inc does.
func ruleEnd(n *configxml.Node) string {
	s := "any"
	if a := n.Value("address"); a != "" {
		s = a
	}
	if port := n.Value("port"); port != "" {
		s += " port " + strings.ReplaceAll(port, "-", ":")
	}
	return s
}
