package unit

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for in, want := range map[string]Rate{
		"950kbit": 950_000, "29.1mbit": 29_100_000, "1gbit": 1_000_000_000, "29.1 Mbit/s": 29_100_000,
		"1 Mbit/s": 1_000_000, "0.1kbit": 100, "8Mbps": 8_000_000, "100bit": 100, "1 Tbit/s": 1_000_000_000_000,
		"3.5 MB/s": 28_000_000, "3.5MB": 28_000_000, "3.5MBps": 28_000_000, "1 Mbyte/s": 8_000_000, "100 B/s": 800, "1 MiB/s": 8 << 20, "2KiB": 16 << 10,
		"30M": 30_000_000, "30m": 30_000_000, "950k": 950_000, "1G": 1_000_000_000, "30,5 Mbit/s": 30_500_000, "30 Mb/s": 30_000_000, "8 MBit/s": 8_000_000,
	} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "10", "mbit", "-1mbit", "0mbit", "1 Pbit/s", "2tbit", "1e3mbit", "1/2mbit", "ten mbit", "30 MBPS", "1,000 kbit", "1,0,0 kbit", "1,5.2M", "30 Mps", "30ps", "3 iB/s", "5 MiB it"} {
		if got, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", in, got)
		}
	}
}

func TestRateStringIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rate(rapid.Int64Range(1, 1e12).Draw(t, "rate"))
		got, err := ParseRate(r.String())
		if err != nil || got != r {
			t.Fatalf("%d prints as %q, read back as %d (%v)", int64(r), r.String(), int64(got), err)
		}
	})
}

func TestSizeStringIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Range(0, 1e15).Draw(t, "size"))
		got, err := ParseSize(s.String())
		if err != nil || got != s {
			t.Fatalf("%d prints as %q, read back as %d (%v)", int64(s), s.String(), int64(got), err)
		}
	})
}

func TestTimeAndBytesInvert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rate(rapid.Int64Range(1000, 1e11).Draw(t, "rate"))
		n := Size(rapid.Int64Range(0, 1e9).Draw(t, "bytes"))
		if got := r.Bytes(r.Time(n)); got < n || got > n+Size(int64(r)/8e9)+1 {
			t.Fatalf("%v carries %d bytes in the time of %d", r, got, n)
		}
	})
	if Rate(0).Time(1) != math.MaxInt64 || Rate(1e6).Time(1500) != 12*time.Millisecond {
		t.Fatal("time of 1500 bytes at 1 Mbit/s is 12 ms")
	}
}

func TestJSON(t *testing.T) {
	type both struct {
		R Rate
		S Size
	}
	for _, in := range []string{`{"R":29100000,"S":1500000}`, `{"R":"29.1 Mbit/s","S":"1.5 MB"}`} {
		var got both
		if err := json.Unmarshal([]byte(in), &got); err != nil || got.R != 29_100_000 || got.S != 1_500_000 {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"R":"10"}`), new(both)); err == nil {
		t.Error("a rate without a unit was read")
	}
}

func TestShort(t *testing.T) {
	for r, want := range map[Rate]string{29_100_000: "29.1 Mbit/s", 950_000: "950 kbit/s", 999_900: "1.00 Mbit/s", 5: "5.00 bit/s", 120_400_000: "120 Mbit/s"} {
		if got := r.Short(); got != want {
			t.Errorf("%d: %q, want %q", int64(r), got, want)
		}
	}
	for n, want := range map[Size]string{1_234_567: "1.23 MB", 801_234: "801 kB", 42: "42 B", 999: "999 B", 12_345_678_901: "12.3 GB"} {
		if got := n.Short(); got != want {
			t.Errorf("%d: %q, want %q", int64(n), got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"950kbit", "29.1 Mbit/s", "1.5 MB", "24 ms", "-", "1e9", "+.5kbit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseRate(s); err == nil && (r <= 0 || r > 1e12) {
			t.Fatalf("ParseRate(%q) = %d", s, int64(r))
		}
		_, _ = ParseSize(s)
		if d, err := ParseDuration(s); err == nil && d < 0 {
			t.Fatalf("ParseDuration(%q) = %v", s, d)
		}
	})
}
