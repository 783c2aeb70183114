package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
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
	b, err := makeCertificate(now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
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
	cert, err := tls.X509KeyPair(b, b)
	return &cert, err
}

// Fingerprint returns the SHA-256 of a certificate, hexadecimal, as clients pin it.
func Fingerprint(c *tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	return hex.EncodeToString(sum[:])
}

// makeCertificate returns a key and its certificate in PEM.
func makeCertificate(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host, Organization: []string{"unbloat serve"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(certYears, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{host, "localhost"},
	}
	if addrs, err := net.InterfaceAddrs(); err == nil { // else it has none, and is pinned
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				template.IPAddresses = append(template.IPAddresses, n.IP)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...), nil
}
