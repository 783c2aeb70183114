// Package protocol has what all kinds of test servers have in common. Each kind
// has its own directory below, with its codec and its client, and one line in
// internal/measure/protocol/all. A client is a measure.Source, so that the same
// measure.PhaseRunner runs the phases with any of them.
package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
)

// A Protocol is one kind of test server.
type Protocol struct {
	// Schemes are the schemes of its addresses; help texts show the first.
	// None: there are no servers of this kind, only Ways to probe.
	Schemes []Scheme
	// Parse reads a --server value in the protocol's own syntax and returns
	// host:port. Its errors are *measure.AddressError. Nil: an address is
	// scheme://host[:port], with a path if the scheme has an URL.
	Parse func(server string) (host string, err error)
	// Dial opens a session. Errors wrap measure.ErrUnreachable or
	// measure.ErrRefused.
	Dial func(ctx context.Context, s *Session) (phases.Tester, error)
	// Ways are the protocol's values of --ping; none if it has no probes of its own.
	Ways []Way
}

// A Scheme is the beginning of an address.
type Scheme struct {
	Name string // before "://"
	Port int    // the default
	URL  string // "http" or "https", if the address stands for such a URL; "": it has no path
}

// A Way is a kind of probe for --ping.
type Way struct {
	Scheme string                            // before "://"
	Usage  string                            // such as "tcp://HOST:PORT"
	Host   func(host string) (string, error) // checks and completes what follows the scheme
	Least  time.Duration                     // smallest interval between two probes
	// Start starts probes to a host as returned by Host.
	Start func(ctx context.Context, p Probing) (phases.Prober, error)
}

// Probing tells a Way where to send probes, and how.
type Probing struct {
	Clock    *netio.Clock
	Host     string // as returned by the Way's Host
	Interval time.Duration
	Options  Options
}

// Options of a session. Zero values take the defaults.
type Options struct {
	Timeout  time.Duration    // for connecting; 10 s
	Patience time.Duration    // for one step of opening or ending a load, which may wait in the line's queue; 60 s
	Probe    phases.ProbeSpec // an Interval of 0 means the protocol's own
	Agent    string           // name for the server's log
	Ping     string           // further probes, or the only ones if the server has none
	Key      string           // shared with the server
	Insecure bool             // accept any TLS certificate
	Pin      string           // SHA-256 of the server's certificate, hexadecimal; it then needs no authority

	// Endpoints returns the URLs of an HTTP server's tests. It is called at
	// first and again before each load, as access may be valid for a short time
	// only. nil: the URLs are below the server's.
	Endpoints func(context.Context) (Endpoints, error)
}

// Endpoints are the URLs of an HTTP server for load and probes.
type Endpoints struct {
	Small    string // with almost no content, for probes; "": there is none
	Down, Up string // of the load
}

// Constants that clients of several protocols share.
const (
	GoodputBin   = 100 * time.Millisecond // of the series of bytes
	PingInterval = 20 * time.Millisecond  // default between probes
	CallInterval = 50 * time.Millisecond  // minimum between probes that cause work elsewhere
)

// ErrCertificate is wrapped by errors of a server that answers, but whose
// certificate is not signed by a trusted authority, or is not the pinned one.
var ErrCertificate = errors.New("the server's certificate is not trusted")

// Unreachable makes err wrap measure.ErrUnreachable, unless it wraps one of our
// errors already.
func Unreachable(what string, err error) error {
	for _, known := range []error{ErrCertificate, phases.ErrUnreachable, phases.ErrRefused} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", phases.ErrUnreachable, what, err)
}

// ParsePin reads the SHA-256 of a certificate as tools print it: 64 hexadecimal
// digits, with or without colons between groups. It returns lower-case digits
// without colons.
func ParsePin(s string) (string, error) {
	pin := strings.ToLower(strings.ReplaceAll(s, ":", ""))
	if b, err := hex.DecodeString(pin); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%q is not the SHA-256 of a certificate: 64 hexadecimal digits", s)
	}
	return pin, nil
}
