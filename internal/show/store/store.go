// Package store is the memory of results: every measurement with the conditions
// it was taken under, in one embedded SQLite file, or in a PostgreSQL database
// that several servers share. Both have the same tables (database.go). It also
// moves results between machines as compressed lines of JSON (export.go). A
// result's id is a hash of its content, so the same result is never kept twice;
// that is why a server may deliver one again that may have arrived (spool.go).
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Reasons why the file of results cannot be used; errors wrap them. None of them
// has changed the file.
var (
	ErrDamaged   = errors.New("the file is damaged")
	ErrNoStore   = errors.New("the file holds no results; it is another kind of file")
	ErrForeign   = errors.New("the file is not unbloat's")
	ErrNewer     = errors.New("a newer unbloat wrote the file")
	ErrFull      = errors.New("no space is left")
	ErrBusy      = errors.New("another process holds the file")
	ErrNotFound  = errors.New("there is no such result")
	ErrAmbiguous = errors.New("more than one result begins so")
	ErrAway      = errors.New("the database cannot be reached")
	ErrRefused   = errors.New("the database does not take it")
	ErrNotOwner  = errors.New("the token is not the one of this result")
)

// A Filter says which results are listed. Zero fields do not filter.
type Filter struct {
	Kind      string
	Label     string    // exact
	Server    string    // with or without its port
	Interface string    // exact
	Shaped    *bool     // with a plan of ours in force, or without
	Since     time.Time // not before
	Limit     int       // at most so many, the newest
	After     string    // only those that are listed after the result whose id begins so
}

// IsDatabase reports whether results are in a PostgreSQL database, and not in a
// file.
func IsDatabase(place string) bool {
	return strings.HasPrefix(place, "postgres://") || strings.HasPrefix(place, "postgresql://")
}

// OwnerOf returns what is kept of the token that may delete a result: its
// SHA-256, hexadecimal; "" of none.
func OwnerOf(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Path returns where results are kept: $XDG_DATA_HOME/unbloat/results.db, by
// default in ~/.local/share, on Windows in %LocalAppData%. getenv is os.Getenv.
func Path(getenv func(string) string) (string, error) {
	const dir, name = "unbloat", "results.db"
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) { // relative ones are to be ignored, says the XDG specification
		return filepath.Join(d, dir, name), nil
	}
	if d := getenv("LocalAppData"); runtime.GOOS == "windows" && d != "" {
		return filepath.Join(d, dir, name), nil
	}
	if d := getenv("HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, ".local", "share", dir, name), nil
	}
	return "", errors.New("find the file of results: neither XDG_DATA_HOME nor HOME is set; name the file with --store")
}

// Save keeps one result at a place that Open understands, and returns its id. A result that is there already stays as it is.
func Save(ctx context.Context, path string, r Record) (id string, err error) {
	if r, err = r.Identified(); err != nil {
		return "", err
	}
	s, err := Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.Add(ctx, []Record{r})
	return r.ID, err
}
