package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/daemon"
)

// A Router is what the page shows and changes. Its errors are *daemon.Error, or become
// daemon.CodeFailed. Its methods may be called at once by several goroutines.
type Router interface {
	// State is asked once a second while somebody looks. It must not wait for the router.
	State(ctx context.Context) State
	Machine(ctx context.Context, address netip.Addr) (MachineFlows, error)
	Line(ctx context.Context, wan string, day bool) (daemon.History, error)
	SetLine(ctx context.Context, l SetLine) (daemon.Change, error)
	While(ctx context.Context, w While) (daemon.While, error)
	Confirm(ctx context.Context, change string) error
	Revert(ctx context.Context, wan string) error
	Run(ctx context.Context, r Run) (Running, error)
	Stop(ctx context.Context, wan string) error
	Health(ctx context.Context, wan string) (Health, error)
	Mend(ctx context.Context, m Mend) (Health, error)
	Events(ctx context.Context) (Events, error)
	Incidents(ctx context.Context, wan string) (Incidents, error)
	History(ctx context.Context, wan string) (History, error)
	Compare(ctx context.Context, before, after string) (Comparison, error)
	// Schedule returns the schedule, or has another one.
	Schedule(ctx context.Context, p daemon.ScheduleParams) (daemon.Schedule, error)
}

// Options of an App.
type Options struct {
	Router  Router
	Page    fs.FS    // index.html and what it loads; nil: the API alone
	Version string   // of the program
	Names   []string // by which this machine may be reached, besides its addresses and localhost
	Secrets []byte   // as they were saved; nil: none yet
	// Save keeps the secrets.
	Save func(secrets []byte) error
	// Panicked takes in a panic that a request has brought about.
	Panicked func(what any, stack []byte)
	Now      func() time.Time // nil: time.Now
}

// An App answers the page's requests.
type App struct {
	o    Options
	auth *auth
	hub  *hub
	site *site
}

// New returns an App. It fails if the secrets cannot be read.
func New(o Options) (*App, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &App{o: o, hub: newHub(o)}
	var err error
	if a.auth, err = newAuth(o.Secrets, o.Save, o.Now); err != nil {
		return nil, err
	}
	a.site, err = newSite(o.Page)
	return a, err
}

// Token returns the token that sets the first password; "" if there is a password.
// With again it makes one that sets another.
func (a *App) Token(again bool) string { return a.auth.Token(again) }

// Ticket returns what logs somebody in once, for another page of this router that knows
// who they are. There is none for Nobody.
func (a *App) Ticket(role Role) string { return a.auth.ticket(role) }

// FirstRun says whether there is no password yet.
func (a *App) FirstRun() bool { first, _ := a.auth.state(); return first }

// policy lets the page load its own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A request is one with who sent it.
type request struct {
	*Request
	session *session // nil: nobody is logged in
	query   url.Values
}

// Handle answers a request. A panic ends that request alone.
func (a *App) Handle(ctx context.Context, h *Request) (out Response) {
	if !guard.Contain(func() { out = a.handle(ctx, h) }, a.o.Panicked) {
		out = failure(&daemon.Error{Code: daemon.CodeFailed, Text: "the page has an internal error; the daemon's log describes it"})
	}
	out.Header = append(out.Header,
		[2]string{"Content-Security-Policy", policy},
		[2]string{"X-Content-Type-Options", "nosniff"},
		[2]string{"X-Frame-Options", "DENY"}, // for browsers that do not know frame-ancestors
		[2]string{"Referrer-Policy", "no-referrer"},
		[2]string{"Cross-Origin-Opener-Policy", "same-origin"},
		[2]string{"Cross-Origin-Resource-Policy", "same-origin"},
	)
	return out
}

func (a *App) handle(ctx context.Context, h *Request) Response {
	if !mayBeHost(h.Header["host"], a.o.Names) {
		return failure(&daemon.Error{Code: CodeHost, Text: "this router does not have this name; use its address, or add it to the names of the page (option names) in the daemon's configuration"})
	}
	const api = "/api/"
	if len(h.Path) < len(api) || h.Path[:len(api)] != api {
		if h.Method == "POST" {
			return failure(notFound())
		}
		return a.site.answer(h)
	}
	r := &request{Request: h}
	var err error
	if r.query, err = url.ParseQuery(h.Query); err != nil {
		return failure(&daemon.Error{Code: daemon.CodeRequest, Text: "the query cannot be read"})
	}
	name := h.Path[len(api):]
	r.session = a.auth.session(cookie(h, cookieName))
	if h.Method == "POST" {
		return a.post(ctx, name, r)
	}
	return a.get(ctx, name, r)
}

