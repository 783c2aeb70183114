//go:build !omit_store

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// How the file says that it is unbloat's: "unbl".
const applicationID = 0x756e626c

// patience is how long to wait for other processes to be done with the file.
// SQLite keeps no queue of those that wait: beside several that save one result
// after the other to a slow disk, one may be late by many of them.
const patience = 30 * time.Second

// migrations lead from an empty file to today's layout; the file's user_version
// is how many of them it has behind it. They are only ever added to.
func migrations() []string {
	return []string{
		`CREATE TABLE results (
			id        TEXT PRIMARY KEY,
			time_ms   INTEGER NOT NULL,
			kind      TEXT NOT NULL,
			label     TEXT NOT NULL,
			server    TEXT NOT NULL,
			interface TEXT NOT NULL,
			link      TEXT NOT NULL,
			tool      TEXT NOT NULL,
			system    TEXT NOT NULL,
			plan      TEXT,
			result    BLOB NOT NULL
		) STRICT`,
		`ALTER TABLE results ADD COLUMN figures TEXT NOT NULL DEFAULT '{}';
		 CREATE INDEX results_by_time ON results (time_ms)`,
	}
}

// A Store is an open file of results. It belongs to one goroutine, and should
// be closed soon: other processes wait meanwhile.
type Store struct {
	path string
	conn *sqlite3.Conn
}

// Open opens the file at path, and makes it if there is none. An older layout
// is brought up to date. ctx bounds all that is done with the Store.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of results: %w; name another file with --store", err)
	}
	// Made here, so that nobody else can ever read it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file of results: %w; name another one with --store", err)
	}
	f.Close()
	return open(ctx, path)
}

// OpenExisting is Open, but a file that is not there is an error that wraps
// fs.ErrNotExist.
func OpenExisting(ctx context.Context, path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open the file of results: %w", err)
	}
	return open(ctx, path)
}

func open(ctx context.Context, path string) (*Store, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	conn, err := sqlite3.OpenFlags(full, sqlite3.OPEN_READWRITE)
	if err != nil {
		return nil, explain("open", path, err)
	}
	s := &Store{path: path, conn: conn}
	conn.SetInterrupt(ctx)
	if err := s.prepare(); err != nil {
		conn.Close()
		return nil, explain("open", path, err)
	}
	return s, nil
}

// prepare sets the connection up and brings the layout up to date.
//
// The rollback journal is used, not the write-ahead log: a run writes once, and
// the log's index is a mapped file, which ends the whole process where the disk
// is full and the file system cannot reserve space, and which machines that
// share a home over the network do not share. At rest there is one file.
func (s *Store) prepare() error {
	if err := s.conn.BusyTimeout(patience); err != nil {
		return err
	}
	if err := s.checkOwner(); err != nil {
		return err
	}
	if err := s.conn.Exec("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF"); err != nil {
		return err
	}
	return s.migrate()
}

// checkOwner refuses files of other programs, and of the future, before anything
// is written. It looks at one state of the file: another process may just make it.
func (s *Store) checkOwner() error {
	if err := s.conn.Exec("BEGIN"); err != nil {
		return err
	}
	var found [3]int64
	var err error
	for i, sql := range []string{"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"} {
		if found[i], err = s.number(sql); err != nil {
			break
		}
	}
	if err = errors.Join(err, s.conn.Exec("ROLLBACK")); err != nil {
		return err
	}
	switch id, have, tables := found[0], found[1], found[2]; {
	case id == applicationID && have > int64(len(migrations())):
		return ErrNewer
	case id != applicationID && (id != 0 || tables > 0):
		return ErrForeign
	}
	return nil
}

func (s *Store) migrate() error {
	return s.transact(func() error {
		have, err := s.number("PRAGMA user_version")
		if err != nil {
			return err
		}
		all := migrations()
		if have >= int64(len(all)) {
			return nil
		}
		for _, m := range all[have:] {
			if err := s.conn.Exec(m); err != nil {
				return err
			}
		}
		if have > 0 {
			if err := s.refigure(); err != nil {
				return err
			}
		}
		return s.conn.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(all)))
	})
}

