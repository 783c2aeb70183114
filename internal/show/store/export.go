package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ExportSchema names the layout of an export: the schema on the first line,
// then one Record per line, all gzipped.
const ExportSchema = "unbloat.export/1"

// Limits of an import, as the file may be hostile. Results can be compressed to
// about a tenth; a file that expands much more is refused.
const (
	maxLine     = maxResult + 1<<20
	leastImport = 1 << 30 // expanded bytes that are always allowed
	mostRatio   = 200     // expanded bytes per compressed byte, above that
)

// A tally counts what is read through it.
type tally struct {
	from io.Reader
	n    int64
}

func (t *tally) Read(b []byte) (int, error) {
	n, err := t.from.Read(b)
	t.n += int64(n)
	return n, err
}

type exportHead struct {
	Schema string `json:"schema"`
}

// A LineError names the line of an import that is refused, and the reason.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// A Writer writes an export, a Record at a time.
type Writer struct{ packer *gzip.Writer }

// NewWriter begins an export.
func NewWriter(w io.Writer) (*Writer, error) {
	z := gzip.NewWriter(w)
	_, err := fmt.Fprintf(z, "{\"schema\":%q}\n", ExportSchema)
	return &Writer{z}, err
}

// Write appends a record as Get returned it.
func (w *Writer) Write(r Record) error {
	text, err := line(r)
	if err == nil {
		_, err = w.packer.Write(append(text, '\n'))
	}
	return err
}

// Close ends the export, which is incomplete without it.
func (w *Writer) Close() error { return w.packer.Close() }

// ReadExport calls each for every record of an export, compressed or not. A
// line that is not exactly a record with its own id is refused with a
// *LineError, and so is one for which each returns an error.
func ReadExport(r io.Reader, each func(Record) error) error {
	packed := &tally{from: r}
	in := bufio.NewReaderSize(packed, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return &LineError{1, fmt.Errorf("unpack: %w", err)}
		}
		defer z.Close()
		in = bufio.NewReaderSize(z, 1<<16)
	}
	unpacked := int64(0)
	for n := 1; ; n++ {
		text, err := readLine(in, min(max(leastImport, mostRatio*packed.n)-unpacked, maxLine))
		switch {
		case errors.Is(err, io.EOF) && len(text) == 0 && n > 1:
			return nil
		case errors.Is(err, io.EOF) && len(text) == 0:
			return &LineError{1, errors.New("the file is empty")}
		case err != nil && !errors.Is(err, io.EOF):
			return &LineError{n, err}
		}
		unpacked += int64(len(text))
		if n == 1 {
			err = checkHead(text)
		} else {
			var rec Record
			if rec, err = parseLine(text); err == nil {
				err = each(rec)
			}
		}
		if err != nil {
			return &LineError{n, err}
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
			return nil, fmt.Errorf("too long: results are at most %d bytes, and all of a file at most %d, or %d times its packed size", maxResult, leastImport, mostRatio)
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

// parseLine reads one record and checks its id.
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
