package serve

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"sync"
	"time"

	"unbloat/guard"
)

// Browsers accept a certificate by its hash, without an issuer that they trust,
// if its key is an elliptic one and it is valid for at most 14 days in all
// (W3C WebTransport, "custom certificate requirements").
const (
	certLeeway = time.Hour // of clocks that are late
	certValid  = 13 * 24 * time.Hour
	certRenew  = 6 * 24 * time.Hour // well before those who have seen it could need it
)

// A shortCert is a self-signed certificate that is renewed in time.
type shortCert struct {
	clock func() time.Time

	mu   sync.Mutex
	made time.Time
	cert *tls.Certificate
}

func newShortCert(clock func() time.Time) (*shortCert, error) {
	c := &shortCert{clock: clock}
	_, err := c.now()
	return c, err
}

// now returns the certificate of the day.
func (c *shortCert) now() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	if age := now.Sub(c.made); c.cert != nil && age >= 0 && age < certRenew {
		return c.cert, nil
	}
	cert, err := guard.Certificate{
		Subject: pkix.Name{CommonName: "unbloat"}, Names: []string{"unbloat.invalid"},
		From: now.Add(-certLeeway), To: now.Add(certValid),
	}.Make()
	if err != nil {
		return nil, err
	}
	c.cert, c.made = cert, now
	return cert, nil
}

// hash returns what browsers know the certificate by: its SHA-256, in
// hexadecimal; "" if there is none.
func (c *shortCert) hash() string {
	if c == nil {
		return ""
	}
	cert, err := c.now()
	if err != nil {
		return ""
	}
	return guard.Fingerprint(cert)
}
