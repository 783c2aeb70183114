package serve

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"unbloat/internal/visitor"
)

// certYears is how long a certificate of our own is valid.
const certYears = 10

// OwnCertificate returns the certificate kept in dir, and makes it if there is
// none: self-signed, for this host's name and addresses. The key is readable
// by its owner only.
func OwnCertificate(dir string, now time.Time) (*tls.Certificate, error) {
	file := filepath.Join(dir, "serve.pem")
	if cert, err := tls.LoadX509KeyPair(file, file); err == nil {
		return &cert, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the server's certificate %s: %w; remove it to have a new one made", file, err)
	}
	cert, b, err := makeCertificate(now)
	if err != nil {
		return nil, fmt.Errorf("a certificate of the server's own: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep the server's certificate: %w", err)
	}
	fresh, err := os.CreateTemp(dir, "serve-*.pem") // 0600
	if err != nil {
		return nil, fmt.Errorf("keep the server's certificate: %w", err)
	}
	defer os.Remove(fresh.Name()) // nothing, once it is renamed
	_, err = fresh.Write(b)
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the server's certificate: %w", err)
	}
	return cert, nil
}

// makeCertificate makes a certificate for this host, as PEM too.
func makeCertificate(now time.Time) (*tls.Certificate, []byte, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	addrs, _ := net.InterfaceAddrs() // without any it has to be pinned
	cert, err := visitor.Certificate{
		Subject: pkix.Name{CommonName: host, Organization: []string{"unbloat serve"}}, Names: []string{host, "localhost"},
		Networks: addrs, From: now.Add(-time.Hour), To: now.AddDate(certYears, 0, 0),
	}.Make()
	if err != nil {
		return nil, nil, err
	}
	b, err := visitor.PEM(cert)
	return cert, b, err
}
