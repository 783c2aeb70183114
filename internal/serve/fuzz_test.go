package serve

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/unit"
)

// forFuzzing listens but does not serve: the fuzz targets call the handlers.
func forFuzzing(f *testing.F, l Limits) *Server {
	f.Helper()
	const any = "127.0.0.1:0"
	s, err := Listen(Options{Listen: any, Irtt: any, Web: any, Limits: l})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.close)
	return s
}

func beside[T sideServer](f *testing.F, s *Server) T {
	f.Helper()
	for _, side := range s.others {
		if t, ok := side.(T); ok {
			return t
		}
	}
	f.Fatal("not served")
	panic("not reached")
}

// FuzzIrtt: whatever datagrams one address sends, it gets no more bytes in
// total than it sent, and requests to open alone create no session. The input
// is datagrams, each after its length in two bytes.
func FuzzIrtt(f *testing.F) {
	p := irtt.Params{Version: 1, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Length: 100}
	opening := irtt.OpenRequest(p, nil)
	f.Add(framed(opening, opening, irtt.CloseRequest(1, nil)))
	f.Add(framed(opening, opening, make([]byte, 100)))
	i := beside[*irttServer](f, forFuzzing(f, Limits{}))
	from := uint32(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		from++ // a new address without credit
		a := netip.AddrFrom4([4]byte{10, byte(from >> 16), byte(from >> 8), byte(from)})
		peer := &netio.Peer{Addr: netip.AddrPortFrom(a, 7)}
		in, out := 0, 0
		for now := unit.Instant(from) * unit.Instant(time.Second); len(b) >= 2; now = now.Add(time.Millisecond) {
			n := min(int(b[0])<<8|int(b[1]), len(b)-2)
			datagram := bytes.Clone(b[2 : 2+n])
			b = b[2+n:]
			in += n
			out += len(i.datagram(peer, now, datagram))
			if out > in {
				t.Fatalf("%d bytes out for %d in", out, in)
			}
		}
	})
}

// framed joins datagrams as FuzzIrtt reads them.
func framed(datagrams ...[]byte) (out []byte) {
	for _, d := range datagrams {
		out = append(append(out, byte(len(d)>>8), byte(len(d))), d...)
	}
	return out
}

// FuzzDatagram: the native protocol's answer to a datagram is no longer than
// the datagram, and only sent for a valid token.
func FuzzDatagram(f *testing.F) {
	s := forFuzzing(f, Limits{})
	ses, err := s.open(netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		f.Fatal(err)
	}
	r, err := ses.openStream(probe.Request{Dir: probe.DirEcho})
	if err != nil {
		f.Fatal(err)
	}
	token, err := probe.ParseToken(r.StreamToken)
	if err != nil {
		f.Fatal(err)
	}
	b := make([]byte, 100)
	probe.PutHeader(b, probe.Header{Kind: probe.KindEcho, Token: 1})
	f.Add(b, true)
	f.Add(b[:20], false)
	peer := &netio.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:9")}
	f.Fuzz(func(t *testing.T, b []byte, known bool) {
		b = bytes.Clone(b)
		h, err := probe.ParseHeader(b)
		if known && err == nil {
			h.Token = token
			probe.PutHeader(b, h)
		}
		switch out := s.datagram(peer, 1, b); {
		case len(out) > len(b):
			t.Fatalf("%d bytes for %d", len(out), len(b))
		case len(out) > 0 && (err != nil || h.Token != token):
			t.Fatal("a stranger was answered")
		}
	})
}

// FuzzSession: no request, in any order, affects another session.
func FuzzSession(f *testing.F) {
	s := forFuzzing(f, Limits{})
	f.Add([]byte(`{"op":"udp","dir":"down","interval_ns":1,"limit_ns":5}` + "\n" + `{"op":"report","stream":1}` + "\n" + `{"op":"end","stream":1}`))
	f.Add([]byte(`{"op":"start","group":1,"flows":0}` + "\n" + `{"op":"stop","group":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ses, err := s.open(netip.MustParseAddr("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			req, err := probe.ParseRequest(line)
			if err != nil {
				continue
			}
			if reply, err := ses.do(req); err == nil && len(probe.AppendLine(nil, reply)) == 0 {
				t.Fatal("an empty reply")
			}
		}
		ses.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.sessions) > 0 || s.streams.n > 0 {
			t.Fatalf("%d sessions and %d streams are left", len(s.sessions), s.streams.n)
		}
	})
}

// errEnough ends downloads early.
var errEnough = errors.New("enough")

// short is a ResponseWriter that accepts only a few bytes.
type short struct {
	*httptest.ResponseRecorder
}

func (s short) Write(b []byte) (int, error) {
	if s.Body.Len() > 1<<16 {
		return 0, errEnough
	}
	return s.ResponseRecorder.Write(b)
}

// FuzzWeb: every HTTP request is answered or cut off, and leaves no session
// behind.
func FuzzWeb(f *testing.F) {
	s := forFuzzing(f, Limits{AddressBytes: 1 << 50})
	h := beside[*webServer](f, s).mux()
	for _, u := range []string{"/", "/garbage?ckSize=3", "/__down?bytes=7", "/__up", "/nq/small", "/.well-known/nq", "/ndt/v7/download", "/backend/empty.php", "/config"} {
		f.Add("GET", u, []byte(nil))
		f.Add("POST", u, []byte("abc"))
	}
	f.Fuzz(func(t *testing.T, method, uri string, body []byte) {
		r, err := http.NewRequest(method, "http://127.0.0.1"+uri, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.RemoteAddr = "192.0.2.1:9"
		rec := short{httptest.NewRecorder()}
		func() {
			defer func() {
				if e := recover(); e != nil && e != http.ErrAbortHandler {
					panic(e)
				}
			}()
			h.ServeHTTP(rec, r)
		}()
		if rec.Code >= 500 && rec.Code != http.StatusNotImplemented { // WebSockets answer that to a recorder
			t.Errorf("%s %q: %d %s", method, uri, rec.Code, rec.Body)
		}
		s.accounts.mu.Lock()
		defer s.accounts.mu.Unlock()
		if s.accounts.sessions != 0 {
			t.Errorf("%s %q left %d sessions", method, uri, s.accounts.sessions)
		}
	})
}
