package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Add stores the records, all or none of them, and returns how many of them
// were new. It computes their ids itself.
func (s *Store) Add(ctx context.Context, records []Record) (added int, err error) {
	err = s.db.transact(ctx, func() error {
		k := adder{store: s, ctx: ctx}
		for _, r := range records {
			if err := k.add(r); err != nil {
				return err
			}
		}
		err := k.flush()
		added = k.added
		return err
	})
	if err != nil {
		return 0, s.db.explain("keep", err)
	}
	return added, nil
}

// Import stores the results of an export, all or none of them, and returns how
// many there were and how many were new. An error in a line is a *LineError.
func (s *Store) Import(ctx context.Context, r io.Reader) (read, added int, err error) {
	err = s.db.transact(ctx, func() error {
		k := adder{store: s, ctx: ctx}
		err := ReadExport(r, func(rec Record) error {
			read++
			return k.add(rec)
		})
		if err == nil {
			err = k.flush()
		}
		added = k.added
		return err
	})
	var wrong *LineError
	if errors.As(err, &wrong) && !s.db.owns(err) {
		return 0, 0, err
	}
	if err != nil {
		return 0, 0, s.db.explain("import into", err)
	}
	return read, added, nil
}

// Export writes the results whose ids begin with one of the prefixes, or all if
// there is none, the oldest first, and returns their number.
func (s *Store) Export(ctx context.Context, w io.Writer, prefixes []string) (n int, err error) {
	out, err := NewWriter(w)
	if err != nil {
		return 0, err
	}
	if len(prefixes) == 0 {
		if n, err = s.exportAll(ctx, out); err != nil {
			return n, err
		}
	}
	for _, p := range prefixes {
		r, err := s.Get(ctx, p)
		if err != nil {
			return n, err
		}
		if err := out.Write(r); err != nil {
			return n, err
		}
		n++
	}
	return n, out.Close()
}

// exportPage is the number of results in memory when all are exported.
const exportPage = 100

// exportAll writes all results, page by page, so that other programs can use
// the database in between.
func (s *Store) exportAll(ctx context.Context, out *Writer) (n int, err error) {
	last, id := int64(-1), ""
	for {
		var page []Record
		err := s.db.query(ctx, "SELECT "+recordColumns+` FROM results WHERE (time_ms, id) > (?, ?) ORDER BY time_ms, id LIMIT ?`,
			[]any{last, id, exportPage}, func(row row) error {
				r, err := readRecord(row)
				page = append(page, r)
				return err
			})
		if err != nil {
			return n, s.db.explain("export", err)
		}
		for _, r := range page {
			if err := out.Write(r); err != nil {
				return n, err
			}
			n++
		}
		if len(page) < exportPage {
			return n, nil
		}
		last, id = page[len(page)-1].Time.UnixMilli(), page[len(page)-1].ID
	}
}

// An adder adds records, several with each statement.
type adder struct {
	store *Store
	ctx   context.Context
	args  []any
	rows  int
	bytes int
	added int
}

// Limits of one statement that adds records, and its columns.
const (
	keeperRows    = 200
	keeperBytes   = 8 << 20
	keeperColumns = 13
)

func (k *adder) add(r Record) error {
	r, err := r.normal()
	if err != nil {
		return err
	}
	packed, err := pack(r.Result)
	if err != nil {
		return err
	}
	figures, err := figuresText(r)
	if err != nil {
		return err
	}
	var plan any
	if r.Plan != nil {
		plan = string(r.Plan)
	}
	k.args = append(k.args, r.ID, r.Time.UnixMilli(), r.Kind, r.Label, r.Server, r.Interface, r.Link, r.Tool, r.System, plan, packed, figures, r.Owner)
	k.rows++
	if k.bytes += len(packed) + len(r.Plan); k.rows < keeperRows && k.bytes < keeperBytes {
		return nil
	}
	return k.flush()
}

// flush adds the collected records.
func (k *adder) flush() error {
	if k.rows == 0 {
		return nil
	}
	n, err := k.store.db.exec(k.ctx, `INSERT INTO results (id, time_ms, kind, label, server, interface, link, tool, system, plan, result, figures, owner)
		VALUES `+placeholders(k.rows, keeperColumns)+` ON CONFLICT (id) DO NOTHING`, k.args...)
	k.added += int(n)
	k.args, k.rows, k.bytes = k.args[:0], 0, 0
	return err
}

