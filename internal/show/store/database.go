package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A database runs SQL. The statements are valid for both SQLite and PostgreSQL,
// with ? for each argument. Arguments are string, int, int64, []byte or nil.
// Only one goroutine may use it at a time.
type database interface {
	// exec runs a statement, and returns how many rows it changed.
	exec(ctx context.Context, sql string, args ...any) (changed int64, err error)
	// query calls each for every row.
	query(ctx context.Context, sql string, args []any, each func(row) error) error
	// transact runs do in one transaction.
	transact(ctx context.Context, do func() error) error
	// explain returns an error for people, with what to do.
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

// types are the database's names for the types of our columns.
type types struct {
	text, integer, blob string
	strict              string // the end of a table's definition
}

// migrations lead from an empty database to the current layout. A database's
// version is the number of migrations that were run. New ones are only added at
// the end.
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
		`CREATE TABLE lines (
			wan           {text} NOT NULL,
			at_s          {integer} NOT NULL,
			step_s        {integer} NOT NULL,
			rate_down     {integer} NOT NULL,
			capacity_down {integer} NOT NULL,
			carried_down  {integer} NOT NULL,
			delay_down    {integer} NOT NULL,
			most_down     {integer} NOT NULL,
			rate_up       {integer} NOT NULL,
			capacity_up   {integer} NOT NULL,
			carried_up    {integer} NOT NULL,
			delay_up      {integer} NOT NULL,
			most_up       {integer} NOT NULL,
			PRIMARY KEY (wan, at_s)
		) {strict}`,
		`CREATE TABLE incidents (
			wan           {text} NOT NULL,
			id            {text} NOT NULL,
			begin_ms      {integer} NOT NULL,
			end_ms        {integer} NOT NULL,
			incident      {text} NOT NULL,
			samples       {blob} NOT NULL,
			samples_bytes {integer} NOT NULL,
			PRIMARY KEY (wan, id)
		) {strict}`,
	}
	for i := range out {
		out[i] = name.Replace(out[i])
	}
	return out
}

// figuresSince is the layout that has the figures of results. When an older one
// is upgraded they are computed.
const figuresSince = 2

// migrate upgrades the layout from a version. It runs in a transaction.
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

// refigure computes the figures of all results again.
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

// A Store is open results, in a file or in a PostgreSQL database. Only one
// goroutine may use it. A file should be closed soon, since other processes
// wait for it.
type Store struct {
	db   database
	name string // for messages, without a password
}

// Close closes the results.
func (s *Store) Close() error {
	if err := s.db.close(); err != nil {
		return s.db.explain("close", err)
	}
	return nil
}

// Open opens the results at place: a file, which is created if it is missing,
// or the URL of a PostgreSQL database (postgres://…). An older layout is
// upgraded.
func Open(ctx context.Context, place string) (*Store, error) {
	if IsDatabase(place) {
		return openPostgres(ctx, place)
	}
	return openFile(ctx, place)
}

// OpenExisting is Open, but a missing file is an error that wraps
// fs.ErrNotExist.
func OpenExisting(ctx context.Context, place string) (*Store, error) {
	if IsDatabase(place) {
		return openPostgres(ctx, place)
	}
	return openExistingFile(ctx, place)
}

// one returns the integer that a query returns, or 0 without a row.
func (s *Store) one(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = s.db.query(ctx, sql, args, func(r row) error {
		n = r.number(0)
		return nil
	})
	return n, err
}

// placeholders returns n groups of each ?.
func placeholders(n, each int) string {
	group := "(" + strings.TrimSuffix(strings.Repeat("?, ", each), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(group+", ", n), ", ")
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// damaged wraps ErrDamaged around what is wrong with a result.
func damaged(id string, err error) error {
	return fmt.Errorf("%w: result %.8s: %w", ErrDamaged, id, err)
}
