package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// connectPatience is the time limit for connecting.
	connectPatience = 5 * time.Second
	// statementPatience is the time limit of one statement. After it the
	// connection is closed, as the other end may be gone.
	statementPatience = 20 * time.Second
	// layoutLock keeps two programs from upgrading one database at the same
	// time: "unbl".
	layoutLock = 0x756e626c
)

// postgresTypes are PostgreSQL's. Text sorts by its bytes, as in SQLite.
func postgresTypes() types {
	return types{text: `TEXT COLLATE "C"`, integer: "BIGINT", blob: "BYTEA"}
}

// postgres is a connection to a PostgreSQL database, by its protocol alone: our few types
// need none of pgx's, which are a fifteenth of the program. A lost connection is
// opened again by the next statement outside a transaction.
type postgres struct {
	config *pgconn.Config
	name   string // the URL without its password
	conn   *pgconn.PgConn
	store  *Store
	inside bool // in a transaction
}

// openPostgres connects to a database and upgrades its layout.
func openPostgres(ctx context.Context, place string) (*Store, error) {
	s, err := attach(place)
	if err != nil {
		return nil, err
	}
	p := s.db.(*postgres)
	if err := p.connect(ctx); err != nil {
		return nil, p.explain("open", err)
	}
	return s, nil
}

// attach prepares the use of a database without connecting.
func attach(place string) (*Store, error) {
	name := "postgres"
	if u, err := url.Parse(place); err == nil {
		u.RawQuery = ""
		name = u.Redacted()
	}
	config, err := pgconn.ParseConfig(place)
	if err != nil { // its text does not contain the password
		return nil, fmt.Errorf("read the address of the database: %w; write it like postgres://USER@HOST:5432/NAME", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectPatience
	}
	p := &postgres{config: config, name: name}
	p.store = &Store{db: p, name: name}
	return p.store, nil
}

// connect opens the connection and upgrades the layout.
func (p *postgres) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementPatience)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return err
	}
	p.conn = conn
	if err = p.migrate(ctx); err != nil {
		p.drop()
	}
	return err
}

// migrate reads the version first: mostly there is nothing to do, and the right
// to create tables is needed only once.
func (p *postgres) migrate(ctx context.Context) error {
	all := migrations(postgresTypes())
	version := func() (int, error) {
		n, err := p.store.one(ctx, "SELECT version FROM unbloat_layout")
		var wrong *pgconn.PgError
		if errors.As(err, &wrong) && wrong.Code == "42P01" { // undefined_table
			return 0, nil
		}
		return int(n), err
	}
	have, err := version()
	switch {
	case err != nil:
		return err
	case have > len(all):
		return ErrNewer
	case have == len(all):
		return nil
	}
	err = p.transact(ctx, func() error {
		if _, err := p.exec(ctx, "SELECT pg_advisory_xact_lock(?)", int64(layoutLock)); err != nil {
			return err
		}
		if _, err := p.exec(ctx, "CREATE TABLE IF NOT EXISTS unbloat_layout (version BIGINT NOT NULL)"); err != nil {
			return err
		}
		have, err := version() // another program may have done it
		if err != nil || have >= len(all) {
			return err
		}
		if err := p.store.migrate(ctx, all, have); err != nil {
			return err
		}
		if _, err := p.exec(ctx, "DELETE FROM unbloat_layout"); err != nil {
			return err
		}
		_, err = p.exec(ctx, "INSERT INTO unbloat_layout (version) VALUES (?)", int64(len(all)))
		return err
	})
	var wrong *pgconn.PgError
	if errors.As(err, &wrong) && wrong.Code == "42P07" { // duplicate_table
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// drop closes the connection, without waiting for the other end.
func (p *postgres) drop() {
	if p.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.conn.Close(ctx) // an error does not matter
		p.conn = nil
	}
}

func (p *postgres) close() error {
	p.drop()
	return nil
}

// ready opens the connection again if it was lost.
func (p *postgres) ready(ctx context.Context) error {
	if p.conn != nil && !p.conn.IsClosed() {
		return nil
	}
	if p.inside {
		return errAway
	}
	p.conn = nil
	return p.connect(ctx)
}

// errAway is the error of a statement whose connection was lost before it.
var errAway = errors.New("the connection was lost")

// lost reports whether a statement failed because the connection was lost before
// it, so that it may succeed on a new one. One that was not answered in time is
// not tried again: who waits has waited.
func (p *postgres) lost(ctx context.Context, err error) bool {
	return err != nil && !p.inside && ctx.Err() == nil && !pgconn.Timeout(err) && p.conn != nil && p.conn.IsClosed()
}

func (p *postgres) transact(ctx context.Context, do func() error) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	_, err := p.exec(ctx, "BEGIN")
	if p.lost(ctx, err) {
		_, err = p.exec(ctx, "BEGIN")
	}
	if err != nil {
		return err
	}
	p.inside = true
	defer func() { p.inside = false }()
	if err = do(); err == nil {
		_, err = p.exec(ctx, "COMMIT")
		return err
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, e := p.conn.Exec(back, "ROLLBACK").ReadAll(); e != nil {
		p.drop() // the database rolls back what a lost connection left
	}
	return err
}

func (p *postgres) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := p.ready(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, statementPatience)
	defer cancel()
	if len(args) > 0 {
		r := p.send(ctx, sql, args).Read()
		return r.CommandTag.RowsAffected(), r.Err
	}
	all, err := p.conn.Exec(ctx, sql).ReadAll() // several statements, maybe
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].CommandTag.RowsAffected(), nil
}

