package protocol_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/probe"
	"unbloat/testkit/await"
)

// Number of clients in tests of capacity, and the rate of each client's line.
const (
	capacityClients = 10
	capacityRate    = 100e6 / 8 // bytes a second
	capacityTime    = 5 * time.Second
)

// BenchmarkConcurrentTests measures which share of one processor `unbloat
// serve` needs for a test at 100 Mbit/s, in each direction, with several at
// once, and so how many tests two processors can serve. The clients limit their
// rates by slow reads and writes, so that the server sees sockets that fill up,
// as with real lines. The loopback does not include a network card's driver.
func BenchmarkConcurrentTests(b *testing.B) {
	address := freeAddress(b)
	server := serveProcess(b, "--listen", address, "--irtt", "", "--iperf3", "", "--netperf", "", "--web", "")
	for b.Loop() {
		for _, dir := range []string{probe.DirDown, probe.DirUp} {
			cores, rate := concurrent(b, server, address, dir)
			each := cores / (rate * 8 / 100e6)
			b.ReportMetric(each, dir+"-cores/test")
			b.ReportMetric(2/each, dir+"-tests-of-2-cores")
			b.ReportMetric(rate*8/1e6/capacityClients, dir+"-Mbit/s-each")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// concurrent runs a load with all clients at once, and returns how many
// processors the server used and how many bytes a second it moved.
func concurrent(b *testing.B, server int, address, dir string) (cores, rate float64) {
	b.Helper()
	var conns []net.Conn
	for range capacityClients {
		control, in := capacityDial(b, address)
		token := capacityAsk(b, control, in, probe.Request{Op: probe.OpHello, Versions: []int{probe.Version}}).Token
		data, from := capacityDial(b, address)
		capacityAsk(b, data, from, probe.Request{Op: probe.OpData, Token: token, Group: 1, Dir: dir})
		capacityAsk(b, control, in, probe.Request{Op: probe.OpStart, Group: 1, Flows: 1})
		conns = append(conns, data)
	}
	var mu sync.Mutex
	var moved int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	for _, c := range conns {
		all.Go(func() {
			n := paced(c, dir, stop)
			mu.Lock()
			moved += n
			mu.Unlock()
		})
	}
	time.Sleep(500 * time.Millisecond) // until the first burst has drained
	before, began := runtimeOf(b, server), time.Now()
	time.Sleep(capacityTime)
	took := time.Since(began)
	cpu := runtimeOf(b, server) - before
	close(stop)
	all.Wait()
	return cpu.Seconds() / took.Seconds(), float64(moved) / (took.Seconds() + 0.5)
}

// paced moves bytes at a client's rate until stop is closed.
func paced(c net.Conn, dir string, stop chan struct{}) (moved int64) {
	buf := make([]byte, 64<<10)
	for began := time.Now(); ; {
		select {
		case <-stop:
			return moved
		default:
		}
		n, err := 0, error(nil)
		if dir == probe.DirDown {
			n, err = c.Read(buf)
		} else {
			n, err = c.Write(buf)
		}
		if moved += int64(n); err != nil {
			return moved
		}
		time.Sleep(time.Until(began.Add(time.Duration(float64(moved) / capacityRate * 1e9))))
	}
}

// capacityDial connects, with the receive buffer for a line of 20 ms.
func capacityDial(b *testing.B, address string) (net.Conn, *bufio.Reader) {
	b.Helper()
	var c net.Conn
	var err error
	await.Until(b, time.Minute, "the server to listen", func() bool {
		c, err = net.Dial("tcp", address)
		return err == nil
	})
	b.Cleanup(func() { c.Close() })
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 256<<10) })
	}
	if err != nil {
		b.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func capacityAsk(b *testing.B, c net.Conn, in *bufio.Reader, q probe.Request) probe.Reply {
	b.Helper()
	_, err := c.Write(probe.AppendLine(nil, q))
	var line []byte
	if err == nil {
		line, err = in.ReadBytes('\n')
	}
	var r probe.Reply
	if err == nil {
		r, err = probe.ParseReply(line)
	}
	if err != nil || r.Error != "" {
		b.Fatal(fmt.Errorf("%v %s", err, r.Error))
	}
	return r
}
