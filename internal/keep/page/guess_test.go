package page_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/page"
)

// tooLong is a wrong password that costs no slow hash.
var tooLong = fmt.Sprintf(`{"password":%q}`, strings.Repeat("x", page.MostPassword+1))

// Eight addresses that guess all day keep out nobody whose browser has logged in before,
// and nobody who comes from the console. A browser that nobody knows has to wait.
func TestStrangersKeepNobodyOut(t *testing.T) {
	w := newWorld(t)
	owner := w.admin()
	w.start() // the daemon starts again: no session is left, and the browser is known still
	strangers := make([]*browser, 8)
	for i := range strangers {
		strangers[i] = w.browser()
		strangers[i].from = netip.AddrFrom4([4]byte{192, 168, 1, byte(100 + i)})
	}
	const right = `{"password":"correct horse"}`
	for step := range 24 * 60 * 2 {
		for _, b := range strangers {
			b.post("/api/login", tooLong)
		}
		if step%240 == 239 {
			if s, code := owner.post("/api/login", right); s != 200 {
				t.Fatalf("the owner after %v: %d %s", time.Duration(step)*30*time.Second, s, code)
			}
			if s, code := w.browser().post("/api/login", right); s != 429 || code != page.CodeSlow {
				t.Errorf("an unknown browser: %d %s", s, code)
			}
		}
		w.now = w.now.Add(30 * time.Second)
	}
	for _, b := range strangers {
		b.post("/api/login", tooLong)
	}
	if s, code := owner.post("/api/password", `{"now":"correct horse","role":"admin","new":"battery staple"}`); s != 200 {
		t.Errorf("the owner changes the password: %d %s", s, code)
	}
	if s, code := w.browser().post("/api/enter", fmt.Sprintf(`{"ticket":%q}`, w.app.Ticket(page.Admin))); s != 200 {
		t.Errorf("a ticket: %d %s", s, code)
	}
	if s, code := w.browser().post("/api/first", fmt.Sprintf(`{"token":%q,"password":"paper clips"}`, w.app.Token(true))); s != 200 {
		t.Errorf("a token: %d %s", s, code)
	}
	if s, code := owner.post("/api/login", `{"password":"paper clips"}`); s != 429 || code != page.CodeSlow {
		t.Errorf("a browser that was known by an older password: %d %s", s, code)
	}
}

// A known browser guesses no more than others: five at once, then one each 30 s; what is
// forged makes no browser known; and who may only look gets no guesses of the admin's
// password by it, however often he logs in.
func TestKnownBrowserGuesses(t *testing.T) {
	w := newWorld(t)
	owner := w.admin()
	for i := range 5 {
		if _, code := owner.post("/api/login", tooLong); code != page.CodePassword {
			t.Fatalf("guess %d: %s", i, code)
		}
	}
	if _, code := owner.post("/api/login", tooLong); code != page.CodeSlow {
		t.Errorf("the sixth: %s", code)
	}
	w.now = w.now.Add(30 * time.Second)
	if s, code := owner.post("/api/login", `{"password":"correct horse"}`); s != 200 {
		t.Errorf("later: %d %s", s, code)
	}
	if s, code := owner.post("/api/password", `{"now":"correct horse","role":"viewer","new":"only looking"}`); s != 200 {
		t.Fatal(s, code)
	}

	viewer := w.browser()
	slow := 0
	for range 8 {
		if s, code := viewer.post("/api/login", `{"password":"only looking"}`); s != 200 {
			t.Fatal(s, code)
		}
		if _, code := viewer.post("/api/login", tooLong); code == page.CodeSlow {
			slow++
		}
	}
	if slow != 3 {
		t.Errorf("%d of 8 guesses by a viewer were slowed", slow)
	}
	forged := w.browser()
	forged.known = owner.known[:len(owner.known)-4] + "AAAA"
	if _, code := forged.post("/api/login", tooLong); code != page.CodeSlow { // as all of that address
		t.Errorf("a forged cookie: %s", code)
	}
	if owner.known == "" || !strings.HasPrefix(viewer.known, "unbloat-known=") {
		t.Errorf("the cookies are %q and %q", owner.known, viewer.known)
	}
	was := owner.known
	if s, _ := owner.post("/api/login", `{"password":"only looking"}`); s != 200 || owner.known != was {
		t.Errorf("who is known as the admin and looks only is known as %q then, not %q", owner.known, was)
	}
}

// Viewers take neither the admin's session nor his stream, however many they are.
func TestRolesHaveBudgetsApart(t *testing.T) {
	w := newWorld(t)
	owner := w.admin()
	for i := range 64 {
		v := w.browser()
		if s, _ := v.post("/api/enter", fmt.Sprintf(`{"ticket":%q}`, w.app.Ticket(page.Viewer))); s != 200 {
			t.Fatal(i, s)
		}
		if s, code := v.get("/api/stream"); (s == 200) != (i < 16) || s != 200 && code != page.CodeCrowded {
			t.Errorf("stream %d: %d %s", i, s, code)
		}
	}
	if s, code := owner.get("/api/stream"); s != 200 {
		t.Errorf("the admin's stream: %d %s", s, code)
	}
	if s, code := owner.post("/api/line", `{"wan":"eth0","on":true}`); s != 200 {
		t.Errorf("the admin: %d %s", s, code)
	}
}
