// Package unit holds the quantities that cross package borders: Rate (bit/s),
// Size (bytes) and Instant (nanoseconds). It parses what people write and
// prints what people read, and depends on nothing but the standard library.
package unit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Rate is a data rate in bits per second. Zero means "not set".
type Rate int64

// Multiples of a bit per second, in powers of 1000 as tc(8) and pf.conf(5) use them.
const (
	BitPerSecond  Rate = 1
	KbitPerSecond      = 1000 * BitPerSecond
	MbitPerSecond      = 1000 * KbitPerSecond
	GbitPerSecond      = 1000 * MbitPerSecond
)

// Size is an amount of data in bytes.
type Size int64

// Multiples of a byte, in powers of 1000.
const (
	Byte Size = 1
	KB        = 1000 * Byte
	MB        = 1000 * KB
	GB        = 1000 * MB
)

// Instant is a point in time, in nanoseconds since an origin that its clock chooses.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Before reports whether i is earlier than j.
func (i Instant) Before(j Instant) bool { return i < j }

// Seconds returns the instant in seconds since its origin.
func (i Instant) Seconds() float64 { return float64(i) / 1e9 }

// Time returns how long n bytes occupy a line of rate r, rounded up to a
// nanosecond. A rate that is not positive returns the longest duration.
func (r Rate) Time(n Size) time.Duration {
	if r <= 0 {
		return math.MaxInt64
	}
	if n > 1e9 { // 8e9 × n would overflow
		x := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(8e9))
		x.Div(x, big.NewInt(int64(r)))
		if !x.IsInt64() {
			return math.MaxInt64
		}
		return time.Duration(x.Int64())
	}
	return time.Duration((int64(n)*8e9 + int64(r) - 1) / int64(r))
}

// Bytes returns how many whole bytes rate r carries in d, rounded down.
func (r Rate) Bytes(d time.Duration) Size {
	x := new(big.Int).Mul(big.NewInt(int64(r)), big.NewInt(int64(d)))
	x.Div(x, big.NewInt(8e9))
	if !x.IsInt64() {
		return math.MaxInt64
	}
	return Size(x.Int64())
}

// Scale returns r × f, rounded down to a whole bit per second.
func (r Rate) Scale(f float64) Rate { return Rate(math.Floor(float64(r) * f)) }

// Mbit returns the rate in Mbit/s.
func (r Rate) Mbit() float64 { return float64(r) / 1e6 }

// String prints the rate with the largest multiple that keeps it ≥ 1, exact to
// the bit, as in "29.1 Mbit/s". ParseRate reads it back to the same value.
func (r Rate) String() string {
	for _, u := range []struct {
		of   Rate
		name string
	}{{GbitPerSecond, "Gbit/s"}, {MbitPerSecond, "Mbit/s"}, {KbitPerSecond, "kbit/s"}} {
		if r >= u.of || r <= -u.of {
			return decimal(int64(r), int64(u.of)) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(r), 10) + " bit/s"
}

// Short prints the rate with three significant digits, for people: "29.1 Mbit/s".
func (r Rate) Short() string {
	figure, name := r.ShortParts()
	return figure + " " + name
}

// ShortParts returns the figure and the unit that Short prints.
func (r Rate) ShortParts() (figure, name string) {
	f, name := float64(r), "bit/s"
	switch {
	case f >= 999.5e6:
		f, name = f/1e9, "Gbit/s"
	case f >= 999.5e3:
		f, name = f/1e6, "Mbit/s"
	case f >= 999.5:
		f, name = f/1e3, "kbit/s"
	}
	return short(f), name
}

// Tc prints the rate as one word that tc(8) accepts, exact to the bit.
func (r Rate) Tc() string {
	if r%KbitPerSecond == 0 {
		return strconv.FormatInt(int64(r/KbitPerSecond), 10) + "kbit"
	}
	return strconv.FormatInt(int64(r), 10) + "bit"
}

// ParseRate reads "950kbit", "29.1 Mbit/s", "30M" or "3.5 MB/s": a decimal number
// and a unit. Units of bits are bit, b, kbit, kb, kbps, k and so on up to T; case
// does not matter, but for the letter B, which is a byte: "MB/s" and "MiB/s" are
// converted. "/s" may follow. A decimal comma is read where it can be nothing
// else. A bare number is refused, because nobody can tell whether it means bits
// or kilobits, and so is "MBPS", which is written for bits and for bytes. The
// value is at most 1 Tbit/s.
func ParseRate(s string) (Rate, error) {
	num, name := split(s)
	num, err := decimalPoint(num)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", s, err)
	}
	of, err := rateUnit(name)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", s, err)
	}
	v, err := scaled(num, of)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", s, err)
	}
	if v <= 0 {
		return 0, fmt.Errorf("rate %q: must be above zero", s)
	}
	if v > 1e12 {
		return 0, fmt.Errorf("rate %q: above 1 Tbit/s, which no shaper here can hold", s)
	}
	return Rate(v), nil
}

