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

	"unbloat/guard"
)

// certYears is the validity of a self-signed certificate.
const certYears = 10

// OwnCertificate returns the certificate in dir, and makes it if it is missing:
// self-signed, for this host's name and addresses. Only its owner can read the
// key.
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
	fresh, err := os.CreateTemp(dir, "serve-*.pem") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("keep the server's certificate: %w", err)
	}
	defer os.Remove(fresh.Name()) // no effect after the rename
	_, err = fresh.Write(b)
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the server's certificate: %w", err)
	}
	return cert, nil
}

// makeCertificate makes a certificate for this host, and returns it as PEM too.
func makeCertificate(now time.Time) (*tls.Certificate, []byte, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	addrs, _ := net.InterfaceAddrs() // without addresses clients must pin it
	cert, err := guard.Certificate{
		Subject: pkix.Name{CommonName: host, Organization: []string{"unbloat serve"}}, Names: []string{host, "localhost"},
		Networks: addrs, From: now.Add(-time.Hour), To: now.AddDate(certYears, 0, 0),
	}.Make()
	if err != nil {
		return nil, nil, err
	}
	b, err := guard.PEM(cert)
	return cert, b, err
}
