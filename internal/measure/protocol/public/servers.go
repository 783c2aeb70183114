// This file has signed lists of test servers: the content of
// /servers.json, how it is signed and checked, and how a client chooses a
// server of the list by its delay.

package public

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Schema names the layout of a signed list.
const Schema = "unbloat.servers/1"

// Bounds of a list.
const (
	MaxText    = 1 << 20 // bytes of the signed list
	maxServers = 1000
	maxName    = 200 // bytes
	maxLife    = 366 * 24 * time.Hour
	clockSlack = 24 * time.Hour // how far a client's clock may be behind
)

// Reasons why a list is not used. Errors wrap them.
var (
	ErrSignature = errors.New("the signature is not by the key that was given")
	ErrOld       = errors.New("the list is too old")
	ErrMalformed = errors.New("this is no list of servers")
	ErrNobody    = errors.New("no server of the list answers")
)

// A Listed is one entry of a list.
type Listed struct {
	Name    string `json:"name"`    // for people, such as a town; may be empty
	Address string `json:"address"` // HOST:PORT of unbloat's own protocol
}

// A List is the signed content.
type List struct {
	Made    time.Time `json:"made"`
	Until   time.Time `json:"until"` // it is refused after that
	Servers []Listed  `json:"servers"`
}

// signed is the file: it has the list as a string, so that exactly the signed
// bytes are read.
type signed struct {
	Schema    string `json:"schema"`
	List      string `json:"list"`
	Key       string `json:"key"`       // the public key, hexadecimal: it proves nothing by being here
	Signature string `json:"signature"` // of the schema, a line's end and the list; hexadecimal
}

func message(list string) []byte { return []byte(Schema + "\n" + list) }

// check refuses a list that must not be signed or used.
func (l List) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	if len(l.Servers) == 0 || len(l.Servers) > maxServers {
		return bad("%d servers, not 1 to %d", len(l.Servers), maxServers)
	}
	if l.Made.IsZero() || !l.Until.After(l.Made) || l.Until.Sub(l.Made) > maxLife {
		return bad("made %s, good until %s: not up to %d days", l.Made.Format(time.RFC3339), l.Until.Format(time.RFC3339), int(maxLife.Hours()/24))
	}
	for _, s := range l.Servers {
		host, port, err := net.SplitHostPort(s.Address)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || host == "" || e != nil || n == 0 || strings.ContainsFunc(s.Address, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return bad("address %.60q: is not HOST:PORT", s.Address)
		}
		if len(s.Name) > maxName || strings.ContainsFunc(s.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return bad("name %.60q: too long, or with control characters", s.Name)
		}
	}
	return nil
}

// SignList returns the file that a server serves.
func SignList(key ed25519.PrivateKey, l List) ([]byte, error) {
	l.Made, l.Until = l.Made.UTC().Truncate(time.Second), l.Until.UTC().Truncate(time.Second)
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("sign a list of servers: %w", err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("sign a list of servers: %w", err)
	}
	out, err := json.MarshalIndent(signed{
		Schema: Schema, List: string(text), Key: hex.EncodeToString(key.Public().(ed25519.PublicKey)),
		Signature: hex.EncodeToString(ed25519.Sign(key, message(string(text)))),
	}, "", "  ")
	return append(out, '\n'), err
}

// OpenList checks a file and returns its list. Errors wrap ErrSignature, ErrOld or
// ErrMalformed.
func OpenList(text []byte, key ed25519.PublicKey, now time.Time) (List, error) {
	l, signer, err := ReadList(text)
	if err != nil {
		return List{}, err
	}
	if !key.Equal(signer) {
		return List{}, fmt.Errorf("check the list of servers: %w", ErrSignature)
	}
	switch {
	case now.After(l.Until):
		return List{}, fmt.Errorf("check the list of servers: %w: it was good until %s; is the clock of this machine right?", ErrOld, l.Until.Format(time.RFC3339))
	case l.Made.After(now.Add(clockSlack)):
		return List{}, fmt.Errorf("check the list of servers: %w: it was made at %s, which is yet to come; set the clock of this machine", ErrMalformed, l.Made.Format(time.RFC3339))
	}
	return l, nil
}

