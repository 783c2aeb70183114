package opnsensefake

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// Request sends a request with the router's own key, and returns the answer. What is
// posted is JSON.
func (r *Router) Request(method, uri, body string) (status int, answer string) {
	q := httptest.NewRequest(method, "/", strings.NewReader(body))
	q.RequestURI = uri // as it is: a test may send what is no address
	if u, err := url.ParseRequestURI(uri); err == nil {
		q.URL = u
	}
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/json")
	}
	q.SetBasicAuth(r.Key, r.Secret)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w.Code, w.Body.String()
}

// An API runs requests on the router as the product's client does: the arguments are
// method and path, standard input is the body.
type API struct{ *Router }

// Run sends one request. Whatever the router answers is no error.
func (a API) Run(_ context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	_, answer := a.Request(argv[0], argv[1], string(stdin))
	return []byte(answer), nil, nil
}
