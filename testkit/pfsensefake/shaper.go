// Package pfsensefake stands in for pfSense in tests: for its limiters as shaper.inc
// has them (9363ac5b8651, 2026-03-31) with the reading of config.xml, its PHP
// shell, and the rules of pf that name limiters. A limiter's children get the
// next free number; the one in config.xml is ignored. An invalid child is left
// out with all that follow. A deleted limiter stays in the kernel.
//
// It shares no code with the product, and returns an error for anything it does
// not know.
package pfsensefake

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Made is what pfSense makes of a configuration's limiters.
type Made struct {
	XMLError  string   // why the configuration could not be read
	Fatal     string   // the error that stopped PHP
	Rules     *string  // rules.limiter; nil: not written
	Runs      []string // commands that were run
	MaxSlots  string   // value set for net.inet.ip.dummynet.pipe_slot_limit
	Log       []string
	Pipes     []Pipe
	NextPipe  int // number for the next new limiter; 0: PHP would stop
	NextChild int
}

// A Pipe is a limiter.
type Pipe struct {
	Name     string
	Number   *string // as in config.xml; nil: none
	Enabled  bool
	Children []Child
}

// A Child is a queue of a limiter, with the number that pfSense chose.
type Child struct {
	Name    string
	Number  int
	Enabled bool
}

// A shaper is one pass over a configuration.
type shaper struct {
	now    time.Time
	config value
	pipes  []*pipe
	log    []string
	errors []string // of all children so far
}

// A pipe is a limiter with its configuration.
type pipe struct {
	Pipe
	config   *array
	children []*child
}

type child struct {
	Child
	config *array
}

// Limiters makes rules.limiter from a configuration whose root element is
// pfsense, with the schedules as at the time now.
func Limiters(config string, now time.Time) (made Made) {
	s := &shaper{now: now}
	root, err := readXML(config, "pfsense")
	if err != nil {
		return Made{XMLError: err.Error()}
	}
	s.config = root
	defer func() {
		if e := recover(); e != nil {
			f, ok := e.(fatal)
			if !ok {
				panic(e)
			}
			made = s.made()
			made.Fatal = f.message
		}
	}()
	s.read()
	rules, slots := s.build()
	made = s.made()
	if rules != "" {
		made.Rules, made.MaxSlots = &rules, slots
		made.Runs = []string{"/sbin/dnctl $tmp_path/rules.limiter"}
	}
	return made
}

func (s *shaper) made() (m Made) {
	m.Log = s.log
	for _, p := range s.pipes {
		x := p.Pipe
		for _, c := range p.children {
			x.Children = append(x.Children, c.Child)
		}
		m.Pipes = append(m.Pipes, x)
	}
	m.NextPipe, m.NextChild = s.nextPipe(), s.nextChild()
	return m
}

// read makes the limiters of the configuration. If two have the same name, the
// second replaces the first.
func (s *shaper) read() {
	list, _ := get(s.config, "dnshaper", "queue").(*array)
	if list == nil {
		return
	}
	for _, v := range list.list() {
		conf, ok := v.(*array)
		if !ok || !truth(conf.of["name"]) {
			continue
		}
		p := &pipe{config: conf, Pipe: Pipe{Name: name(conf), Enabled: text(conf.of["enabled"]) != ""}}
		if n, ok := conf.of["number"].(string); ok {
			p.Number = &n
		} else if conf.of["number"] != nil {
			text(conf.of["number"])
		}
		if at := slices.IndexFunc(s.pipes, func(x *pipe) bool { return x.Name == p.Name }); at >= 0 {
			s.pipes[at] = p
		} else {
			s.pipes = append(s.pipes, p)
		}
		children, _ := conf.of["queue"].(*array)
		if children == nil {
			continue
		}
		for _, v := range children.list() {
			q, ok := v.(*array)
			if !ok {
				panic(fatal{"TypeError: Cannot access offset of type string on string"})
			}
			s.addChild(p, q)
		}
	}
}

// name returns the name of a limiter or child.
func name(conf *array) string {
	if truth(conf.of["newname"]) {
		return trim(text(conf.of["newname"]))
	}
	return trim(text(conf.of["name"]))
}

