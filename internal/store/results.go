//go:build !omit_store

package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// Add keeps the records, all or none of them, and returns how many of them were
// new. Their ids are not believed but made.
func (s *Store) Add(ctx context.Context, records []Record) (added int, err error) {
	s.conn.SetInterrupt(ctx)
	err = s.transact(func() error {
		for _, r := range records {
			fresh, err := s.add(r)
			if err != nil {
				return err
			}
			if fresh {
				added++
			}
		}
		return nil
	})
	if err != nil {
		return 0, explain("keep", s.path, err)
	}
	return added, nil
}

// Import keeps the results of an export, all or none of them, and returns how
// many there were and how many of them were new. What is wrong with the export
// is a *LineError, if it is in a line.
func (s *Store) Import(ctx context.Context, r io.Reader) (read, added int, err error) {
	s.conn.SetInterrupt(ctx)
	err = s.transact(func() error {
		return ReadExport(r, func(rec Record) error {
			fresh, err := s.add(rec)
			read++
			if fresh {
				added++
			}
			return err
		})
	})
	var wrong *LineError
	if errors.As(err, &wrong) && !fromFile(err) {
		return 0, 0, err
	}
	if err != nil {
		return 0, 0, explain("import into", s.path, err)
	}
	return read, added, nil
}

// Export writes the results whose ids begin so, all of them if none is given,
// the oldest first, and returns how many.
func (s *Store) Export(ctx context.Context, w io.Writer, prefixes []string) (n int, err error) {
	s.conn.SetInterrupt(ctx)
	if len(prefixes) == 0 {
		if prefixes, err = s.ids(); err != nil {
			return 0, explain("export", s.path, err)
		}
	}
	out, err := NewWriter(w)
	if err != nil {
		return 0, err
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

func (s *Store) add(r Record) (bool, error) {
	r, err := r.normal()
	if err != nil {
		return false, err
	}
	packed, err := pack(r.Result)
	if err != nil {
		return false, err
	}
	figures, err := figuresText(r)
	if err != nil {
		return false, err
	}
	var plan any
	if r.Plan != nil {
		plan = string(r.Plan)
	}
	err = s.exec(`INSERT INTO results (id, time_ms, kind, label, server, interface, link, tool, system, plan, result, figures)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		r.ID, r.Time.UnixMilli(), r.Kind, r.Label, r.Server, r.Interface, r.Link, r.Tool, r.System, plan, packed, figures)
	return s.conn.Changes() > 0, err
}

// Trim removes the oldest results until at most n are left, and returns how
// many it removed. The file does not shrink, but their room is used again.
func (s *Store) Trim(ctx context.Context, n int) (removed int, err error) {
	s.conn.SetInterrupt(ctx)
	err = s.transact(func() error {
		err := s.exec("DELETE FROM results WHERE id IN (SELECT id FROM results ORDER BY time_ms DESC, id LIMIT -1 OFFSET ?)", max(n, 0))
		removed = int(s.conn.Changes())
		return err
	})
	if err != nil {
		return 0, explain("trim", s.path, err)
	}
	return removed, nil
}

// List returns the results that pass the filter, the newest first.
func (s *Store) List(ctx context.Context, f Filter) ([]Entry, error) {
	s.conn.SetInterrupt(ctx)
	where, args := f.where()
	sql := `SELECT id, time_ms, kind, label, server, interface, link, tool, system, plan IS NOT NULL, figures
		FROM results ` + where + ` ORDER BY time_ms DESC, id`
	if f.Limit > 0 {
		sql += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	out := []Entry{}
	err := s.query(sql, args, func(st *sqlite3.Stmt) error {
		e := Entry{
			ID: st.ColumnText(0), Time: time.UnixMilli(st.ColumnInt64(1)).UTC(), Kind: st.ColumnText(2), Label: st.ColumnText(3),
			Server: st.ColumnText(4), Interface: st.ColumnText(5), Link: st.ColumnText(6), Tool: st.ColumnText(7), System: st.ColumnText(8),
			Shaped: st.ColumnBool(9),
		}
		if err := json.Unmarshal(st.ColumnRawText(10), &e.Figures); err != nil {
			return fmt.Errorf("%w: figures of %.8s: %w", ErrDamaged, e.ID, err)
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, explain("list", s.path, err)
	}
	return out, nil
}

func (f Filter) where() (string, []any) {
	var terms []string
	var args []any
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
	if f.Server != "" {
		add("(server = ? OR substr(server, 1, length(?) + 1) = ? || ':')", f.Server, f.Server, f.Server)
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
	if len(terms) == 0 {
		return "", nil
	}
	return "WHERE " + strings.Join(terms, " AND "), args
}

// Get returns the one result whose id begins with prefix. Errors wrap
// ErrNotFound or ErrAmbiguous.
func (s *Store) Get(ctx context.Context, prefix string) (Record, error) {
	s.conn.SetInterrupt(ctx)
	var found []string
	err := s.query("SELECT id FROM results WHERE substr(id, 1, length(?)) = ? LIMIT 2", []any{prefix, prefix}, func(st *sqlite3.Stmt) error {
		found = append(found, st.ColumnText(0))
		return nil
	})
	switch {
	case err != nil:
	case len(found) == 0 || prefix == "":
		return Record{}, fmt.Errorf("find result %q in %s: %w; see `unbloat history`", short(prefix), s.path, ErrNotFound)
	case len(found) > 1:
		return Record{}, fmt.Errorf("find result %q in %s: %w; give more of its id", prefix, s.path, ErrAmbiguous)
	default:
		var r Record
		if r, err = s.read(found[0]); err == nil {
			return r, nil
		}
	}
	return Record{}, explain("read", s.path, err)
}

// read returns one result, and checks it against its id.
func (s *Store) read(id string) (Record, error) {
	var r Record
	found := false
	err := s.query(`SELECT time_ms, kind, label, server, interface, link, tool, system, plan, result FROM results WHERE id = ?`,
		[]any{id}, func(st *sqlite3.Stmt) (err error) {
			found = true
			r = Record{
				Time: time.UnixMilli(st.ColumnInt64(0)), Kind: st.ColumnText(1), Label: st.ColumnText(2), Server: st.ColumnText(3),
				Interface: st.ColumnText(4), Link: st.ColumnText(5), Tool: st.ColumnText(6), System: st.ColumnText(7),
			}
			if st.ColumnType(8) != sqlite3.NULL {
				r.Plan = json.RawMessage(st.ColumnText(8))
			}
			r.Result, err = unpack(st.ColumnRawBlob(9))
			return err
		})
	if err != nil {
		return r, err
	}
	if !found {
		return r, ErrNotFound
	}
	out, err := r.normal()
	if err != nil || out.ID != id {
		return r, fmt.Errorf("%w: result %.8s is not what was kept", ErrDamaged, id)
	}
	return out, nil
}

// ids returns the ids of all results, the oldest first.
func (s *Store) ids() ([]string, error) {
	var out []string
	err := s.query("SELECT id FROM results ORDER BY time_ms, id", nil, func(st *sqlite3.Stmt) error {
		out = append(out, st.ColumnText(0))
		return nil
	})
	return out, err
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
