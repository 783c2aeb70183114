package serve

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"unbloat/internal/measure/probe"
)

// A keyCheck tells whether a request over HTTP brings the shared key: as a
// bearer token, as access_token in the query, because a browser's WebSocket
// carries no header of its own, or as the cookie that the page is given for it.
type keyCheck struct{ key string } // "": everybody may

const (
	// keyCookie holds what proves that the browser was told the key, not the key.
	keyCookie    = "unbloat_key"
	keyCookieAge = 30 * 24 * time.Hour
	// keyPath is where the page asks whether it needs the key, and shows it.
	keyPath = "/api/key"
)

// errNoKeys refuses to serve a protocol beside a shared key.
var errNoKeys = errors.New("its clients cannot show the shared key (--key), so it would be open to everybody")

// shown reports whether a request brings the key itself.
func (k keyCheck) shown(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		got = r.URL.Query().Get("access_token")
	}
	return subtle.ConstantTimeCompare([]byte(got), []byte(k.key)) == 1
}

// allows reports whether a request may have what takes the key.
func (k keyCheck) allows(r *http.Request) bool {
	if k.key == "" || k.shown(r) {
		return true
	}
	if !forPeople(r.URL.Path) {
		return false // other sites' clients bring the key with every request
	}
	c, err := r.Cookie(keyCookie)
	return err == nil && probe.Authentic(k.key, keyCookie, c.Value)
}

// free reports whether a request takes no key: the page's files, which measure
// nothing, and a stored result, whose address is known to whom it was given.
func (k keyCheck) free(r *http.Request) bool {
	path := r.URL.Path
	return path == keyPath || forPeople(path) && !strings.HasPrefix(path, "/api/") ||
		strings.HasPrefix(path, "/api/results/") && r.Method == http.MethodGet
}

// serve answers keyPath: GET tells whether the browser may measure, POST with
// the key as a bearer token gives it the cookie that says so.
func (k keyCheck) serve(rw http.ResponseWriter, r *http.Request) bool {
	rw.Header().Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		http.Error(rw, "GET or POST", http.StatusMethodNotAllowed)
	case !k.allows(r):
		k.refuse(rw)
		return false
	case r.Method == http.MethodPost && k.key != "":
		http.SetCookie(rw, &http.Cookie{
			Name: keyCookie, Value: probe.Authenticate(k.key, keyCookie), Path: "/api/", MaxAge: int(keyCookieAge.Seconds()),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		fallthrough
	default:
		rw.WriteHeader(http.StatusNoContent)
	}
	return true
}

// refuse answers a request without the key.
func (k keyCheck) refuse(rw http.ResponseWriter) {
	rw.Header().Set("WWW-Authenticate", `Bearer realm="unbloat"`)
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusUnauthorized)
	_, _ = rw.Write([]byte(`{"error":"this server wants its shared key: Authorization: Bearer KEY"}` + "\n")) // the client is gone, or hears it
}
