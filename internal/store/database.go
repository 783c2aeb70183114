//go:build !omit_store

package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A database runs SQL. The statements are those that SQLite and PostgreSQL both
// understand, with ? for each argument. Arguments are string, int, int64, []byte
// or nil. Methods are called by one goroutine at a time.
type database interface {
	// exec runs a statement, and returns how many rows it changed.
	exec(ctx context.Context, sql string, args ...any) (changed int64, err error)
	// query calls each for every row.
	query(ctx context.Context, sql string, args []any, each func(row) error) error
	// transact does all of do in one transaction, or nothing.
	transact(ctx context.Context, do func() error) error
	// explain says what an error means for the person at the keyboard.
	explain(doing string, err error) error
	// owns reports whether an error is the database's.
	owns(err error) bool
	close() error
}

// A row is one row of an answer. It is valid until its function returns.
type row interface {
	text(i int) string
	number(i int) int64
	bytes(i int) []byte
	null(i int) bool
}

// types are the names that a database has for what our tables hold.
type types struct {
	text, integer, blob string
	strict              string // what ends the definition of a table
}

// migrations lead from an empty database to today's layout; its version is how
// many of them it has behind it. They are only ever added to.
func migrations(t types) []string {
	name := strings.NewReplacer("{text}", t.text, "{integer}", t.integer, "{blob}", t.blob, "{strict}", t.strict)
	out := []string{
		`CREATE TABLE results (
			id        {text} PRIMARY KEY,
			time_ms   {integer} NOT NULL,
			kind      {text} NOT NULL,
			label     {text} NOT NULL,
			server    {text} NOT NULL,
			interface {text} NOT NULL,
			link      {text} NOT NULL,
			tool      {text} NOT NULL,
			system    {text} NOT NULL,
			plan      {text},
			result    {blob} NOT NULL
		) {strict}`,
		`ALTER TABLE results ADD COLUMN figures {text} NOT NULL DEFAULT '{}';
		 CREATE INDEX results_by_time ON results (time_ms)`,
		`ALTER TABLE results ADD COLUMN owner {text} NOT NULL DEFAULT '';
		 DROP INDEX results_by_time;
		 CREATE INDEX results_by_time ON results (time_ms, id);
		 CREATE INDEX results_by_kind ON results (kind, time_ms, id);
		 CREATE INDEX results_by_label ON results (label, time_ms, id);
		 CREATE TABLE budgets (
			who       {text} NOT NULL,
			server    {text} NOT NULL,
			since_ms  {integer} NOT NULL,
			bytes     {integer} NOT NULL,
			busy_ms   {integer} NOT NULL,
			PRIMARY KEY (who, server)
		 ) {strict};
		 CREATE TABLE budget_secrets (
			day       {integer} PRIMARY KEY,
			secret    {blob} NOT NULL
		 ) {strict}`,
		`CREATE TABLE withdrawn (
			id        {text} PRIMARY KEY,
			time_ms   {integer} NOT NULL
		) {strict}`,
	}
	for i := range out {
		out[i] = name.Replace(out[i])
	}
	return out
}

// figuresSince is the layout that brought the figures of results: those of an
// older one are filled in.
const figuresSince = 2

// migrate brings the layout from a version up to date. It runs in a transaction.
func (s *Store) migrate(ctx context.Context, all []string, have int) error {
	for _, m := range all[min(have, len(all)):] {
		if _, err := s.db.exec(ctx, m); err != nil {
			return err
		}
	}
	if have > 0 && have < figuresSince {
		return s.refigure(ctx)
	}
	return nil
}

// refigure takes the figures of all results anew.
func (s *Store) refigure(ctx context.Context) error {
	var ids []string
	err := s.db.query(ctx, "SELECT id FROM results", nil, func(r row) error {
		ids = append(ids, r.text(0))
		return nil
	})
	for _, id := range ids {
		var r Record
		if err == nil {
			r, err = s.read(ctx, id)
		}
		if err != nil {
			return err
		}
		text, err := figuresText(r)
		if err != nil {
			return err
		}
		if _, err := s.db.exec(ctx, "UPDATE results SET figures = ? WHERE id = ?", text, id); err != nil {
			return err
		}
	}
	return err
}

// A Store is open results, in a file or in a PostgreSQL database. It belongs to
// one goroutine. A file should be closed soon: other processes wait meanwhile.
type Store struct {
	db   database
	name string // as messages name it, without a password
}

// Close ends the use of the results.
func (s *Store) Close() error {
	if err := s.db.close(); err != nil {
		return s.db.explain("close", err)
	}
	return nil
}

// Open opens the results at place: a file, which is made if there is none, or
// the URL of a PostgreSQL database (postgres://…). An older layout is brought up
// to date.
func Open(ctx context.Context, place string) (*Store, error) {
	if IsDatabase(place) {
		return openPostgres(ctx, place)
	}
	return openFile(ctx, place)
}

// OpenExisting is Open, but a file that is not there is an error that wraps
// fs.ErrNotExist.
func OpenExisting(ctx context.Context, place string) (*Store, error) {
	if IsDatabase(place) {
		return openPostgres(ctx, place)
	}
	return openExistingFile(ctx, place)
}

// one returns the one integer that a query yields, 0 if it yields nothing.
func (s *Store) one(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = s.db.query(ctx, sql, args, func(r row) error {
		n = r.number(0)
		return nil
	})
	return n, err
}

// placeholders returns n groups of ?, each of so many.
func placeholders(n, each int) string {
	group := "(" + strings.TrimSuffix(strings.Repeat("?, ", each), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(group+", ", n), ", ")
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// damaged wraps ErrDamaged around what is wrong with a result.
func damaged(id string, err error) error {
	return fmt.Errorf("%w: result %.8s: %w", ErrDamaged, id, err)
}
