// Package all lists the kinds of test servers. A new one is a directory of its
// own and one line here.
package all

import (
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/internal/measure/protocol/web"
)

// Protocols returns all of them, in the order of help texts.
func Protocols() protocol.Protocols {
	return protocol.Protocols{
		native(),
		protocol.PingProtocol(),
		irtt.Protocol(),
		iperf3.Protocol(),
		web.NDT7(),
		web.LibreSpeed(),
		web.Cloudflare(),
		web.RPM(),
	}
}