// addChild adds a queue to a limiter. After the first error it adds no more
// queues at all, as pfSense keeps the list of errors.
func (s *shaper) addChild(p *pipe, q *array) {
	c := &child{config: q, Child: Child{Name: name(q), Enabled: text(q.of["enabled"]) != ""}}
	s.errors = append(s.errors, childErrors(q)...)
	if len(s.errors) > 0 {
		list := "Array ( "
		for i, e := range s.errors {
			list += fmt.Sprintf("[%d] => %s ", i, e)
		}
		s.log = append(s.log, fmt.Sprintf("Could not create queue %s on interface %s because: %s) ", c.Name, p.Name, list))
		return
	}
	c.Number = s.nextChild()
	if at := slices.IndexFunc(p.children, func(x *child) bool { return x.Name == c.Name }); at >= 0 {
		p.children[at] = c
		return
	}
	p.children = append(p.children, c)
}

// nextChild returns the lowest number that no enabled child has. Children are
// found by name: of two with the same name only the last counts.
func (s *shaper) nextChild() int {
	used := map[string]int{}
	for _, p := range s.pipes {
		own := map[string]int{}
		for _, c := range p.children {
			if c.Enabled {
				own[c.Name] = c.Number
			}
		}
		for n, number := range own {
			used[n] = number
		}
	}
	var numbers []float64
	for _, n := range used {
		numbers = append(numbers, float64(n))
	}
	return gap(numbers)
}

func (s *shaper) nextPipe() int {
	var numbers []float64
	for _, p := range s.pipes {
		f := 0.0
		if p.Number != nil {
			n, ok := number(*p.Number)
			if !ok {
				return 0 // PHP stops at the subtraction
			}
			f = n
		}
		numbers = append(numbers, f)
	}
	return gap(numbers)
}

// gap returns the number below the first one that exceeds its predecessor by
// more than 1, or the number after the last one.
func gap(numbers []float64) int {
	sort.Float64s(numbers)
	last := 0.0
	for _, n := range numbers {
		if n-last > 1 {
			return int(n - 1)
		}
		last = n
	}
	return int(last) + 1
}

// build returns the rules of all enabled limiters, and the longest queue.
func (s *shaper) build() (rules, slots string) {
	slots = "100"
	longest := func(v value) {
		if n := text(v); compare(n, slots) > 0 {
			slots = n
		}
	}
	for _, p := range s.pipes {
		rules += s.rules(p)
		longest(p.config.of["qlimit"])
		for _, c := range p.children {
			longest(c.config.of["qlimit"])
		}
	}
	if strings.Trim(slots, "0123456789") != "" {
		slots = "100"
	}
	return rules, slots
}

func (s *shaper) rules(p *pipe) string {
	if !p.Enabled {
		return ""
	}
	n := ""
	if p.Number != nil {
		n = *p.Number
	}
	var b strings.Builder
	b.WriteString("\npipe " + n + " config " + s.bandwidth(p.config.of["bandwidth"]))
	for _, f := range []string{"qlimit", "plr", "buckets", "delay"} {
		if v := p.config.of[f]; truth(v) {
			b.WriteString(" " + map[string]string{"qlimit": "queue"}[f] + strings.TrimPrefix(f, "qlimit") + " " + text(v))
		}
	}
	mask := maskWords(p.config)
	b.WriteString(mask)
	b.WriteString(aqmWords(p.config, false))
	if of, ok := schedulers()[orDefault(p.config.of["sched"], "fifo")]; ok {
		b.WriteString("\nsched " + n + " config pipe " + n + mask + " " + of.words(p.config))
		if of.ecn {
			b.WriteString(ecnWords(p.config))
		}
		if of.pie {
			b.WriteString(pieWords(p.config))
		}
	}
	b.WriteString("\n")
	for _, c := range p.children {
		if !c.Enabled {
			continue
		}
		fmt.Fprintf(&b, "queue %d config pipe %s", c.Number, n)
		for _, f := range [][2]string{{"qlimit", "queue"}, {"weight", "weight"}, {"buckets", "buckets"}} {
			if v := c.config.of[f[0]]; truth(v) {
				b.WriteString(" " + f[1] + " " + text(v))
			}
		}
		b.WriteString(maskWords(c.config) + aqmWords(c.config, true) + "\n")
	}
	b.WriteString(" \n")
	return b.String()
}

