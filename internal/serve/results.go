package serve

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// A Store keeps results. An id is 1–64 letters, digits, "-" or "_", and cannot be
// guessed: whoever knows it may read the result. Errors wrap ErrNotFound where
// there is no such result, and ErrAway where that cannot be told now.
type Store interface {
	Save(ctx context.Context, t *verdict.Test) (Ticket, error)
	Load(ctx context.Context, id string) (*verdict.Test, error)
	// Delete removes a result for whoever has its token. Errors wrap
	// ErrNotOwner besides.
	Delete(ctx context.Context, id, token string) error
}

// A Ticket is what a visitor gets for a result that is kept.
type Ticket struct {
	ID    string
	Token string // with which the result may be deleted; nobody else has it
}

// Reasons why a Store does not do what it is asked; errors wrap them.
var (
	ErrNotFound = errors.New("there is no such result")
	ErrNotOwner = errors.New("this token does not delete this result")
	ErrAway     = errors.New("the results cannot be reached now; please try again in a minute")
)

// NewMemory returns a Store that keeps the newest n results until the program ends.
func NewMemory(n int) Store { return &memory{most: max(n, 1), tests: map[string]remembered{}} }

type memory struct {
	mu    sync.Mutex
	most  int
	order []string
	tests map[string]remembered
}

type remembered struct {
	test  *verdict.Test
	token string
}

func (m *memory) Save(_ context.Context, t *verdict.Test) (Ticket, error) {
	k := Ticket{strings.ToLower(rand.Text()), rand.Text()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tests[k.ID] = remembered{t, k.Token}
	m.order = append(m.order, k.ID)
	if len(m.order) > m.most {
		delete(m.tests, m.order[0])
		m.order = m.order[1:]
	}
	return k, nil
}

func (m *memory) Delete(_ context.Context, id, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch k, there := m.tests[id]; {
	case !there:
		return fmt.Errorf("result %s: %w", id, ErrNotFound)
	case subtle.ConstantTimeCompare([]byte(k.token), []byte(token)) == 0:
		return fmt.Errorf("result %s: %w", id, ErrNotOwner)
	}
	delete(m.tests, id)
	m.order = slices.DeleteFunc(m.order, func(o string) bool { return o == id })
	return nil
}

func (m *memory) Load(_ context.Context, id string) (*verdict.Test, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, there := m.tests[id]; there {
		return k.test, nil
	}
	return nil, fmt.Errorf("result %s: %w", id, ErrNotFound)
}

// Saved answers a result that was submitted.
type Saved struct {
	ID    string        `json:"id"`    // "" if it could not be kept
	Token string        `json:"token"` // deletes it; "" but in the answer to whoever submitted it
	Error string        `json:"error"` // why it could not
	Test  *verdict.Test `json:"test"`
	Words Words         `json:"words"`
}

// Words are what a result says, in the language that the visitor asked for.
type Words struct {
	Verdict string            `json:"verdict"`
	Reasons []string          `json:"reasons"` // why it is invalid; never nil
	Certain string            `json:"certain"` // what is true all the same; "" if nothing is, or if it is valid
	Notes   []string          `json:"notes"`   // never nil
	Grades  map[string]string `json:"grades"`  // of the loaded phases, by name; none if invalid
}

// wordsOf words a result.
func wordsOf(t *verdict.Test, l *reason.Language) Words {
	w := Words{
		Verdict: t.VerdictIn(l, reason.Page), Grades: map[string]string{},
		Reasons: append([]string{}, t.WhyInvalid(l, reason.Page)...), Notes: append([]string{}, t.NotesIn(l, reason.Page)...),
	}
	if c := t.Certain(); c != nil {
		w.Certain = c.Text(l, reason.Page)
	}
	for _, p := range t.Phases() {
		if t.Valid && p.Name != verdict.PhaseIdle {
			w.Grades[p.Name] = verdict.GradeOf(p.Phase)
		}
	}
	return w
}

// languageOf returns the language that a request asks for.
func languageOf(r *http.Request) *reason.Language {
	return reason.Accept(r.Header.Get("Accept-Language"))
}

// save judges what the page measured, keeps the result and answers with both.
func (h *Page) save(w http.ResponseWriter, r *http.Request) {
	s := h.session(r)
	if s == nil {
		fail(w, http.StatusForbidden, "a result belongs to a test: there is no such session")
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "a result is application/json")
		return
	}
	sub, err := DecodeSubmission(http.MaxBytesReader(w, r.Body, int64(h.limits.Result)+1), h.limits.Result)
	switch tooLarge := new(http.MaxBytesError); {
	case errors.Is(err, guard.ErrLong), errors.As(err, &tooLarge):
		fail(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.stored.Swap(true) {
		fail(w, http.StatusConflict, "this session's result has been kept already")
		return
	}
	end := sub.Phases[len(sub.Phases)-1].EndUs
	began := h.now().Add(-time.Duration(end) * time.Microsecond)
	out := Saved{Test: Judge(sub, verdict.Meta{Time: began.UTC().Format(time.RFC3339), Label: "browser", Server: h.nameFor(r)})}
	out.Words = wordsOf(out.Test, languageOf(r))
	if !h.keeping.take(s.addr, h.now()) {
		out.Error = "the server has kept many results of your network lately, and keeps no more for some minutes"
	} else if k, err := h.store.Save(r.Context(), out.Test); err != nil { // the visitor sees the figures all the same
		h.log.Error("keep a result of the web page", "err", err)
		out.Error = "the server could not keep this result"
	} else {
		out.ID, out.Token = k.ID, k.Token
	}
	answer(w, http.StatusOK, out)
}

// tokenHeader carries the token of a result that is to be deleted.
const tokenHeader = "Delete-Token"

// remove deletes one result for whoever has its token.
func (h *Page) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := ErrNotFound
	if wellFormed(id) {
		err = h.store.Delete(r.Context(), id, r.Header.Get(tokenHeader))
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrNotOwner):
		fail(w, http.StatusForbidden, ErrNotOwner.Error())
	default:
		status, why := h.unread(id, err)
		fail(w, status, why)
	}
}