func notFound() error {
	return &daemon.Error{Code: CodeNotFound, Text: "there is nothing of that name"}
}

// get answers what changes nothing.
func (a *App) get(ctx context.Context, name string, r *request) Response {
	if name == "session" {
		return answer(a.sessionOf(r.session))
	}
	if r.session == nil {
		return failure(&daemon.Error{Code: CodeLogin, Text: "log in first"})
	}
	wan := r.query.Get("wan")
	var out any
	var err error
	switch name {
	case "state":
		return Response{Status: 200, Header: jsonHeader(), Body: a.hub.now(ctx)}
	case "stream":
		return a.hub.stream(r.session)
	case "machine":
		var address netip.Addr
		if address, err = netip.ParseAddr(r.query.Get("address")); err != nil {
			return failure(&daemon.Error{Code: daemon.CodeRequest, Text: "address: it is none"})
		}
		out, err = a.o.Router.Machine(ctx, address)
	case "line":
		span := r.query.Get("range")
		if span != "1h" && span != "24h" {
			return failure(&daemon.Error{Code: daemon.CodeRequest, Text: "range: 1h or 24h"})
		}
		out, err = a.o.Router.Line(ctx, wan, span == "24h")
	case "health":
		out, err = a.o.Router.Health(ctx, wan)
	case "events":
		out, err = a.o.Router.Events(ctx)
	case "incidents":
		out, err = a.o.Router.Incidents(ctx, wan)
	case "history":
		out, err = a.o.Router.History(ctx, wan)
	case "history/compare":
		out, err = a.o.Router.Compare(ctx, r.query.Get("before"), r.query.Get("after"))
	case "schedule":
		out, err = a.o.Router.Schedule(ctx, daemon.ScheduleParams{})
	case "export":
		return a.export(ctx)
	default:
		return failure(notFound())
	}
	if err != nil {
		return failure(err)
	}
	return answer(out)
}

// post does what changes something.
func (a *App) post(ctx context.Context, name string, r *request) Response {
	if !sameSite(r.Header, r.TLS) {
		return failure(&daemon.Error{Code: CodeForged, Text: "the request comes from another site"})
	}
	if t, _, _ := cut(r.Header["content-type"], ';'); t != "application/json" {
		return failure(&daemon.Error{Code: daemon.CodeRequest, Text: "the body must be application/json"})
	}
	switch name {
	case "first":
		return with(r, func(f First) (Response, error) {
			if err := a.auth.first(r.From, f.Token, f.Password); err != nil {
				return Response{}, err
			}
			return a.loggedIn(r, Admin), nil
		})
	case "enter":
		return with(r, func(e Enter) (Response, error) {
			role, err := a.auth.enter(r.From, e.Ticket)
			if err != nil {
				return Response{}, err
			}
			return a.loggedIn(r, role), nil
		})
	case "login":
		return with(r, func(l Login) (Response, error) {
			role, err := a.auth.login(r.From, cookie(r.Request, cookieKnown), l.Password)
			if err != nil {
				return Response{}, err
			}
			return a.loggedIn(r, role), nil
		})
	}
	switch {
	case r.session == nil:
		return failure(&daemon.Error{Code: CodeLogin, Text: "log in first"})
	case !equal(r.Header["x-csrf"], r.session.csrf):
		return failure(&daemon.Error{Code: CodeForged, Text: "the header X-CSRF is not the session's"})
	case name == "logout":
		a.auth.logout(r.session)
		out := answer(a.sessionOf(nil))
		out.Header = append(out.Header, setCookie(r, cookieName, "", 0))
		return out
	case r.session.role != Admin:
		return failure(&daemon.Error{Code: CodeReadOnly, Text: "this password may look, and change nothing"})
	}
	defer a.hub.changed()
	route := a.o.Router
	switch name {
	case "password":
		return with(r, func(p Password) (Response, error) { return a.password(r, p) })
	case "line":
		return does(r, func(l SetLine) (any, error) { return route.SetLine(ctx, l) })
	case "while":
		return does(r, func(w While) (any, error) { return route.While(ctx, w) })
	case "confirm":
		return does(r, func(c Confirm) (any, error) { return Done{true}, route.Confirm(ctx, c.Change) })
	case "revert":
		return does(r, func(v Revert) (any, error) { return Done{true}, route.Revert(ctx, v.WAN) })
	case "run":
		return does(r, func(v Run) (any, error) { return route.Run(ctx, v) })
	case "stop":
		return does(r, func(v Stop) (any, error) { return Done{true}, route.Stop(ctx, v.WAN) })
	case "mend":
		return does(r, func(v Mend) (any, error) { return route.Mend(ctx, v) })
	case "schedule":
		return does(r, func(v daemon.ScheduleParams) (any, error) { return route.Schedule(ctx, v) })
	}
	return failure(notFound())
}

