package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"unbloat/internal/keep/daemon"
)

// secretsSchema names the layout of what is kept of passwords.
const secretsSchema = "unbloat.ui/1"

// Secrets are the passwords, as hashes of which a password cannot be found out.
type secrets struct {
	Schema string    `json:"schema"`
	Admin  *verifier `json:"admin,omitempty"`
	Viewer *verifier `json:"viewer,omitempty"`
}

// A verifier is the Argon2id hash of a password (RFC 9106), with its parameters.
type verifier struct {
	Salt   []byte `json:"salt"`
	Hash   []byte `json:"hash"`
	Passes uint32 `json:"passes"`
	KiB    uint32 `json:"kib"`
}

// Parameters of new hashes. 7 MiB with five passes resist as much as 19 MiB with
// two, which a router with 64 MB of memory may not have to spare.
const (
	hashPasses = 5
	hashKiB    = 7 << 10
	hashBytes  = 32
	saltBytes  = 16
	mostKiB    = 64 << 10 // of a file that somebody wrote
	mostPasses = 100
)

func newVerifier(password string) *verifier {
	v := &verifier{Salt: random(saltBytes), Passes: hashPasses, KiB: hashKiB}
	v.Hash = v.of(password)
	return v
}

func (v *verifier) of(password string) []byte {
	return argon2.IDKey([]byte(password), v.Salt, v.Passes, v.KiB, 1, hashBytes)
}

func (v *verifier) check() error {
	if v != nil && (len(v.Salt) < 8 || len(v.Hash) != hashBytes || v.Passes == 0 || v.Passes > mostPasses || v.KiB < 8 || v.KiB > mostKiB) {
		return errors.New("its parameters are impossible")
	}
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// Times and numbers of sessions.
const (
	sessionIdle = 12 * time.Hour      // without a request
	sessionMost = 30 * 24 * time.Hour // in all
	mostSession = 32                  // of each role
)

// A session is somebody who has logged in.
type session struct {
	key   [sha256.Size]byte // hash of the cookie: who reads our memory dump has no cookie
	role  Role
	csrf  string
	began time.Time
	used  time.Time
	ended chan struct{} // closed when it is over
}

// auth knows passwords and sessions.
type auth struct {
	save func([]byte) error // keeps the secrets
	now  func() time.Time

	hashing   sync.Mutex // one hash at a time: each takes memory and time
	strangers sync.Mutex // one stranger at a time waits for it

	mu       sync.Mutex
	secrets  secrets
	token    string // of the first run, or to set a forgotten password; "": none
	sessions map[[sha256.Size]byte]*session
	tickets  []ticket // oldest first
	guesses  guesses
}

// newAuth reads the secrets; nil: there are none yet. Without an admin's password it
// makes a token.
func newAuth(kept []byte, save func([]byte) error, now func() time.Time) (*auth, error) {
	a := &auth{save: save, now: now, sessions: map[[sha256.Size]byte]*session{}, guesses: newGuesses()}
	if kept != nil {
		err := json.Unmarshal(kept, &a.secrets)
		if err == nil {
			err = errors.Join(a.secrets.Admin.check(), a.secrets.Viewer.check())
		}
		if err == nil && a.secrets.Schema != secretsSchema {
			err = fmt.Errorf("schema %q", a.secrets.Schema)
		}
		if err != nil {
			return nil, fmt.Errorf("read the page's passwords: %w; remove the file, and set a new password with the token of `unbloat ui token`", err)
		}
	}
	if a.secrets.Admin == nil {
		a.token = newToken()
	}
	return a, nil
}

// newToken returns 100 random bits as a person can type them: four groups of five.
func newToken() string {
	s := strings.ToLower(base32.StdEncoding.EncodeToString(random(13)))[:20]
	return s[:5] + "-" + s[5:10] + "-" + s[10:15] + "-" + s[15:]
}

// plain is a token without what people add or leave out.
func plain(token string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, strings.ToLower(token))
}

// Token returns the token that sets the first password; "" if there is a password.
// With again it makes one that sets another, for whoever has forgotten it.
func (a *auth) Token(again bool) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if again && a.token == "" {
		a.token = newToken()
	}
	return a.token
}

func (a *auth) state() (firstRun, viewer bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.secrets.Admin == nil, a.secrets.Viewer != nil
}

// good says if a password may be set.
func good(password string) error {
	if n := utf8.RuneCountInString(password); n < LeastPassword || len(password) > MostPassword || !utf8.ValidString(password) {
		return &daemon.Error{Code: CodeWeak, Text: fmt.Sprintf("a password has %d characters at least and %d bytes at most", LeastPassword, MostPassword)}
	}
	return nil
}

// first sets the admin's password with the token. Nobody can guess that, so who has it is
// let in however many tried; it is the console's way.
func (a *auth) first(from netip.Addr, token, password string) error {
	a.mu.Lock()
	want := a.token
	a.mu.Unlock()
	if want == "" || subtle.ConstantTimeCompare([]byte(plain(token)), []byte(plain(want))) != 1 {
		if err := a.guess(from); err != nil {
			return err
		}
		return &daemon.Error{Code: CodePassword, Text: "that is not the token; `unbloat ui token` on the router prints it"}
	}
	if err := good(password); err != nil {
		return err
	}
	return a.set(Admin, password)
}

