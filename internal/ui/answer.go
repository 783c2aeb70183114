package ui

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"unbloat/internal/ui/http1"
)

func jsonHeader() [][2]string {
	return [][2]string{{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}
}

// answer answers with a value as JSON.
func answer(v any) http1.Response {
	b, err := json.Marshal(v)
	if err != nil {
		return failure(fmt.Errorf("write the answer: %w", err))
	}
	return http1.Response{Status: 200, Header: jsonHeader(), Body: append(b, '\n')}
}

// failure answers with an error.
func failure(err error) http1.Response {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeFailed, Text: err.Error()}
	}
	b, _ := json.Marshal(Failure{*e}) // it has texts and a number alone
	out := http1.Response{Status: status(e.Code), Header: jsonHeader(), Body: append(b, '\n')}
	if e.RetrySeconds > 0 {
		out.Header = append(out.Header, [2]string{"Retry-After", strconv.Itoa(e.RetrySeconds)})
	}
	return out
}

// status is the HTTP status of an error.
func status(c Code) int {
	switch c {
	case CodeRequest, CodeUsage, CodeWeak, CodeNoMethod:
		return 400
	case CodeLogin:
		return 401
	case CodePassword, CodeReadOnly, CodeForged, CodeOutside:
		return 403
	case CodeNotFound, CodeUnknownWAN:
		return 404
	case CodeNeeds, CodeBusy, CodeNotHere, CodeNoChange, CodeNothing, CodeClasses:
		return 409
	case CodeHost:
		return 421
	case CodeSlow:
		return 429
	case CodeCrowded, CodeEnding:
		return 503
	}
	return 500
}

// Names of the cookie. With TLS browsers take it only from this very host.
const (
	cookieName   = "unbloat"
	cookieSecure = "__Host-unbloat"
)

func cookieOf(tls bool) string {
	if tls {
		return cookieSecure
	}
	return cookieName
}

// cookie returns the value of the session's cookie; "" if there is none.
func cookie(r *http1.Request) string {
	for part := range strings.SplitSeq(r.Header["cookie"], ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == cookieOf(r.TLS) {
			return value
		}
	}
	return ""
}

// setCookie is the header that sets the session's cookie for some seconds.
func setCookie(r *request, value string, seconds int) [2]string {
	c := fmt.Sprintf("%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict", cookieOf(r.TLS), value, seconds)
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
