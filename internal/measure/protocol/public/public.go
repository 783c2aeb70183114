// Package public finds test servers that anybody may use: Cloudflare's, those
// of Measurement Lab by its locate service, and those of LibreSpeed's list. It
// finds out which servers there are, their distance, and whose terms apply. It
// does not load the line.
package public

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sort"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/unit"
)

// Names of the sources in --server.
const (
	Auto       = "auto"
	Cloudflare = "cloudflare"
	MLab       = "mlab"
	LibreSpeed = "librespeed"
)

// Order returns the sources for a --server value, in the order in which they
// are tried, or none if the value names no public servers. M-Lab comes last,
// since it publishes results.
func Order(server string) []string {
	switch server {
	case Auto:
		return []string{Cloudflare, LibreSpeed, MLab}
	case Cloudflare, MLab, LibreSpeed:
		return []string{server}
	}
	return nil
}

// A Server is a public test server that has answered.
type Server struct {
	Source    string        // Cloudflare, MLab or LibreSpeed
	Operator  string        // such as "Cloudflare"
	Place     string        // such as "Hamburg, DE"; "" if unknown
	URL       string        // as protocol.Dial takes it, without tokens
	RTT       time.Duration // of the fastest of a few TCP handshakes
	Terms     string        // URL of the operator's terms
	Publishes bool          // results are published, with this line's public address
	// Endpoints is for protocol.Options; nil if the URL suffices.
	Endpoints func(context.Context) (protocol.Endpoints, error)
}

// A Finder finds public servers. Its zero value uses the real ones.
type Finder struct {
	Dial  func(ctx context.Context, network, address string) (net.Conn, error) // nil: the system's
	Roots *x509.CertPool                                                       // nil: the system's authorities
	Agent string                                                               // name for the servers' logs, such as "unbloat test"

	name string // expected in every certificate; "": the host's
}

// ErrNone is wrapped by errors of Find if a source has no server for us at
// present.
var ErrNone = errors.New("it has no test server for us now")

const (
	answerWithin = 10 * time.Second // time limit of a small request
	mostAnswer   = unit.MB          // of an answer
	handshakes   = 3                // the fastest is the distance
)

// Find returns a source's servers, the nearest first. All have answered a TCP
// handshake; those of Cloudflare and LibreSpeed have also started to send a
// load. Errors wrap ErrNone, measure.ErrRefused or measure.ErrUnreachable.
func (f *Finder) Find(ctx context.Context, source string) ([]Server, error) {
	var found []Server
	var err error
	switch source {
	case Cloudflare:
		found, err = f.cloudflare(ctx)
	case MLab:
		found, err = f.mlab(ctx)
	case LibreSpeed:
		found, err = f.libreSpeed(ctx)
	default:
		return nil, fmt.Errorf("find a public test server: no source %q is known", source)
	}
	if err == nil && len(found) == 0 {
		err = ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("find a test server of %s: %w", source, err)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].RTT < found[j].RTT })
	return found, nil
}

const (
	cloudflareHost = "speed.cloudflare.com"
	cloudflareURL  = "cloudflare+https://" + cloudflareHost
)

// cloudflare returns the one server name, which resolves to the nearest server.
func (f *Finder) cloudflare(ctx context.Context) ([]Server, error) {
	rtt, err := f.distance(ctx, net.JoinHostPort(cloudflareHost, "443"))
	if err != nil {
		return nil, err
	}
	if err := f.sends(ctx, "https://"+cloudflareHost+"/__down?bytes=100000000"); err != nil {
		return nil, err
	}
	return []Server{{Source: Cloudflare, Operator: "Cloudflare", URL: cloudflareURL, RTT: rtt, Terms: "https://www.cloudflare.com/website-terms/"}}, nil
}

// client returns an HTTP client of the finder.
func (f *Finder) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: f.dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: f.Roots, ServerName: f.name},
		ForceAttemptHTTP2: true, DisableCompression: true, DisableKeepAlives: true, TLSHandshakeTimeout: answerWithin,
		MaxResponseHeaderBytes: int64(mostAnswer),
	}}
}

func (f *Finder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if f.Dial != nil {
		return f.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// ask sends a request, and calls read with the answer.
func (f *Finder) ask(ctx context.Context, url string, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", f.Agent)
	resp, err := f.client().Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", phases.ErrUnreachable, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return read(resp)
	case http.StatusNoContent:
		return fmt.Errorf("GET %s: %w", url, ErrNone)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return fmt.Errorf("%w: GET %s: %s", phases.ErrRefused, url, resp.Status)
	}
	return fmt.Errorf("%w: GET %s: %s", phases.ErrUnreachable, url, resp.Status)
}

// get downloads a small resource.
func (f *Finder) get(ctx context.Context, url string) (b []byte, err error) {
	err = f.ask(ctx, url, func(r *http.Response) error {
		if b, err = (guard.Limit{Size: mostAnswer}).Read(r.Body); err != nil { // ask bounds the time
			return fmt.Errorf("%w: GET %s: %w", phases.ErrUnreachable, url, err)
		}
		return nil
	})
	return b, err
}

// sends checks that a server starts to send a load. Servers that limit clients
// refuse here already, and not in the middle of a measurement.
func (f *Finder) sends(ctx context.Context, url string) error {
	return f.ask(ctx, url, func(r *http.Response) error {
		if _, err := io.ReadFull(r.Body, make([]byte, 1024)); err != nil {
			return fmt.Errorf("%w: GET %s: it sends no load: %w", phases.ErrRefused, url, err)
		}
		return nil
	})
}

// distance returns the duration of a TCP handshake with host:port without the
// DNS query, the least of a few.
func (f *Finder) distance(ctx context.Context, address string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var least time.Duration
	for range handshakes {
		took, err := f.handshake(ctx, address)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", phases.ErrUnreachable, err)
		}
		if least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

func (f *Finder) handshake(ctx context.Context, address string) (time.Duration, error) {
	var mu sync.Mutex // both address families may be tried at once
	begun := map[string]time.Time{}
	var took time.Duration
	trace := &httptrace.ClientTrace{
		ConnectStart: func(_, to string) {
			mu.Lock()
			defer mu.Unlock()
			begun[to] = time.Now()
		},
		ConnectDone: func(_, to string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && took == 0 {
				took = time.Since(begun[to])
			}
		},
	}
	c, err := f.dial(httptrace.WithClientTrace(ctx, trace), "tcp", address)
	if err != nil {
		return 0, err
	}
	c.Close()
	mu.Lock()
	defer mu.Unlock()
	return took, nil
}
