// Package all lists the kinds of test servers. A new one is a directory of its
// own and one line here.
package all

import (
	"unbloat/internal/protocol"
	"unbloat/internal/protocol/cloudflare"
	"unbloat/internal/protocol/iperf3"
	"unbloat/internal/protocol/irtt"
	"unbloat/internal/protocol/librespeed"
	"unbloat/internal/protocol/native"
	"unbloat/internal/protocol/ndt7"
	"unbloat/internal/protocol/ping"
	"unbloat/internal/protocol/rpm"
)

// Protocols returns all of them, in the order of help texts.
func Protocols() protocol.Protocols {
	return protocol.Protocols{
		native.Protocol(),
		ping.Protocol(),
		irtt.Protocol(),
		iperf3.Protocol(),
		ndt7.Protocol(),
		librespeed.Protocol(),
		cloudflare.Protocol(),
		rpm.Protocol(),
	}
}
