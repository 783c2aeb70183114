package ui_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/web"
)

var update = flag.Bool("update", false, "write web/ui/src/api.gen.ts and the pictures of docs/page.md")

// mostGzipped is how large the page may be, as it is sent.
const mostGzipped = 80_000

// The page is small enough for a router's flash, and loads nothing from elsewhere.
func TestRouterPageIsSmall(t *testing.T) {
	var all bytes.Buffer
	total := 0
	err := fs.WalkDir(web.RouterPage(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web.RouterPage(), name)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		z.Write(text)
		z.Close()
		t.Logf("%s: %d bytes, %d gzipped", name, len(text), packed.Len())
		total += packed.Len()
		all.Write(text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > mostGzipped || total < 5000 {
		t.Errorf("the page has %d bytes gzipped; at most %d", total, mostGzipped)
	}
	for _, far := range []string{"https://", "http://", "//cdn"} {
		for text := all.String(); strings.Contains(text, far); {
			i := strings.Index(text, far)
			rest := text[i:min(len(text), i+60)]
			if !strings.HasPrefix(rest, "http://www.w3.org/") { // a name of SVG, which nobody loads
				t.Errorf("the page names an address elsewhere: %s", rest)
			}
			text = text[i+len(far):]
		}
	}
}

// found is what web/ui/test/page.mjs observed.
type found struct {
	Errors, Axe, Spills, Faint, Unnamed, Small, Said, Looks []string
	Language                                                string
	Steps                                                   map[string]any
}

func (f found) text(t *testing.T, step string) string {
	t.Helper()
	s, ok := f.Steps[step].(string)
	if !ok {
		t.Errorf("%s: %v", step, f.Steps[step])
	}
	return s
}

// want fails unless what a step saw has all of the parts.
func (f found) want(t *testing.T, step string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if s := f.text(t, step); !strings.Contains(s, p) {
			t.Errorf("%s: %q lacks %q", step, s, p)
		}
	}
}

func drive(t *testing.T, o map[string]any) found {
	t.Helper()
	t.Parallel() // they wait more than they work
	labtest.NeedSeccomp(t)
	if o["shots"] == nil {
		o["shots"] = os.Getenv("UNBLOAT_SHOTS")
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var f found
	if err := json.Unmarshal(await.WebScript(t, 5*time.Minute, "ui", string(text)), &f); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		what string
		list []string
	}{
		{"the browser complains", f.Errors}, {"axe finds", f.Axe}, {"wider than the window", f.Spills},
		{"faint text", f.Faint}, {"controls without a name", f.Unnamed}, {"too small for a finger", f.Small},
	} {
		if len(bad.list) > 0 {
			t.Errorf("%s: %q", bad.what, bad.list)
		}
	}
	if len(f.Looks) == 0 {
		t.Error("nothing was looked at")
	}
	t.Logf("a screen reader heard %q", f.Said)
	return f
}

func phone(flow, scheme, language string) map[string]any {
	return map[string]any{"flow": flow, "width": 360, "height": 740, "scheme": scheme, "language": language}
}

func desktop(flow, scheme, language string) map[string]any {
	return map[string]any{"flow": flow, "width": 1024, "height": 900, "scheme": scheme, "language": language}
}

// long skips a test that `make test` has no time for; `make test-long` runs it.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it takes long; set UNBLOAT_LONG=1")
	}
}

