package opnsensefake

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nodes returns the whole model, as the action get does.
func (c *config) nodes() object {
	out := object{}
	for _, kind := range kinds() {
		all := object{}
		for _, x := range c.of(kind) {
			all = append(all, pair{x.uuid, c.node(x)})
		}
		out = append(out, pair{kind + "s", object{{kind, all}}})
	}
	return out
}

// node returns one item. The value of a field with options is the list of
// options.
func (c *config) node(x *item) object {
	out := object{}
	for _, f := range model(x.kind) {
		v := x.fields[f.name]
		switch f.kind {
		case optionField, interfaceField, relationField:
			shown := object{}
			if !f.required && !f.multiple {
				blank := f.blank
				if blank == "" {
					blank = "None"
				}
				shown = append(shown, pair{"", choice(blank, v == "")})
			}
			chosen := strings.Split(v, ",")
			for _, o := range c.optionsOf(f) {
				is := slices.ContainsFunc(chosen, func(s string) bool { return loose(s, o.value) == 0 })
				shown = append(shown, pair{o.value, choice(o.says, is)})
			}
			out = append(out, pair{f.name, shown})
		case networkField:
			shown := object{}
			for _, s := range strings.Split(v, ",") {
				shown.set(s, choice(s, true))
			}
			out = append(out, pair{f.name, shown})
		default:
			out = append(out, pair{f.name, v})
		}
	}
	return out
}

func choice(says string, selected bool) object {
	n := 0
	if selected {
		n = 1
	}
	return object{{"value", says}, {"selected", n}}
}

// getItem returns an item, or the defaults of a new one.
func (c *config) getItem(q request, kind string) (object, *exception) {
	out := object{}
	if len(q.args) == 0 {
		out = object{{kind, c.node(newItem(kind, ""))}}
	} else if x := c.find(kind, q.args[0]); x != nil {
		out = object{{kind, c.node(x)}}
	}
	if mode, _ := q.get("fetchmode"); kind == "rule" && (len(q.args) == 0 || text(mode) == "copy") {
		most := int64(0)
		for _, x := range c.of("rule") {
			most = max(most, toInt(x.fields["sequence"]))
		}
		node, _ := out.get("rule")
		fields, _ := node.(object)
		fields.set("sequence", strconv.FormatInt(most+1, 10))
		out.set("rule", fields)
	}
	return out, nil
}

// describe returns the label of a value.
func (c *config) describe(f field, v string) string {
	switch f.kind {
	case optionField, interfaceField, relationField:
	default:
		return v
	}
	known := c.optionsOf(f)
	var out []string
	for _, s := range strings.Split(v, ",") {
		if s == "" {
			continue
		}
		if i := slices.IndexFunc(known, func(o option) bool { return o.value == s }); i >= 0 {
			s = known[i].says
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// A row is one row in a search's answer.
type row struct {
	fields object
	key    string // sort key
}

// search returns items, filtered, sorted and split into pages. known is false
// if this stand-in does not know the answer to the request.
func (c *config) search(q request, kind string) (out object, known bool) {
	page := func(name string, unset int64) (int64, bool) {
		v, ok := q.get(name)
		if !ok {
			return unset, true
		}
		switch v.(type) {
		case object, list:
			return 0, false
		}
		return sanitizeInt(text(v)), true
	}
	count, ok1 := page("rowCount", -1)
	current, ok2 := page("current", 1)
	phrase, _ := q.get("searchPhrase")
	switch phrase.(type) {
	case object, list:
		ok1 = false
	}
	if !ok1 || !ok2 {
		return nil, false
	}
	by, descending := []string{"number"}, false
	if kind == "rule" {
		by = []string{"sequence"}
	}
	switch v, _ := q.sentAs("sort"); v := v.(type) {
	case object:
		if len(v) > 0 {
			by = nil
			for _, p := range v {
				by = append(by, p.key)
			}
			descending = text(v[0].value) == "desc"
		}
	case list:
		if len(v) > 0 {
			by = []string{"0"}
			descending = text(v[0]) == "desc"
		}
	}
	var tokens []string
	for _, t := range strings.Split(escaped(text(phrase)), " ") {
		if !isEmpty(t) {
			tokens = append(tokens, t)
		}
	}
	var rows []row
	for _, x := range c.of(kind) {
		rows = append(rows, c.row(x, by))
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if descending {
			return natural(b.key, a.key)
		}
		return natural(a.key, b.key)
	})
	shown, total := list{}, int64(0)
	for _, r := range rows {
		if !r.contains(tokens) {
			continue
		}
		if count == -1 || int64(len(shown)) < count && total >= count*(current-1) {
			shown = append(shown, r.fields)
		}
		total++
	}
	return object{{"rows", shown}, {"rowCount", len(shown)}, {"total", total}, {"current", current}}, true
}

// escaped is htmlspecialchars($s, ENT_QUOTES | ENT_HTML401).
func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", `"`, "&quot;", "'", "&#039;", "<", "&lt;", ">", "&gt;").Replace(s)
}

func (c *config) row(x *item, by []string) row {
	r := row{fields: object{{"uuid", x.uuid}}}
	for _, f := range model(x.kind) {
		v := x.fields[f.name]
		r.fields = append(r.fields, pair{f.name, v})
		if says := c.describe(f, v); loose(v, says) != 0 {
			r.fields = append(r.fields, pair{"%" + f.name, says})
		}
	}
	for _, name := range by {
		i := slices.IndexFunc(model(x.kind), func(f field) bool { return f.name == name })
		if i < 0 {
			continue
		}
		says := c.describe(model(x.kind)[i], x.fields[name])
		if _, ok := numeric(says); ok {
			r.key += fmt.Sprintf("%30s,", says)
		} else {
			r.key += says + strings.Repeat(" ", max(30-len(says), 0)) + ","
		}
	}
	r.key += x.uuid
	return r
}

// contains reports whether each token occurs in some field's label.
func (r row) contains(tokens []string) bool {
	byUUID := slices.ContainsFunc(tokens, isUUID)
	return !slices.ContainsFunc(tokens, func(token string) bool {
		return !slices.ContainsFunc(r.fields, func(p pair) bool {
			if strings.HasPrefix(p.key, "%") || p.key == "uuid" && !byUUID {
				return false
			}
			v := p.value.(string)
			if says, ok := r.fields.get("%" + p.key); ok {
				v = says.(string)
			}
			return !isEmpty(v) && strings.Contains(lower(v), lower(token))
		})
	})
}
