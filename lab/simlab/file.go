package simlab

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// maxLine bounds a line of a sweep's file.
const maxLine = 4 << 20

// Header returns the first line of the file of a shard.
func (s *SweepSpec) Header(shard Shard) ([]byte, error) {
	h := *s
	h.Shard = shard.String()
	text, err := json.Marshal(h)
	return append(text, '\n'), err
}

// Resume looks at the file that an earlier run of the same shard left: it
// returns how many runs are complete in it, and at which byte the next line has
// to go. An empty file is 0, 0. It wraps ErrOther if the file is of another sweep.
func (s *SweepSpec) Resume(shard Shard, r io.Reader) (complete int, at int64, err error) {
	header, err := s.Header(shard)
	if err != nil {
		return 0, 0, err
	}
	in := bufio.NewReaderSize(r, maxLine)
	first, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF): // nothing, or an unfinished header
		if !bytes.HasPrefix(header, first) {
			return 0, 0, ErrOtherSweep
		}
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case !bytes.Equal(first, header):
		return 0, 0, fmt.Errorf("%w: its first line is not that of shard %s", ErrOtherSweep, shard)
	}
	at = int64(len(first))
	indices := shard.indices(s.Runs)
	for {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) { // an unfinished line is written again
			return complete, at, nil
		}
		if err != nil {
			return 0, 0, err
		}
		var l SweepLine
		if err := json.Unmarshal(text, &l); err != nil || complete >= len(indices) || l.Index != indices[complete] {
			return 0, 0, fmt.Errorf("%w: line %d is not the one expected", ErrOtherSweep, complete+2)
		}
		complete++
		at += int64(len(text))
	}
}

// Merge joins the files of all shards of a sweep into what an unsplit run
// writes. Every run has to be there once.
func MergeSweeps(out io.Writer, files ...io.Reader) error {
	var spec *SweepSpec
	var same []byte // the header without the shard
	lines := map[int][]byte{}
	for k, f := range files {
		in := bufio.NewScanner(f)
		in.Buffer(make([]byte, 64<<10), maxLine)
		if !in.Scan() {
			return fmt.Errorf("file %d is empty", k+1)
		}
		var s SweepSpec
		if err := json.Unmarshal(in.Bytes(), &s); err != nil || s.Schema != Schema || s.Scenario == nil {
			return fmt.Errorf("file %d does not begin with the first line of a sweep", k+1)
		}
		header, err := s.Header(Shard{1, 1})
		if err != nil {
			return err
		}
		if spec == nil {
			spec, same = &s, header
		} else if !bytes.Equal(header, same) {
			return fmt.Errorf("file %d: %w", k+1, ErrOtherSweep)
		}
		for in.Scan() {
			var l struct {
				Index int `json:"index"`
			}
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				return fmt.Errorf("file %d: a line is not whole; let that shard finish: %w", k+1, err)
			}
			if _, twice := lines[l.Index]; twice {
				return fmt.Errorf("file %d: run %d is there twice", k+1, l.Index)
			}
			lines[l.Index] = append(slices.Clone(in.Bytes()), '\n')
		}
		if err := in.Err(); err != nil {
			return fmt.Errorf("file %d: %w", k+1, err)
		}
	}
	if spec == nil {
		return errors.New("no files to merge")
	}
	if len(lines) != spec.Runs {
		return fmt.Errorf("%d of %d runs are there; let the other shards finish", len(lines), spec.Runs)
	}
	w := bufio.NewWriter(out)
	if _, err := w.Write(same); err != nil {
		return err
	}
	for i := range spec.Runs {
		text, ok := lines[i]
		if !ok {
			return fmt.Errorf("run %d is missing", i)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return w.Flush()
}

// CSV turns a sweep's file into a table: a row for each run and phase.
func SweepCSV(out io.Writer, file io.Reader) error {
	in := bufio.NewScanner(file)
	in.Buffer(make([]byte, 64<<10), maxLine)
	if !in.Scan() {
		return errors.New("the sweep's file is empty")
	}
	var s SweepSpec
	if err := json.Unmarshal(in.Bytes(), &s); err != nil || s.Schema != Schema {
		return errors.New("the file does not begin with the first line of a sweep")
	}
	w := csv.NewWriter(out)
	head := []string{"index", "case", "seed"}
	for _, a := range s.Axes {
		head = append(head, a.Key)
	}
	head = append(head, "valid", "grade", "error", "phase", "goodput_down_bps", "goodput_up_bps", "rtt_p50_ms", "rtt_p95_ms",
		"rtt_p99_ms", "rtt_max_ms", "increase_p95_ms", "loss", "retransmits", "call_p99_ms", "call_loss")
	if err := w.Write(head); err != nil {
		return err
	}
	for in.Scan() {
		var l SweepLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fmt.Errorf("a line of the sweep's file: %w", err)
		}
		if err := l.rows(w, &s, len(head)); err != nil {
			return err
		}
	}
	w.Flush()
	return errors.Join(in.Err(), w.Error())
}

// rows writes the rows of a run.
func (l *SweepLine) rows(w *csv.Writer, s *SweepSpec, columns int) error {
	row := []string{strconv.Itoa(l.Index), l.Case, strconv.FormatUint(l.Seed, 10)}
	for _, a := range s.Axes {
		row = append(row, l.Params[a.Key])
	}
	row = append(row, strconv.FormatBool(l.Valid), l.Grade, l.Error)
	if len(l.Phases) == 0 {
		for len(row) < columns {
			row = append(row, "")
		}
		return w.Write(row)
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	for _, p := range l.Phases {
		full := append(slices.Clone(row), p.Name, f(p.DownBps), f(p.UpBps), f(p.P50Ms), f(p.P95Ms), f(p.P99Ms), f(p.MaxMs),
			f(p.IncreaseP95Ms), f(p.Loss), strconv.FormatInt(p.Retransmits, 10), f(p.CallP99Ms), f(p.CallLoss))
		if err := w.Write(full); err != nil {
			return err
		}
	}
	return nil
}
