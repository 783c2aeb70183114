package verdict

import (
	"math"
	"slices"
	"time"
)

// rpmTrim is the share of the slowest round trips that a trimmed mean leaves
// out (draft-ietf-ippm-responsiveness section 4.3.1: the 95th percentile).
const rpmTrim = 0.95

// rpm returns the round trips a minute under load. With HTTP's own round trips
// it is the draft's figure: the mean of what fresh connections took for TCP, TLS
// and HTTP, and of what the loaded ones took, weighted equally. Else it is of
// the probes.
func rpm(raw Raw) float64 {
	loaded := trimmedMean(valuesOf(counted(raw.OnLoad, raw.From, raw.To)).rtt)
	var fresh time.Duration
	n := 0
	for _, part := range [][]time.Duration{raw.Fresh.TCP, raw.Fresh.TLS, raw.Fresh.HTTP} {
		if len(part) > 0 {
			fresh += trimmedMean(part)
			n++
		}
	}
	mean := trimmedMean(valuesOf(counted(raw.Samples, raw.From, raw.To)).rtt)
	switch {
	case loaded > 0 && n > 0:
		mean = (fresh/time.Duration(n) + loaded) / 2
	case n > 0:
		mean = fresh / time.Duration(n)
	}
	if mean <= 0 {
		return 0
	}
	return math.Round(float64(time.Minute) / float64(mean))
}

// trimmedMean returns the mean of the quickest 95 %.
func trimmedMean(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	sorted = sorted[:max(int(math.Ceil(rpmTrim*float64(len(sorted)))), 1)]
	var sum time.Duration
	for _, v := range sorted {
		sum += v
	}
	return sum / time.Duration(len(sorted))
}
