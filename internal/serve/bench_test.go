package serve

import (
	"math/rand/v2"
	"testing"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// BenchmarkDatagram measures the cost of a probe without the kernel's part,
// with a thousand sessions that send in turn.
func BenchmarkDatagram(b *testing.B) {
	s, err := Listen(Options{Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	const n = 1000
	var probes [][]byte
	for range n {
		ses := &session{server: s, streams: map[uint32]*stream{}}
		token := rand.Uint64()
		st := &stream{ses: ses, dir: probe.DirEcho, token: token, reflector: *probe.NewReflector(token)}
		s.streams.put(st)
		p := make([]byte, probe.MinSize)
		probe.PutHeader(p, probe.Header{Kind: probe.KindEcho, Token: token})
		probes = append(probes, p)
	}
	buf := make([]byte, probe.MinSize)
	peer := &netio.Peer{}
	i := 0
	for b.Loop() {
		copy(buf, probes[i%n])
		i++
		if len(s.datagram(peer, unit.Instant(i), buf)) == 0 {
			b.Fatal("no answer")
		}
	}
}
