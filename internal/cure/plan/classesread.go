package plan

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// mostRules limits the rules of a plan: every packet is compared with each.
const mostRules = 128

// ParseClasses reads a class file (TOML):
//
//	first_bytes = "64 kB"          # optional
//	[dscp]
//	trust_home = true
//	[[rule]]
//	name = "Hangouts"
//	class = "voice"
//	protocol = "udp"
//	far_port = ["19302-19309"]
//	[[class]]
//	name = "bulk"
//	direction = "up"
//	limit = "80%"
//
// file is the name for errors, which give the line number if they can.
func ParseClasses(file string, text []byte) (ClassPreferences, error) {
	var w ClassPreferences
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		var strict *toml.StrictMissingError
		var at *toml.DecodeError
		switch {
		case errors.As(err, &strict) && len(strict.Errors) > 0:
			line, _ := strict.Errors[0].Position()
			return w, fmt.Errorf("%s:%d: %s is not a key of a class file; see docs/classes.md", file, line, strings.Join(strict.Errors[0].Key(), "."))
		case errors.As(err, &at):
			line, _ := at.Position()
			return w, fmt.Errorf("%s:%d: %s", file, line, meant(at))
		}
		return w, fmt.Errorf("%s: %w", file, err)
	}
	if err := w.validate(); err != nil {
		return w, fmt.Errorf("%s: %w", lineOf(file, text, err), err)
	}
	return w, nil
}

// meant explains which type of value a key takes, after one of the wrong type.
func meant(e *toml.DecodeError) string {
	said := strings.TrimPrefix(e.Error(), "toml: ")
	path := e.Key()
	if len(path) == 0 || !strings.Contains(said, "cannot decode") {
		return said
	}
	key := path[len(path)-1]
	switch {
	case slices.Contains(listKeys(), key):
		return fmt.Sprintf("%s takes a list of texts, as in %s = [\"…\", \"…\"]", key, key)
	case strings.HasPrefix(key, "trust_") || strings.HasPrefix(key, "wash_"):
		return key + " is true or false"
	case len(path) == 1 && (key == "rule" || key == "class"):
		return fmt.Sprintf("%s is a table of its own, which begins with [[%s]]", key, key)
	}
	return key + " takes a text in quotes"
}

// listKeys are the keys of a rule that take a list.
func listKeys() []string {
	return []string{"port", "home_port", "far_port", "home", "far", "domain", "dscp"}
}

var tableShape = regexp.MustCompile(`^(rule|class)\[(\d+)\]`)

// lineOf returns "file:line" of the table that an error is about, or only the file
// if it is about none.
func lineOf(file string, text []byte, err error) string {
	var of *FieldError
	if !errors.As(err, &of) {
		return file
	}
	m := tableShape.FindStringSubmatch(of.Field)
	if m == nil {
		return file
	}
	left, _ := strconv.Atoi(m[2])
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if !strings.HasPrefix(strings.TrimSpace(line), "[["+m[1]+"]]") {
			continue
		}
		if left--; left < 0 {
			return fmt.Sprintf("%s:%d", file, n)
		}
	}
	return file
}

// ParseRule reads one rule as a flag gives it: "class=voice,protocol=udp,
// far_port=19302-19309"; several values of a key are joined by "|".
func ParseRule(s string) (Rule, error) {
	var r Rule
	var b strings.Builder
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || !keyShape.MatchString(key) || strings.ContainsAny(value, "\"\\\n\r") {
			return r, fmt.Errorf("rule %q: %q is not key=value", s, part)
		}
		if slices.Contains(listKeys(), key) {
			fmt.Fprintf(&b, "%s = [\"%s\"]\n", key, strings.Join(strings.Split(value, "|"), `", "`))
			continue
		}
		fmt.Fprintf(&b, "%s = \"%s\"\n", key, value)
	}
	if err := toml.NewDecoder(strings.NewReader(b.String())).DisallowUnknownFields().Decode(&r); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) && len(strict.Errors) > 0 {
			return r, fmt.Errorf("rule %q: there is no key %s; the keys are class, name, direction, protocol, port, home_port, far_port, home, far, domain, dscp, from_bytes and below_bytes",
				s, strings.Join(strict.Errors[0].Key(), "."))
		}
		return r, fmt.Errorf("rule %q: %s", s, strings.TrimPrefix(err.Error(), "toml: "))
	}
	if err := validRule("rule", r); err != nil {
		return r, fmt.Errorf("rule %q: %w", s, err)
	}
	return r, nil
}

