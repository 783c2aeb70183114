// Package opnsensefake stands in for the REST API of an OPNsense router's traffic
// shaper in tests: its controller, its model with every validator, config.xml,
// the files that its templates make, and what dummynet and ipfw do with them.
// Its answers are those recorded of the real one
// (testkit/fake); it answers 501 to anything it does not
// know. It shares no code with the product.
package opnsensefake

import (
	"crypto/sha256"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An Interface is one of the router's, as in config.xml.
type Interface struct {
	Name        string // wan, lan, opt1 …
	Device      string // igb0
	Description string
}

// A Router is the API with the configuration and kernel behind it.
type Router struct {
	Key, Secret string

	// Fail, if set, is called before each request that changes something. If
	// fail is true the request fails, without effect or (after) with it.
	Fail func(argv []string) (fail, after bool)
	// Reload, if set, is called after each reload of the shaper, and may make it
	// forget: limits have been seen to stop silently.
	Reload func()

	config config
	kernel kernel
	log    string   // of the last exception
	ran    []string // requests that changed something
	random int      // uuids generated so far
}

// New returns a router with the interfaces wan, lan, opt1 and opt2, and nothing
// to shape them.
func New() *Router {
	return &Router{Key: "key", Secret: "secret", config: config{interfaces: []Interface{
		{"wan", "igb0", "WAN"}, {"lan", "igb1", "LAN"}, {"opt1", "igb0_vlan10", "V10"}, {"opt2", "pppoe0", "PPP"},
	}}}
}

// NewWithGuests returns a router with a foreign pipe.
func NewWithGuests() *Router {
	o := New()
	o.Put("pipe", "aaaaaaaa-0000-4000-8000-000000000001", map[string]string{"number": "10000", "bandwidth": "3", "bandwidthMetric": "Mbit", "description": "guests"})
	return o
}

// Put saves a foreign item without validation; missing fields get their
// defaults.
func (o *Router) Put(kind, uuid string, fields map[string]string) {
	x := o.config.find(kind, uuid)
	if x == nil {
		x = newItem(kind, uuid)
		o.config.items = append(o.config.items, x)
	}
	for name, v := range fields {
		x.fields[name] = v
	}
}

// An Item is what is saved of one pipe, queue or rule.
type Item struct {
	Kind, UUID string
	Fields     map[string]string
}

// Items returns the saved items, each kind in the order of config.xml.
func (o *Router) Items() (out []Item) {
	for _, kind := range kinds() {
		for _, x := range o.config.clone().of(kind) {
			out = append(out, Item{x.kind, x.uuid, x.fields})
		}
	}
	return out
}

// Log returns the exception behind the last answer of status 500.
func (o *Router) Log() string { return o.log }

// SetFail sets what fails.
func (o *Router) SetFail(f func(argv []string) (fail, after bool)) { o.Fail = f }

// Commands returns the requests that changed something since the last call.
func (o *Router) Commands() []string {
	ran := o.ran
	o.ran = nil
	return ran
}

// ServeHTTP answers one request.
func (o *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if key, secret, ok := r.BasicAuth(); !ok || key != o.Key || secret != o.Secret {
		send(w, http.StatusUnauthorized, `{"status":401,"message":"Authentication Failed"}`)
		return
	}
	fail, after := false, false
	if r.Method == http.MethodPost && o.Fail != nil {
		fail, after = o.Fail([]string{r.Method, r.URL.Path})
	}
	if fail && !after {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		send(w, http.StatusBadRequest, "")
		return
	}
	before := o.config.clone()
	q, status, answer := readRequest(r, body)
	if status == 0 {
		status, answer = o.serve(q)
	}
	if r.Method == http.MethodPost && status == http.StatusOK && (!before.equal(&o.config) || q.action == "reconfigure") {
		o.ran = append(o.ran, r.URL.Path)
	}
	if fail {
		status = http.StatusGatewayTimeout
	}
	send(w, status, answer)
}

func send(w http.ResponseWriter, status int, answer string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

// A request is a parsed request.
type request struct {
	post       bool // the method
	controller string
	action     string // in lower case
	args       []string
	sent       object // $_POST
	query      object // $_GET, and what was sent over it: $_REQUEST
}

// get is Request::get().
func (q request) get(name string) (any, bool) {
	v, ok := q.query.get(name)
	return v, ok && v != nil
}

// sentAs returns the value sent under a name, if any.
func (q request) sentAs(name string) (any, bool) {
	v, ok := q.sent.get(name)
	return v, ok && v != nil
}

// readRequest reads the path as the router's dispatcher does, and the body. A
// status other than 0 means that the request is answered already.
func readRequest(r *http.Request, body []byte) (q request, status int, answer string) {
	uri := r.RequestURI
	if uri == "" {
		uri = r.URL.RequestURI()
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(uri, r.URL.Scheme+"://"+r.URL.Host), "#")
	path, query, _ := strings.Cut(path, "?")
	q.post = r.Method == http.MethodPost
	var parts []string
	for _, p := range strings.Split(path, "/") {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if len(parts) < 3 || parts[0] != "api" || !strings.EqualFold(strings.ReplaceAll(parts[1], "_", ""), "trafficshaper") {
		return q, http.StatusNotImplemented, unknown(uri)
	}
	q.controller = camel(parts[2])
	if len(parts) > 3 {
		q.action = strings.ToLower(strings.ReplaceAll(parts[3], "_", ""))
		q.args = parts[4:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, http.StatusNotImplemented, unknown(uri)
	}
	for name, v := range values {
		if strings.ContainsAny(name, "[]. ") || len(v) > 1 {
			return q, http.StatusNotImplemented, unknown(uri)
		}
		q.query.set(name, v[0])
	}
	switch strings.ToLower(strings.ReplaceAll(r.Header.Get("Content-Type"), " ", "")) {
	case "application/json", "application/json;charset=utf-8":
		if len(body) == 0 || string(body) == "0" {
			return q, http.StatusBadRequest, `{"status":400,"message":"Invalid JSON syntax"}`
		}
		switch v := decode(body).(type) {
		case object:
			q.sent = v
		case list:
			for i, x := range v {
				q.sent = append(q.sent, pair{strconv.Itoa(i), x})
			}
		}
	case "application/x-www-form-urlencoded", "application/x-www-form-urlencoded;charset=utf-8", "multipart/form-data":
		if len(body) > 0 {
			return q, http.StatusNotImplemented, unknown("a form")
		}
	}
	for _, p := range q.sent {
		q.query.set(p.key, p.value)
	}
	return q, 0, ""
}

// camel returns the dispatcher's name for a controller.
func camel(s string) string {
	var b strings.Builder
	for _, word := range strings.Split(s, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

func unknown(what string) string {
	return encode(object{{"errorMessage", "the stand-in does not know " + what}}, true)
}

const notFound = `{"errorMessage":"Endpoint not found"}`

// An exception ends a request with status 500.
type exception struct{ says, title, log string }

// serve answers a request.
func (o *Router) serve(q request) (status int, answer string) {
	switch q.controller {
	case "Settings":
	case "Service":
		return o.service(q)
	default:
		return http.StatusNotFound, notFound
	}
	if slices.Contains([]string{"downloadpipes", "uploadpipes", "downloadqueues", "uploadqueues", "set"}, q.action) {
		return http.StatusNotImplemented, unknown(q.action)
	}
	next := o.config.clone()
	var v object
	var e *exception
	if q.action == "get" {
		v = object{}
		if !q.post {
			v = object{{"ts", next.nodes()}}
		}
		return http.StatusOK, encode(v, false)
	}
	verb, kind := split(q.action)
	if verb == "" || len(q.args) < need(verb) {
		return http.StatusNotFound, notFound
	}
	switch verb {
	case "add":
		v, e = o.add(q, next, kind)
	case "set":
		v, e = o.set(q, next, kind)
	case "del":
		v, e = o.del(q, next, kind)
	case "toggle":
		v, e = o.toggle(q, next, kind)
	case "get":
		v, e = next.getItem(q, kind)
		next = o.config.clone()
	case "search":
		var known bool
		if v, known = next.search(q, kind); !known {
			return http.StatusNotImplemented, unknown("such a search")
		}
	}
	if e != nil {
		o.log = e.log
		body := object{{"errorMessage", e.says}}
		if e.title != "" {
			body = append(body, pair{"errorTitle", e.title})
		}
		// Errors are escaped for HTML, even for clients of the API.
		return http.StatusInternalServerError, strings.NewReplacer("&#34;", `"`, "&#39;", "'").Replace(html.EscapeString(encode(body, true)))
	}
	o.config = *next
	return http.StatusOK, encode(v, false)
}

// split splits an action into verb and kind of item.
func split(action string) (verb, kind string) {
	for _, kind := range kinds() {
		for _, verb := range []string{"add", "set", "del", "toggle", "get"} {
			if action == verb+kind {
				return verb, kind
			}
		}
		if action == "search"+kind+"s" {
			return "search", kind
		}
	}
	return "", ""
}

// need returns the number of arguments that an action requires in its path.
func need(verb string) int {
	if verb == "set" || verb == "del" || verb == "toggle" {
		return 1
	}
	return 0
}

func failed() object { return object{{"result", "failed"}} }

// uuid returns a new random uuid.
func (o *Router) uuid() string {
	o.random++
	h := sha256.Sum256([]byte("made up " + strconv.Itoa(o.random)))
	h[6], h[8] = h[6]&0x0f|0x40, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// isUUID reports whether s may be the uuid of a new item.
func isUUID(s string) bool {
	return regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(s)
}

// thrown returns the answer to an uncaught exception.
func thrown(err error) *exception {
	return &exception{says: "Unexpected error, check log for details", log: "Exception: " + err.Error()}
}

// add makes an item, with a uuid and a number that the router chooses.
func (o *Router) add(q request, c *config, kind string) (object, *exception) {
	sent, ok := q.sentAs(kind)
	if !q.post || !ok {
		return failed(), nil
	}
	x := newItem(kind, o.uuid())
	if err := x.assign(sent); err != nil {
		return nil, thrown(err)
	}
	x.fields["origin"] = "TrafficShaper"
	if kind != "rule" {
		x.fields["number"] = c.newNumber(kind)
	}
	if m := c.validate(x); len(m.fields) > 0 {
		return object{{"result", "failed"}, {"validations", m.answer(kind)}}, nil
	}
	c.items = append(c.items, x)
	return object{{"result", "saved"}, {"uuid", x.uuid}}, nil
}

// newNumber returns the first free number above 10000.
func (c *config) newNumber(kind string) string {
	var all []int64
	for _, x := range c.of(kind) {
		all = append(all, toInt(x.fields["number"]))
	}
	slices.Sort(all)
	n := int64(10000)
	for i, is := range all {
		if is > n && i+1 < len(all) {
			if all[i+1]-is > 1 {
				n = is + 1
				break
			}
		} else if is >= n {
			n = is + 1
		}
	}
	return strconv.FormatInt(n, 10)
}

// set changes an item, or makes it if its uuid is of version 4.
func (o *Router) set(q request, c *config, kind string) (object, *exception) {
	sent, ok := q.sentAs(kind)
	if !q.post || !ok {
		return failed(), nil
	}
	uuid := q.args[0]
	x := c.find(kind, uuid)
	if x == nil {
		if !isUUID(uuid) {
			return failed(), nil
		}
		x = newItem(kind, uuid)
		c.items = append(c.items, x)
	}
	if err := x.assign(sent); err != nil {
		return nil, thrown(err)
	}
	if m := c.validate(x); len(m.fields) > 0 {
		*c = *o.config.clone()
		return object{{"result", "failed"}, {"validations", m.answer(kind)}}, nil
	}
	return object{{"result", "saved"}}, nil
}

// del deletes items; an item is in use if any saved value contains its uuid.
func (o *Router) del(q request, c *config, kind string) (object, *exception) {
	out := failed()
	if !q.post || isEmpty(q.args[0]) {
		return out, nil
	}
	for _, uuid := range strings.Split(q.args[0], ",") {
		x, called := c.find(kind, uuid), uuid
		if x != nil {
			called = x.fields["description"]
		}
		if !regexp.MustCompile(`^[0-9a-zA-Z-]{1,255}$`).MatchString(uuid) {
			return nil, &exception{says: "Invalid input token provided", title: "Invalid token", log: "Invalid input token provided"}
		}
		if says := o.config.users(uuid); says != "" {
			return nil, &exception{says: says, title: fmt.Sprintf("Item %ss.%s {%s} in use by:", kind, kind, called), log: says}
		}
		if x != nil {
			c.items = slices.DeleteFunc(c.items, func(y *item) bool { return y == x })
			out.set("result", "deleted")
		} else {
			out.set("result", "not found")
		}
	}
	return out, nil
}

// users lists the items with a value that contains the text.
func (c *config) users(token string) string {
	var b strings.Builder
	for _, kind := range kinds() {
		for _, x := range c.of(kind) {
			for _, f := range model(kind) {
				if strings.Contains(x.fields[f.name], token) {
					description := x.fields["description"]
					if isEmpty(description) {
						description = ""
					}
					fmt.Fprintf(&b, "TrafficShaper - %s {TrafficShaper.%ss.%s.%s}\n", description, kind, kind, x.uuid)
				}
			}
		}
	}
	return b.String()
}

// toggle enables or disables items, or inverts their state.
func (o *Router) toggle(q request, c *config, kind string) (object, *exception) {
	out := failed()
	if !q.post {
		return out, nil
	}
	var uuids []string
	if !isEmpty(q.args[0]) {
		uuids = strings.Split(q.args[0], ",")
	}
	if len(uuids) > 1 && len(q.args) < 2 {
		const says = "Toggle with a list of items in only supported for explicit actions [0,1]"
		return nil, &exception{says: says, title: "Toggle", log: says}
	}
	changed := false
	for _, uuid := range uuids {
		x := c.find(kind, uuid)
		if x == nil {
			continue
		}
		changed = true
		switch {
		case len(q.args) > 1 && (loose(q.args[1], "0") == 0 || loose(q.args[1], "1") == 0):
			to := q.args[1]
			if isEmpty(to) {
				out.set("result", "Disabled")
			} else {
				out.set("result", "Enabled")
			}
			changed = x.fields["enabled"] != to
			x.fields["enabled"] = to
		case len(q.args) > 1:
			changed = false
		case loose(x.fields["enabled"], "1") == 0:
			out.set("result", "Disabled")
			x.fields["enabled"] = "0"
		default:
			out.set("result", "Enabled")
			x.fields["enabled"] = "1"
		}
		out.set("changed", changed)
		if len(q.args) > 1 && !changed && x.fields["enabled"] != q.args[1] {
			break
		}
	}
	if !changed {
		*c = *o.config.clone()
	}
	return out, nil
}