// ReadList reads a file, and returns the key that has signed it, whatever key that
// is. Errors wrap ErrSignature or ErrMalformed.
func ReadList(text []byte) (List, ed25519.PublicKey, error) {
	fail := func(err error) (List, ed25519.PublicKey, error) {
		return List{}, nil, fmt.Errorf("check the list of servers: %w", err)
	}
	if len(text) > MaxText {
		return fail(fmt.Errorf("%w: more than %d bytes", ErrMalformed, MaxText))
	}
	var s signed
	if err := json.Unmarshal(text, &s); err != nil || s.Schema != Schema {
		return fail(fmt.Errorf("%w: its schema is not %s", ErrMalformed, Schema))
	}
	key, err := ParseKey(s.Key)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	signature, err := hex.DecodeString(s.Signature)
	if err != nil || !ed25519.Verify(key, message(s.List), signature) {
		return fail(ErrSignature)
	}
	var l List
	if err := json.Unmarshal([]byte(s.List), &l); err != nil {
		return fail(fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	if err := l.check(); err != nil {
		return fail(err)
	}
	return l, key, nil
}

// ParseKey reads a public key: 64 hexadecimal digits.
func ParseKey(s string) (ed25519.PublicKey, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("key %.70q: is not %d hexadecimal digits", s, hex.EncodedLen(ed25519.PublicKeySize))
	}
	return b, nil
}

const pemType = "PRIVATE KEY"

// NewKey makes a signing key, and returns it as a PEM file, with its public
// key.
func NewKey() (file []byte, public string, err error) {
	pub, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), hex.EncodeToString(pub), nil
}

// ReadKey reads a PEM file by NewKey, or by any other program that makes
// Ed25519 keys (openssl genpkey -algorithm ed25519).
func ReadKey(file []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(file)
	if block == nil || block.Type != pemType {
		return nil, errors.New("is not a PEM file with a private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	secret, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("is not a key of Ed25519")
	}
	return secret, nil
}

// A Delay is the distance of a server.
type Delay struct {
	Listed
	Least time.Duration // of several attempts; 0 if Err is set
	Err   error         // why it could not be reached
}

// askAtOnce is how many servers are probed at the same time: more would queue
// on a slow line and delay each other.
const askAtOnce = 8

// Choose probes every server of a list, and returns their delays, the nearest
// first. If none answers, the error wraps ErrNobody.
func Choose(ctx context.Context, l List, ask func(context.Context, string) (time.Duration, error)) ([]Delay, error) {
	out := make([]Delay, len(l.Servers))
	var all sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for i, s := range l.Servers {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i].Listed = s
			out[i].Least, out[i].Err = ask(ctx, s.Address)
		})
	}
	all.Wait()
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Err != nil || b.Err != nil {
			return a.Err == nil && b.Err != nil
		}
		return a.Least < b.Least
	})
	if out[0].Err != nil {
		return out, fmt.Errorf("choose a server: %w: %d were asked, the first said: %w", ErrNobody, len(out), out[0].Err)
	}
	return out, nil
}

// Attempts per server, and the time limit of each.
const (
	tries       = 3
	tryPatience = 2 * time.Second
)

// Handshake returns the shortest of a few TCP handshakes with a server: a round
// trip, which is answered by the server's kernel.
func Handshake(ctx context.Context, address string) (least time.Duration, err error) {
	d := net.Dialer{Timeout: tryPatience}
	resolved := address
	for range tries {
		began := time.Now()
		c, e := d.DialContext(ctx, "tcp", resolved)
		if e != nil {
			err = e
			if resolved == address { // no server answers there
				return 0, err
			}
			continue
		}
		took := time.Since(began)
		first := resolved == address
		resolved = c.RemoteAddr().String()
		c.Close()
		if first && resolved != address { // the first one included a DNS query
			continue
		}
		if least == 0 || took < least {
			least = took
		}
	}
	if least == 0 && err == nil {
		err = errors.New("no handshake succeeded")
	}
	if least > 0 {
		err = nil
	}
	return least, err
}