// Trim removes the oldest results until at most n are left, and returns how
// many it removed. A file does not shrink, but its space is used again.
func (s *Store) Trim(ctx context.Context, n int) (removed int, err error) {
	err = s.db.transact(ctx, func() error {
		var last int64
		var id string
		err := s.db.query(ctx, "SELECT time_ms, id FROM results ORDER BY time_ms DESC, id DESC LIMIT 1 OFFSET ?", []any{max(n, 0)}, func(r row) error {
			last, id = r.number(0), r.text(1)
			return nil
		})
		if err != nil || id == "" {
			return err
		}
		k, err := s.db.exec(ctx, "DELETE FROM results WHERE (time_ms, id) <= (?, ?)", last, id)
		removed = int(k)
		return err
	})
	if err != nil {
		return 0, s.db.explain("trim", err)
	}
	return removed, nil
}

// Expire removes the results that were taken before a time, and returns their
// number.
func (s *Store) Expire(ctx context.Context, before time.Time) (removed int, err error) {
	n, err := s.db.exec(ctx, "DELETE FROM results WHERE time_ms < ?", before.UnixMilli())
	if err != nil {
		return 0, s.db.explain("remove old results of", err)
	}
	return int(n), nil
}

// Delete removes the one result whose id begins with prefix. Errors wrap
// ErrNotFound or ErrAmbiguous.
func (s *Store) Delete(ctx context.Context, prefix string) error {
	id, _, err := s.find(ctx, prefix)
	if err != nil {
		return err
	}
	err = s.db.transact(ctx, func() error {
		if _, err := s.db.exec(ctx, "DELETE FROM results WHERE id = ?", id); err != nil {
			return err
		}
		return s.remember(ctx, id)
	})
	if err != nil {
		return s.db.explain("delete from", err)
	}
	return nil
}

// remember records that a result was withdrawn, for Deliver.
func (s *Store) remember(ctx context.Context, id string) error {
	now := time.Now()
	if _, err := s.db.exec(ctx, "DELETE FROM withdrawn WHERE time_ms < ?", now.Add(-withdrawnFor).UnixMilli()); err != nil {
		return err
	}
	_, err := s.db.exec(ctx, "INSERT INTO withdrawn (id, time_ms) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", id, now.UnixMilli())
	return err
}

// Withdraw removes the one result whose id begins with prefix, if the token is
// right. Errors wrap ErrNotFound, ErrAmbiguous or ErrNotOwner.
func (s *Store) Withdraw(ctx context.Context, prefix, token string) error {
	id, _, err := s.find(ctx, prefix)
	if err != nil {
		return err
	}
	err = s.db.transact(ctx, func() error {
		n, err := s.db.exec(ctx, "DELETE FROM results WHERE id = ? AND owner = ? AND owner <> ''", id, OwnerOf(token))
		if err == nil && n == 0 {
			err = ErrNotOwner
		}
		if err != nil {
			return err
		}
		return s.remember(ctx, id)
	})
	switch {
	case errors.Is(err, ErrNotOwner):
		return fmt.Errorf("delete result %.8s: %w", id, ErrNotOwner)
	case err != nil:
		return s.db.explain("delete from", err)
	}
	return nil
}

// withdrawnFor is how long a withdrawal is remembered: longer than any server
// keeps a result that it could not deliver.
const withdrawnFor = 90 * 24 * time.Hour

// Deliver adds results that have waited, except those that were withdrawn in
// the meantime: a server that did not get the answer to a delivery delivers the
// result again.
func (s *Store) Deliver(ctx context.Context, records []Record) error {
	ids := make([]any, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	gone := map[string]bool{}
	if len(ids) > 0 {
		err := s.db.query(ctx, "SELECT id FROM withdrawn WHERE id IN "+placeholders(1, len(ids)), ids, func(r row) error {
			gone[r.text(0)] = true
			return nil
		})
		if err != nil {
			return s.db.explain("read", err)
		}
	}
	_, err := s.Add(ctx, slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return gone[r.ID] }))
	return err
}