// bandwidth returns the bandwidths of a limiter: those whose schedule is
// active, up to the first one without a schedule.
func (s *shaper) bandwidth(v value) string {
	items, _ := get(v, "item").(*array)
	out := ""
	if items != nil {
		for _, item := range items.list() {
			entry, ok := item.(*array)
			if !ok {
				panic(fatal{"TypeError: Cannot access offset of type string on string"})
			}
			write := func() {
				out += " bw " + rounded(trim(text(entry.of["bw"]))) + text(entry.of["bwscale"])
				if burst := text(entry.of["burst"]); isNumeric(burst) && than(burst, 0) > 0 {
					out += " burst " + trim(burst)
				}
			}
			if sched := entry.of["bwsched"]; text(sched) != "none" {
				list, ok := get(s.config, "schedules", "schedule").(*array)
				if !ok {
					return out + " bw 0"
				}
				for _, x := range list.list() {
					if a, ok := x.(*array); ok && text(a.of["name"]) == text(sched) && s.runs(a) {
						write()
						break
					}
				}
				continue
			}
			write()
			return out
		}
	}
	if out == "" {
		return " bw 0"
	}
	return out
}

// runs reports whether one of a schedule's ranges includes the current time.
func (s *shaper) runs(schedule *array) bool {
	ranges, _ := schedule.of["timerange"].(*array)
	if ranges == nil {
		return false
	}
	for _, v := range ranges.list() {
		r, ok := v.(*array)
		if !ok {
			panic(unknown{"a time range that is a text"})
		}
		weekday := int(s.now.Weekday())
		if weekday == 0 {
			weekday = 7
		}
		if among(r.of["month"], int(s.now.Month())) && among(r.of["day"], s.now.Day()) && among(r.of["position"], weekday) && s.within(r.of["hour"]) {
			return true
		}
	}
	return false
}

// among reports whether a list contains a number. An empty list contains all.
func among(v value, n int) bool {
	if !truth(v) {
		return true
	}
	for part := range strings.SplitSeq(text(v), ",") {
		if compare(part, strconv.Itoa(n)) == 0 {
			return true
		}
	}
	return false
}

// within reports whether the current time is in a range such as "16:00-19:00".
func (s *shaper) within(v value) bool {
	if !truth(v) {
		return true
	}
	ends := strings.Split(text(v), "-")
	var at [2]int
	for i := range at {
		if i >= len(ends) {
			panic(unknown{"the hours " + quoted(text(v))})
		}
		m := regexp.MustCompile(`^(\d{1,2}):(\d{2})$`).FindStringSubmatch(ends[i])
		if m == nil {
			panic(unknown{"the hours " + quoted(text(v))})
		}
		hour, _ := strconv.Atoi(m[1])
		minute, _ := strconv.Atoi(m[2])
		if hour > 24 || minute > 59 || hour == 24 && minute > 0 {
			panic(unknown{"the hours " + quoted(text(v))})
		}
		at[i] = hour*60 + minute
	}
	now := s.now.Hour()*60 + s.now.Minute()
	return now >= at[0] && now < at[1]
}

// maskWords returns the options that tell flows apart.
func maskWords(conf *array) string {
	kind := text(conf.of["mask"])
	if kind == "" || kind == "0" || kind == "none" {
		return ""
	}
	end := map[string]string{"srcaddress": "src", "dstaddress": "dst"}[kind]
	if end == "" {
		return " mask"
	}
	v6, v4 := "128", uint32(0xffffffff)
	if bits := conf.of["maskbitsv6"]; truth(bits) {
		v6 = text(bits)
	}
	if bits := conf.of["maskbits"]; truth(bits) {
		n, ok := number(text(bits))
		if !ok {
			panic(unknown{"a mask of " + quoted(text(bits)) + " bits, for which PHP counts for ever"})
		}
		v4 = 0
		for i := 0; float64(i) < min(n, 64); i++ {
			v4 = v4>>1 | 0x80000000
		}
	}
	return fmt.Sprintf(" mask %s-ip6 /%s %s-ip 0x%x", end, v6, end, v4)
}