// set sets a password, or with "" takes it away, and ends the sessions of its role.
func (a *auth) set(role Role, password string) error {
	var v *verifier
	if password != "" {
		a.hashing.Lock()
		v = newVerifier(password)
		a.hashing.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.secrets
	next.Schema = secretsSchema
	if role == Admin {
		next.Admin = v
	} else {
		next.Viewer = v
	}
	b, err := json.Marshal(next)
	if err == nil {
		err = a.save(b)
	}
	if err != nil {
		return fmt.Errorf("keep the password: %w; the old one stays", err)
	}
	a.secrets = next
	if role == Admin {
		a.token = ""
	}
	for _, s := range a.sessions {
		if s.role == role {
			a.end(s)
		}
	}
	return nil
}

// login returns the role of a password. A browser that is known has a way of its own to
// the passwords that it may know already, which others can't use up; all others share one.
func (a *auth) login(from netip.Addr, known, password string) (Role, error) {
	wrong := &daemon.Error{Code: CodePassword, Text: "that is not the password"}
	if b := a.knows(known); b.role != Nobody {
		err := a.guessOf(b)
		if err == nil {
			if role := a.check(password, b.role); role != Nobody {
				a.forgiveOf(b)
				return role, nil
			}
			err = wrong
		}
		if b.role == Admin { // no other password is left
			return Nobody, err
		}
	}
	if err := a.guess(from); err != nil {
		return Nobody, err
	}
	a.strangers.Lock()
	defer a.strangers.Unlock()
	role := a.check(password, Admin)
	if role == Nobody {
		return role, wrong
	}
	a.forgive(from)
	return role, nil
}

// check returns the role of a password: the admin's only if most is Admin.
func (a *auth) check(password string, most Role) (role Role) {
	if len(password) > MostPassword {
		return Nobody
	}
	a.mu.Lock()
	held := a.secrets
	a.mu.Unlock()
	if most != Admin {
		held.Admin = nil
	}
	a.hashing.Lock()
	defer a.hashing.Unlock()
	role = Nobody
	for _, x := range []struct {
		role Role
		v    *verifier
	}{{Viewer, held.Viewer}, {Admin, held.Admin}} {
		if x.v != nil && subtle.ConstantTimeCompare(x.v.of(password), x.v.Hash) == 1 {
			role = x.role
		}
	}
	return role
}

// mostTickets of each role are good at once.
const mostTickets = 16

// A ticket logs in once.
type ticket struct {
	key   [sha256.Size]byte // hash of its value
	role  Role
	until time.Time
}

// ticket makes one; "" for a role that may do nothing.
func (a *auth) ticket(role Role) string {
	if role != Admin && role != Viewer {
		return ""
	}
	value := base64.RawURLEncoding.EncodeToString(random(32))
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 1
	for i, t := range slices.Backward(a.tickets) {
		if t.role != role {
			continue
		}
		if n++; n > mostTickets {
			a.tickets = slices.Delete(a.tickets, i, i+1)
			break
		}
	}
	a.tickets = append(a.tickets, ticket{sha256.Sum256([]byte(value)), role, a.now().Add(TicketSeconds * time.Second)})
	return value
}

// enter returns the role of a ticket, which is good no more then. Nobody can guess one, so
// who has it is let in however many tried. A wrong one counts as a wrong login.
func (a *auth) enter(from netip.Addr, value string) (Role, error) {
	key, now := sha256.Sum256([]byte(value)), a.now()
	a.mu.Lock()
	role := Nobody
	a.tickets = slices.DeleteFunc(a.tickets, func(t ticket) bool {
		good := now.Before(t.until)
		if good && t.key == key {
			role, good = t.role, false
		}
		return !good
	})
	a.mu.Unlock()
	if role != Nobody {
		return role, nil
	}
	if err := a.guess(from); err != nil {
		return role, err
	}
	return role, &daemon.Error{Code: CodePassword, Text: "that ticket is not valid, or has expired; open the page from your router's own page again"}
}

// begin makes a session, and returns it with its cookie's value. Among too many of its
// role the one that was used longest ago has to go.
func (a *auth) begin(role Role) (*session, string) {
	value := base64.RawURLEncoding.EncodeToString(random(32))
	now := a.now()
	s := &session{key: sha256.Sum256([]byte(value)), role: role, csrf: base64.RawURLEncoding.EncodeToString(random(24)), began: now, used: now, ended: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	var oldest *session
	n := 0
	for _, o := range a.sessions {
		if o.role != role {
			continue
		}
		if n++; oldest == nil || o.used.Before(oldest.used) {
			oldest = o
		}
	}
	if n >= mostSession {
		a.end(oldest)
	}
	a.sessions[s.key] = s
	return s, value
}

// session returns the session of a cookie's value; nil: none.
func (a *auth) session(value string) *session {
	if value == "" {
		return nil
	}
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	s := a.sessions[sha256.Sum256([]byte(value))]
	if s != nil {
		s.used = now
	}
	return s
}

// logout ends a session.
func (a *auth) logout(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s != nil {
		a.end(s)
	}
}

// expire ends the sessions that are over. The caller holds a.mu.
func (a *auth) expire(now time.Time) {
	for _, s := range a.sessions {
		if now.Sub(s.used) > sessionIdle || now.Sub(s.began) > sessionMost {
			a.end(s)
		}
	}
}

// end ends a session. The caller holds a.mu.
func (a *auth) end(s *session) {
	if a.sessions[s.key] == s {
		delete(a.sessions, s.key)
		close(s.ended)
	}
}