// rateUnit returns how many bits per second a unit stands for.
func rateUnit(name string) (int64, error) {
	if name == "" {
		return 0, errors.New("no unit; write it like 950kbit, 29.1mbit or \"29.1 Mbit/s\"")
	}
	base, perSecond := strings.CutSuffix(strings.ToLower(name), "/s")
	base, ps := strings.CutSuffix(base, "ps")
	if ps && perSecond {
		return 0, fmt.Errorf("unknown unit %q; use bit, kbit, mbit or gbit", name)
	}
	prefix, rest := "", base
	if base != "" && strings.Contains("kmgt", base[:1]) {
		prefix, rest = base[:1], base[1:]
	}
	of := map[string]int64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[prefix]
	bytes := strings.Contains(name, "B") && !strings.Contains(base, "bit") // the letter, as it was written
	switch {
	case rest == "bit" || rest == "bits" || rest == "b" && !bytes || rest == "" && prefix != "" && !ps:
		return of, nil
	case rest == "b" && ps && name == strings.ToUpper(name):
		return 0, fmt.Errorf("%q is written for bits and for bytes; write %sbit or %sB/s", name, strings.ToUpper(prefix), strings.ToUpper(prefix))
	case rest == "b" || rest == "byte" || rest == "bytes":
		return 8 * of, nil
	case (rest == "ib" || rest == "ibyte" || rest == "ibytes") && (bytes || rest != "ib") && prefix != "":
		return 8 << (10 * (1 + strings.Index("kmgt", prefix))), nil
	}
	return 0, fmt.Errorf("unknown unit %q; use bit, kbit, mbit or gbit, or MB/s for bytes", name)
}

// decimalPoint writes a decimal comma as a point. A comma that may part thousands
// is refused.
func decimalPoint(num string) (string, error) {
	whole, fraction, comma := strings.Cut(num, ",")
	switch {
	case !comma:
		return num, nil
	case strings.ContainsAny(fraction, ",.") || strings.Contains(whole, ".") || len(fraction) == 3:
		return "", fmt.Errorf("%q has a comma; write the number with a point and without separators, as in 1000 or 30.5", num)
	}
	return whole + "." + fraction, nil
}

// UnmarshalText lets a Rate be read from text such as a flag or a TOML string.
func (r *Rate) UnmarshalText(b []byte) (err error) { *r, err = ParseRate(string(b)); return err }

// UnmarshalJSON reads a number of bits per second, as a Rate is written to
// JSON, or a string with a unit.
func (r *Rate) UnmarshalJSON(b []byte) error {
	return fromJSON(b, (*int64)(r), r.UnmarshalText)
}

// String prints the size with the largest multiple of 1000 that keeps it ≥ 1,
// exact to the byte. ParseSize reads it back.
func (s Size) String() string {
	for _, u := range []struct {
		of   Size
		name string
	}{{GB, "GB"}, {MB, "MB"}, {KB, "kB"}} {
		if s >= u.of || s <= -u.of {
			return decimal(int64(s), int64(u.of)) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + " B"
}

// Short prints the size with three significant digits, for people: "1.23 MB".
func (s Size) Short() string {
	f := float64(s)
	switch {
	case f >= 999.5e6:
		return short(f/1e9) + " GB"
	case f >= 999.5e3:
		return short(f/1e6) + " MB"
	case f >= 999.5:
		return short(f/1e3) + " kB"
	}
	return strconv.FormatInt(int64(s), 10) + " B"
}

// ParseSize reads "1.5 MB", "375kB" or "9000 B" (powers of 1000; KiB, MiB and
// GiB are powers of 1024). A bare number is refused.
func ParseSize(s string) (Size, error) {
	num, name := split(s)
	var of int64
	switch strings.ToLower(name) {
	case "":
		return 0, fmt.Errorf("size %q: no unit; write it like 375kB or 1.5MB", s)
	case "b", "byte", "bytes":
		of = 1
	case "kb":
		of = 1e3
	case "mb":
		of = 1e6
	case "gb":
		of = 1e9
	case "kib":
		of = 1 << 10
	case "mib":
		of = 1 << 20
	case "gib":
		of = 1 << 30
	default:
		return 0, fmt.Errorf("size %q: unknown unit %q; use B, kB or MB", s, name)
	}
	num, err := decimalPoint(num)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", s, err)
	}
	v, err := scaled(num, of)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", s, err)
	}
	return Size(v), nil
}

