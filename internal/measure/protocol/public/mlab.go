package public

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/web"
)

const (
	locateURL = "https://locate.measurementlab.net/v2/nearest/ndt/ndt7"
	mlabTerms = "https://www.measurementlab.net/privacy/ and https://www.measurementlab.net/aup/"
	// tokenFor is how long an access token is used. M-Lab's are valid for one
	// minute.
	tokenFor = 30 * time.Second
)

// A nearest is the answer of the locate service (version 2).
type nearest struct {
	Error *struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	} `json:"error"`
	Results []target `json:"results"`
}

// A target is one server, with URLs that contain access tokens.
type target struct {
	Machine  string `json:"machine"`
	Hostname string `json:"hostname"`
	Location *struct {
		City    string `json:"city"`
		Country string `json:"country"`
	} `json:"location"`
	URLs map[string]string `json:"urls"`
}

// Keys of a target's URLs.
const (
	mlabDownload = "wss://" + web.DownloadPath
	mlabUpload   = "wss://" + web.UploadPath
)

// mlab asks the locate service for the servers near this line.
func (f *Finder) mlab(ctx context.Context) ([]Server, error) {
	targets, err := f.locate(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	var out []Server
	var last error
	for _, t := range targets {
		s, err := f.mlabServer(ctx, t, at)
		if err != nil { // try the next one
			last = err
			continue
		}
		out = append(out, s)
	}
	if len(out) == 0 && last != nil {
		return nil, last
	}
	return out, nil
}

// locate asks the locate service.
func (f *Finder) locate(ctx context.Context) ([]target, error) {
	b, err := f.get(ctx, locateURL+"?"+url.Values{"client_name": {"unbloat"}}.Encode())
	if err != nil {
		return nil, err
	}
	var n nearest
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, fmt.Errorf("%w: read the answer of %s: %w", phases.ErrUnreachable, locateURL, err)
	}
	if n.Error != nil {
		return nil, fmt.Errorf("%w: %s: %s (%d)", phases.ErrRefused, locateURL, n.Error.Title, n.Error.Status)
	}
	return n.Results, nil
}

// endpoints returns a target's URLs for load, and the host of both.
func (t target) endpoints() (at protocol.Endpoints, host string, err error) {
	for _, x := range []struct {
		key  string
		into *string
	}{{mlabDownload, &at.Down}, {mlabUpload, &at.Up}} {
		u, err := url.Parse(t.URLs[x.key])
		if err != nil || u.Scheme != "wss" || u.Hostname() == "" || host != "" && u.Host != host {
			return protocol.Endpoints{}, "", fmt.Errorf("%w: %s says no good %s of %q", phases.ErrUnreachable, locateURL, x.key, t.Machine)
		}
		host = u.Host
		u.Scheme = "https"
		*x.into = u.String()
	}
	return at, host, nil
}

func (f *Finder) mlabServer(ctx context.Context, t target, at time.Time) (Server, error) {
	ends, host, err := t.endpoints()
	if err != nil {
		return Server{}, err
	}
	address := host
	if _, _, err := net.SplitHostPort(host); err != nil {
		address = net.JoinHostPort(host, "443")
	}
	rtt, err := f.distance(ctx, address)
	if err != nil {
		return Server{}, err
	}
	s := Server{
		Source: MLab, Operator: "Measurement Lab", URL: "ndt7+wss://" + host, RTT: rtt, Terms: mlabTerms, Publishes: true,
		Endpoints: (&lease{finder: f, machine: t.Machine, ends: ends, at: at}).get,
	}
	if l := t.Location; l != nil {
		s.Place = l.City + ", " + l.Country
	}
	return s, nil
}

// A lease renews the access tokens of one server.
type lease struct {
	finder  *Finder
	machine string

	mu   sync.Mutex
	ends protocol.Endpoints
	at   time.Time // when the tokens were made
}

// get returns URLs with valid tokens, always of the same server: measurements
// with another one could not be compared.
func (l *lease) get(ctx context.Context) (protocol.Endpoints, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < tokenFor {
		return l.ends, nil
	}
	targets, err := l.finder.locate(ctx)
	if err != nil {
		return protocol.Endpoints{}, fmt.Errorf("renew the access to %s: %w", l.machine, err)
	}
	at := time.Now()
	for _, t := range targets {
		if t.Machine != l.machine {
			continue
		}
		ends, _, err := t.endpoints()
		if err != nil {
			return protocol.Endpoints{}, fmt.Errorf("renew the access to %s: %w", l.machine, err)
		}
		l.ends, l.at = ends, at
		return ends, nil
	}
	return protocol.Endpoints{}, fmt.Errorf("renew the access to %s: %w: M-Lab now offers other servers only", l.machine, phases.ErrRefused)
}
