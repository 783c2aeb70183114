package serve

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"time"

	"unbloat/internal/measure/probe"
)

// lines carries requests and replies over one connection.
type lines struct {
	conn *net.TCPConn
	in   *bufio.Reader
}

// replyPatience is the time limit for sending a reply: under the measured load,
// the way back may take seconds.
const replyPatience = time.Minute

func newLines(c *net.TCPConn) *lines {
	return &lines{c, bufio.NewReaderSize(c, int(probe.MaxRequest))}
}

// read reads one request until the deadline.
func (l *lines) read(deadline time.Time) (probe.Request, error) {
	if err := l.conn.SetReadDeadline(deadline); err != nil {
		return probe.Request{}, err
	}
	line, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return probe.Request{}, fmt.Errorf("%w: a line of more than %v", probe.ErrRequest, probe.MaxRequest)
	}
	if err != nil {
		return probe.Request{}, err
	}
	return probe.ParseRequest(line)
}

func (l *lines) write(r probe.Reply) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(replyPatience)); err != nil {
		return err
	}
	_, err := l.conn.Write(probe.AppendLine(nil, r))
	return err
}

// refuse tells the client why. Errors in sending are ignored.
func (l *lines) refuse(err error) {
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = l.conn.Write(probe.AppendLine(nil, probe.Reply{Error: err.Error()}))
}
