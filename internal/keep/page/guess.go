package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/daemon"
)

// Wrong logins that are allowed: so many at once, then one in each time.
const (
	wrongBurst    = 5
	wrongEvery    = 30 * time.Second
	allWrongBurst = 30
	allWrongEvery = 5 * time.Second
	mostWrong     = 1024 // addresses, and browsers, that are remembered
)

// guesses counts wrong logins. Those of strangers are counted for each address (IPv6: each
// /64) and for all. A known browser has a count of its own, so that no number of strangers
// keeps its user out.
type guesses struct {
	all       meter[struct{}]
	addresses meter[netip.Prefix]
	browsers  meter[nonce]
}

func newGuesses() guesses {
	return guesses{
		all:       meter[struct{}]{allWrongBurst, allWrongEvery, map[struct{}]bucket{}},
		addresses: meter[netip.Prefix]{wrongBurst, wrongEvery, map[netip.Prefix]bucket{}},
		browsers:  meter[nonce]{wrongBurst, wrongEvery, map[nonce]bucket{}},
	}
}

// guess counts a stranger's login as wrong before its password is looked at, so that many
// at once gain nothing; forgive takes that back. It is an error if there were too many.
func (a *auth) guess(from netip.Addr) error {
	now, of := a.now(), guard.Group(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	g := &a.guesses
	if wait := max(g.all.wait(now, struct{}{}), g.addresses.wait(now, of)); wait > 0 {
		return slow(wait, "; a browser that has logged in before need not wait, nor need who has a token of `unbloat ui token --new`")
	}
	g.all.add(now, struct{}{})
	g.addresses.add(now, of)
	return nil
}

// forgive takes back one wrong login, which was none. The earlier ones stay: who
// knows the viewer's password may not guess the admin's without end.
func (a *auth) forgive(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guesses.all.forgive(struct{}{})
	a.guesses.addresses.forgive(guard.Group(from))
}

// guessOf is guess for a known browser.
func (a *auth) guessOf(b browser) error {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := a.guesses.browsers.wait(now, b.nonce); wait > 0 {
		return slow(wait, "")
	}
	a.guesses.browsers.add(now, b.nonce)
	return nil
}

func (a *auth) forgiveOf(b browser) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guesses.browsers.forgive(b.nonce)
}

// slow is the error of who has to wait.
func slow(wait time.Duration, or string) error {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &slowError{&daemon.Error{Code: CodeSlow, Text: fmt.Sprintf("there were too many wrong logins; try again in %d s", seconds) + or}, seconds}
}

// A meter counts wrong logins of many: each may have a burst, then one in each time.
type meter[K comparable] struct {
	burst float64
	every time.Duration
	of    map[K]bucket // those that are empty need not be there
}

// A bucket holds wrong logins; it empties with time.
type bucket struct {
	full float64
	at   time.Time
}

// full returns what is in a bucket now.
func (m *meter[K]) full(now time.Time, b bucket) float64 {
	return max(0, b.full-float64(now.Sub(b.at))/float64(m.every))
}

// wait is how long until one may have another.
func (m *meter[K]) wait(now time.Time, of K) time.Duration {
	over := m.full(now, m.of[of]) - (m.burst - 1)
	return time.Duration(max(0, over) * float64(m.every))
}

// add counts one.
func (m *meter[K]) add(now time.Time, of K) {
	if _, there := m.of[of]; !there {
		for k, b := range m.of {
			if len(m.of) < mostWrong {
				break
			}
			if m.full(now, b) == 0 || len(m.of) >= mostWrong {
				delete(m.of, k)
			}
		}
	}
	m.of[of] = bucket{m.full(now, m.of[of]) + 1, now}
}

// forgive takes one back.
func (m *meter[K]) forgive(of K) {
	if b, there := m.of[of]; there {
		b.full = max(0, b.full-1)
		m.of[of] = b
	}
}

// A nonce tells known browsers apart.
type nonce [16]byte

// A browser is one that has logged in before. It may try the passwords of its role and of
// lower ones in a way of its own. That is all that its cookie is good for.
type browser struct {
	role  Role // Nobody: it is not known
	nonce nonce
}

// remember returns what makes a browser known that has logged in; "" if the role has no
// password. Nothing is kept of it: it carries a seal, and a new password breaks all.
func (a *auth) remember(role Role) string {
	v := a.verifierOf(role)
	if v == nil {
		return ""
	}
	var n nonce
	copy(n[:], random(len(n)))
	return base64.RawURLEncoding.EncodeToString(append(n[:], v.seal(n)...))
}

// knows returns the browser that a cookie makes known.
func (a *auth) knows(cookie string) browser {
	b, err := base64.RawURLEncoding.DecodeString(cookie)
	var n nonce
	if err != nil || len(b) != len(n)+sha256.Size {
		return browser{role: Nobody}
	}
	copy(n[:], b)
	for _, role := range []Role{Admin, Viewer} {
		if v := a.verifierOf(role); v != nil && hmac.Equal(v.seal(n), b[len(n):]) {
			return browser{role, n}
		}
	}
	return browser{role: Nobody}
}

func (a *auth) verifierOf(role Role) *verifier {
	a.mu.Lock()
	defer a.mu.Unlock()
	if role == Admin {
		return a.secrets.Admin
	}
	return a.secrets.Viewer
}

// seal is what only who has the password's hash can make of a nonce.
func (v *verifier) seal(n nonce) []byte {
	h := hmac.New(sha256.New, v.Hash)
	h.Write([]byte("unbloat: a known browser\n"))
	h.Write(n[:])
	return h.Sum(nil)
}