func (p *postgres) query(ctx context.Context, sql string, args []any, each func(row) error) error {
	rows := 0
	count := func(r row) error {
		rows++
		return each(r)
	}
	err := p.queryOnce(ctx, sql, args, count)
	if rows == 0 && p.lost(ctx, err) {
		return p.queryOnce(ctx, sql, args, count)
	}
	return err
}

func (p *postgres) queryOnce(ctx context.Context, sql string, args []any, each func(row) error) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statementPatience)
	defer cancel()
	rows := p.send(ctx, sql, args)
	for rows.NextRow() {
		if err := each(postgresRow(rows.Values())); err != nil {
			_, _ = rows.Close() // reads the others
			return err
		}
	}
	_, err := rows.Close()
	return err
}

// Formats of values in PostgreSQL's protocol.
const (
	asText   = 0
	asBinary = 1
)

// send sends one statement. What its arguments are the database knows from it; of its
// answer all is binary.
func (p *postgres) send(ctx context.Context, sql string, args []any) *pgconn.ResultReader {
	values, formats := make([][]byte, len(args)), make([]int16, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case nil:
		case []byte:
			values[i], formats[i] = a, asBinary
		case string:
			values[i], formats[i] = []byte(outgoing(a)), asText
		default: // an integer
			values[i], formats[i] = fmt.Append(nil, a), asText
		}
	}
	return p.conn.ExecParams(ctx, numbered(sql), values, nil, formats, []int16{asBinary})
}

// numbered writes the arguments of a statement as PostgreSQL does: $1, $2, ….
func numbered(sql string) string {
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(sql, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

// PostgreSQL's text has no NUL, which a label may hold: it is written as \0, and
// a backslash as two.
func outgoing(s string) string {
	if !strings.ContainsAny(s, "\\\x00") {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, "\x00", `\0`).Replace(s)
}

// A postgresRow is a row in PostgreSQL's binary format; nil is NULL.
type postgresRow [][]byte

func (r postgresRow) text(i int) string {
	s := string(r[i])
	if strings.Contains(s, `\`) {
		s = strings.NewReplacer(`\\`, `\`, `\0`, "\x00").Replace(s)
	}
	return s
}

func (r postgresRow) number(i int) int64 {
	switch b := r[i]; len(b) {
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

func (r postgresRow) bytes(i int) []byte { return r[i] }

func (r postgresRow) null(i int) bool { return r[i] == nil }

// owns reports whether an error is the database's, or of the connection to it.
func (p *postgres) owns(err error) bool {
	var wrong *pgconn.PgError
	var connect *pgconn.ConnectError
	return errors.As(err, &wrong) || errors.As(err, &connect) || errors.Is(err, errAway) || pgconn.Timeout(err) || p.conn == nil || p.conn.IsClosed()
}

// explain returns PostgreSQL's error for people. It wraps ErrAway if a later
// attempt may succeed, and ErrRefused if the database will never accept the
// result.
func (p *postgres) explain(doing string, err error) error {
	kind, remedy := error(nil), ""
	class := ""
	var wrong *pgconn.PgError
	if errors.As(err, &wrong) && len(wrong.Code) == 5 {
		class = wrong.Code[:2]
	}
	switch {
	case errors.Is(err, ErrNewer), errors.Is(err, ErrForeign):
		remedy = "it was left as it is; name another database with --store"
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotFound), errors.Is(err, ErrAmbiguous):
	case class == "53":
		kind, remedy = ErrFull, "nothing in it is lost; make room there"
	case class == "22", class == "54": // data exceptions, program limits
		kind = ErrRefused
	case class == "28", class == "3D", wrong != nil && wrong.Code == "42501":
		kind, remedy = ErrAway, "see that the role may log in to this database and make tables there (docs/running-a-server.md)"
	case class == "" || class == "08" || class == "57" || class == "40" || class == "55":
		kind, remedy = ErrAway, "see that it runs and can be reached"
	}
	if kind != nil {
		err = fmt.Errorf("%w (%w)", kind, err)
	}
	if remedy == "" {
		return fmt.Errorf("%s the results in %s: %w", doing, p.name, err)
	}
	return fmt.Errorf("%s the results in %s: %w; %s", doing, p.name, err, remedy)
}
