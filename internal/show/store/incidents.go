package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"unbloat/internal/keep/incident"
)

// Bounds of what is kept of incidents.
const (
	IncidentDays   = 90 * 24 * time.Hour
	incidentBytes  = 8 << 20 // of samples, compressed; the oldest lose theirs first
	mostIncidents  = 5000    // the newest
	mostSampleText = 4 << 20 // of one incident, not compressed
)

// AddIncidents keeps incidents that have ended, all or nothing, and thins what is old. now
// is the machine's clock.
func (s *Store) AddIncidents(ctx context.Context, ended []incident.Incident, now time.Time) error {
	err := s.db.transact(ctx, func() error {
		for _, x := range ended {
			if err := s.putIncident(ctx, x); err != nil {
				return err
			}
		}
		return s.thinIncidents(ctx, now)
	})
	if err != nil {
		return s.db.explain("write incidents to", err)
	}
	return nil
}

func (s *Store) putIncident(ctx context.Context, x incident.Incident) error {
	text, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("write incident %s: %w", x.ID, err)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(incident.CSV(x.Samples, x.Far)) // to memory
	_ = w.Close()
	wan := x.Router + " " + x.WAN
	if _, err := s.db.exec(ctx, "DELETE FROM incidents WHERE wan = ? AND id = ?", wan, x.ID); err != nil {
		return err
	}
	_, err = s.db.exec(ctx, "INSERT INTO incidents (wan, id, begin_ms, end_ms, incident, samples, samples_bytes) VALUES "+placeholders(1, 7),
		wan, x.ID, x.Begin.UnixMilli(), x.End.UnixMilli(), string(text), b.Bytes(), int64(b.Len()))
	return err
}

// thinIncidents removes what is too old, and the oldest samples if there are too many.
func (s *Store) thinIncidents(ctx context.Context, now time.Time) error {
	if _, err := s.db.exec(ctx, "DELETE FROM incidents WHERE end_ms < ?", now.Add(-IncidentDays).UnixMilli()); err != nil {
		return err
	}
	n, samples, oldest, kept := 0, int64(0), int64(0), int64(0)
	err := s.db.query(ctx, "SELECT begin_ms, samples_bytes FROM incidents ORDER BY begin_ms DESC", nil, func(r row) error {
		if n++; n <= mostIncidents {
			oldest = r.number(0)
		}
		if samples += r.number(1); samples <= incidentBytes {
			kept = r.number(0)
		}
		return nil
	})
	if err == nil && n > mostIncidents {
		_, err = s.db.exec(ctx, "DELETE FROM incidents WHERE begin_ms < ?", oldest)
	}
	if err == nil && samples > incidentBytes {
		_, err = s.db.exec(ctx, "UPDATE incidents SET samples = ?, samples_bytes = 0 WHERE begin_ms < ?", []byte{}, kept)
	}
	return err
}

// Incidents returns those that were within a time, oldest first, without samples; with an
// ID that one alone, with them.
func (s *Store) Incidents(ctx context.Context, id string, from, to time.Time) (out []incident.Incident, err error) {
	where, args := "begin_ms < ? AND end_ms >= ?", []any{to.UnixMilli(), from.UnixMilli()}
	if id != "" {
		where, args = "id = ?", []any{id}
	}
	err = s.db.query(ctx, "SELECT incident, samples FROM incidents WHERE "+where+" ORDER BY begin_ms, id", args, func(r row) error {
		var x incident.Incident
		if err := json.Unmarshal([]byte(r.text(0)), &x); err != nil {
			return fmt.Errorf("%w: an incident: %w", ErrDamaged, err)
		}
		if id != "" {
			if x.Samples, err = unpackSamples(r.bytes(1)); err != nil {
				return fmt.Errorf("%w: incident %s: %w", ErrDamaged, x.ID, err)
			}
		}
		out = append(out, x)
		return nil
	})
	if err != nil {
		return nil, s.db.explain("read incidents from", err)
	}
	return out, nil
}

func unpackSamples(b []byte) ([]incident.Second, error) {
	if len(b) == 0 { // they were thinned
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, mostSampleText))
	if err != nil {
		return nil, err
	}
	samples, _, err := incident.ParseCSV(text)
	return samples, err
}
