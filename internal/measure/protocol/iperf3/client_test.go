package iperf3

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
)

// denying is an iperf3 server that refuses the given number of tests because it
// is busy.
func denying(t *testing.T, times int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // until the listener is closed
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer := ParamExchange
			if i < times {
				answer = AccessDenied
			}
			_, _ = io.ReadFull(c, make([]byte, CookieSize)) // an error shows in the client too
			_, _ = c.Write([]byte{byte(answer)})
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	return l.Addr().String()
}

// A server that cleans up after a test says that it is busy: the client tries
// again for a short time, and then reports it.
func TestBusyForAMoment(t *testing.T) {
	for _, c := range []struct {
		times int
		busy  bool
	}{{0, false}, {3, false}, {1000, true}} {
		s := &protocol.Session{Address: protocol.Address{Host: denying(t, c.times)}, Options: protocol.Options{Timeout: time.Minute, Patience: time.Minute}}
		l := &load{source: &source{s: s}}
		err := l.greet(t.Context())
		if errors.Is(err, phases.ErrRefused) != c.busy || err != nil && !c.busy {
			t.Errorf("refused %d times: %v", c.times, err)
		}
		if l.control != nil {
			l.control.Close()
		}
	}
}
