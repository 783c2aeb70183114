package public

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
)

const (
	listURL         = "https://librespeed.org/backend-servers/servers.php"
	libreSpeedTerms = "https://librespeed.org"
	mostListed      = 100 // servers of the list whose distance is measured
	askedAtOnce     = 8
	nearestOf       = 3 // servers that are tried
	// listedWithin is the time limit for a listed server's handshakes. A slower
	// server is of no use.
	listedWithin = 3 * time.Second
)

// A listed is one server of LibreSpeed's list. Its URLs are relative to Server,
// which may lack the scheme.
type listed struct {
	Name        string `json:"name"`
	Server      string `json:"server"`
	DlURL       string `json:"dlURL"`
	UlURL       string `json:"ulURL"`
	PingURL     string `json:"pingURL"`
	SponsorName string `json:"sponsorName"`
	SponsorURL  string `json:"sponsorURL"`
}

// libreSpeed reads the list, and returns the nearest of its servers that start
// to send.
func (f *Finder) libreSpeed(ctx context.Context) ([]Server, error) {
	b, err := f.get(ctx, listURL)
	if err != nil {
		return nil, err
	}
	var list []listed
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%w: read the list of %s: %w", phases.ErrUnreachable, listURL, err)
	}
	near, err := f.near(ctx, list)
	if err != nil {
		return nil, err
	}
	var out []Server
	var last error
	for _, s := range near {
		if len(out) == nearestOf {
			break
		}
		ends, err := s.Endpoints(ctx)
		if err == nil {
			err = f.sends(ctx, ends.Down)
		}
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

// near measures the distance of the listed servers, and returns those that
// answer, the nearest first.
func (f *Finder) near(ctx context.Context, list []listed) ([]Server, error) {
	list = list[:min(len(list), mostListed)]
	found, errs := make([]Server, len(list)), make([]error, len(list))
	slots := make(chan struct{}, askedAtOnce)
	var wg sync.WaitGroup
	for i := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, listedWithin)
			defer cancel()
			found[i], errs[i] = f.listedServer(ctx, list[i])
		})
	}
	wg.Wait()
	found = slices.DeleteFunc(found, func(s Server) bool { return s.URL == "" })
	if len(found) == 0 {
		return nil, errors.Join(append([]error{ErrNone}, errs[:min(len(errs), 1)]...)...)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].RTT < found[j].RTT })
	return found, nil
}

func (f *Finder) listedServer(ctx context.Context, l listed) (Server, error) {
	base := l.Server
	if strings.HasPrefix(base, "//") {
		base = "https:" + base
	}
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.User != nil {
		return Server{}, fmt.Errorf("%w: the list has no good address of %q", phases.ErrUnreachable, l.Name)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	rtt, err := f.distance(ctx, net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return Server{}, err
	}
	at := func(name string) string { return u.String() + "/" + strings.TrimPrefix(name, "/") }
	size := "?ckSize=100"
	if strings.Contains(l.DlURL, "?") {
		size = "&ckSize=100"
	}
	ends := protocol.Endpoints{Small: at(l.PingURL), Down: at(l.DlURL) + size, Up: at(l.UlURL)}
	s := Server{
		Source: LibreSpeed, Operator: l.SponsorName, Place: l.Name, URL: "librespeed+" + u.String(), RTT: rtt, Terms: libreSpeedTerms,
		Endpoints: func(context.Context) (protocol.Endpoints, error) { return ends, nil },
	}
	if s.Operator == "" {
		s.Operator = "LibreSpeed's list"
	}
	if t, err := url.Parse(l.SponsorURL); err == nil && t.Hostname() != "" && (t.Scheme == "https" || t.Scheme == "http") {
		s.Terms = t.String()
	}
	return s, nil
}
