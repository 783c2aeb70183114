package phases

import (
	"context"
	"fmt"
	"net/netip"

	"unbloat/internal/measure/probe"
)

// OpenEcho asks the server to answer a stream of probes that the caller sends
// itself, whenever it likes: to the address, with the token. It lasts as long as
// the client, and as the server lets a session last.
func (c *Client) OpenEcho(ctx context.Context) (to netip.AddrPort, token uint64, err error) {
	reply, err := c.control.do(ctx, probe.Request{Op: probe.OpUDP, Dir: probe.DirEcho, Interval: DefaultInterval, Size: probe.MinSize})
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("open a stream of probes: %w", err)
	}
	if token, err = probe.ParseToken(reply.StreamToken); err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("open a stream of probes: the server's token: %w", err)
	}
	return c.peer, token, nil
}
