package linuxfake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// addFilter adds a filter of the kinds that unbloat makes.
func (k *Kernel) addFilter(d *Device, args []string) error {
	f := &filter{parent: after(args, "parent"), protocol: after(args, "protocol"), pref: after(args, "pref"), classid: after(args, "classid")}
	if slices.Contains(args, "fw") {
		f.kind, f.handle = "fw", after(args, "handle")
		d.filters = append(d.filters, f)
		return nil
	}
	at := slices.Index(args, "u32")
	if at < 0 || k.lacks("u32") {
		return errors.New("Error: TC classifier not found.") //nolint:staticcheck // as tc(8) says it
	}
	f.kind = "u32"
	if !slices.ContainsFunc(d.qdiscs, func(q *qdisc) bool { return q.handle == f.parent }) {
		return errors.New("Error: Parent Qdisc doesn't exists.") //nolint:staticcheck // as tc(8) says it
	}
	for i := at + 1; i < len(args); i++ {
		if args[i] == "match" && i+3 < len(args) {
			m := [3]string{hex(args[i+2]), hex(args[i+3]), "0"}
			if i+5 < len(args) && args[i+4] == "at" {
				m[2] = args[i+5]
			}
			f.match = append(f.match, m)
		}
	}
	if slices.Contains(args, "skbedit") {
		if k.lacks("skbedit") {
			return errors.New("Error: Failed to load TC action module.") //nolint:staticcheck // as tc(8) says it
		}
		f.priority = after(args, "priority")
	}
	if slices.Contains(args, "ctinfo") {
		if k.lacks("ctinfo") {
			return errors.New("Error: Failed to load TC action module.") //nolint:staticcheck // as tc(8) says it
		}
		f.cpmark = after(args, "cpmark")
	}
	if i := slices.Index(args, "mirred"); i >= 0 {
		if k.lacks("mirred") {
			return errors.New("Error: Failed to load TC action module.") //nolint:staticcheck // as tc(8) says it
		}
		f.direction, f.action, f.dev = args[i+1], args[i+2], args[i+4]
		if _, err := k.device(f.dev); err != nil {
			return err
		}
	}
	d.filters = append(d.filters, f)
	return nil
}

func hex(s string) string {
	n, _ := strconv.ParseUint(s, 0, 32)
	return strconv.FormatUint(n, 16)
}

func (d *Device) qdiscJSON() string {
	out := []string{}
	if !slices.ContainsFunc(d.qdiscs, func(q *qdisc) bool { return q.parent == "root" }) {
		out = append(out, `{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}`)
	}
	inOrder := slices.SortedStableFunc(slices.Values(d.qdiscs), func(a, b *qdisc) int { // ingress comes last
		return strings.Compare(strconv.FormatBool(a.parent == "ffff:fff1"), strconv.FormatBool(b.parent == "ffff:fff1"))
	})
	for _, q := range inOrder {
		parent := `"parent":"` + q.parent + `"`
		if q.parent == "root" {
			parent = `"root":true,"refcnt":2`
		}
		stab := ""
		if q.stab != nil {
			stab = `,"stab":` + jsonObject(q.stab)
		}
		out = append(out, fmt.Sprintf(`{"kind":%q,"handle":%q,%s,"options":%s%s}`, q.kind, q.handle, parent, jsonObject(q.options), stab))
	}
	return "[" + strings.Join(out, ",") + "]\n"
}

