package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/flows"
	"unbloat/internal/keep/page"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
	"unbloat/web"
)

// besideConfig is the path of a file beside the daemon's configuration: what must
// outlive a reboot.
func besideConfig(config, suffix string) string {
	return strings.TrimSuffix(config, filepath.Ext(config)) + suffix
}

// servePage serves the router's page until ctx ends; the channel is closed then.
func (f *daemonFlags) servePage(ctx context.Context, c kept.Config, h daemon.PageHost) (func(daemon.PageParams) daemon.Page, <-chan struct{}, error) {
	secrets := besideConfig(f.config, ".ui.json")
	held, err := os.ReadFile(secrets)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the page's passwords: %w", err)
	}
	around := &surroundings{wans: c.WANs}
	app, err := page.New(page.Options{
		Router: page.NewSource(f.pageSource(c, h, around)), Page: web.RouterPage(), Panicked: h.Panicked, Version: version, Names: append(ownNames(), c.UI.Names...),
		Secrets: held, Save: func(b []byte) error { return apply.WriteFile(secrets, append(b, '\n'), 0o600) },
	})
	if err != nil {
		return nil, nil, err
	}
	scheme, fingerprint := "http", ""
	var encrypt *tls.Config
	if c.UI.TLS {
		scheme = "https"
		if encrypt, fingerprint, err = pageTLS(besideConfig(f.config, ".ui.pem"), append(ownNames(), c.UI.Names...)); err != nil {
			return nil, nil, err
		}
	}
	l, err := net.Listen("tcp", c.UI.Listen.String())
	if err != nil {
		return nil, nil, err
	}
	urls := pageURLs(scheme, c.UI)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		at := &guard.Listener{Listener: l, Limits: page.Places(), Admit: func(from, at netip.Addr) bool { return page.Admits(around.network(), c.UI.Allow, from, at) }}
		if err := app.Serve(ctx, at, encrypt); err != nil {
			h.Log("page: %v", err)
		}
	}()
	h.Log("page: %s", strings.Join(urls, " "))
	if app.FirstRun() {
		h.Log("page: it has no password yet; `unbloat ui token` says how to set one")
	}
	return func(p daemon.PageParams) daemon.Page {
		at := daemon.Page{URLs: urls, Fingerprint: fingerprint}
		if p.Enter != "" {
			at.Ticket = app.Ticket(page.Role(p.Enter))
		} else {
			at.Token = app.Token(p.NewToken)
		}
		return at
	}, ended, nil
}

// pageURLs are the addresses under which the page can be opened.
func pageURLs(scheme string, c kept.UI) []string {
	port := c.Listen.Port()
	url := func(host string) string { return scheme + "://" + net.JoinHostPort(host, fmt.Sprint(port)) + "/" }
	if !c.Listen.Addr().IsUnspecified() {
		return append([]string{url(c.Listen.Addr().String())}, each(c.Names, url)...)
	}
	out := each(c.Names, url)
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (n.IP.To4() != nil || c.Listen.Addr().Is6()) && !n.IP.IsLinkLocalUnicast() {
			out = append(out, url(n.IP.String()))
		}
	}
	return out
}

func each(of []string, f func(string) string) []string {
	var out []string
	for _, s := range of {
		out = append(out, f(s))
	}
	return out
}

// ownNames are the names that this machine calls itself.
func ownNames() []string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return nil
	}
	short, _, _ := strings.Cut(name, ".")
	return slices.Compact([]string{name, short})
}

// pageSource is what the page shows.
func (f *daemonFlags) pageSource(c kept.Config, h daemon.PageHost, around *surroundings) page.SourceOptions {
	o := page.SourceOptions{Daemon: h.Daemon, Panicked: h.Panicked, Leases: func() flows.Leases { return readLeases(flows.LeaseFiles()) }, Sight: sightOf, Results: pageResults(c.History),
		Examine: func(ctx context.Context, router, wan string) (*platform.DoctorReport, error) {
			d := doctorFlags{routerFlags: routerFlags{targetFlags: targetFlags{router: router, ownTC: true}, stateDir: f.stateDir}, wan: wan}
			for _, w := range c.WANs {
				if w.Interface == wan && w.Router == router {
					d.lan, d.down, d.up, d.linkLayer, d.platform = w.LAN, w.Down, w.Up, string(w.LinkLayer), w.Platform
				}
			}
			return d.examine(ctx)
		}}
	home := func() func(netip.Addr) bool {
		n := around.network()
		return func(a netip.Addr) bool {
			return slices.ContainsFunc(n.Home, func(p netip.Prefix) bool { return p.Contains(a) }) || slices.Contains(n.Lines, a)
		}
	}
	o.Count = lineCounter()
	o.Each = func(ctx context.Context, each func(flows.Flow)) error {
		err := eachConnection(home(), each)
		if !errors.Is(err, netio.ErrNotSupported) {
			return err
		}
		out, err := platform.Output(ctx, machine, "pfctl", "-ss", "-v")
		if err == nil {
			flows.States(string(out), home(), each)
		}
		return err
	}
	return o
}

// sightOf says why connections could not be read.
func sightOf(err error) page.Sight {
	if errors.Is(err, netio.ErrNotAllowed) || errors.Is(err, os.ErrPermission) {
		return page.SightDenied
	}
	return page.SightNone
}

// eachConnection reads the kernel's connections between the home and elsewhere.
func eachConnection(home func(netip.Addr) bool, each func(flows.Flow)) error {
	c, err := netio.OpenConnections()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Each(func(x netio.Connection) {
		h, far, begun, ok := flows.HomeEnds(home, x.From, x.To, x.Answers)
		if !ok {
			return
		}
		f := flows.Flow{Protocol: x.Protocol, Home: h, Far: far, Up: unit.Size(x.Sent), Down: unit.Size(x.Returned), Packets: x.Packets, Answered: x.Answered, Mark: x.Mark}
		if !begun {
			f.Up, f.Down = f.Down, f.Up
		}
		each(f)
	})
}

// readLeases reads what DHCP servers of this machine know.
func readLeases(files []string) flows.Leases {
	const most = 1 << 20
	out := flows.Leases{}
	for _, file := range files {
		f, err := guard.OpenTrusted(file)
		if err != nil {
			continue
		}
		if b, err := io.ReadAll(io.LimitReader(f, most)); err == nil {
			out.Read(string(b))
		}
		f.Close()
	}
	return out
}

// surroundings are this machine's networks, read now and then.
type surroundings struct {
	wans []kept.WAN

	mu sync.Mutex
	at time.Time
	is page.Network
}

// network returns them.
func (s *surroundings) network() page.Network {
	const fresh = 5 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < fresh {
		return s.is
	}
	links, err := net.Interfaces()
	if err != nil {
		return s.is
	}
	var is page.Network
	for _, link := range links {
		line := slices.ContainsFunc(s.wans, func(w kept.WAN) bool { return w.Router == "" && w.Interface == link.Name })
		addrs, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			address, ok := netip.AddrFromSlice(n.IP)
			if !ok {
				continue
			}
			address = address.Unmap()
			bits, _ := n.Mask.Size()
			switch {
			case line:
				is.Lines = append(is.Lines, address)
			case address.IsLoopback(), address.IsLinkLocalUnicast():
			default:
				is.Home = append(is.Home, netip.PrefixFrom(address, bits).Masked())
			}
		}
	}
	s.is, s.at = is, time.Now()
	return is
}
