//go:build !linux

package netio

import (
	"fmt"
	"net/netip"
	"runtime"
)

// dialHops opens the socket of one way. Elsewhere than on Linux, UDP probes
// would need a raw socket for their answers, so there are none; Windows does
// not hand over what routers answer.
func dialHops(clock *Clock, to netip.Addr, way HopWay) (HopSocket, error) {
	switch {
	case runtime.GOOS == "windows":
		return nil, unsupported(fmt.Sprintf("trace the path to %s (run unbloat on the router or on a Linux machine, or use pathping)", to))
	case way == HopRaw, way == HopICMP && runtime.GOOS == "darwin":
		return newPortableHops(clock, to, way)
	}
	return nil, unsupported(fmt.Sprintf("send %s probes to %s", way, to))
}
