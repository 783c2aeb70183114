package public

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func made(t testing.TB, now time.Time) (text []byte, public string) {
	t.Helper()
	file, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err = SignList(key, List{Made: now, Until: now.Add(24 * time.Hour), Servers: []Listed{{"Here", "192.0.2.1:7676"}, {"", "[2001:db8::1]:7676"}}})
	if err != nil {
		t.Fatal(err)
	}
	return text, public
}

// A list is only used if it is signed with the key that the client was given,
// and not expired.
func TestSignature(t *testing.T) {
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	text, public := made(t, now)
	other, stranger := made(t, now)
	key, err := ParseKey(public)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := OpenList(text, key, now); err != nil || len(l.Servers) != 2 || l.Servers[0].Name != "Here" {
		t.Errorf("%+v %v", l, err)
	}
	alter := func(change func(*signed)) []byte {
		var s signed
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		out, _ := json.Marshal(s)
		return out
	}
	for name, c := range map[string]struct {
		text []byte
		at   time.Time
		want error
	}{
		"by somebody else":         {other, now, ErrSignature},
		"with the key of another":  {alter(func(s *signed) { s.Key = stranger }), now, ErrSignature},
		"altered":                  {alter(func(s *signed) { s.List = strings.Replace(s.List, "192.0.2.1", "192.0.2.9", 1) }), now, ErrSignature},
		"prolonged":                {alter(func(s *signed) { s.List = strings.Replace(s.List, "2026-11-24", "2027-11-24", 1) }), now, ErrSignature},
		"without a signature":      {alter(func(s *signed) { s.Signature = "" }), now, ErrSignature},
		"old":                      {text, now.Add(24*time.Hour + time.Second), ErrOld},
		"of the future":            {text, now.Add(-25 * time.Hour), ErrMalformed},
		"of another layout":        {bytes.Replace(text, []byte(Schema), []byte("unbloat.servers/2"), 1), now, ErrMalformed},
		"no JSON":                  {[]byte("hello"), now, ErrMalformed},
		"larger than any":          {bytes.Repeat([]byte(" "), MaxText+1), now, ErrMalformed},
		"with half a public key":   {alter(func(s *signed) { s.Key = s.Key[:10] }), now, ErrMalformed},
		"with a foreign signature": {alter(func(s *signed) { s.Signature = strings.Repeat("00", 64) }), now, ErrSignature},
	} {
		if l, err := OpenList(c.text, key, c.at); !errors.Is(err, c.want) || len(l.Servers) != 0 {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	secret, _, _ := NewKey()
	signer, _ := ReadKey(secret)
	for name, l := range map[string]List{
		"nobody":   {Made: now, Until: now.Add(time.Hour)},
		"for ever": {Made: now, Until: now.Add(400 * 24 * time.Hour), Servers: []Listed{{"", "a:1"}}},
		"no port":  {Made: now, Until: now.Add(time.Hour), Servers: []Listed{{"", "a"}}},
		"escapes":  {Made: now, Until: now.Add(time.Hour), Servers: []Listed{{"\x1b[2J", "a:1"}}},
	} {
		if _, err := SignList(signer, l); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Changing any byte of the file never gives another list.
func TestAlteredByte(t *testing.T) {
	now := time.Now()
	text, public := made(t, now)
	key, _ := ParseKey(public)
	want, err := OpenList(text, key, now)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := bytes.Clone(text)
		b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
		l, err := OpenList(b, key, now)
		if err == nil && (len(l.Servers) != len(want.Servers) || l.Servers[0] != want.Servers[0] || l.Servers[1] != want.Servers[1] || !l.Until.Equal(want.Until)) {
			rt.Fatalf("%+v", l)
		}
	})
}

// The nearest server that answers is chosen, and its key is returned with its
// address.
func TestFetchAndChoose(t *testing.T) {
	now := time.Now()
	text, public := made(t, now)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
	defer web.Close()
	if l, err := Fetch(t.Context(), Prefix+web.URL+"/servers.json#"+public, now); err != nil || len(l.Servers) != 2 {
		t.Errorf("%+v %v", l, err)
	}
	for value, want := range map[string]error{
		web.URL: ErrMalformed, web.URL + "#00": ErrMalformed, web.URL + "#" + strings.Repeat("00", 32): ErrSignature, "ftp://x/#" + public: ErrMalformed,
	} {
		if _, err := Fetch(t.Context(), Prefix+value, now); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", value, err, want)
		}
	}
	away := errors.New("away")
	far := map[string]time.Duration{"a:1": 30 * time.Millisecond, "b:1": 5 * time.Millisecond, "c:1": 0, "d:1": 12 * time.Millisecond}
	list := List{Servers: []Listed{{"a", "a:1"}, {"c", "c:1"}, {"b", "b:1"}, {"d", "d:1"}}}
	ask := func(_ context.Context, address string) (time.Duration, error) {
		if far[address] == 0 {
			return 0, away
		}
		return far[address], nil
	}
	got, err := Choose(t.Context(), list, ask)
	if err != nil || got[0].Name != "b" || got[1].Name != "d" || got[2].Name != "a" || !errors.Is(got[3].Err, away) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := Choose(t.Context(), List{Servers: []Listed{{"c", "c:1"}}}, ask); !errors.Is(err, ErrNobody) || !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Handshake(t.Context(), l.Addr().String()); err != nil || d <= 0 || d > time.Second {
		t.Errorf("%v %v", d, err)
	}
	l.Close()
	if _, err := Handshake(t.Context(), l.Addr().String()); err == nil {
		t.Error("a closed port was reached")
	}
}