// unread says why a result is not there.
func (h *Page) unread(id string, err error) (status int, why string) {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound, ErrNotFound.Error()
	case errors.Is(err, ErrAway):
		return http.StatusServiceUnavailable, ErrAway.Error()
	}
	h.log.Error("load a result of the web page", "id", id, "err", err)
	return http.StatusInternalServerError, "the server could not read its results"
}

// wellFormed reports whether a result may have this id.
func wellFormed(id string) bool { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(id) }

// load answers with one result.
func (h *Page) load(w http.ResponseWriter, r *http.Request) {
	t, status, why := h.find(r)
	if t == nil {
		fail(w, status, why)
		return
	}
	answer(w, http.StatusOK, t)
}

// shown answers with one result and what it says in the visitor's language.
func (h *Page) shown(w http.ResponseWriter, r *http.Request) {
	t, status, why := h.find(r)
	if t == nil {
		fail(w, status, why)
		return
	}
	answer(w, http.StatusOK, Saved{ID: r.PathValue("id"), Test: t, Words: wordsOf(t, languageOf(r))})
}

// result answers with the page, which then loads the result.
func (h *Page) result(w http.ResponseWriter, r *http.Request, s *site) {
	_, status, _ := h.find(r)
	s.named(w, r, "index.html", status)
}

func (h *Page) find(r *http.Request) (t *verdict.Test, status int, why string) {
	id := r.PathValue("id")
	if !wellFormed(id) {
		return nil, http.StatusNotFound, ErrNotFound.Error()
	}
	t, err := h.store.Load(r.Context(), id)
	if err != nil {
		status, why = h.unread(id, err)
		return nil, status, why
	}
	return t, http.StatusOK, ""
}

// nameFor returns how results call this server: as it calls itself, or else as
// the visitor does, cut to what a host and port may consist of.
func (h *Page) nameFor(r *http.Request) string {
	if h.name != "" {
		return h.name
	}
	host := strings.Map(func(c rune) rune {
		if strings.ContainsRune(".:[]-_", c) || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return -1
	}, r.Host)
	return host[:min(len(host), 255)]
}

// answer writes JSON. It does not fail: what is written is our own.
func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the visitor may be gone
}

func fail(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}
