package phases

import (
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
)

// AckedSeries returns the bytes that arrived at a receiver which does not tell
// of them, as its acknowledgements show: acknowledged or behind a hole.
func AckedSeries(samples []probe.SenderSample, bin time.Duration) verdict.Series {
	if len(samples) == 0 {
		return verdict.Series{Bin: bin}
	}
	b := netio.Bins{Start: samples[0].At, Width: bin}
	for i := 1; i < len(samples); i++ {
		was, is := samples[i-1], samples[i]
		if n := is.Acked + is.Sacked - was.Acked - was.Sacked; n > 0 {
			b.Add(was.At, is.At, n)
		}
	}
	return verdict.Series{Start: b.Start, Bin: b.Width, Bytes: b.Bytes}
}
