package page

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/keep/daemon"
)

func jsonHeader() [][2]string {
	return [][2]string{{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}
}

// answer answers with a value as JSON.
func answer(v any) Response {
	b, err := json.Marshal(v)
	if err != nil {
		return failure(fmt.Errorf("write the answer: %w", err))
	}
	return Response{Status: 200, Header: jsonHeader(), Body: append(b, '\n')}
}

// A slowError refuses who has to wait.
type slowError struct {
	is    *daemon.Error
	retry int // seconds
}

func (e *slowError) Error() string { return e.is.Text }
func (e *slowError) Unwrap() error { return e.is }

// failure answers with an error.
func failure(err error) Response {
	var e *daemon.Error
	if !errors.As(err, &e) {
		e = &daemon.Error{Code: daemon.CodeFailed, Text: err.Error()}
	}
	body := Failure{Refusal{Error: *e}}
	out := Response{Status: status(e.Code), Header: jsonHeader()}
	var slow *slowError
	if errors.As(err, &slow) {
		body.Error.RetrySeconds = slow.retry
		out.Header = append(out.Header, [2]string{"Retry-After", strconv.Itoa(slow.retry)})
	}
	b, _ := json.Marshal(body) // it has texts and a number alone
	out.Body = append(b, '\n')
	return out
}

// status is the HTTP status of an error.
func status(c daemon.Code) int {
	switch c {
	case daemon.CodeRequest, daemon.CodeUsage, CodeWeak:
		return 400
	case CodeLogin:
		return 401
	case CodePassword, CodeReadOnly, CodeForged, CodeOutside:
		return 403
	case CodeNotFound, daemon.CodeUnknownWAN:
		return 404
	case daemon.CodePrecondition, daemon.CodeBusy, daemon.CodeLeftOut, daemon.CodeNoChange, daemon.CodeSame, CodeClasses:
		return 409
	case CodeHost:
		return 421
	case CodeSlow:
		return 429
	case CodeCrowded, daemon.CodeEnding:
		return 503
	}
	return 500
}

// Names of the cookies: the session's, and the one of a known browser.
const (
	cookieName  = "unbloat"
	cookieKnown = "unbloat-known"
)

// knownMost is how long a browser stays known after its last login: as long as browsers
// keep a cookie.
const knownMost = 400 * 24 * time.Hour

// cookieOf is a cookie's name on the wire. With TLS browsers take it only from this very
// host.
func cookieOf(name string, tls bool) string {
	if tls {
		return "__Host-" + name
	}
	return name
}

// cookie returns the value of a cookie; "" if there is none.
func cookie(r *Request, name string) string {
	for part := range strings.SplitSeq(r.Header["cookie"], ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if key == cookieOf(name, r.TLS) {
			return value
		}
	}
	return ""
}

// setCookie is the header that sets a cookie for some time.
func setCookie(r *request, name, value string, keep time.Duration) [2]string {
	c := fmt.Sprintf("%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict", cookieOf(name, r.TLS), value, int(keep/time.Second))
	if r.TLS {
		c += "; Secure"
	}
	return [2]string{"Set-Cookie", c}
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func cut(s string, by byte) (before, after string, found bool) {
	before, after, found = strings.Cut(s, string(by))
	return strings.ToLower(strings.TrimSpace(before)), after, found
}
