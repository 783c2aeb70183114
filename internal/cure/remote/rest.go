// Package remote reaches routers over the network: with commands over SSH and a
// watchdog on the router itself, and with requests over HTTPS.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// errAnswer is the error of a refusal by the router, whose text is on standard error.
var errAnswer = errors.New("the router refused")

// A REST runner sends requests to a router's API: argv is the method and the
// path, standard input the body. It implements platform.Runner.
type REST struct {
	Base   string // https://host[:port]
	HTTP   *http.Client
	Limit  guard.Limit // of each request
	key    string
	secret string
}

// NewREST returns a runner for the API at base with this key and secret. It verifies
// the certificate, or, if a fingerprint is given (SHA-256 in hexadecimal, colons or
// not), compares it with that.
func NewREST(base, key, secret, fingerprint string) (*REST, error) {
	u, err := netio.ParseURL(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, &AddressError{Why: "the router's address must be opnsense+https://HOST[:PORT], with key and secret elsewhere"}
	}
	if key == "" || secret == "" {
		return nil, &platform.PreconditionError{Doing: "reach " + u.Host, What: "the API's key or secret is missing",
			Remedy: "make a key in System: Access: Users, and give the downloaded file with --api-key-file, or set OPNSENSE_KEY and OPNSENSE_SECRET"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	// A request that is given up is to end with its connection, and what was not sent
	// with it. HTTP/2 keeps the connection, and sends the request when the router can be
	// reached again: then its watchdog may have undone what the request belongs to.
	transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if fingerprint != "" {
		want, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, &AddressError{Why: "the fingerprint is not a SHA-256 in hexadecimal (64 digits, colons or not)"}
		}
		transport.TLSClientConfig.InsecureSkipVerify = true // the pinned fingerprint is checked instead
		transport.TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
			is := sha256.Sum256(s.PeerCertificates[0].Raw)
			if !bytes.Equal(is[:], want) {
				return fmt.Errorf("its certificate has the fingerprint %x, not the one that was given", is)
			}
			return nil
		}
	}
	client := &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // the key is for this address
	limit := guard.Limit{Size: 32 * unit.MB, Time: 30 * time.Second} // a reload of the shaper takes seconds
	return &REST{Base: strings.TrimSuffix(u.String(), "/"), HTTP: client, Limit: limit, key: key, secret: secret}, nil
}

// String never prints the secret.
func (r *REST) String() string { return r.Base }

// Run implements platform.Runner.
func (r *REST) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if len(argv) != 2 || argv[0] != "GET" && argv[0] != "POST" {
		return nil, nil, fmt.Errorf("%s: %v is not a request", r.Base, argv)
	}
	answer, body, err := r.ask(ctx, argv[0], argv[1], stdin)
	if err != nil {
		return nil, []byte(err.Error()), r.explain(err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return body, []byte(answer.Status), &platform.PreconditionError{Doing: "ask " + r.Base, What: "the router refused the key and secret (" + answer.Status + ")",
			Remedy: "check them; their user needs the privilege Firewall: Shaper"}
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return body, []byte(answer.Status), &platform.PreconditionError{Doing: "ask " + r.Base, What: "it redirects to " + answer.Header.Get("Location") + ", where the key is not sent",
			Remedy: "give that address, if it is the router's"}
	default:
		return body, []byte(answer.Status + ": " + strings.TrimSpace(string(body))), errAnswer
	}
	if argv[0] == "POST" {
		if err := refusal(body); err != nil {
			return body, nil, err
		}
	}
	return body, nil, nil
}

// ask sends a request and reads the answer.
func (r *REST) ask(ctx context.Context, method, path string, in []byte) (answer *http.Response, body []byte, err error) {
	body, _, err = r.Limit.Take(ctx, func(ctx context.Context, out, _ io.Writer) error {
		req, err := http.NewRequestWithContext(ctx, method, r.Base+path, bytes.NewReader(in))
		if err != nil {
			return err
		}
		req.SetBasicAuth(r.key, r.secret)
		if method == "POST" {
			req.Header.Set("Content-Type", "application/json")
		}
		if answer, err = r.HTTP.Do(req); err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(out, answer.Body)
		return err
	})
	return answer, body, err
}

// done reports whether an answer says that the change was made.
func done(result, status string) bool {
	return slices.Contains([]string{"saved", "deleted", "Enabled", "Disabled"}, result) || result == "" && status == "ok"
}

// refusal returns the message of an answer that has status 200, but does not say
// that the change was made.
func refusal(body []byte) error {
	var a struct {
		Result      string                     `json:"result"`
		Status      string                     `json:"status"`
		Validations map[string]json.RawMessage `json:"validations"`
	}
	err := json.Unmarshal(body, &a)
	if err == nil && len(a.Validations) == 0 && done(a.Result, a.Status) {
		return nil
	}
	e := &platform.RefusedError{Result: cmp.Or(a.Result, a.Status), Answer: string(bytes.TrimSpace(body))}
	for _, name := range slices.Sorted(maps.Keys(a.Validations)) {
		e.Fields = append(e.Fields, platform.FieldRefusal{Field: name, Says: said(a.Validations[name])})
	}
	return e
}

// said reads the messages about a field: a string or a list of strings.
func said(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var more []string
	if json.Unmarshal(raw, &more) == nil {
		return more
	}
	return []string{string(raw)}
}

// explain says what to do about a router that cannot be reached.
func (r *REST) explain(err error) error {
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return &platform.PreconditionError{Doing: "reach " + r.Base, What: "its certificate is not trusted: " + unknown.Err.Error(),
			Remedy: "give its SHA-256 fingerprint with --fingerprint (System: Trust: Certificates shows it), or trust its authority", Err: errors.Join(platform.ErrUnreachable, err)}
	}
	return &platform.PreconditionError{Doing: "reach " + r.Base, What: err.Error(), Remedy: "check the address, and that its web interface answers there", Err: errors.Join(platform.ErrUnreachable, err)}
}
