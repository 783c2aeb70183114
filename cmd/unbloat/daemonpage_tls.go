package main

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
)

// Times of the page's certificate: browsers take none that is valid for longer.
const (
	pageCertLeeway = 24 * time.Hour // of clocks that are late
	pageCertValid  = 800 * 24 * time.Hour
	pageCertRenew  = 30 * 24 * time.Hour // before it ends, at the daemon's start
)

// pageTLS returns how the page's connections are encrypted, with a certificate of its own
// that is kept in a file, and the certificate's fingerprint.
func pageTLS(file string, names []string) (c *tls.Config, fingerprint string, err error) {
	cert, err := pageCertificate(file, names, time.Now())
	if err != nil {
		return nil, "", err
	}
	c = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	return c, guard.Fingerprint(cert), nil
}

// pageCertificate reads the certificate, or makes one.
func pageCertificate(file string, names []string, now time.Time) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(file, file)
	switch {
	case err == nil && cert.Leaf != nil && now.Before(cert.Leaf.NotAfter.Add(-pageCertRenew)) && now.After(cert.Leaf.NotBefore):
		return &cert, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("read the page's certificate: %w; remove %s, and another is made", err, file)
	}
	networks, _ := net.InterfaceAddrs() // without them it has names alone
	made, err := guard.Certificate{Subject: pkix.Name{CommonName: "unbloat"}, Names: append([]string{"localhost"}, names...), Networks: networks,
		From: now.Add(-pageCertLeeway), To: now.Add(pageCertValid)}.Make()
	if err != nil {
		return nil, err
	}
	b, err := guard.PEM(made)
	if err == nil {
		err = apply.WriteFile(file, b, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the page's certificate: %w", err)
	}
	return made, nil
}
