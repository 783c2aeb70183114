package guard

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
	"fmt"
	"math/big"
	"net"
	"time"
)

// A Certificate describes a self-signed certificate.
type Certificate struct {
	Subject  pkix.Name
	Names    []string   // DNS names
	Networks []net.Addr // as from net.Interface.Addrs: the address of each *net.IPNet is included
	From, To time.Time  // of validity
}

// Make makes a P-256 key and its certificate. The error says which of the two
// failed.
func (c Certificate) Make() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: c.Subject, DNSNames: c.Names, NotBefore: c.From, NotAfter: c.To,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, a := range c.Networks {
		if n, ok := a.(*net.IPNet); ok {
			template.IPAddresses = append(template.IPAddresses, n.IP)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// PEM returns the key of a certificate and the certificate, as tls.X509KeyPair
// reads both from one file.
func PEM(c *tls.Certificate) ([]byte, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...), nil
}

// Fingerprint returns the SHA-256 of a certificate in hexadecimal, by which
// clients pin it.
func Fingerprint(c *tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	return hex.EncodeToString(sum[:])
}
