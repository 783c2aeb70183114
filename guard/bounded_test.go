package guard

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// What fits is returned as it was said, on both streams; one byte more, on
// either, and nothing is, however it is written.
func TestSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{Size: unit.Size(rapid.IntRange(0, 100).Draw(t, "limit"))}
		var want [2]string
		pieces := rapid.SliceOf(rapid.StringN(0, 20, 20)).Draw(t, "pieces")
		out, errOut, err := limit.Take(context.Background(), func(ctx context.Context, out, errOut io.Writer) (err error) {
			for i, p := range pieces {
				want[i%2] += p
				if _, err = io.WriteString([]io.Writer{out, errOut}[i%2], p); err != nil && ctx.Err() == nil {
					t.Fatal("the question goes on")
				}
			}
			return nil
		})
		long := unit.Size(len(want[0])+len(want[1])) > limit.Size
		switch {
		case long != errors.Is(err, ErrLong), !long && err != nil:
			t.Fatalf("%q within %v: %v", want, limit.Size, err)
		case long && (out != nil || errOut != nil), !long && (string(out) != want[0] || string(errOut) != want[1]):
			t.Fatalf("%q is taken as %q and %q", want, out, errOut)
		}
	})
	if _, err := (Limit{Size: 3}).Read(strings.NewReader("four")); !errors.Is(err, ErrLong) {
		t.Error(err)
	}
	if b, err := (Limit{Size: 4}).Read(strings.NewReader("four")); err != nil || string(b) != "four" {
		t.Errorf("%q, %v", b, err)
	}
}

// Whoever asks for too long is given up, and then heard no more. Who ends in
// time, or is interrupted by somebody else, is not late.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit{Size: 10, Time: time.Minute}
		began := time.Now()
		var left io.Writer
		out, _, err := limit.Take(t.Context(), func(ctx context.Context, out, _ io.Writer) error {
			left = out
			_, _ = io.WriteString(out, "half")
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, ErrLate) || out != nil || time.Since(began) != limit.Time {
			t.Errorf("after %v: %q, %v", time.Since(began), out, err)
		}
		if _, err := io.WriteString(left, "more"); err == nil {
			t.Error("it is still heard")
		}
		failed := errors.New("failed")
		if _, _, err := limit.Take(t.Context(), func(context.Context, io.Writer, io.Writer) error { return failed }); err != failed {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := limit.Take(ctx, func(ctx context.Context, _, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLate) {
			t.Error(err)
		}
	})
}