// Every view of the page has no findings of axe, fits its window, and works by
// keyboard: on phone and desktop, dark and light, English and German.
func TestRouterPageLooks(t *testing.T) {
	for _, c := range []struct {
		name             string
		o                map[string]any
		sentence, flow   string
		entry, lastOfTab string
		finding          string
		incident, off    string
	}{
		{"phone, dark, German", phone("looks", "dark", "de-DE"), "Gespräche sind klar. Die Leitung ist mit einem Upload von laptop beschäftigt; 4,1 von 4,9 Mbit/s.",
			"eine Regel sagt es (Regel office)", "Von 20:00 bis 23:00 tv nur wenn frei, Sa", "Dasselbe als Tabelle", "Was hilft: Schalten Sie das Offloading der Firewall ab.",
			"Liegt an: das Heimnetz", "Aus bis"},
		{"desktop, light, English", desktop("looks", "light", "en-US"), "Calls are clear. The line is busy with an upload from laptop; 4.1 of 4.9 Mbit/s.",
			"a rule says so (rule office)", "From 20:00 to 23:00 tv only when idle, Sat", "The same as a table", "uci set firewall.@defaults[0].flow_offloading=0",
			"To blame: the home", "Off until"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.o["width"] != 360 {
				long(t)
			}
			f := drive(t, c.o)
			f.want(t, "sentence", c.sentence)
			f.want(t, "chart", "8")
			f.want(t, "flows", "udp 203.0.113.77:19305", c.flow)
			f.want(t, "entryText", c.entry)
			f.want(t, "finding", c.finding)
			f.want(t, "incident", c.incident)
			f.want(t, "offHour", c.off)
			walk, _ := f.Steps["walk"].([]any)
			if len(walk) != 8 || walk[len(walk)-1] != c.lastOfTab {
				t.Errorf("a keyboard reaches %q", walk)
			}
			for _, w := range walk {
				if strings.Contains(w.(string), "not seen") {
					t.Errorf("the focus of %v", w)
				}
			}
			// The list of machines comes anew each second.
			if f.text(t, "stays") != "m-192-168-1-40" || f.text(t, "expanded") != "true" {
				t.Errorf("the focus did not stay: %v, open %v", f.Steps["stays"], f.Steps["expanded"])
			}
			if f.text(t, "rule") != "first" || f.text(t, "undid") != "none" {
				t.Errorf("always first: %v, then undone: %v", f.Steps["rule"], f.Steps["undid"])
			}
			f.want(t, "edits", "first 08:00 17:00 192.168.1.31")
			f.want(t, "edited", "19:00")
			f.want(t, "entriesLeft", "first 08:00 19:00, last 20:00 23:00")
			if f.text(t, "editFocus") != "plan-do" {
				t.Errorf("to change an entry the focus is on %v", f.Steps["editFocus"])
			}
			if n := len(f.Said); n < 8 || n > 14 {
				t.Errorf("a screen reader was told %d times: %q", n, f.Said)
			}
		})
	}
}

// A person opens a new page: the token of the router, a password, the line; then
// logs out, and nothing of the home stays on the page.
func TestRouterPageFirstStart(t *testing.T) {
	long(t)
	f := drive(t, desktop("first", "dark", "en-US"))
	f.want(t, "different", "not the same")
	f.want(t, "wrongToken", "not the right one")
	f.want(t, "wrongPassword", "not the right one")
	f.want(t, "sentence", "Calls are clear.")
	if f.Steps["leftBehind"] != false {
		t.Error("after the logout the page still names a machine")
	}
}

// A person with a bad line turns shaping on by keyboard, keeps it, and mends what
// the doctor found.
func TestRouterPageMends(t *testing.T) {
	f := drive(t, phone("mend", "light", "en-US"))
	f.want(t, "bad", "Shaping is off", "Calls break up.")
	f.want(t, "question", "Shaping is on now", "Does everything still work?", "undone in", "Keep it", "Undo it")
	if f.text(t, "focus") != "waiting-title" || f.text(t, "next") != "keep" {
		t.Errorf("the focus is on %v, a Tab later on %v", f.Steps["focus"], f.Steps["next"])
	}
	f.want(t, "kept", "The change is kept.")
	if f.Steps["pending"] != nil {
		t.Errorf("it still waits: %v", f.Steps["pending"])
	}
	f.want(t, "mended", "Nothing is in the way.")
	f.want(t, "good", "Calls are clear.")
}

