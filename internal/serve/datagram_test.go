package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"
)

// serveDatagrams is serve with datagrams. It returns their address too.
func serveDatagrams(t *testing.T, o PageOptions) (url, address string) {
	t.Helper()
	h, url := serve(t, o)
	a, err := h.ListenDatagrams("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return url, a.String()
}

// pinned trusts only the certificate with this hash, as browsers do.
func pinned(hash string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		if sum := sha256.Sum256(raw[0]); hex.EncodeToString(sum[:]) != hash {
			return errors.New("another certificate")
		}
		return nil
	}}
}

// travel opens the datagrams of a session.
func travel(t *testing.T, address, session, hash string, header http.Header) (*webtransport.Session, int, error) {
	t.Helper()
	d := &webtransport.Transport{TLSClientConfig: pinned(hash)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, s, err := d.Dial(ctx, fmt.Sprintf("https://%s/api/datagrams?session=%s", address, session), header)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	if err == nil {
		t.Cleanup(func() { _ = s.CloseWithError(0, "") })
	}
	return s, status, err
}

func probeOf(seq uint32, length int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, seq), make([]byte, length-4)...)
}

// Datagrams of a session are answered like probes on its WebSocket. The server
// presents the certificate whose hash the WebSocket has announced.
func TestDatagrams(t *testing.T) {
	url, address := serveDatagrams(t, PageOptions{})
	c, hello := open(t, url)
	if len(hello.Certificate) != 64 {
		t.Fatalf("certificate %q", hello.Certificate)
	}
	s, _, err := travel(t, address, hello.Session, hello.Certificate, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before time.Duration
	for i := range uint32(20) {
		if err := s.SendDatagram(probeOf(i*7, 48)); err != nil {
			t.Fatal(err)
		}
		b, err := s.ReceiveDatagram(t.Context())
		if err != nil || len(b) != answerLen {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		received, sent := time.Duration(binary.BigEndian.Uint64(b[4:])), time.Duration(binary.BigEndian.Uint64(b[12:]))
		if binary.BigEndian.Uint32(b) != i*7 || received < before || sent < received {
			t.Fatalf("answer to %d: %d, %v, %v", i*7, binary.BigEndian.Uint32(b), received, sent)
		}
		before = sent
	}
	// The datagrams' clock is the WebSocket's.
	if _, received, _, _ := ask(t, c, 1); received < before || received > before+5*time.Second {
		t.Errorf("over the WebSocket it is %v, by datagram it was %v", received, before)
	}
	if _, status, err := travel(t, address, hello.Session, hello.Certificate, nil); err == nil || status != http.StatusConflict {
		t.Errorf("a second way for one session: %d, %v", status, err)
	}
	_ = c.Close(websocket.StatusNormalClosure, "")
	select {
	case <-s.Context().Done():
	case <-time.After(5 * time.Second):
		t.Error("datagrams outlive their session")
	}
}

// Without a session no datagrams are answered, and only few clients may wait at
// once.
func TestDatagramsForStrangers(t *testing.T) {
	url, address := serveDatagrams(t, PageOptions{})
	_, hello := open(t, url)
	for _, c := range []struct {
		session string
		header  http.Header
		status  int
	}{
		{"", nil, http.StatusForbidden},
		{"AAAAAAAAAAAAAAAAAAAAAAAAAA", nil, http.StatusForbidden},
		{hello.Session, http.Header{"Origin": {"https://elsewhere.example"}}, http.StatusBadRequest},
	} {
		if _, status, err := travel(t, address, c.session, hello.Certificate, c.header); err == nil || status != c.status {
			t.Errorf("session %q, %v: status %d, %v", c.session, c.header, status, err)
		}
	}
	var last error
	for range mostPending + 8 {
		c, err := quic.DialAddr(t.Context(), address, pinned(hello.Certificate), &quic.Config{EnableDatagrams: true, HandshakeIdleTimeout: 2 * time.Second})
		if err != nil {
			last = err
			break
		}
		defer func() { _ = c.CloseWithError(0, "") }()
	}
	if last == nil {
		t.Errorf("%d connections without a session were let in at once", mostPending+8)
	}
}

// A session may send no more probes by two ways than by one.
func TestDatagramsAreCounted(t *testing.T) {
	url, address := serveDatagrams(t, PageOptions{})
	_, hello := open(t, url)
	s, _, err := travel(t, address, hello.Session, hello.Certificate, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(10 * time.Second)
	sent := 0
	for ; s.Context().Err() == nil && time.Now().Before(end); sent++ {
		if s.SendDatagram(probeOf(uint32(sent), 8)) != nil {
			break
		}
		if sent%16 == 0 {
			time.Sleep(time.Millisecond) // otherwise the sender's own queue drops most of them
		}
	}
	if s.Context().Err() == nil {
		t.Errorf("%d probes in 10 s were not too many", sent)
	}
}

// Packets that are not QUIC, or from an unverified address, are answered with
// no more bytes than they had, and without a certificate.
func TestDatagramsAmplifyNothing(t *testing.T) {
	_, address := serveDatagrams(t, PageOptions{})
	const seed = 20261122
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, got := 0, 0
	for i := range 300 {
		b := make([]byte, 1+rng.IntN(1400))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		if i%3 == 0 && len(b) > 5 { // a long header of version 1, or of an unknown version
			b[0] |= 0xc0
			binary.BigEndian.PutUint32(b[1:], uint32(1+i%2))
		}
		n, err := c.Write(b)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		for buf := make([]byte, 2048); ; {
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			got += n
		}
	}
	t.Logf("%d bytes sent, %d came back", sent, got)
	if got > sent/10 {
		t.Errorf("%d bytes came back for %d", got, sent)
	}
}

// The certificate is one that browsers accept by its hash, today and in a year.
func TestShortCert(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	c, err := newShortCert(func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 365 * 4 {
		now = now.Add(6 * time.Hour)
		cert, err := c.now()
		if err != nil {
			t.Fatal(err)
		}
		x, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		seen[c.hash()] = true
		if _, ok := x.PublicKey.(*ecdsa.PublicKey); !ok || x.NotAfter.Sub(x.NotBefore) > 14*24*time.Hour {
			t.Fatalf("key %T, valid for %v", x.PublicKey, x.NotAfter.Sub(x.NotBefore))
		}
		if now.Before(x.NotBefore.Add(certLeeway)) || now.After(x.NotAfter.Add(-5*24*time.Hour)) {
			t.Fatalf("at %v: valid from %v to %v", now, x.NotBefore, x.NotAfter)
		}
	}
	if n := len(seen); n < 50 || n > 70 {
		t.Errorf("%d certificates in a year", n)
	}
}
