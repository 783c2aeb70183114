package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"unbloat/internal/probe"
	"unbloat/unit"
)

// exchangeBuffer is what one read or write of an exchange handles at most.
const exchangeBuffer = 64 << 10

// exchange adds a connection that carries questions and answers to the session.
func (ses *session) exchange(c *net.TCPConn) error {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.closed {
		return errors.New("the session has ended")
	}
	if ses.flows >= ses.server.limits.Flows {
		return fmt.Errorf("the session has %d data connections, which is the limit", ses.flows)
	}
	ses.flows++
	ses.exchanges[c] = true
	return nil
}

// answer answers a connection's questions until it ends.
func (ses *session) answer(c *net.TCPConn) {
	err := ses.answerAll(c) // never nil
	c.Close()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		ses.server.log.Info("exchange ended", "from", c.RemoteAddr(), "reason", err)
	}
	ses.mu.Lock()
	delete(ses.exchanges, c)
	ses.mu.Unlock()
	ses.release(1)
}

// answerAll answers until something ends it, and says what.
func (ses *session) answerAll(c *net.TCPConn) error {
	limits := ses.server.limits
	head := make([]byte, probe.ExchangeSize)
	sink := make([]byte, exchangeBuffer)
	for {
		_ = c.SetDeadline(time.Now().Add(limits.Idle))
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		e, err := probe.ParseExchange(head)
		if err != nil {
			return err
		}
		if !ses.spend(e.Up + e.Down) {
			return errors.New("the session's byte budget is used up")
		}
		_ = c.SetDeadline(time.Now().Add(limits.Load))
		for left := int64(e.Up); left > 0; {
			n, err := c.Read(sink[:min(left, exchangeBuffer)])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		for left := int64(e.Down); left > 0; {
			n, err := c.Write(ses.server.payload[:min(left, int64(len(ses.server.payload)))])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
	}
}

// spend books bytes; false if the session's budget has none left.
func (ses *session) spend(n unit.Size) bool {
	if !ses.server.spend(ses.from, n) {
		return false
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.bytes += int64(n)
	limit := ses.server.limits.Bytes
	return limit == 0 || ses.bytes <= int64(limit)
}
