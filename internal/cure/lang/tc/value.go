package tc

import (
	"strconv"
	"strings"

	"unbloat/unit"
)

// canonical converts what tc(8) prints for a field (a JSON scalar as text, or a
// word of text output) to the canonical text of a Value; ok is false if it is none
// of the field's.
func (f field) canonical(s string) (text string, ok bool) {
	switch f.unit {
	case rate:
		if s == "unlimited" {
			return "0", true
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<60 {
			return strconv.FormatInt(n*8, 10), true // JSON: bytes/s
		}
		return printedRate(s)
	case size, bucket:
		return printedSize(s)
	case flag:
		switch s {
		case "true", "null", "1", "":
			return "1", true
		case "false", "0":
			return "0", true
		}
		return "", false
	case number, micros, codelTime, latency:
		n, err := strconv.ParseInt(s, 0, 64)
		return strconv.FormatInt(n, 10), err == nil
	case hexadecimal:
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
		return "0x" + strconv.FormatUint(n, 16), err == nil
	default:
		return s, true
	}
}

// args returns the arguments that set field f to v; o holds the other options.
func (f field) args(v Value, o Options) []string {
	if f.arg == "" && f.unit != word {
		return nil
	}
	switch {
	case f.unit == flag && v.Kernel == "0":
		if f.off == "" {
			return nil
		}
		return []string{f.off}
	case f.unit == flag:
		return []string{f.arg}
	case v.Arg != "":
		return []string{f.arg, v.Arg}
	}
	switch f.unit {
	case rate:
		if v.Kernel == "0" {
			return []string{f.arg, "unlimited"}
		}
		return []string{f.arg, unit.Rate(atoi(v.Kernel)).Tc()}
	case latency:
		return []string{"limit", strconv.FormatInt(limitArg(atoi(o["rate"].Kernel)/8, atoi(o["burst"].Kernel), atoi(v.Kernel)), 10)}
	case micros:
		return []string{f.arg, v.Kernel + "us"}
	case codelTime:
		return []string{f.arg, codelArg(v.Kernel) + "us"}
	case bucket:
		return []string{f.arg, strconv.FormatInt(bucketArg(atoi(o[f.of].Kernel)/8, atoi(v.Kernel)), 10)}
	case hexadecimal:
		return []string{f.arg, strings.TrimPrefix(v.Kernel, "0x")}
	case list:
		return append([]string{f.arg}, strings.Fields(v.Kernel)...)
	case word:
		w := v.Kernel
		if s, ok := f.words[v.Kernel]; ok {
			w = s
		}
		if f.arg == "" {
			return []string{w}
		}
		return []string{f.arg, w}
	default:
		return []string{f.arg, v.Kernel}
	}
}

// printedRate reads a rate as tc's text output has it ("950Kbit", "9Mbit").
func printedRate(s string) (string, bool) {
	for _, u := range []struct {
		suffix string
		of     int64
	}{{"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}, {"bit", 1}} {
		if num, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseInt(num, 10, 64)
			return strconv.FormatInt(n*u.of, 10), err == nil && n >= 0 && n <= (1<<62)/u.of
		}
	}
	return "", false
}

// printedSize reads a size: a JSON number, or "1747b/1", "15Kb", "1Mb".
func printedSize(s string) (string, bool) {
	s, _, _ = strings.Cut(s, "/")
	of := int64(1)
	switch {
	case strings.HasSuffix(s, "Kb"):
		s, of = s[:len(s)-2], 1<<10
	case strings.HasSuffix(s, "Mb"):
		s, of = s[:len(s)-2], 1<<20
	case strings.HasSuffix(s, "b"):
		s = s[:len(s)-1]
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<40 {
		return strconv.FormatInt(n*of, 10), true
	}
	x, err := strconv.ParseFloat(s, 64) // %g of a power of 1024
	return strconv.FormatInt(int64(x*float64(of)), 10), err == nil && x >= 0 && x < 1<<40
}

// codelKernel returns what the kernel reports for a CoDel time of us
// microseconds: it keeps units of 1024 ns, rounding down both ways
// (net/codel.h: CODEL_SHIFT 10).
func codelKernel(us int64) int64 { return ((us * 1000 >> 10) << 10) / 1000 }

// codelArg returns an argument for which the kernel reports us: the inverse of codelKernel.
func codelArg(us string) string {
	n := atoi(us)
	ticks := (n*1000 + 1023) >> 10
	return strconv.FormatInt((ticks<<10+999)/1000, 10)
}

// Ticks of tc(8): 64 ns, of which 15.625 make a microsecond (PSCHED_SHIFT 6).
const ticksPerMicrosecond = 15.625

// bucketShown returns what tc(8) shows for a bucket of n bytes at bps bytes/s,
// for both rounding rules: iproute2 up to 2024 truncates every step to an
// integer; later versions ("tc: Fix rounding in tc_calc_xmittime") round only
// the ticks, up.
func bucketShown(bps, n int64) (old, new int64) {
	if bps <= 0 {
		return n, n
	}
	r := float64(bps)
	us := float64(n) / r * 1e6
	ticks := uint32(float64(uint32(us)) * ticksPerMicrosecond)
	old = int64(r * float64(uint32(float64(ticks)/ticksPerMicrosecond)) / 1e6)
	x := us * ticksPerMicrosecond
	up := int64(x)
	if float64(up) < x {
		up++
	}
	return old, int64(r * (float64(up) / ticksPerMicrosecond) / 1e6)
}

// shownBurst returns the largest size up to n bytes whose bucket tc(8)'s text output
// shows exactly, at bps bytes/s: it rounds what is near a whole number of KiB or MiB, and
// what can't be read back exactly can't be verified.
func shownBurst(bps, n int64) int64 {
	span := bps/1e5 + 4*nearMiB // past what is rounded, both sides of it, and the steps of tc's clock
	for m := n; m > max(n-span, 0); m-- {
		if old, newer := bucketShown(bps, m); isShown(old) && isShown(newer) {
			return m
		}
	}
	return n
}

// What tc(8) takes for a whole number of KiB or MiB (tc/tc_util.c: print_size).
const (
	nearKiB = 16
	nearMiB = 1024
)

// isShown reports whether tc(8)'s text output shows a size exactly.
func isShown(n int64) bool {
	off := func(of int64) int64 {
		r := n % of
		return min(r, of-r)
	}
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case n >= mib && off(mib) < nearMiB:
		return off(mib) == 0
	case n >= kib && off(kib) < nearKiB:
		return off(kib) == 0
	}
	return true
}

// bucketArg returns the smallest size in bytes that tc(8) shows as shown; shown
// itself if there is none.
func bucketArg(bps, shown int64) int64 {
	span := bps/1e5 + 16 // two ticks and two microseconds, in bytes
	for n := shown; n <= shown+span; n++ {
		if old, _ := bucketShown(bps, n); old == shown {
			return n
		}
	}
	return shown
}

// limitArg returns the limit in bytes for which tc(8) shows a tbf's latency as
// us µs, with a bucket of shown bytes at bps bytes/s (tc/q_tbf.c: the time of
// the limit minus that of the bucket).
func limitArg(bps, shown, us int64) int64 {
	bucket := float64(uint32(float64(bucketArg(bps, shown)) / float64(bps) * 1e6))
	return int64((float64(us)+bucket)*float64(bps)/1e6 + 0.5)
}

// atoi parses a number in canonical text; 0 if it is none.
func atoi(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