// does answers with what f makes of the request's body.
func does[T any](r *request, f func(T) (any, error)) Response {
	return with(r, func(v T) (Response, error) {
		out, err := f(v)
		if err != nil {
			return Response{}, err
		}
		return answer(out), nil
	})
}

// with reads the request's body: one JSON object with no other fields than T's.
func with[T any](r *request, f func(T) (Response, error)) Response {
	var v T
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.DisallowUnknownFields()
	err := d.Decode(&v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more behind it")
		}
	}
	if err != nil {
		return failure(&daemon.Error{Code: daemon.CodeRequest, Text: "the body is not what is asked for: " + err.Error()})
	}
	out, err := f(v)
	if err != nil {
		return failure(err)
	}
	return out
}

// loggedIn begins a session, and makes the browser known.
func (a *App) loggedIn(r *request, role Role) Response {
	a.auth.logout(r.session)
	s, value := a.auth.begin(role)
	out := answer(a.sessionOf(s))
	if known := a.auth.remember(role); known != "" && (role == Admin || a.auth.knows(cookie(r.Request, cookieKnown)).role != Admin) {
		out.Header = append(out.Header, setCookie(r, cookieKnown, known, knownMost))
	}
	out.Header = append(out.Header, setCookie(r, cookieName, value, sessionMost))
	return out
}

// password sets a password.
func (a *App) password(r *request, p Password) (Response, error) {
	if p.Role != Admin && p.Role != Viewer || p.Role == Admin && p.New == "" {
		return Response{}, &daemon.Error{Code: daemon.CodeRequest, Text: "role: admin or viewer; the admin has a password"}
	}
	if p.New != "" {
		if err := good(p.New); err != nil {
			return Response{}, err
		}
	}
	if role, err := a.auth.login(r.From, cookie(r.Request, cookieKnown), p.Now); err != nil {
		return Response{}, err
	} else if role != Admin {
		return Response{}, &daemon.Error{Code: CodePassword, Text: "that is not the admin's password"}
	}
	if err := a.auth.set(p.Role, p.New); err != nil {
		return Response{}, err
	}
	if p.Role == Admin { // its sessions are over, this one too
		return a.loggedIn(r, Admin), nil
	}
	return answer(a.sessionOf(r.session)), nil
}

// sessionOf says who asks.
func (a *App) sessionOf(s *session) Session {
	first, viewer := a.auth.state()
	out := Session{FirstRun: first, HasViewer: viewer, Version: a.o.Version}
	if s != nil {
		out.User, out.CSRF = s.role, s.csrf
	}
	return out
}

// An exported is the file of GET /api/export. What is missing could not be had.
type exported struct {
	Schema   string           `json:"schema"`
	Version  string           `json:"version"`
	State    State            `json:"state"`
	Lines    []daemon.History `json:"lines"` // the last 24 hours
	Events   *Events          `json:"events,omitempty"`
	History  *History         `json:"history,omitempty"`
	Schedule *daemon.Schedule `json:"schedule,omitempty"`
}

// export answers with all that the page knows.
func (a *App) export(ctx context.Context) Response {
	r := a.o.Router
	out := exported{Schema: "unbloat.export.ui/2", Version: a.o.Version, State: r.State(ctx), Lines: []daemon.History{}}
	for _, w := range out.State.WANs {
		if l, err := r.Line(ctx, w.WAN, true); err == nil {
			out.Lines = append(out.Lines, l)
		}
	}
	if v, err := r.Events(ctx); err == nil {
		out.Events = &v
	}
	if v, err := r.History(ctx, ""); err == nil {
		out.History = &v
	}
	if v, err := r.Schedule(ctx, daemon.ScheduleParams{}); err == nil {
		out.Schedule = &v
	}
	h := answer(out)
	h.Header = append(h.Header, [2]string{"Content-Disposition", `attachment; filename="unbloat.json"`})
	return h
}
