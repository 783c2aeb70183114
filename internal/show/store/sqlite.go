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

// sqliteTypes are SQLite's.
func sqliteTypes() types {
	return types{text: "TEXT", integer: "INTEGER", blob: "BLOB", strict: "STRICT"}
}

// sqliteFile is an open file of results.
type sqliteFile struct {
	path string
	conn *sqlite3.Conn
}

// openFile opens the file at path, and makes it if there is none.
func openFile(ctx context.Context, path string) (*Store, error) {
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

// openExistingFile opens the file at path, if there is one.
func openExistingFile(ctx context.Context, path string) (*Store, error) {
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
	f := &sqliteFile{path: path, conn: conn}
	s := &Store{db: f, name: path}
	conn.SetInterrupt(ctx)
	err = f.prepare()
	if err == nil {
		err = f.migrate(ctx, s)
	}
	if err != nil {
		conn.Close()
		return nil, f.explain("open", err)
	}
	return s, nil
}

// prepare sets the connection up.
//
// The rollback journal is used, not the write-ahead log: a run writes once, and
// the log's index is a mapped file, which ends the whole process where the disk
// is full and the file system cannot reserve space, and which machines that
// share a home over the network do not share. At rest there is one file.
func (f *sqliteFile) prepare() error {
	if err := f.conn.BusyTimeout(patience); err != nil {
		return err
	}
	if err := f.checkOwner(); err != nil {
		return err
	}
	return f.conn.Exec("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF")
}

// checkOwner refuses files of other programs, and of the future, before anything
// is written. It looks at one state of the file: another process may just make it.
func (f *sqliteFile) checkOwner() error {
	if err := f.conn.Exec("BEGIN"); err != nil {
		return err
	}
	var found [3]int64
	var err error
	for i, sql := range []string{"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"} {
		if found[i], err = f.number(sql); err != nil {
			break
		}
	}
	if err = errors.Join(err, f.conn.Exec("ROLLBACK")); err != nil {
		return err
	}
	switch id, have, tables := found[0], found[1], found[2]; {
	case id == applicationID && have > int64(len(migrations(sqliteTypes()))):
		return ErrNewer
	case id != applicationID && (id != 0 || tables > 0):
		return ErrForeign
	}
	return nil
}

func (f *sqliteFile) migrate(ctx context.Context, s *Store) error {
	return f.transact(ctx, func() error {
		have, err := f.number("PRAGMA user_version")
		if err != nil {
			return err
		}
		all := migrations(sqliteTypes())
		if have >= int64(len(all)) {
			return nil
		}
		if err := s.migrate(ctx, all, int(have)); err != nil {
			return err
		}
		return f.conn.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(all)))
	})
}

func (f *sqliteFile) transact(ctx context.Context, do func() error) error {
	f.conn.SetInterrupt(ctx)
	tx, err := f.conn.BeginImmediate()
	if err != nil {
		return err
	}
	if err = do(); err == nil {
		if err = tx.Commit(); err == nil {
			return nil
		}
	}
	if !f.conn.GetAutocommit() { // else SQLite has rolled it back by itself
		err = errors.Join(err, tx.Rollback())
	}
	return err
}

func (f *sqliteFile) close() error { return f.conn.Close() }

// number returns the one integer that a query yields, 0 if it yields nothing.
func (f *sqliteFile) number(sql string) (n int64, err error) {
	err = f.query(context.Background(), sql, nil, func(r row) error {
		n = r.number(0)
		return nil
	})
	return n, err
}

func (f *sqliteFile) query(ctx context.Context, sql string, args []any, each func(row) error) error {
	if ctx.Done() != nil {
		f.conn.SetInterrupt(ctx)
	}
	st, _, err := f.conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := bind(st, args); err != nil {
		return err
	}
	for st.Step() {
		if err := each(sqliteRow{st}); err != nil {
			return err
		}
	}
	return st.Err()
}

func (f *sqliteFile) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if len(args) == 0 { // there may be several
		return 0, f.conn.Exec(sql)
	}
	before := f.conn.TotalChanges()
	err := f.query(ctx, sql, args, func(row) error { return nil })
	return f.conn.TotalChanges() - before, err
}

func (f *sqliteFile) owns(err error) bool {
	var e *sqlite3.Error
	return errors.As(err, &e)
}

// A sqliteRow is the row at which a statement stands.
type sqliteRow struct{ st *sqlite3.Stmt }

func (r sqliteRow) text(i int) string  { return r.st.ColumnText(i) }
func (r sqliteRow) number(i int) int64 { return r.st.ColumnInt64(i) }
func (r sqliteRow) bytes(i int) []byte { return r.st.ColumnRawBlob(i) }
func (r sqliteRow) null(i int) bool    { return r.st.ColumnType(i) == sqlite3.NULL }

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

func (f *sqliteFile) explain(doing string, err error) error { return explain(doing, f.path, err) }

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