// transact does all of do in one transaction, or nothing.
func (s *Store) transact(do func() error) error {
	tx, err := s.conn.BeginImmediate()
	if err != nil {
		return err
	}
	if err = do(); err == nil {
		if err = tx.Commit(); err == nil {
			return nil
		}
	}
	if !s.conn.GetAutocommit() { // else SQLite has rolled it back by itself
		err = errors.Join(err, tx.Rollback())
	}
	return err
}

// refigure takes the figures of all results anew.
func (s *Store) refigure() error {
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := s.read(id)
		if err != nil {
			return err
		}
		text, err := figuresText(r)
		if err != nil {
			return err
		}
		if err := s.exec("UPDATE results SET figures = ? WHERE id = ?", text, id); err != nil {
			return err
		}
	}
	return nil
}

// Close lets other processes at the file.
func (s *Store) Close() error {
	if err := s.conn.Close(); err != nil {
		return explain("close", s.path, err)
	}
	return nil
}

// number returns the one integer that a query yields, 0 if it yields nothing.
func (s *Store) number(sql string) (n int64, err error) {
	err = s.query(sql, nil, func(st *sqlite3.Stmt) error {
		n = st.ColumnInt64(0)
		return nil
	})
	return n, err
}

// query calls row for each row of a query.
func (s *Store) query(sql string, args []any, row func(*sqlite3.Stmt) error) error {
	st, _, err := s.conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := bind(st, args); err != nil {
		return err
	}
	for st.Step() {
		if err := row(st); err != nil {
			return err
		}
	}
	return st.Err()
}

func (s *Store) exec(sql string, args ...any) error {
	return s.query(sql, args, func(*sqlite3.Stmt) error { return nil })
}

func bind(st *sqlite3.Stmt, args []any) error {
	for i, a := range args {
		var err error
		switch v := a.(type) {
		case string:
			err = st.BindText(i+1, v)
		case int64:
			err = st.BindInt64(i+1, v)
		case int:
			err = st.BindInt(i+1, v)
		case []byte:
			err = st.BindBlob(i+1, v)
		case nil:
			err = st.BindNull(i + 1)
		default:
			err = fmt.Errorf("bind a %T", a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fromFile reports whether an error is SQLite's.
func fromFile(err error) bool {
	var e *sqlite3.Error
	return errors.As(err, &e)
}

// full reports whether nothing more can be written in a folder: SQLite does not
// always say why writing failed.
func full(dir string) bool {
	f, err := os.CreateTemp(dir, ".unbloat-space-*")
	if err == nil {
		defer os.Remove(f.Name())
		defer f.Close()
		_, err = f.Write(make([]byte, 256<<10))
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// explain says what SQLite's error means for the person at the keyboard.
func explain(doing, path string, err error) error {
	why := err
	remedy := ""
	switch {
	case errors.Is(err, ErrForeign):
		remedy = "it was left as it is; name another file with --store"
	case errors.Is(err, ErrNewer):
		remedy = "it was left as it is; use that one, or name another file with --store"
	case errors.Is(err, sqlite3.NOTADB):
		why = fmt.Errorf("%w (%w)", ErrNoStore, err)
		remedy = "it was left as it is; name another file with --store"
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, ErrDamaged):
		why = fmt.Errorf("%w (%w)", ErrDamaged, err)
		if errors.Is(err, ErrDamaged) {
			why = err
		}
		remedy = fmt.Sprintf("it was left as it is; move it away and a new one is begun (mv %s %s.damaged), and save what can be saved with: sqlite3 %s.damaged .recover", path, path, path)
	case errors.Is(err, sqlite3.FULL), errors.Is(err, sqlite3.IOERR) && full(filepath.Dir(path)):
		why = fmt.Errorf("%w (%w)", ErrFull, err)
		remedy = "nothing in it is lost; make room, or name a file elsewhere with --store"
	case errors.Is(err, sqlite3.BUSY):
		why = fmt.Errorf("%w for more than %v (%w)", ErrBusy, patience, err)
		remedy = "try again once it is done"
	case errors.Is(err, sqlite3.READONLY), errors.Is(err, sqlite3.PERM), errors.Is(err, sqlite3.CANTOPEN), errors.Is(err, fs.ErrPermission):
		remedy = "see who may write to it and its folder (ls -la), or name another file with --store"
	}
	if remedy == "" {
		return fmt.Errorf("%s the results in %s: %w", doing, path, why)
	}
	return fmt.Errorf("%s the results in %s: %w; %s", doing, path, why, remedy)
}