// UnmarshalText lets a Size be read from text such as a flag or a TOML string.
func (s *Size) UnmarshalText(b []byte) (err error) { *s, err = ParseSize(string(b)); return err }

// UnmarshalJSON reads a number of bytes, as a Size is written to JSON, or a
// string with a unit.
func (s *Size) UnmarshalJSON(b []byte) error {
	return fromJSON(b, (*int64)(s), s.UnmarshalText)
}

// fromJSON reads a JSON number into n, or hands a JSON string to parse.
func fromJSON(b []byte, n *int64, parse func([]byte) error) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		return parse([]byte(text))
	}
	return json.Unmarshal(b, n)
}

// ParseDuration reads "24 ms", "1.5s" or "100us": as time.ParseDuration does,
// with blanks allowed between number and unit. It refuses negative values.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.ReplaceAll(s, " ", ""))
	if _, number := strconv.ParseFloat(strings.TrimSpace(s), 64); err != nil && number == nil && strings.TrimSpace(s) != "0" {
		return 0, fmt.Errorf("duration %q: no unit; write %sms for milliseconds or %ss for seconds", s, strings.TrimSpace(s), strings.TrimSpace(s))
	}
	if err != nil {
		return 0, fmt.Errorf("duration %q: write it like 24ms or 1.5s", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q: must not be negative", s)
	}
	return d, nil
}

// Milliseconds is a duration that JSON has in milliseconds.
type Milliseconds time.Duration

// Seconds is a duration that JSON has in seconds.
type Seconds time.Duration

// String writes it as time.Duration does.
func (m Milliseconds) String() string { return time.Duration(m).String() }

// String writes it as time.Duration does.
func (s Seconds) String() string { return time.Duration(s).String() }

// MarshalJSON writes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var n float64
	err := json.Unmarshal(b, &n)
	*s = Seconds(FromMs(n * 1e3))
	return err
}

// Ms returns the number of milliseconds.
func (m Milliseconds) Ms() float64 { return Ms(time.Duration(m)) }

// MarshalJSON writes the number of milliseconds.
func (m Milliseconds) MarshalJSON() ([]byte, error) { return json.Marshal(m.Ms()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Milliseconds) UnmarshalJSON(b []byte) error {
	var ms float64
	err := json.Unmarshal(b, &ms)
	*m = Milliseconds(FromMs(ms))
	return err
}

// Ms returns a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / 1e6 }

// MsOrUs writes a duration as tc(8), dnctl(8) and sqm's scripts take it: whole ms, or µs.
func MsOrUs(d time.Duration) string {
	if d%time.Millisecond == 0 {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}

// FromMs returns the duration of ms milliseconds, rounded to a nanosecond.
func FromMs(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// split cuts s into a leading number and the unit behind it.
func split(s string) (num, name string) {
	s = strings.TrimSpace(s)
	end := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("+-.,0123456789", r) })
	if end < 0 {
		return s, ""
	}
	return s[:end], strings.TrimSpace(s[end:])
}

// scaled returns num × of, rounded to the nearest integer, without passing
// through a float: 0.1 of a thousand is exactly 100.
func scaled(num string, of int64) (int64, error) {
	if len(num) > 40 {
		return 0, fmt.Errorf("number too long")
	}
	r, ok := new(big.Rat).SetString(num)
	if !ok {
		return 0, fmt.Errorf("%q is not a number", num)
	}
	r.Mul(r, new(big.Rat).SetInt64(of))
	r.Add(r, big.NewRat(1, 2))
	n := new(big.Int).Div(r.Num(), r.Denom())
	if !n.IsInt64() {
		return 0, fmt.Errorf("%q is out of range", num)
	}
	return n.Int64(), nil
}

// decimal prints v/of exactly, without trailing zeros; of is a power of ten.
func decimal(v, of int64) string {
	s := new(big.Rat).SetFrac64(v, of).FloatString(len(strconv.FormatInt(of, 10)) - 1)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// short prints f with three significant digits and no exponent.
func short(f float64) string {
	switch {
	case f >= 99.95:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 9.995:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
}
