package opnsensefake

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
)

// This file implements how PHP 8 reads and compares strings, as far as the
// shaper's model and the router's answers depend on it.

const (
	phpSpace   = " \t\n\r\v\f"     // allowed around a number in a string
	trimmed    = " \t\n\r\x00\x0b" // removed by trim()
	filterTrim = " \t\r\v\n"       // removed by filter_var()
)

// A number is the value of a numeric string: an integer or a float.
type number struct {
	whole bool
	n     int64
	f     float64
}

// numberPrefix reads the number at the beginning of a string, after optional
// spaces, and returns the rest of the string.
func numberPrefix(s string) (v number, rest string, ok bool) {
	s = strings.TrimLeft(s, phpSpace)
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	digits := func() int {
		from := i
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return i - from
	}
	n, whole := digits(), true
	if i < len(s) && s[i] == '.' && (n > 0 || i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '9') {
		whole = false
		i++
		n += digits()
	}
	if n == 0 {
		return number{}, s, false
	}
	if end := i; i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if digits() > 0 {
			whole = false
		} else {
			i = end
		}
	}
	text := s[:i]
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number{whole: true, n: n}, s[i:], true
		}
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range is ±Inf, as in PHP
	return number{f: f}, s[i:], true
}

// numeric is is_numeric(): a number with optional space around it.
func numeric(s string) (number, bool) {
	v, rest, ok := numberPrefix(s)
	return v, ok && strings.Trim(rest, phpSpace) == ""
}

// toInt is (int)$s: the number at the beginning, limited to the range of an
// int.
func toInt(s string) int64 {
	v, _, ok := numberPrefix(s)
	switch {
	case !ok || math.IsNaN(v.f):
		return 0
	case v.whole:
		return v.n
	case v.f >= math.MaxInt64:
		return math.MaxInt64
	case v.f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v.f)
}

// compare is <=> of two numbers: exact for integers, otherwise as floats.
func (a number) compare(b number) int {
	if a.whole && b.whole {
		switch {
		case a.n < b.n:
			return -1
		case a.n > b.n:
			return 1
		}
		return 0
	}
	x, y := a.float(), b.float()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (a number) float() float64 {
	if a.whole {
		return float64(a.n)
	}
	return a.f
}

// loose is $a <=> $b of two strings: as numbers if both are, else as text.
func loose(a, b string) int {
	x, okA := numeric(a)
	y, okB := numeric(b)
	if !okA || !okB {
		return strings.Compare(a, b)
	}
	if !x.whole && !y.whole && math.IsInf(x.f, 0) && x.f == y.f {
		return strings.Compare(a, b)
	}
	// Two integers that are too long for an int, and equal as floats, are
	// compared as text.
	if !x.whole && !y.whole && x.f == y.f && tooLong(a) && tooLong(b) {
		return strings.Compare(a, b)
	}
	return x.compare(y)
}

func tooLong(s string) bool {
	_, ok := new(big.Int).SetString(strings.Trim(s, phpSpace), 10)
	return ok
}

// filterInt is filter_var($s, FILTER_VALIDATE_INT).
func filterInt(s string) (int64, bool) {
	s = strings.Trim(s, filterTrim)
	digits := strings.TrimPrefix(s, "-")
	if digits == s {
		digits = strings.TrimPrefix(s, "+")
	}
	if digits == "" || digits[0] == '0' && digits != "0" {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// filterIP is filter_var($s, FILTER_VALIDATE_IP) for both families.
func filterIP(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// isEmpty is empty($s).
func isEmpty(s string) bool { return s == "" || s == "0" }

// lower is strtolower(), which only changes ASCII.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// sanitizeInt is (int) filter_var($s, FILTER_SANITIZE_NUMBER_INT).
func sanitizeInt(s string) int64 {
	return toInt(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' || r == '+' || r == '-' {
			return r
		}
		return -1
	}, s))
}

// floatText is (string)$f with php.ini's precision of 14 digits.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "INF"
	case math.IsInf(f, -1):
		return "-INF"
	case f == 0 && math.Signbit(f):
		return "-0"
	case f == 0:
		return "0"
	}
	const digits = 14
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', digits-1, 64), "e")
	mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
	e, _ := strconv.Atoi(exponent)
	if e < -4 || e >= digits {
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		return fmt.Sprintf("%sE%+d", mantissa, e)
	}
	rounded, _ := strconv.ParseFloat(mantissa+"e"+exponent, 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// natural is strnatcasecmp(): digits compare as numbers.
func natural(a, b string) int {
	at := func(s string, i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	space := func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
	if a == "" || b == "" {
		return min(max(len(a)-len(b), -1), 1)
	}
	i, j := 0, 0
	// Leading zeros do not count.
	for i+1 < len(a) && a[i] == '0' && digit(a[i+1]) {
		i++
	}
	for j+1 < len(b) && b[j] == '0' && digit(b[j+1]) {
		j++
	}
	for {
		ca, cb := at(a, i), at(b, j)
		for space(ca) {
			i++
			ca = at(a, i)
		}
		for space(cb) {
			j++
			cb = at(b, j)
		}
		if digit(ca) && digit(cb) {
			fraction := ca == '0' || cb == '0'
			var r int
			if fraction {
				r, i, j = compareLeft(a, i, b, j)
			} else {
				r, i, j = compareRight(a, i, b, j)
			}
			if r != 0 {
				return r
			}
			if i >= len(a) && j >= len(b) {
				return 0
			}
			if i >= len(a) {
				return -1
			}
			if j >= len(b) {
				return 1
			}
			ca, cb = a[i], b[j]
		}
		if 'a' <= ca && ca <= 'z' {
			ca -= 'a' - 'A'
		}
		if 'a' <= cb && cb <= 'z' {
			cb -= 'a' - 'A'
		}
		if ca != cb {
			if ca < cb {
				return -1
			}
			return 1
		}
		i++
		j++
		switch {
		case i >= len(a) && j >= len(b):
			return 0
		case i >= len(a):
			return -1
		case j >= len(b):
			return 1
		}
	}
}

// compareRight compares two numbers without leading zeros: the longer one is
// larger; of the same length the first differing digit decides.
func compareRight(a string, i int, b string, j int) (r, ii, jj int) {
	bias := 0
	for ; ; i, j = i+1, j+1 {
		da := i < len(a) && '0' <= a[i] && a[i] <= '9'
		db := j < len(b) && '0' <= b[j] && b[j] <= '9'
		switch {
		case !da && !db:
			return bias, i, j
		case !da:
			return -1, i, j
		case !db:
			return 1, i, j
		case a[i] < b[j] && bias == 0:
			bias = -1
		case a[i] > b[j] && bias == 0:
			bias = 1
		}
	}
}

// compareLeft compares two numbers digit by digit, as fractions.
func compareLeft(a string, i int, b string, j int) (r, ii, jj int) {
	for ; ; i, j = i+1, j+1 {
		da := i < len(a) && '0' <= a[i] && a[i] <= '9'
		db := j < len(b) && '0' <= b[j] && b[j] <= '9'
		switch {
		case !da && !db:
			return 0, i, j
		case !da:
			return -1, i, j
		case !db:
			return 1, i, j
		case a[i] < b[j]:
			return -1, i, j
		case a[i] > b[j]:
			return 1, i, j
		}
	}
}
