package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"unbloat/internal/measure/phases"
)

// crossed is what went over the line in the counted window of a loaded phase.
type crossed struct {
	down, up float64 // bit/s, of whole Ethernet frames
	err      error
}

// watchLine counts what crosses the line between the head and the tail of a
// phase that begins now and lasts d: behind the modem's queues on either side.
// The channel gives one value.
func watchLine(ctx context.Context, r *Router, d, head, tail time.Duration) <-chan crossed {
	out := make(chan crossed, 1)
	go func() {
		var c crossed
		defer func() { out <- c }()
		var at [2]time.Time
		var down, up [2]float64
		for i, wait := range []time.Duration{head, d - head - tail} {
			if c.err = phases.Sleep(ctx, wait); c.err != nil {
				return
			}
			at[i] = time.Now()
			if down[i], c.err = arrived(ctx, r); c.err != nil {
				return
			}
			if up[i], c.err = counted(ctx, NodeISP, ispHome, "rx_bytes"); c.err != nil {
				return
			}
		}
		seconds := at[1].Sub(at[0]).Seconds()
		c.down, c.up = (down[1]-down[0])*8/seconds, (up[1]-up[0])*8/seconds
	}()
	return out
}

// arrived returns how many bytes the router's WAN has received: of a router's own
// image, what the modem has sent to it.
func arrived(ctx context.Context, r *Router) (float64, error) {
	if r != nil {
		return counted(ctx, NodeModem, "m0", "tx_bytes")
	}
	return counted(ctx, NodeRouter, RouterWAN, "rx_bytes")
}

// counted returns what a node's interface has counted.
func counted(ctx context.Context, node, dev, counter string) (float64, error) {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", node, "cat", "/sys/class/net/"+dev+"/statistics/"+counter).Output()
	if err != nil {
		return 0, fmt.Errorf("count what crossed the line at %s of %s: %w", dev, node, err)
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
}
