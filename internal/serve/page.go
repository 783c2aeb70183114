// This part serves the web speed test: the page itself (package web) and
// what it measures against, which is a WebSocket and, by QUIC, datagrams that
// echo probes, a download, an upload, and a place for results.
//
// Everything a visitor can use up is bounded: sessions, their time, their bytes
// and flows, the size of a result. Loads exist only for a session, a session
// only as long as its WebSocket, and one session keeps at most one result. The
// figures of a result are computed here, from its raw samples, by the rules of
// package verdict, and worded in the language that the visitor asks for.

package serve

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/unit"
	"unbloat/web"
)

// Limits bound what visitors can take. A zero value takes the default.
type PageLimits struct {
	Sessions   int           // at once
	PerAddress int           // sessions of one client address (IPv6: one /64) at once
	Flows      int           // loads of one session at once
	Bytes      unit.Size     // that one session may move, both ways together
	Session    time.Duration // of one session
	Silence    time.Duration // after which a session that sends no probe is ended
	Result     unit.Size     // of the JSON of one result
}

// DefaultLimits are enough for a household and a few of its neighbours, and for
// every phase of a test at 2.5 Gbit/s.
func DefaultPageLimits() PageLimits {
	return PageLimits{
		Sessions: 16, PerAddress: 4, Flows: 16, Bytes: 16 * unit.GB,
		Session: 5 * time.Minute, Silence: 30 * time.Second, Result: unit.MB,
	}
}

// Options of a page. Zero values will do.
type PageOptions struct {
	Store  Store            // keeps results; nil: the newest 100 in memory
	Name   string           // how the server calls itself in results; "": as the browser calls it
	Limits PageLimits       // zero values take the defaults
	Log    *slog.Logger     // nil: no log
	Now    func() time.Time // nil: time.Now
	// Account books what visitors use, with all that the server serves, and says
	// when an address has reached its limits; nil: there is none.
	Account Account
}

// An Account bounds what one client address takes over all protocols together.
type Account interface {
	// Enter opens a session; leave must follow. Its error is shown to the visitor.
	Enter(from netip.Addr) (leave func(), err error)
	// Spend books bytes of a load, both ways; false ends it.
	Spend(from netip.Addr, n unit.Size) bool
}

// noAccount allows everything.
type noAccount struct{}

func (noAccount) Enter(netip.Addr) (func(), error) { return func() {}, nil }
func (noAccount) Spend(netip.Addr, unit.Size) bool { return true }

// A Handler serves the page at /, stored results under /r/, and what they need under
// /api/.
type Page struct {
	store  Store
	name   string
	limits PageLimits
	log    *slog.Logger
	now    func() time.Time
	block  []byte // what downloads consist of, again and again
	mux    http.Handler

	account Account
	keeping *quota // of results

	datagrams   *datagrams // nil: none
	certificate *shortCert // of datagrams

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // of sessions

	mu       sync.Mutex
	sessions map[string]*pageSession // by token
	perAddr  map[netip.Addr]int
}

// Results that one address may have kept: so many at once, then one each minute.
const (
	keptBurst = 20
	keptEvery = time.Minute
)

// blockSize is larger than what any compressor looks back.
const blockSize = 1 << 20

// New returns the handler of the page. It is to be mounted at /; its owner
// calls Close when its server has been told to stop, because WebSockets outlive
// http.Server.Shutdown.
func NewPage(o PageOptions) *Page {
	if o.Store == nil {
		o.Store = NewMemory(100)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Account == nil {
		o.Account = noAccount{}
	}
	h := &Page{
		store: o.Store, name: o.Name, limits: guard.WithDefaults(o.Limits, DefaultPageLimits()), log: o.Log, now: o.Now,
		block: make([]byte, blockSize), keeping: newQuota(keptBurst, keptEvery),
		sessions: map[string]*pageSession{}, perAddr: map[netip.Addr]int{}, account: o.Account,
	}
	_, _ = rand.Read(h.block) // never fails (crypto/rand)
	h.ctx, h.stop = context.WithCancel(context.Background())
	site := newSite(web.ServerPage())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/probe", h.probe)
	mux.HandleFunc("GET /api/down", h.down)
	mux.HandleFunc("POST /api/up", h.up)
	mux.HandleFunc("POST /api/results", h.save)
	mux.HandleFunc("GET /api/results/{id}", h.load)
	mux.HandleFunc("DELETE /api/results/{id}", h.remove)
	mux.HandleFunc("GET /api/results/{id}/shown", h.shown)
	// A server with a shared key answers this itself; there is none here.
	mux.HandleFunc("GET /api/key", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is no such endpoint")
	})
	mux.HandleFunc("GET /r/{id}", func(w http.ResponseWriter, r *http.Request) { h.result(w, r, site) })
	mux.HandleFunc("/", site.serve)
	h.mux = secure(http.NewCrossOriginProtection().Handler(mux))
	return h
}

// ServeHTTP answers one request.
func (h *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends all sessions and waits for them. Later ones are refused.
func (h *Page) Close() {
	h.mu.Lock() // no session may begin once it is waited for
	h.stop()
	h.mu.Unlock()
	if h.datagrams != nil {
		h.datagrams.close()
	}
	h.wg.Wait()
}

// policy lets the page load its own files and nothing else. Nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets the headers of every answer. The two cross-origin policies also
// give the page the finer clock that browsers keep for isolated pages.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Other endpoints of the same port are for every site; these are not.
		for _, open := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Timing-Allow-Origin"} {
			w.Header().Del(open)
		}
		set := w.Header().Set
		set("Content-Security-Policy", policy)
		set("X-Content-Type-Options", "nosniff")
		set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		set("Referrer-Policy", "no-referrer")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cross-Origin-Embedder-Policy", "require-corp")
		set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}