func jsonObject(o map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(o)) {
		v := o[key]
		if _, err := strconv.ParseInt(v, 10, 64); err != nil && v != "true" && v != "false" || key == "fwmark" || key == "ver" {
			v = strconv.Quote(v)
		}
		if key == "bandwidth" && v == "0" {
			v = `"unlimited"`
		}
		parts = append(parts, strconv.Quote(key)+":"+v)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (d *Device) classText() string {
	var b strings.Builder
	for _, c := range d.classes {
		inner := slices.ContainsFunc(d.classes, func(x *class) bool { return x.parent == c.id })
		fmt.Fprintf(&b, "class %s %s ", c.kind, c.id)
		if strings.HasSuffix(c.parent, ":") {
			b.WriteString("root ")
		} else {
			b.WriteString("parent " + c.parent + " ")
		}
		if !inner {
			fmt.Fprintf(&b, "prio %s quantum %s ", c.options["prio"], c.options["quantum"])
		}
		fmt.Fprintf(&b, "rate %s ceil %s linklayer ethernet burst %s/1 mpu 0b cburst %s/1 mpu 0b level %d \n",
			rateText(c.options["rate"]), rateText(c.options["ceil"]), sizeText(c.options["burst"]), sizeText(c.options["cburst"]), 0)
	}
	return b.String()
}

// rateText formats a rate as tc's text output does, with its loss of precision.
func rateText(bytes string) string {
	n := intArg(bytes) * 8
	unit := 0
	for unit < 4 && n >= 1000 && (n%1000 == 0 || n >= 1000*1000) {
		n /= 1000
		unit++
	}
	return strconv.FormatInt(n, 10) + []string{"bit", "Kbit", "Mbit", "Gbit", "Tbit"}[unit]
}

// sizeText formats a size as tc's text output does, with its loss of precision.
func sizeText(bytes string) string {
	n := float64(intArg(bytes))
	for _, u := range []struct {
		of, near float64
		name     string
	}{{1024 * 1024, 1024, "Mb"}, {1024, 16, "Kb"}} {
		if whole := math.RoundToEven(n / u.of); n >= u.of && math.Abs(whole*u.of-n) < u.near {
			return strconv.FormatFloat(whole, 'g', 6, 64) + u.name
		}
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + "b"
}

func (d *Device) filterJSON(where []string, old bool) string {
	parent, said := "ffff:", `"parent":"ffff:",`
	if len(where) > 0 && where[0] == "parent" {
		parent, said = where[1], ""
	}
	var out []string
	tables, items := []string{}, map[string]int{} // u32 numbers tables and items from 800
	for _, f := range d.filters {
		if f.parent != parent {
			continue
		}
		head := fmt.Sprintf(`%s"protocol":%q,"pref":%s,"kind":%q,"chain":0`, said, f.protocol, f.pref, f.kind)
		if f.kind == "bpf" {
			flags := ""
			if f.action != "" {
				flags = `,"direct-action":true`
			}
			out = append(out, "{"+head+"}", "{"+head+fmt.Sprintf(`,"options":{"handle":%q,"bpf_name":%q%s,"not_in_hw":true,"id":7,"tag":"0123456789abcdef"}}`, f.number, f.handle, flags))
			continue
		}
		if f.kind == "fw" { // iproute2 6.1 has no JSON for it
			if len(out) == 0 {
				out = append(out, "{"+head+"}")
			}
			out = append(out, "{"+head+`,"options":{handle `+f.handle+" classid "+f.classid+" }}")
			continue
		}
		table := strconv.FormatInt(int64(0x800+len(tables)), 16)
		if i := slices.Index(tables, f.pref); i >= 0 {
			table = strconv.FormatInt(int64(0x800+i), 16)
		} else {
			tables = append(tables, f.pref)
			hash := `"fh":"` + table + `:","ht_divisor":1`
			if old {
				hash = "fh " + table + ": ht divisor 1 "
			}
			out = append(out, "{"+head+"}", "{"+head+`,"options":{`+hash+"}}")
		}
		item := 0x800 + items[f.pref]
		items[f.pref]++
		body := fmt.Sprintf(`"fh":"%s::%x","order":%d,"key_ht":%q,"bkt":"0","not_in_hw":true`, table, item, item, table)
		if f.classid != "" {
			body += `,"flowid":` + strconv.Quote(f.classid)
		}
		for _, m := range f.match {
			body += fmt.Sprintf(`,"match":{"value":%q,"mask":%q,"offmask":"","off":%s}`, m[0], m[1], m[2])
		}
		if f.priority != "" {
			body += fmt.Sprintf(`,"actions":[{"order":1,"kind":"skbedit","priority":%q,"control_action":{"type":"pipe"},"index":1,"ref":1,"bind":1}]`, f.priority)
		}
		if f.cpmark != "" && f.dev == "" {
			body += strings.TrimSuffix(ctinfo(f.cpmark), ",") + "]"
		}
		if f.dev != "" {
			body += cmp.Or(ctinfo(f.cpmark), `,"actions":[`) + fmt.Sprintf(`{"order":1,"kind":"mirred","mirred_action":%q,"direction":%q,"to_dev":%q,"control_action":{"type":"stolen"},"index":1,"ref":1,"bind":1}]`,
				f.action, f.direction, f.dev)
		}
		if old {
			body = asText(body)
		}
		out = append(out, "{"+head+`,"options":{`+body+"}}")
	}
	return "[" + strings.Join(out, ",") + "]\n"
}

// asText prints the options of a u32 filter as iproute2 does before 5.14: text up to
// the actions, which are JSON.
func asText(body string) string {
	options, actions, acts := strings.Cut(body, `,"actions":`)
	var o struct {
		FH     string `json:"fh"`
		Order  int    `json:"order"`
		Table  string `json:"key_ht"`
		Bucket string `json:"bkt"`
		FlowID string `json:"flowid"`
	}
	if err := json.Unmarshal([]byte("{"+options+"}"), &o); err != nil {
		panic(err) // it was printed above
	}
	out := fmt.Sprintf("fh %s order %d key ht %s bkt %s ", o.FH, o.Order, o.Table, o.Bucket)
	if o.FlowID != "" {
		out += "flowid " + o.FlowID + " "
	}
	out += "not_in_hw "
	for _, m := range regexp.MustCompile(`"match":\{"value":"(\w+)","mask":"(\w+)","offmask":"","off":(-?\d+)\}`).FindAllStringSubmatch(options, -1) {
		out += fmt.Sprintf("\n  match %08s/%08s at %s", m[1], m[2], m[3])
	}
	if acts {
		out += `"actions":` + actions
	}
	return out
}

// ctinfo prints the ctinfo action, if any, and leaves the list open.
func ctinfo(cpmark string) string {
	if cpmark == "" {
		return ""
	}
	return fmt.Sprintf(`,"actions":[{"order":1,"kind":"ctinfo","zone":0,"control_action":{"type":"pipe"},"index":1,"ref":1,"bind":1,"cpmark":%q},`, cpmark)
}
