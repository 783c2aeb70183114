package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/keep/config"
)

const planned = `# our home
[[wan]]
interface = "eth0"
down = "50 Mbit/s" # sold
up = "10 Mbit/s"

# at night nobody is disturbed
[[schedule]]
do = "test"
at = "03:30" # UTC

[[schedule]]
do = "first" # the office
machine = "192.168.1.7"
from = "08:00"
to = "17:00"
days = [
  "mon", # the week begins
  "tue",
]
# what follows is the page's
[ui]
listen = "127.0.0.1:7690"
`

func tables(c config.Config) (out []config.EntryTable) {
	for _, e := range c.Schedule {
		out = append(out, e.Table())
	}
	return out
}

// TestSetSchedule: an entry that stays is left as it is written, comments too; one that
// changes is written in its place, one that goes takes its lines along, and a new one
// comes last.
func TestSetSchedule(t *testing.T) {
	c, err := config.Parse("F", []byte(planned))
	if err != nil {
		t.Fatal(err)
	}
	all := tables(c)
	set := func(of ...config.EntryTable) string {
		t.Helper()
		out, err := config.SetSchedule("F", []byte(planned), of)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := set(all...); got != planned {
		t.Errorf("the same entries change the file:\n%s", got)
	}
	first := planned[strings.Index(planned, "[[schedule]]\ndo = \"first\""):strings.Index(planned, "# what follows")]
	if got, want := set(all[0]), strings.Replace(planned, "\n"+first, "", 1); got != want {
		t.Errorf("without the second:\n%s\nwant\n%s", got, want)
	}
	later := all[1]
	later.To, later.Days = "18:00", nil
	if got, want := set(all[0], later), strings.Replace(planned, first, "[[schedule]]\ndo = \"first\"\nwan = \"eth0\"\nfrom = \"08:00\"\nto = \"18:00\"\nmachine = \"192.168.1.7\"\n", 1); got != want {
		t.Errorf("with a later end:\n%s\nwant\n%s", got, want)
	}
	if got, want := set(all[0], all[1], config.EntryTable{Do: "rates", From: "18:00", To: "23:00", Down: "30mbit", Days: []string{"sun", "sat"}}),
		planned+"\n[[schedule]]\ndo = \"rates\"\nwan = \"eth0\"\nfrom = \"18:00\"\nto = \"23:00\"\ndays = [\"sat\", \"sun\"]\ndown = \"30 Mbit/s\"\n"; got != want {
		t.Errorf("with a third:\n%s\nwant\n%s", got, want)
	}
	for _, x := range []struct {
		bad  config.EntryTable
		says string
	}{
		{config.EntryTable{Do: "dance"}, `do: "dance": must be`},
		{config.EntryTable{Do: "test", At: "25:00"}, `at: "25:00": must be a time of day`},
		{config.EntryTable{Do: "test", At: "03:30", WAN: "eth9"}, `wan: there is no [[wan]]`},
		{config.EntryTable{Do: "first", From: "08:00", To: "08:00", Machine: "192.168.1.7"}, "to: is the same time as from"},
		{config.EntryTable{Do: "first", From: "08:00", To: "09:00", Machine: "a\"\n[ui]"}, "machine: "},
		{config.EntryTable{Do: "rates", From: "08:00", To: "09:00", Down: "fast"}, "down: "},
		{config.EntryTable{Do: "test", At: "03:30", Days: []string{"someday"}}, "days: "},
	} {
		if got, err := config.SetSchedule("F", []byte(planned), []config.EntryTable{x.bad}); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%+v: %v\n%s", x.bad, err, got)
		}
	}
	if _, err := config.SetSchedule("F", []byte(planned), make([]config.EntryTable, config.MostEntries+1)); err == nil {
		t.Error("too many entries")
	}
}

// TestSetScheduleLaw: whatever schedule is written over another, in either syntax, it
// is the schedule that is read back, and the rest of the file is as it was.
func TestSetScheduleLaw(t *testing.T) {
	pool := rapid.Custom(func(t *rapid.T) config.EntryTable {
		clock := func(name string) string {
			return fmt.Sprintf("%02d:%02d", rapid.IntRange(0, 23).Draw(t, name+" hour"), rapid.IntRange(0, 1).Draw(t, name+" minute"))
		}
		e := config.EntryTable{Do: rapid.SampledFrom([]config.Doing{config.DoTest, config.DoTune, config.DoFirst, config.DoLast, config.DoRates}).Draw(t, "do"), WAN: rapid.SampledFrom([]string{"eth0", "eth1"}).Draw(t, "wan")}
		if rapid.Bool().Draw(t, "some days") {
			e.Days = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"mon", "sat", "sun"}), 1, 3, rapid.ID[string]).Draw(t, "days")
		}
		switch e.Do {
		case "test", "tune":
			e.At = clock("at")
			return e
		case "rates":
			e.Up = "3 Mbit/s"
		default:
			e.Machine = rapid.SampledFrom([]string{"192.168.1.7", "2001:db8::7"}).Draw(t, "machine")
		}
		e.From = clock("from")
		if e.To = clock("to"); e.To == e.From {
			e.To = "23:59"
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		const wans = "# first\n[[wan]]\ninterface = \"eth0\"\ndown = \"9mbit\"\nup = \"9mbit\"\n\n[[wan]]\ninterface = \"eth1\"\nup = \"5mbit\" # x\n"
		name, text := "F", []byte(wans)
		if rapid.Bool().Draw(t, "uci") {
			name, text = "/etc/config/unbloat", []byte("# first\nconfig wan 'a'\n\toption interface eth0\n\toption down 9mbit\n\toption up 9mbit\n\nconfig wan 'b'; option interface 'eth1'; option up '5mbit' # x\n")
		}
		for round := range 3 {
			want := rapid.SliceOfN(pool, 0, 5).Draw(t, fmt.Sprint("round ", round))
			before, err := config.Parse(name, text)
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "keep some") {
				want = append(tables(before)[:len(before.Schedule)/2], want...)
			}
			text, err = config.SetSchedule(name, text, want)
			if err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			got, err := config.Parse(name, text)
			if err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			says := func(c []config.EntryTable) (out []string) {
				for _, e := range c {
					slices.Sort(e.Days)
					out = append(out, fmt.Sprintf("%+v", e))
				}
				slices.Sort(out)
				return out
			}
			if a, b := says(want), says(tables(got)); !slices.Equal(a, b) {
				t.Fatalf("%q, want %q:\n%s", b, a, text)
			}
			if s := string(text); strings.Count(s, "# first") != 1 || strings.Count(s, "# x") != 1 || len(got.WANs) != 2 {
				t.Fatalf("more has changed:\n%s", text)
			}
		}
	})
}
