package pfsensefake

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A value is a PHP value as read from config.xml: nil, string or *array.
type value any

// An array is a PHP array, which keeps the order of its keys.
type array struct {
	keys []string
	of   map[string]value
}

func newArray() *array { return &array{of: map[string]value{}} }

// set changes an element in place, or appends it.
func (a *array) set(key string, v value) {
	if _, ok := a.of[key]; !ok {
		a.keys = append(a.keys, key)
	}
	a.of[key] = v
}

func (a *array) remove(key string) {
	a.keys = slices.DeleteFunc(a.keys, func(k string) bool { return k == key })
	delete(a.of, key)
}

// list returns the elements in order.
func (a *array) list() (out []value) {
	for _, k := range a.keys {
		out = append(out, a.of[k])
	}
	return out
}

// get returns an element, or nil if it or an array on the way is missing.
func get(v value, keys ...string) value {
	for _, k := range keys {
		a, ok := v.(*array)
		if !ok {
			return nil
		}
		v = a.of[k]
	}
	return v
}

// An unknown is the panic for behaviour that this stand-in does not know.
type unknown struct{ what string }

func (u unknown) Error() string { return "stand-in: does not know " + u.what }

// text returns the text of an element, "" for null.
func text(v value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	panic(unknown{"what becomes of an element where a text belongs"})
}

// truth is PHP's conversion to bool: "", "0" and empty arrays are false.
func truth(v value) bool {
	a, ok := v.(*array)
	if ok {
		return len(a.keys) > 0
	}
	s := text(v)
	return s != "" && s != "0"
}

// number reads a numeric string, with optional blanks around it.
func number(s string) (float64, bool) {
	t := strings.Trim(s, " \t\n\r\v\f")
	if t == "" || strings.ContainsAny(t, "xXpP_iInN") {
		return 0, false
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func isNumeric(s string) bool { _, ok := number(s); return ok }

// compare is PHP's comparison of two strings: as numbers if both are numeric.
func compare(a, b string) int {
	x, okA := number(a)
	y, okB := number(b)
	switch {
	case !okA || !okB:
		return strings.Compare(a, b)
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// than compares a string with a number: as strings if s is not numeric.
func than(s string, n float64) int {
	if x, ok := number(s); ok {
		switch {
		case x < n:
			return -1
		case x > n:
			return 1
		}
		return 0
	}
	return strings.Compare(s, strconv.FormatFloat(n, 'f', -1, 64))
}

// trim is PHP's trim().
func trim(s string) string { return strings.Trim(s, " \n\r\t\v\x00") }

// rounded is round($s, 0), with 14 digits as PHP prints numbers.
func rounded(s string) string {
	f, ok := number(s)
	if !ok {
		panic(fatal{"TypeError: round(): Argument #1 ($num) must be of type int|float, string given"})
	}
	f = math.Round(f)
	switch {
	case math.IsInf(f, 1):
		return "INF"
	case math.IsInf(f, -1):
		return "-INF"
	case math.Abs(f) < 1e14:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	digits := strconv.FormatFloat(f, 'e', 13, 64)
	mantissa, exponent, _ := strings.Cut(digits, "e")
	mantissa = strings.TrimRight(mantissa, "0")
	if strings.HasSuffix(mantissa, ".") {
		mantissa += "0"
	}
	return mantissa + "E+" + strings.TrimLeft(exponent, "+0")
}

// A fatal is the panic for an uncaught error, which stops PHP.
type fatal struct{ message string }

func (f fatal) Error() string { return f.message }

// quoted quotes a PHP string for a message.
func quoted(s string) string { return fmt.Sprintf("%q", s) }