// A wrong change that nobody keeps is undone, and the page counts down and says so.
func TestRouterPageUndoes(t *testing.T) {
	f := drive(t, desktop("undo", "light", "en-US"))
	f.want(t, "noNumber", "between 0.1 and 100000")
	if f.Steps["set"] != 500_000.0 || f.Steps["again"] != 5e6 {
		t.Errorf("set to %v, then %v", f.Steps["set"], f.Steps["again"])
	}
	if counts, _ := f.Steps["counts"].([]any); len(counts) < 2 {
		t.Errorf("it did not count down: %q", counts)
	}
	f.want(t, "undone", "undone by itself")
	f.want(t, "event", "Nobody confirmed a change, so it was undone.")
}

// A person makes rules of their own, limits a machine, and takes a rule away; what names
// nothing is refused. The line has what they asked for once they keep it.
func TestRouterPageOwnRules(t *testing.T) {
	f := drive(t, phone("own", "light", "en-US"))
	f.want(t, "wrong", "Choose a machine, a protocol or a port")
	f.want(t, "rules", "class=voice,home=192.168.1.31,protocol=udp,port=3478-3497; class=bulk,home=192.168.1.40,protocol=tcp,port=6881-6889")
	f.want(t, "limits", "192.168.1.40 20 Mbit/s / 2 Mbit/s; 192.168.1.23 8 Mbit/s / 0.5 Mbit/s")
	if left := f.text(t, "left"); left != "class=bulk,home=192.168.1.40,protocol=tcp,port=6881-6889" {
		t.Errorf("left: %q", left)
	}
	f.want(t, "said", "tv", "laptop")
}

// Without its stream the page asks. When the daemon is gone it says so, and that a
// change that waits is undone there; it comes back by itself.
func TestRouterPageGone(t *testing.T) {
	long(t)
	f := drive(t, phone("gone", "dark", "en-US"))
	f.want(t, "gone", "has not answered since")
	f.want(t, "left", "undoes the change by itself in")
	f.want(t, "notice", "undone by itself")
	if f.text(t, "rule") != "none" {
		t.Errorf("the rule stayed: %v", f.Steps["rule"])
	}
	back := slices.Index(f.Said, "The router answers again.")
	if gone := slices.IndexFunc(f.Said, func(s string) bool { return strings.HasPrefix(s, "The router does not answer") }); gone < 0 || back < gone {
		t.Errorf("a screen reader heard %q", f.Said)
	}
}

// An idle line does not look broken, and a screen reader hears of it once.
func TestRouterPageIdle(t *testing.T) {
	long(t)
	f := drive(t, phone("idle", "light", "en-US"))
	f.want(t, "sentence", "Calls are clear. The line is idle.", "That is how it should look.")
	f.want(t, "words", "a flat curve is right")
	f.want(t, "who", "No machine uses the line now.", "7 machines are quiet")
	if len(f.Said) != 1 {
		t.Errorf("a screen reader was told %d times: %q", len(f.Said), f.Said)
	}
}

// With several lines every part is about the one that was chosen, and a change that
// waits on another is named.
func TestRouterPageLines(t *testing.T) {
	long(t)
	for _, o := range []map[string]any{
		{"flow": "lines", "width": 390, "height": 844, "scheme": "dark", "language": "de-DE"},
		{"flow": "lines", "width": 1280, "height": 800, "scheme": "light", "language": "en-US"},
	} {
		t.Run(o["language"].(string), func(t *testing.T) {
			f := drive(t, o)
			if got := fmt.Sprint(f.Steps["choices"]); !strings.Contains(got, "pppoe-wan") || !strings.Contains(got, "wwan0") {
				t.Errorf("the choices are %s", got)
			}
			f.want(t, "first", "laptop")
			if got := f.text(t, "second"); !strings.Contains(got, "20 Mbit/s") || strings.Contains(got, "laptop") {
				t.Errorf("of the second line it says %q", got)
			}
			f.want(t, "speeds", "20 4")
			f.want(t, "back", "50")
			f.want(t, "named", "pppoe-wan")
			if got := fmt.Sprint(f.Steps["entries"]); !strings.Contains(got, "04:00") || strings.Contains(got, "03:30") {
				t.Errorf("the schedule of the second line is %s", got)
			}
			if f.Steps["follows"] != true || f.text(t, "focus") != "wan" {
				t.Errorf("following is offered, or the focus went: %v %v", f.Steps["follows"], f.Steps["focus"])
			}
		})
	}
}

