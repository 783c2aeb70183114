package reason

import (
	"fmt"
	"strings"

	"unbloat/unit"
)

// A Surface is where a sentence is shown: only a terminal has flags to advise.
type Surface int

// Surfaces.
const (
	Terminal Surface = iota
	Page
)

// A Language is the words of one language. In a template {name:verb} stands for
// a figure: verbs are d, s, and as fmt has them .0f to .2f; pct (a share in per
// cent), rate (bit/s), times (how often); {--flag:flag} for a flag where there
// are flags; {causes} for what led to the reason.
type Language struct {
	Tag     string // BCP 47: "en"
	Decimal string // between a number and its fraction
	Words   map[Code]string
	Names   map[string]string // of what args name: directions, and others that templates give with verb name
	Times   func(n int) string
}

// Languages returns those that there are, English first.
func Languages() []*Language { return []*Language{English(), German()} }

// Choose returns the language of a tag or locale such as "de", "de-AT" or
// "de_DE.UTF-8"; English where there is none of it.
func Choose(tag string) *Language {
	base, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(tag, "_", "-")), "-")
	base, _, _ = strings.Cut(base, ".")
	for _, l := range Languages() {
		if l.Tag == base {
			return l
		}
	}
	return English()
}

// number writes a float with the language's decimal sign.
func (l *Language) number(format string, v float64) string {
	return strings.Replace(fmt.Sprintf(format, v), ".", l.Decimal, 1)
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
			if name, ok := l.Names[s]; ok {
				return name
			}
			return s
		}
	case !isFloat:
		return fmt.Sprint(v)
	case verb == "pct":
		return l.number("%.0f", 100*f)
	case verb == "pct1":
		return l.number("%.1f", 100*f)
	case verb == "rate":
		return strings.Replace(unit.Rate(f).Short(), ".", l.Decimal, 1)
	case verb == "times":
		return l.Times(int(f))
	case verb == "d":
		return fmt.Sprintf("%d", int(f))
	case strings.HasSuffix(verb, "f"):
		return l.number("%"+verb, f)
	}
	return fmt.Sprint(v)
}