// List returns the results that pass the filter, the newest first.
func (s *Store) List(ctx context.Context, f Filter) ([]Entry, error) {
	out := []Entry{}
	sql, args, err := s.listing(ctx, f)
	if err != nil {
		return nil, err
	}
	err = s.db.query(ctx, sql, args, func(r row) error {
		e := Entry{
			ID: r.text(0), Time: at(r.number(1)), Kind: r.text(2), Label: r.text(3),
			Server: r.text(4), Interface: r.text(5), Link: r.text(6), Tool: r.text(7), System: r.text(8),
			Shaped: r.number(9) != 0,
		}
		if err := json.Unmarshal([]byte(r.text(10)), &e.Figures); err != nil {
			return damaged(e.ID, fmt.Errorf("figures: %w", err))
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, s.db.explain("list", err)
	}
	return out, nil
}

// listing returns the statement that lists the results that pass the filter.
func (s *Store) listing(ctx context.Context, f Filter) (sql string, args []any, err error) {
	terms, args := f.where()
	if f.After != "" {
		id, ms, err := s.find(ctx, f.After)
		if err != nil {
			return "", nil, err
		}
		terms, args = append(terms, "(time_ms, id) < (?, ?)"), append(args, ms, id)
	}
	sql = `SELECT id, time_ms, kind, label, server, interface, link, tool, system, CASE WHEN plan IS NULL THEN 0 ELSE 1 END, figures FROM results`
	if len(terms) > 0 {
		sql += " WHERE " + strings.Join(terms, " AND ")
	}
	sql += " ORDER BY time_ms DESC, id DESC"
	if f.Limit > 0 {
		sql += " LIMIT " + strconv.Itoa(f.Limit)
	}
	return sql, args, nil
}

func (f Filter) where() (terms []string, args []any) {
	add := func(term string, v ...any) {
		terms = append(terms, term)
		args = append(args, v...)
	}
	if f.Kind != "" {
		add("kind = ?", f.Kind)
	}
	if f.Label != "" {
		add("label = ?", f.Label)
	}
	if f.Server != "" { // with any port: between "name:" and "name;", the next character
		add("(server = ? OR server >= ? AND server < ?)", f.Server, f.Server+":", f.Server+";")
	}
	if f.Interface != "" {
		add("interface = ?", f.Interface)
	}
	switch {
	case f.Shaped == nil:
	case *f.Shaped:
		add("plan IS NOT NULL")
	default:
		add("plan IS NULL")
	}
	if !f.Since.IsZero() {
		add("time_ms >= ?", f.Since.UnixMilli())
	}
	return terms, args
}

// find returns the id and the time, in milliseconds, of the one result whose id begins
// with prefix.
func (s *Store) find(ctx context.Context, prefix string) (id string, ms int64, err error) {
	found := 0
	// "g" sorts after every digit of an id
	err = s.db.query(ctx, "SELECT id, time_ms FROM results WHERE id >= ? AND id < ? LIMIT 2", []any{prefix, prefix + "g"}, func(r row) error {
		id, ms, found = r.text(0), r.number(1), found+1
		return nil
	})
	switch {
	case err != nil:
		return "", 0, s.db.explain("read", err)
	case found == 0 || prefix == "" || !strings.HasPrefix(id, prefix):
		return "", 0, fmt.Errorf("find result %q in %s: %w; see `unbloat history`", short(prefix), s.name, ErrNotFound)
	case found > 1:
		return "", 0, fmt.Errorf("find result %q in %s: %w; give more of its id", prefix, s.name, ErrAmbiguous)
	}
	return id, ms, nil
}

// Get returns the one result whose id begins with prefix. Errors wrap
// ErrNotFound or ErrAmbiguous.
func (s *Store) Get(ctx context.Context, prefix string) (Record, error) {
	id, _, err := s.find(ctx, prefix)
	if err != nil {
		return Record{}, err
	}
	r, err := s.read(ctx, id)
	if err != nil {
		return Record{}, s.db.explain("read", err)
	}
	return r, nil
}

// recordColumns are what readRecord reads.
const recordColumns = "id, time_ms, kind, label, server, interface, link, tool, system, plan, result, owner"

// read returns one result, and checks it against its id.
func (s *Store) read(ctx context.Context, id string) (r Record, err error) {
	n := 0
	err = s.db.query(ctx, "SELECT "+recordColumns+" FROM results WHERE id = ?", []any{id}, func(row row) (err error) {
		n++
		r, err = readRecord(row)
		return err
	})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return r, err
}

// readRecord reads a row of recordColumns, and checks it against its id.
func readRecord(row row) (Record, error) {
	id := row.text(0)
	r := Record{
		Time: at(row.number(1)), Kind: row.text(2), Label: row.text(3), Server: row.text(4),
		Interface: row.text(5), Link: row.text(6), Tool: row.text(7), System: row.text(8), Owner: row.text(11),
	}
	if !row.null(9) {
		r.Plan = json.RawMessage(row.text(9))
	}
	var err error
	if r.Result, err = unpack(row.bytes(10)); err != nil {
		return r, err
	}
	out, err := r.normal()
	if err != nil || out.ID != id {
		return r, fmt.Errorf("%w: result %.8s is not what was kept", ErrDamaged, id)
	}
	return out, nil
}

func figuresText(r Record) (string, error) {
	f, err := r.figures()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(f)
	return string(b), err
}

func pack(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return text, nil
}
