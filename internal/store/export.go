package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ExportSchema names the layout of an export: this schema on the first line,
// then a Record a line; gzipped.
const ExportSchema = "unbloat.export/1"

// Bounds of what is imported: what a hostile file may make of this machine.
const (
	maxLine    = maxResult + 1<<20
	maxImport  = 1 << 30 // bytes, unpacked
	maxRecords = 100_000
)

type exportHead struct {
	Schema string `json:"schema"`
}

// A LineError says which line of an import is refused, and why.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// WriteExport writes records for ReadExport.
func WriteExport(w io.Writer, records []Record) error {
	z := gzip.NewWriter(w)
	if _, err := fmt.Fprintf(z, "{\"schema\":%q}\n", ExportSchema); err != nil {
		return err
	}
	for _, r := range records {
		text, err := line(r)
		if err != nil {
			return err
		}
		if _, err := z.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return z.Close()
}

// ReadExport reads what WriteExport wrote, packed or not. A line that is not
// exactly a record with its own id is refused with a *LineError.
func ReadExport(r io.Reader) ([]Record, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		defer z.Close()
		in = bufio.NewReaderSize(z, 1<<16)
	}
	var out []Record
	left := int64(maxImport)
	for n := 1; ; n++ {
		text, err := readLine(in, min(left, maxLine))
		if errors.Is(err, io.EOF) && len(text) == 0 {
			if n == 1 {
				return nil, errors.New("the file is empty")
			}
			return out, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, &LineError{n, err}
		}
		left -= int64(len(text))
		if n == 1 {
			err = checkHead(text)
		} else {
			var rec Record
			if rec, err = parseLine(text); err == nil {
				out = append(out, rec)
			}
		}
		if err == nil && len(out) > maxRecords {
			err = fmt.Errorf("more than %d results", maxRecords)
		}
		if err != nil {
			return nil, &LineError{n, err}
		}
	}
}

// readLine reads up to the line's end, at most limit bytes.
func readLine(in *bufio.Reader, limit int64) ([]byte, error) {
	var out []byte
	for {
		part, err := in.ReadSlice('\n')
		out = append(out, part...)
		if int64(len(out)) > limit {
			return nil, fmt.Errorf("too long: results are at most %d bytes, and all of a file at most %d", maxResult, maxImport)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return out, err
		}
	}
}

func checkHead(text []byte) error {
	var h exportHead
	if err := json.Unmarshal(text, &h); err != nil || h.Schema == "" {
		return fmt.Errorf("is not the head of an export; make one with `unbloat export -o FILE`")
	}
	if h.Schema != ExportSchema {
		return fmt.Errorf("schema %q, not %s; use the unbloat that wrote it", short(h.Schema), ExportSchema)
	}
	return nil
}

// parseLine reads one record and proves that it is what its id says.
func parseLine(text []byte) (Record, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var r Record
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("is not a result: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("more than one result in a line")
	}
	out, err := r.normal()
	if err != nil {
		return r, err
	}
	if out.ID != r.ID {
		return r, fmt.Errorf("the content does not fit the id %q: it was altered", short(r.ID))
	}
	_, err = out.figures()
	return out, err
}

// Export writes the results whose ids begin so, all of them if none is given,
// the oldest first, and returns how many.
func (s *Store) Export(ctx context.Context, w io.Writer, prefixes []string) (int, error) {
	if len(prefixes) == 0 {
		all, err := s.List(ctx, Filter{})
		if err != nil {
			return 0, err
		}
		for i := len(all) - 1; i >= 0; i-- {
			prefixes = append(prefixes, all[i].ID)
		}
	}
	var records []Record
	for _, p := range prefixes {
		r, err := s.Get(ctx, p)
		if err != nil {
			return 0, err
		}
		records = append(records, r)
	}
	return len(records), WriteExport(w, records)
}