// After a start the chart begins where something is known, and while shaping was off it has
// no limit. A tuning that kept nothing is no success, and its grade is said to be that of
// the line as it is; an undo that somebody asked for is no failure; nobody is told of flags.
func TestRouterPageCards(t *testing.T) {
	for _, width := range []int{390, 1280} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			f := drive(t, map[string]any{"flow": "cards", "width": width, "height": 844, "scheme": "light", "language": "en-US"})
			limits, _ := f.Steps["limits"].([]any)
			for _, l := range limits {
				if l := l.(map[string]any); l["pieces"] != 2.0 || l["lowest"].(float64) > 0.9 {
					t.Errorf("the limits are drawn in %v pieces, down to %v of the chart", l["pieces"], l["lowest"])
				}
			}
			hour, _ := f.Steps["hour"].([]any)
			if len(limits) != 2 || len(hour) < 3 {
				t.Fatalf("limits %v, times %v", limits, hour)
			}
			first, err1 := time.Parse("3:04 PM", hour[0].(string))
			last, err2 := time.Parse("3:04 PM", hour[len(hour)-1].(string))
			if shown := (last.Sub(first) + 24*time.Hour) % (24 * time.Hour); err1 != nil || err2 != nil || shown < 10*time.Minute || shown > 14*time.Minute {
				t.Errorf("of twelve minutes it shows %v: %v %v", hour, err1, err2)
			}
			if f.text(t, "badge") != "bulk" {
				t.Errorf("who uploads is %q", f.Steps["badge"])
			}
			card := func(step, tone string, says, not string) {
				x, _ := f.Steps[step].(map[string]any)
				if text, _ := x["text"].(string); x["tone"] != tone || !strings.Contains(text, says) || strings.Contains(text, not) {
					t.Errorf("%s: %q, %q", step, x["tone"], text)
				}
			}
			card("keptNothing", "outcome plain", "Grade with the limits that were tried: F", "\nGrade: F")
			card("failed", "outcome bad", "", "--server")
			card("undone", "notice good", "undone", "failed")
		})
	}
}

// Who may only look sees everything and finds nothing to change.
func TestRouterPageViewer(t *testing.T) {
	long(t)
	f := drive(t, desktop("viewer", "light", "de-DE"))
	f.want(t, "note", "nichts ändern")
	for _, c := range f.Steps["controls"].([]any) {
		if c != "check" {
			t.Errorf("it can %v", c)
		}
	}
	if posts := f.Steps["posts"].([]any); len(posts) != 1 {
		t.Errorf("it posted %v", posts)
	}
}

// The pictures of docs/page.md are there and small. -update makes them again.
func TestRouterPagePictures(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "docs", "page"))
	if err != nil {
		t.Fatal(err)
	}
	const most = 150_000 // bytes
	high := desktop("pictures", "light", "en-US")
	high["height"] = 1120
	for name, o := range map[string]map[string]any{
		"phone.png": phone("pictures", "light", "en-US"), "incidents.png": phone("pictures", "light", "en-US"), "phone-dark.png": phone("pictures", "dark", "en-US"),
		"desktop.png": high, "dark.png": desktop("pictures", "dark", "en-US"),
	} {
		t.Run(name, func(t *testing.T) {
			if *update {
				o["shots"] = dir
				drive(t, o)
			}
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			size, err := png.DecodeConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := f.Stat(); err != nil || info.Size() > most {
				t.Errorf("%s has %d bytes, at most %d: %v", name, info.Size(), most, err)
			}
			if size.Width != o["width"] || size.Height != o["height"] {
				t.Errorf("%s is %d × %d", name, size.Width, size.Height)
			}
		})
	}
}
