package reason

import (
	"fmt"
	"strconv"
	"strings"

	"unbloat/unit"
)

// A Surface is where a text is shown. Only texts for a terminal mention flags.
type Surface int

// Surfaces.
const (
	Terminal Surface = iota
	Page
)

// A Language has the texts of one language, as templates. In a template {name:verb}
// is a figure. Verbs are d, s, q, and .0f to .2f as in fmt; pct and pct1 (a share
// in per cent); rate (bit/s, three digits) and exact (bit/s, all digits); size
// (bytes); ms (three digits) and ms4 (up to four); times (a count of times); name
// (from Names). {--flag:flag} is a flag, shown on a terminal only. {causes} are all
// causes of the reason, {1:cause} is the first.
type Language struct {
	Tag     string // BCP 47: "en"
	Self    string // its own name for itself
	Decimal string // decimal separator
	Column  int    // width of the names in the table of before and after
	Words   map[Code]string
	Advice  map[Code]string   // what to do about a reason, where there is something
	Names   map[string]string // translations of values with the verb name, such as directions
	Times   func(n int) string
}

// Languages returns all languages, English first.
func Languages() []*Language { return []*Language{English(), German()} }

// Choose returns the language of a tag or locale such as "de", "de-AT" or
// "de_DE.UTF-8", or English if there is no such language.
func Choose(tag string) *Language {
	if l, ok := Find(tag); ok {
		return l
	}
	return English()
}

// Find returns the language of a tag or locale; ok is false if there is none.
func Find(tag string) (l *Language, ok bool) {
	base, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(tag, "_", "-")), "-")
	base, _, _ = strings.Cut(base, ".")
	for _, l := range Languages() {
		if l.Tag == base {
			return l, true
		}
	}
	return nil, false
}

// FromEnvironment returns the language that a Unix environment asks for: the
// first of LC_ALL, LC_MESSAGES and LANG that is set decides.
func FromEnvironment(get func(name string) string) *Language {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if v := get(name); v != "" {
			return Choose(v)
		}
	}
	return English()
}

// Accept returns the language with the highest weight in an Accept-Language header
// (RFC 9110, 12.5.4), or English if the header has none of the languages.
func Accept(header string) *Language {
	best, weight := English(), 0.0
	for part := range strings.SplitSeq(header, ",") {
		tag, q, weighted := strings.Cut(strings.ReplaceAll(part, " ", ""), ";q=")
		w := 1.0
		if weighted {
			var err error
			if w, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		if l, ok := Find(tag); ok && w > weight {
			best, weight = l, w
		}
	}
	return best
}

// Say returns the text of a code with figures, which are given as for Of.
func (l *Language) Say(code Code, args ...any) string { return Of(code, args...).words(l, Terminal) }

// ToDo says what to do about a reason, or about the first of its causes for which
// there is something; "" if nothing is known to help.
func (l *Language) ToDo(r Reason) string {
	if s := l.Advice[r.Code]; s != "" {
		return l.Say(WhatToDo, "text", s)
	}
	for _, cause := range r.Causes {
		if s := l.ToDo(cause); s != "" {
			return s
		}
	}
	return ""
}

// MoreReasons says how many reasons there are beside the one that is said; "" if none.
func (l *Language) MoreReasons(n int) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return l.Say(OneMoreReason)
	}
	return l.Say(MoreReasons, "count", n)
}

// Name returns the language's name of a phase, a direction or the like.
func (l *Language) Name(s string) string {
	if name, ok := l.Names[s]; ok {
		return name
	}
	return s
}

// Number formats v as fmt does, with the language's decimal separator.
func (l *Language) Number(format string, v float64) string {
	s := fmt.Sprintf(format, v)
	if strings.Contains(s, "-") && !strings.ContainsAny(s, "123456789") { // it rounds to nothing, which has no sign
		s = fmt.Sprintf(format, 0.0)
	}
	return l.Numeral(s)
}

// Numeral replaces the decimal point of a formatted number by the language's separator.
func (l *Language) Numeral(s string) string { return strings.Replace(s, ".", l.Decimal, 1) }

// Rate writes a rate in bit/s with three digits and its unit.
func (l *Language) Rate(bps float64) string { return l.Numeral(unit.Rate(bps).Short()) }

// Ms writes milliseconds with three digits and the unit.
func (l *Language) Ms(v float64) string {
	switch {
	case v >= 99.95:
		return l.Number("%.0f ms", v)
	case v >= 9.995:
		return l.Number("%.1f ms", v)
	}
	return l.Number("%.2f ms", v)
}

// format writes one figure.
func (l *Language) format(v any, verb string) string {
	f, isFloat := v.(float64)
	if n, ok := v.(int); ok {
		f, isFloat = float64(n), true
	}
	switch {
	case verb == "name":
		if s, ok := v.(string); ok {
			return l.Name(s)
		}
	case !isFloat && verb == "q":
		return fmt.Sprintf("%q", v)
	case !isFloat:
		return fmt.Sprint(v)
	case verb == "pct":
		return l.Number("%.0f", 100*f)
	case verb == "pct1":
		return l.Number("%.1f", 100*f)
	case verb == "rate":
		return l.Rate(f)
	case verb == "exact":
		return l.Numeral(unit.Rate(f).String())
	case verb == "size":
		return l.Numeral(unit.Size(f).String())
	case verb == "ms":
		return l.Ms(f)
	case verb == "ms4":
		return l.Numeral(strconv.FormatFloat(f, 'g', 4, 64)) + " ms"
	case verb == "times":
		return l.Times(int(f))
	case verb == "d":
		return strconv.FormatInt(int64(f), 10)
	case strings.HasSuffix(verb, "f"):
		return l.Number("%"+verb, f)
	}
	return fmt.Sprint(v)
}
