package opnsensefake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A kernel is the state of dummynet and ipfw: dnctl(8) adds and changes
// objects, but nothing deletes a pipe or queue that is no longer saved.
type kernel struct {
	pipes  map[string]string  // number → bandwidth as dnctl(8) shows it
	queues map[string]flowset // by number
	rules  []shaped
}

// A flowset is a queue.
type flowset struct{ pipe, weight, params string }

// Forget clears dummynet and ipfw.
func (o *Router) Forget() { o.kernel = kernel{} }

// service is the controller that loads the shaper and shows its statistics.
func (o *Router) service(q request) (status int, answer string) {
	switch q.action {
	case "reconfigure":
		if !q.post {
			return http.StatusOK, `{"status":"failed"}`
		}
		if !o.reconfigure() {
			return http.StatusNotImplemented, unknown("what dnctl(8) makes of " + o.Files()["/usr/local/etc/dnctl.conf"])
		}
		if o.Reload != nil {
			o.Reload()
		}
		return http.StatusOK, `{"status":"ok"}`
	case "statistics":
		if q.post {
			return http.StatusOK, `{"status":"failed"}`
		}
		return http.StatusOK, encode(o.statistics(), false)
	case "flushreload":
		return http.StatusNotImplemented, unknown(q.action)
	}
	return http.StatusNotFound, notFound
}

// reconfigure loads the files. It returns false if this stand-in does not know
// what dnctl(8) makes of them. At a value with a space dnctl stops reading, and
// the API still answers ok.
func (o *Router) reconfigure() bool {
	c := &o.config
	k := kernel{pipes: maps.Clone(o.kernel.pipes), queues: maps.Clone(o.kernel.queues)}
	if k.pipes == nil {
		k.pipes, k.queues = map[string]string{}, map[string]flowset{}
	}
	if c.shapes() && !k.load(c) {
		return false
	}
	if c.sorts() {
		_, k.rules = c.ipfw()
	}
	o.kernel = k
	return true
}

// load reads the file as dnctl(8) does, to the end or to a word that it
// refuses.
func (k *kernel) load(c *config) bool {
	clean := func(f map[string]string, names ...string) (read, known bool) {
		for _, name := range names {
			v := f[name]
			switch {
			case strings.ContainsAny(v, phpSpace):
				return false, true
			case strings.Trim(v, "0123456789") != "":
				return false, false
			}
		}
		return true, true
	}
	for _, x := range c.of("pipe") {
		read, known := clean(x.fields, "number", "bandwidth", "queue", "buckets", "delay", "codel_target", "codel_interval", "fqcodel_quantum", "fqcodel_limit", "fqcodel_flows")
		if !read {
			return known
		}
		k.pipes[x.fields["number"]] = shownBandwidth(x.fields["bandwidth"], x.fields["bandwidthMetric"])
	}
	for _, x := range c.of("queue") {
		pipe := c.byUUID(x.fields["pipe"])
		if pipe == nil || pipe.kind != "pipe" {
			continue
		}
		read, known := clean(x.fields, "number", "weight", "buckets", "codel_target", "codel_interval")
		if !read {
			return known
		}
		params := "droptail"
		switch {
		case x.fields["codel_enable"] == "1":
			params = "AQM CoDel"
		case x.fields["pie_enable"] == "1":
			params = "AQM PIE"
		}
		k.queues[x.fields["number"]] = flowset{pipe.fields["number"], x.fields["weight"], params}
	}
	return true
}

// shownBandwidth prints a rate as dnctl(8) lists it, with a decimal prefix.
func shownBandwidth(number, metric string) string {
	f, _ := strconv.ParseFloat(number, 64)
	f *= map[string]float64{"bit": 1, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}[metric]
	switch {
	case f >= 1e9:
		return strings.TrimSpace(fmt.Sprintf("%7.3f Gbit/s", f/1e9))
	case f >= 1e6:
		return strings.TrimSpace(fmt.Sprintf("%7.3f Mbit/s", f/1e6))
	case f >= 1e3:
		return strings.TrimSpace(fmt.Sprintf("%7.3f Kbit/s", f/1e3))
	}
	return strings.TrimSpace(fmt.Sprintf("%7.3f bit/s ", f))
}

// byNumber returns the keys in the order in which the kernel lists objects.
func byNumber[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return int(toInt(a) - toInt(b)) })
}

// named returns name and uuid of the first saved item with this number, as the
// statistics do: the kernel only knows numbers.
func (o *Router) named(kind, number string) object {
	for _, x := range o.config.of(kind) {
		if loose(x.fields["number"], number) == 0 {
			return object{{"description", x.fields["description"]}, {"uuid", x.uuid}}
		}
	}
	return object{{"description", ""}}
}

// byDescription sorts objects by their description.
func byDescription(all []object) {
	slices.SortStableFunc(all, func(a, b object) int {
		x, _ := a.get("description")
		y, _ := b.get("description")
		return loose(x.(string), y.(string))
	})
}

