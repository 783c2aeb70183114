// Package protocol is what all kinds of test servers have in common. Each kind
// has a directory of its own below, with its codec and its client, and one line
// in internal/protocol/all. A client is a measure.Source, so that one and the
// same measure.PhaseRunner runs the phases against any of them.
package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
)

// A Protocol is one kind of test server.
type Protocol struct {
	// Schemes are what its addresses begin with; the first is shown in help
	// texts. None: there is no server of this kind, only Ways to probe.
	Schemes []Scheme
	// Parse reads a --server value in the protocol's own way and returns
	// host:port. Its errors are *measure.AddressError. Nil: an address is
	// scheme://host[:port], with a path where the scheme has an URL.
	Parse func(server string) (host string, err error)
	// Dial opens a session. Errors wrap measure.ErrUnreachable or
	// measure.ErrRefused.
	Dial func(ctx context.Context, s *Session) (measure.Tester, error)
	// Ways are the protocol's values of --ping; none if it has no probes of its own.
	Ways []Way
}

// A Scheme is what an address begins with.
type Scheme struct {
	Name string // before "://"
	Port int    // where the address names none
	URL  string // "http" or "https", which the address stands for; "": it has no path
}

// A Way is how --ping has probes travel.
type Way struct {
	Scheme string                            // before "://"
	Usage  string                            // such as "tcp://HOST:PORT"
	Host   func(host string) (string, error) // checks what follows the scheme, and completes it
	Least  time.Duration                     // between two probes
	// Start starts probes to a host that Host returned.
	Start func(ctx context.Context, p Probing) (measure.Prober, error)
}

// Probing is where a Way is to send probes, and how.
type Probing struct {
	Clock    *netio.Clock
	Host     string // as the Way's Host returned it
	Interval time.Duration
	Options  Options
}

// Options of a session. Zero values take the defaults.
type Options struct {
	Timeout  time.Duration     // for connecting; 10 s
	Probe    measure.ProbeSpec // an Interval of 0 takes the protocol's own
	Agent    string            // what servers log
	Ping     string            // further probes, or the only ones of a server that has none
	Key      string            // shared with the server
	Insecure bool              // any TLS certificate will do
	Pin      string            // SHA-256 of the server's certificate, hexadecimal; it then needs no authority
}

// What clients of several protocols agree on.
const (
	Patience     = time.Minute            // for one step of opening a load: it may travel through the bloat
	GoodputBin   = 100 * time.Millisecond // of the series of bytes
	PingInterval = 20 * time.Millisecond  // between probes, unless asked otherwise
	CallInterval = 50 * time.Millisecond  // at least, between probes that cost somebody else work
)

// ErrCertificate is wrapped by errors of a server that is there, but whose
// certificate no authority vouches for, or is not the one that was named.
var ErrCertificate = errors.New("the server's certificate is not trusted")

// ErrNoHTTP is wrapped by errors of a build that leaves out the protocols over HTTP.
var ErrNoHTTP = errors.New("this build has no HTTP (build tag omit_http), which that protocol needs; measure against unbloat, irtt or iperf3, or use the whole program")

// Unreachable marks an error of connecting, unless it is marked already.
func Unreachable(what string, err error) error {
	for _, known := range []error{ErrCertificate, measure.ErrUnreachable, measure.ErrRefused} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", measure.ErrUnreachable, what, err)
}

// ParsePin reads the SHA-256 of a certificate as tools print it: 64 hexadecimal
// digits, in groups divided by colons or not. It returns small digits alone.
func ParsePin(s string) (string, error) {
	pin := strings.ToLower(strings.ReplaceAll(s, ":", ""))
	if b, err := hex.DecodeString(pin); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%q is not the SHA-256 of a certificate: 64 hexadecimal digits", s)
	}
	return pin, nil
}
