package protocol_test

import (
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
)

// The load of every protocol counts the bytes of its connections on the
// interface: no fewer than the payload, also after a connection has ended.
func TestLoadsCountTheirBytes(t *testing.T) {
	await.NotShort(t)
	address := freeAddress(t)
	s, _ := secure(t, serve.Options{Iperf3: address})
	for _, server := range []string{"cloudflare+https://" + s.Web().String(), "librespeed+http://" + s.Web().String(), "ndt7+ws://" + s.Web().String(), "iperf3://" + address} {
		c := dialed(t, server, protocol.Options{Insecure: true, Ping: "tcp://" + address})
		load, err := c.Open(t.Context(), []phases.FlowSpec{{Dir: phases.Down, Flows: 1, Limit: 2 * time.Second}, {Dir: phases.Up, Flows: 1, Limit: 2 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		var down, up, in, out int64
		var ok bool
		counted := await.True(10*time.Second, func() bool { // sent bytes are on the way for a moment
			down, up = load.Moved(phases.Down), load.Moved(phases.Up)
			in, out, ok = load.(phases.ByteCounter).Passed()
			return !ok || down > 0 && up > 0 && in >= down && out >= up/2
		})
		if _, err := load.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", server, err)
		}
		if !ok {
			t.Skipf("SKIPPED: %s: this system does not tell what a connection moved", server)
		}
		if !counted {
			t.Errorf("%s: %d bytes came and %d left, of which %d and %d were payload", server, in, out, down, up)
		}
	}
}