func orDefault(v value, deflt string) string {
	if s := text(v); s != "" {
		return s
	}
	return deflt
}

// An algorithm is a scheduler or AQM that pfSense offers.
type algorithm struct {
	name       string
	format     string      // of the parameters
	parameters [][2]string // names and defaults
	ecn, pie   bool
}

// words returns an algorithm with its parameters.
func (a algorithm) words(conf *array) string {
	values := []any{}
	for _, p := range a.parameters {
		values = append(values, orDefault(conf.of["param_"+a.name+"_"+p[0]], p[1]))
	}
	return fmt.Sprintf(a.format, values...)
}

// schedulers are the ones that pfSense offers, with dummynet's sysctls as on a
// new system.
func schedulers() map[string]algorithm {
	queues := [][2]string{{"quantum", "1514"}, {"limit", "10240"}, {"flows", "1024"}}
	out := map[string]algorithm{
		"fq_codel": {"fq_codel", "type fq_codel target %sms interval %sms quantum %s limit %s flows %s", append([][2]string{{"target", "5"}, {"interval", "100"}}, queues...), true, false},
		"fq_pie": {"fq_pie", "type fq_pie target %sms tupdate %sms alpha %s beta %s max_burst %s max_ecnth %s quantum %s limit %s flows %s",
			append(pieParameters(), queues...), true, true},
	}
	for _, n := range []string{"wf2q+", "fifo", "qfq", "rr", "prio"} {
		out[n] = algorithm{name: n, format: "type " + n}
	}
	return out
}

func pieParameters() [][2]string {
	return [][2]string{{"target", "15"}, {"tupdate", "15"}, {"alpha", "0.125"}, {"beta", "1.25"}, {"max_burst", "150"}, {"max_ecnth", "0.099"}}
}

// aqms are the AQMs that pfSense offers.
func aqms() map[string]algorithm {
	red := [][2]string{{"w_q", "1"}, {"min_th", "0"}, {"max_th", "1"}, {"max_p", "1"}}
	return map[string]algorithm{
		"droptail": {name: "droptail", format: "droptail"},
		"codel":    {"codel", "codel target %sms interval %sms", [][2]string{{"target", "5"}, {"interval", "100"}}, true, false},
		"pie":      {"pie", "pie target %sms tupdate %sms alpha %s beta %s max_burst %s max_ecnth %s", pieParameters(), true, true},
		"red":      {"red", "red %s/%s/%s/%s", red, true, false},
		"gred":     {"gred", "gred %s/%s/%s/%s", red, true, false},
	}
}

// aqmWords returns the options of a queue's AQM. Only children have PIE's
// flags.
func aqmWords(conf *array, child bool) string {
	of, ok := aqms()[orDefault(conf.of["aqm"], "droptail")]
	if !ok {
		return ""
	}
	s := " " + of.words(conf)
	red := of.name == "red" || of.name == "gred"
	if of.ecn && (!red || text(conf.of["ecn"]) == "on") {
		s += ecnWords(conf)
	}
	if of.pie && child {
		s += pieWords(conf)
	}
	return s
}

func ecnWords(conf *array) string {
	if text(conf.of["ecn"]) == "on" {
		return " ecn"
	}
	return " noecn"
}

// pieWords returns PIE's flags. As in pfSense there is no blank before onoff.
func pieWords(conf *array) string {
	s := ""
	for _, f := range [][3]string{{"pie_onoff", "onoff", ""}, {"pie_capdrop", " capdrop", " nocapdrop"}, {"pie_qdelay", " ts", " dre"}, {"pie_pderand", " derand", " noderand"}} {
		if text(conf.of[f[0]]) == "on" {
			s += f[1]
		} else {
			s += f[2]
		}
	}
	return s
}
