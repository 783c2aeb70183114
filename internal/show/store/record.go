package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Kinds of results. A result of a kind has the schema "unbloat.<kind>/…".
const (
	KindTest  = "test"
	KindTune  = "tune"
	KindProve = "prove"
	KindLab   = "lab"
	KindPath  = "path"
)

// Kinds returns all kinds.
func Kinds() []string { return []string{KindTest, KindTune, KindProve, KindLab, KindPath} }

// Limits of what is stored.
const (
	maxText   = 1000      // bytes of a label and other texts
	maxResult = 128 << 20 // bytes of JSON
)

// A Record is one result with the conditions of its measurement. Its JSON is
// one line of an export.
type Record struct {
	ID        string          `json:"id,omitempty"` // hash of all else but Owner, in hexadecimal
	Time      time.Time       `json:"time"`         // UTC, whole milliseconds
	Kind      string          `json:"kind"`
	Label     string          `json:"label,omitempty"`
	Server    string          `json:"server,omitempty"`
	Interface string          `json:"interface,omitempty"` // through which it was measured, or that was shaped
	Link      string          `json:"link,omitempty"`      // what kind of link that is: see LinkKind
	Tool      string          `json:"tool,omitempty"`      // version of unbloat
	System    string          `json:"system,omitempty"`    // and of the kernel
	Plan      json.RawMessage `json:"plan,omitempty"`      // the shaping in force, as `plan --json` prints it
	Result    json.RawMessage `json:"result"`              // as the command printed it with --json
	Owner     string          `json:"owner,omitempty"`     // who may delete it: see OwnerOf
}

// An Entry is a stored result without its JSON, with its figures.
type Entry struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`
	Label     string    `json:"label"`
	Server    string    `json:"server"`
	Interface string    `json:"interface"`
	Link      string    `json:"link"`
	Tool      string    `json:"tool"`
	System    string    `json:"system"`
	Shaped    bool      `json:"shaped"` // a plan was in force
	Figures
}

// NewRecord returns the record of a result that is printed as v. Its time,
// label and server are those in the result; without a time it is now.
func NewRecord(kind string, v any, now time.Time) (Record, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return Record{}, fmt.Errorf("keep the result: %w", err)
	}
	r := Record{Kind: kind, Time: now, Result: text}
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return Record{}, fmt.Errorf("keep the result: %w", err)
	}
	if h.Before != nil && h.Time == "" { // a tuning has it in its tests
		h.Time, h.Label, h.Server = h.Before.Time, "", h.Before.Server
	}
	if at, err := time.Parse(time.RFC3339, h.Time); err == nil {
		r.Time = at
	}
	r.Label, r.Server = h.Label, h.Server
	if kind == KindPath {
		r.Server = h.Address
	}
	return r, nil
}

// Identified returns the record as it will be stored, with its id.
func (r Record) Identified() (Record, error) {
	r, err := r.normal()
	if err != nil {
		return r, fmt.Errorf("keep the result: %w", err)
	}
	return r, nil
}

// normal returns the record in its normal form, with its id, or an error if it
// is invalid.
func (r Record) normal() (Record, error) {
	owner := r.Owner
	if len(owner) != 0 && len(owner) != hex.EncodedLen(sha256.Size) || strings.ContainsFunc(owner, notHex) {
		return r, fmt.Errorf("owner %q: is not a SHA-256 in hexadecimal", short(owner))
	}
	r.ID, r.Owner = "", ""
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	if y := r.Time.Year(); y < 1970 || y > 9999 {
		return r, fmt.Errorf("time %s: not from 1970 to 9999", r.Time.Format(time.RFC3339))
	}
	if !slices.Contains(Kinds(), r.Kind) {
		return r, fmt.Errorf("kind %q: not one of %s", short(r.Kind), strings.Join(Kinds(), ", "))
	}
	for name, s := range map[string]*string{
		"label": &r.Label, "server": &r.Server, "interface": &r.Interface, "link": &r.Link, "tool": &r.Tool, "system": &r.System,
	} {
		if len(*s) > maxText {
			return r, fmt.Errorf("%s: %d bytes, at most %d", name, len(*s), maxText)
		}
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	var err error
	if r.Plan, err = compact("plan", r.Plan); err != nil {
		return r, err
	}
	if r.Result, err = compact("result", r.Result); err != nil {
		return r, err
	}
	if len(r.Result) == 0 {
		return r, errors.New("result: is missing")
	}
	var h head
	if err := json.Unmarshal(r.Result, &h); err != nil {
		return r, fmt.Errorf("result: %w", err)
	}
	if !strings.HasPrefix(h.Schema, "unbloat."+r.Kind+"/") {
		return r, fmt.Errorf("result: schema %q, not that of a %s", short(h.Schema), r.Kind)
	}
	text, err := line(r)
	if err != nil {
		return r, err
	}
	sum := sha256.Sum256(text)
	r.ID, r.Owner = hex.EncodeToString(sum[:]), owner
	return r, nil
}

// notHex reports whether a character cannot be in an id.
func notHex(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') }

// compact returns the JSON of one object without spaces, or nil for none and
// for null.
func compact(name string, text json.RawMessage) (json.RawMessage, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if len(text) > maxResult {
		return nil, fmt.Errorf("%s: %d bytes, at most %d", name, len(text), maxResult)
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("%s: is not a JSON object", name)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s: is not UTF-8", name)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b.Bytes(), nil
}

// line returns the record as one line of JSON, without the line end. Embedded
// JSON is not changed by a byte.
func line(r Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// short shortens a string of the input for an error message.
func short(s string) string {
	const most = 60
	if r := []rune(strings.ToValidUTF8(s, "\uFFFD")); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