var (
	keyShape    = regexp.MustCompile(`^[a-z_]{1,20}$`)
	nameShape   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)
	domainShape = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// validate refuses preferences that are invalid on every platform.
func (w ClassPreferences) validate() error {
	var errs []error
	if !slices.Contains([]string{ClassesAuto, ClassesOn, ClassesOff}, w.Use) {
		errs = append(errs, fieldError("use", "%q is neither on nor off", w.Use))
	}
	if len(w.Rules) > mostRules {
		errs = append(errs, fieldError("rule", "there are %d, at most %d are allowed: every packet is compared with each", len(w.Rules), mostRules))
	}
	for i, r := range w.Rules {
		errs = append(errs, validRule(fmt.Sprintf("rule[%d]", i), r))
	}
	for i, s := range w.Shares {
		at := fmt.Sprintf("class[%d]", i)
		errs = append(errs, checkClass(at+".name", s.Class), checkDirection(at+".direction", s.Direction))
		g, l := s.Guarantee, s.Limit
		switch {
		case g.IsZero() && l.IsZero():
			errs = append(errs, fieldError(at, "says neither limit nor guarantee"))
		case l.Rate > 0 && g.Rate > l.Rate, l.Rate == 0 && l.Fraction > 0 && g.Rate == 0 && g.Fraction > l.Fraction:
			errs = append(errs, fieldError(at+".guarantee", "%s is more than the limit of %s; guarantee at most the limit", g, l))
		}
		for j, o := range w.Shares[:i] {
			if o.Class == s.Class && (o.Direction == s.Direction || o.Direction == "" || s.Direction == "") {
				errs = append(errs, fieldError(at+".name", "%s was bounded by class[%d] already; write both into one, or give each a direction", s.Class, j))
			}
		}
	}
	if w.FirstBytes < 0 {
		errs = append(errs, fieldError("first_bytes", "is negative"))
	}
	return errors.Join(errs...)
}

// validRule refuses a rule that no router supports.
func validRule(at string, r Rule) error {
	errs := []error{checkClass(at+".class", r.Class), checkDirection(at+".direction", r.Direction)}
	bad := func(key, format string, args ...any) { errs = append(errs, fieldError(at+"."+key, format, args...)) }
	if r.Protocol != "" && !slices.Contains(Protocols(), r.Protocol) {
		bad("protocol", "%q is not one of %s", r.Protocol, strings.Join(Protocols(), ", "))
	}
	ports := len(r.Port)+len(r.HomePort)+len(r.FarPort) > 0
	if ports && !slices.Contains([]string{"", "tcp", "udp", "sctp"}, r.Protocol) {
		bad("protocol", "%s has no ports", r.Protocol)
	}
	for _, p := range slices.Concat(r.Port, r.HomePort, r.FarPort) {
		if p.From == 0 || p.From > p.To {
			bad("port", "%s is not a range of ports", p)
		}
	}
	for _, h := range r.Home {
		if kind, _ := KindOfHost(h); kind == HostName && !nameShape.MatchString(h) {
			bad("home", "%q is not an address, network, MAC address or name", h)
		}
	}
	for _, h := range r.Far {
		if kind, _ := KindOfHost(h); kind != HostAddr {
			bad("far", "%q is not an address or network; for names use domain", h)
		}
	}
	for _, d := range r.Domain {
		if !domainShape.MatchString(d) || !strings.Contains(d, ".") {
			bad("domain", "%q is not a domain name such as zoom.us: write it in lower case, with a dot, and without * (its subdomains are included)", d)
		}
	}
	for _, d := range r.DSCP {
		if _, err := ParseDSCP(d); err != nil {
			bad("dscp", "%v", err)
		}
	}
	if r.Below == 1 {
		bad("below_bytes", "%s is less than any connection has carried", r.Below)
	}
	if r.From < 0 || r.Below < 0 || r.Below > 0 && r.From >= r.Below {
		bad("from_bytes", "must be below below_bytes")
	}
	if strings.ContainsAny(r.Name, "\"\\\n\r") || len(r.Name) > 64 {
		bad("name", "%q is not a valid name: at most 64 characters, no quotes", r.Name)
	}
	return errors.Join(errs...)
}

func checkClass(field string, c Class) error {
	if !slices.Contains(AllClasses(), c) {
		return fieldError(field, "%q is not one of %v", c, AllClasses())
	}
	return nil
}

func checkDirection(field string, d Direction) error {
	if !slices.Contains([]Direction{"", DirectionDown, DirectionUp}, d) {
		return fieldError(field, "%q is neither down nor up", d)
	}
	return nil
}