// statistics returns what runs.
func (o *Router) statistics() object {
	var pipes, queues []object
	for _, n := range byNumber(o.kernel.pipes) {
		at := toInt(n)
		pipes = append(pipes, append(object{{"pipe", fmt.Sprintf("%05d", at)}, {"bw", o.kernel.pipes[n]}, {"delay", "0"}, {"burst", "0"}, {"flows", list{}},
			{"flowset", set(strconv.FormatInt(at+131072, 10), strconv.FormatInt(at+65536, 10), "0", "droptail")},
			{"scheduler", object{{"sched_nr", strconv.FormatInt(at+65536, 10)}, {"sched_type", "FIFO"}, {"sched_flags", "0x0"}, {"sched_buckets", "0"}, {"sched_active", "0"}}},
		}, o.named("pipe", n)...))
	}
	for _, n := range byNumber(o.kernel.queues) {
		q := o.kernel.queues[n]
		x := set(fmt.Sprintf("%05d", toInt(n)), q.pipe, q.weight, q.params)
		x.set("flows", list{})
		queues = append(queues, append(x, o.named("queue", n)...))
	}
	byDescription(pipes)
	byDescription(queues)
	items := list{}
	if len(pipes) > 0 {
		for _, p := range pipes {
			number, _ := p.get("pipe")
			id := key(number.(string))
			p = append(slices.Clone(p), pair{"type", "pipe"}, pair{"id", id}, pair{"rules", list{}})
			items = append(items, p)
			flows, _ := p.get("flowset")
			template := append(slices.Clone(flows.(object)), pair{"type", "queue"}, pair{"template", true}, pair{"pipe", id})
			nr, _ := template.get("flow_set_nr")
			template.set("id", fmt.Sprint(id)+"."+nr.(string))
			template.set("flows", list{})
			template = append(template, pair{"rules", o.attached("pipe", number.(string))})
			items = append(items, template)
			for _, q := range queues {
				if sched, _ := q.get("sched_nr"); loose(sched.(string), number.(string)) == 0 {
					items = append(items, o.listed(q, fmt.Sprint(id)))
				}
			}
		}
	}
	stray := false
	for _, q := range queues { // queues whose pipe does not exist
		sched, _ := q.get("sched_nr")
		if _, there := o.kernel.pipes[sched.(string)]; there || len(pipes) == 0 {
			continue
		}
		if !stray {
			stray = true
			items = append(items, object{{"type", "unknown"}, {"id", "XXXXX"}, {"rules", list{}}})
		}
		items = append(items, o.listed(q, "XXXXX"))
	}
	return object{{"status", "ok"}, {"items", items}}
}

// key converts a number to a key of a PHP array.
func key(s string) any {
	if n, err := strconv.Atoi(s); err == nil && strconv.Itoa(n) == s {
		return n
	}
	return s
}

func set(nr, sched, weight, params string) object {
	return object{{"flow_set_nr", nr}, {"queue_size", "50 sl."}, {"flows", "0"}, {"buckets", "1"}, {"sched_nr", sched}, {"weight", weight}, {"lmax", "0"}, {"pri", "0"}, {"queue_params", params}}
}

func (o *Router) listed(q object, pipe string) object {
	nr, _ := q.get("flow_set_nr")
	return append(slices.Clone(q), pair{"type", "queue"}, pair{"id", pipe + "." + fmt.Sprint(key(nr.(string)))}, pair{"rules", o.attached("queue", nr.(string))})
}

// attached returns the rules that send packets to a pipe or queue.
func (o *Router) attached(action, number string) list {
	out := list{}
	for _, r := range o.kernel.rules {
		if r.action != action || loose(r.target, number) != 0 {
			continue
		}
		description := ""
		if x := o.config.find("rule", r.uuid); x != nil {
			description = x.fields["description"]
		}
		out = append(out, object{{"rule", fmt.Sprintf("%05d", r.number)}, {"pkts", 12}, {"bytes", 3456}, {"accessed", ""}, {"accessed_epoch", 0},
			{"attached_to", r.target}, {"rule_uuid", r.uuid}, {"description", description}})
	}
	return out
}

// Text returns everything that a change by unbloat can touch: what is saved,
// and the running part of it. It leaves out foreign objects that start to run
// with our reload, and pipes in dummynet that no rule uses.
func (o *Router) Text() string {
	saved := map[string]map[string]map[string]string{}
	running := map[string]string{}
	ours := map[string]bool{}
	foreign := map[string]bool{}
	for _, x := range o.Items() {
		if saved[x.Kind] == nil {
			saved[x.Kind] = map[string]map[string]string{}
		}
		saved[x.Kind][x.UUID] = x.Fields
		if strings.HasPrefix(x.Fields["description"], "unbloat ") {
			ours[x.UUID] = true
		} else {
			foreign[x.UUID] = true
		}
		n := x.Fields["number"]
		if bw, ok := o.kernel.pipes[n]; ok && x.Kind == "pipe" && ours[x.UUID] {
			running["pipe "+x.UUID] = bw
		}
		if q, ok := o.kernel.queues[n]; ok && x.Kind == "queue" && ours[x.UUID] {
			running["queue "+x.UUID] = fmt.Sprint(q)
		}
	}
	for _, r := range o.kernel.rules {
		if !foreign[r.uuid] {
			running["rule "+r.uuid] = r.action + " " + r.target
		}
	}
	b, err := json.MarshalIndent(map[string]any{"saved": saved, "running": running}, "", " ")
	if err != nil {
		panic("marshal the stand-in: " + err.Error()) // cannot happen: all are strings
	}
	return string(b)
}
