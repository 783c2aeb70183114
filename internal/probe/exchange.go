package probe

import (
	"encoding/binary"
	"fmt"

	"unbloat/unit"
)

// ExchangeSize is the length of an Exchange on the wire.
const ExchangeSize = 8

// MaxExchange bounds each way of one exchange.
const MaxExchange = 1 * unit.GB

// An Exchange is one question on a data connection of direction DirExchange:
// ExchangeSize bytes of header, then Up bytes from the client, then Down bytes
// from the server. Pages, mailboxes and film segments are made of such.
type Exchange struct {
	Up, Down unit.Size
}

// PutExchange writes e into b, which must have ExchangeSize bytes.
func PutExchange(b []byte, e Exchange) {
	binary.BigEndian.PutUint32(b, uint32(min(max(e.Up, 0), MaxExchange)))
	binary.BigEndian.PutUint32(b[4:], uint32(min(max(e.Down, 0), MaxExchange)))
}

// ParseExchange reads the header of an exchange.
func ParseExchange(b []byte) (Exchange, error) {
	if len(b) < ExchangeSize {
		return Exchange{}, ErrShort
	}
	e := Exchange{unit.Size(binary.BigEndian.Uint32(b)), unit.Size(binary.BigEndian.Uint32(b[4:]))}
	if e.Up > MaxExchange || e.Down > MaxExchange {
		return Exchange{}, fmt.Errorf("%w: an exchange of %v up and %v down, at most %v each", ErrRequest, e.Up, e.Down, MaxExchange)
	}
	return e, nil
}
