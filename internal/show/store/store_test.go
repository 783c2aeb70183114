package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"
	"pgregory.net/rapid"

	"unbloat/testkit/await"
)

const aTest = `{"schema":"unbloat.test/1","time":"2026-03-01T10:00:00Z","label":"before <&> ` + "\u2028" + `","server":"192.0.2.1:7676","valid":true,"grade":"F",
 "idle":{"latency":{"rtt_ms":{"p50":20}}},"upload":{"goodput_up_bps":4.7e6,"latency":{"increase_ms":{"p95":1250.5}}}}`

func aRecord(t testing.TB) Record {
	t.Helper()
	r, err := NewRecord(KindTest, json.RawMessage(aTest), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withStore opens the file, and closes it when f is done.
func withStore(t testing.TB, path string, f func(*Store)) {
	t.Helper()
	s, err := Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	f(s)
}

func drawRecord(t *rapid.T) Record {
	text := rapid.StringN(0, 20, 100)
	kind := rapid.SampledFrom(Kinds()).Draw(t, "kind")
	result, _ := json.Marshal(map[string]any{
		"schema": "unbloat." + kind + "/1", "x": rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 0, 20).Draw(t, "x"), "label": text.Draw(t, "inner"),
	})
	r := Record{
		Time: time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "time")), Kind: kind, Label: text.Draw(t, "label"), Server: text.Draw(t, "server"),
		Interface: text.Draw(t, "if"), Link: text.Draw(t, "link"), Tool: text.Draw(t, "tool"), System: text.Draw(t, "system"), Result: result,
	}
	if rapid.Bool().Draw(t, "shaped") {
		r.Plan = json.RawMessage(` { "schema" : "unbloat.plan/1", "wan": "<wan>" } `)
	}
	return r
}

// Laws: results are returned unchanged; saving one a second time changes
// nothing; import∘export is the identity, also in bytes.
func TestRoundTrip(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		a, b := filepath.Join(dir, fmt.Sprint(n, "a.db")), filepath.Join(dir, fmt.Sprint(n, "b.db"))
		records := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 6).Draw(rt, "records")
		var once, twice bytes.Buffer
		withStore(t, a, func(s *Store) {
			added, err := s.Add(rt.Context(), records)
			if err != nil || added == 0 || added > len(records) {
				rt.Fatalf("added %d of %d: %v", added, len(records), err)
			}
			if again, err := s.Add(rt.Context(), records); err != nil || again != 0 {
				rt.Fatalf("added %d again: %v", again, err)
			}
			for _, r := range records {
				want, _ := r.normal()
				got, err := s.Get(rt.Context(), want.ID)
				if err != nil || !cmp.Equal(got, want) {
					rt.Fatalf("%v: %s", err, cmp.Diff(want, got))
				}
			}
			if k, err := s.Export(rt.Context(), &once, nil); err != nil || k != added {
				rt.Fatalf("exported %d: %v", k, err)
			}
		})
		packed := bytes.Clone(once.Bytes())
		withStore(t, b, func(s *Store) {
			read, added, err := s.Import(rt.Context(), &once)
			if err != nil || read != added {
				rt.Fatalf("%d read, %d added: %v", read, added, err)
			}
			if _, added, err := s.Import(rt.Context(), bytes.NewReader(packed)); err != nil || added != 0 {
				rt.Fatalf("%d added again: %v", added, err)
			}
			if _, err := s.Export(rt.Context(), &twice, nil); err != nil || !bytes.Equal(twice.Bytes(), packed) {
				rt.Fatalf("the second export differs: %v", err)
			}
		})
		os.Remove(a)
		os.Remove(b)
	})
}

func TestSaveListFilter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "results.db")
	base := aRecord(t)
	at := base.Time
	for i := range 5 {
		r := base
		r.Time = at.Add(time.Duration(i) * time.Hour)
		r.Label = []string{"before", "after"}[i%2]
		if i == 4 {
			r.Server = "192.0.2.11:7676"
			r.Interface = "ppp0"
		} else {
			r.Plan = json.RawMessage(`{"schema":"unbloat.plan/1"}`)
		}
		if _, err := Save(t.Context(), path, r); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("at rest there are %d files", len(files))
	}
	yes, no := true, false
	withStore(t, path, func(s *Store) {
		for _, c := range []struct {
			filter Filter
			want   int
		}{
			{Filter{}, 5}, {Filter{Label: "before"}, 3}, {Filter{Label: "befor"}, 0}, {Filter{Limit: 2}, 2},
			{Filter{Server: "192.0.2.1"}, 4}, {Filter{Server: "192.0.2.1:7676"}, 4}, {Filter{Since: at.Add(90 * time.Minute)}, 3},
			{Filter{Interface: "ppp0"}, 1}, {Filter{Interface: "ppp"}, 0}, {Filter{Shaped: &no}, 1}, {Filter{Shaped: &yes, Limit: 3}, 3},
			{Filter{Kind: KindTune}, 0}, {Filter{Kind: KindTest, Label: "after", Since: at.Add(2 * time.Hour)}, 1},
		} {
			got, err := s.List(t.Context(), c.filter)
			if err != nil || len(got) != c.want {
				t.Errorf("%+v: %d results, want %d (%v)", c.filter, len(got), c.want, err)
			}
		}
		all, _ := s.List(t.Context(), Filter{})
		if e := all[0]; !e.Time.Equal(at.Add(4*time.Hour)) || e.Grade != "F" || e.IncreaseMs != 1250.5 || e.UpBps != 4.7e6 || !e.Valid {
			t.Errorf("the newest is %+v", e)
		}
		if _, err := s.Get(t.Context(), "zz"); !errors.Is(err, ErrNotFound) {
			t.Errorf("zz: %v", err)
		}
		if _, err := s.Get(t.Context(), ""); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrAmbiguous) {
			t.Errorf("no id: %v", err)
		}
	})
}

func TestRefused(t *testing.T) {
	good := aRecord(t)
	for name, change := range map[string]func(*Record){
		"kind \"x\"":            func(r *Record) { r.Kind = "x" },
		"schema":                func(r *Record) { r.Kind = KindTune },
		"time":                  func(r *Record) { r.Time = time.Time{} },
		"result: is missing":    func(r *Record) { r.Result = nil },
		"result: is not a JSON": func(r *Record) { r.Result = json.RawMessage(`[]`) },
		"result: is not UTF-8":  func(r *Record) { r.Result = json.RawMessage("{\"a\":\"\xff\"}") },
		"plan: ":                func(r *Record) { r.Plan = json.RawMessage(`{`) },
		"label: 1001 bytes":     func(r *Record) { r.Label = strings.Repeat("x", 1001) },
	} {
		r := good
		change(&r)
		if _, err := Save(t.Context(), filepath.Join(t.TempDir(), "x.db"), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPath(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: paths of Unix")
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"XDG_DATA_HOME": "/d", "HOME": "/h"}, "/d/unbloat/results.db"},
		{map[string]string{"XDG_DATA_HOME": "d", "HOME": "/h"}, "/h/.local/share/unbloat/results.db"},
		{map[string]string{"HOME": "h"}, ""},
		{map[string]string{}, ""},
	} {
		got, err := Path(env(c.env))
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v: %q, %v", c.env, got, err)
		}
	}
}

func TestLinkKind(t *testing.T) {
	sys := fstest.MapFS{
		"class/net/eth0/type":       {Data: []byte("1\n")},
		"class/net/eth0/uevent":     {Data: []byte("INTERFACE=eth0\nIFINDEX=2\n")},
		"class/net/wlan0/uevent":    {Data: []byte("DEVTYPE=wlan\nINTERFACE=wlan0\n")},
		"class/net/wl1/wireless/x":  {},
		"class/net/wl1/type":        {Data: []byte("1\n")},
		"class/net/br-lan/uevent":   {Data: []byte("DEVTYPE=bridge\n")},
		"class/net/pppoe-wan/type":  {Data: []byte("512\n")},
		"class/net/wg0/uevent":      {Data: []byte("DEVTYPE=wireguard\n")},
		"class/net/tun0/type":       {Data: []byte("65534\n")},
		"class/net/lo/type":         {Data: []byte("772\n")},
		"class/net/strange/ifalias": {},
	}
	for name, want := range map[string]string{
		"eth0": "ethernet", "wlan0": "wifi", "wl1": "wifi", "br-lan": "bridge", "pppoe-wan": "ppp", "wg0": "wireguard",
		"tun0": "tunnel", "lo": "loopback", "strange": "", "none": "", "": "", "../eth0": "",
	} {
		if got := LinkKind(sys, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestMigration: a file of each older layout is upgraded and read.
func TestMigration(t *testing.T) {
	want, err := aRecord(t).normal()
	if err != nil {
		t.Fatal(err)
	}
	for have := 1; have <= len(migrations(sqliteTypes())); have++ {
		path := filepath.Join(t.TempDir(), "old.db")
		conn, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		old := &sqliteFile{path: path, conn: conn}
		for _, m := range migrations(sqliteTypes())[:have] {
			if err := conn.Exec(m); err != nil {
				t.Fatal(err)
			}
		}
		packed, _ := pack(want.Result)
		_, err = old.exec(t.Context(), `INSERT INTO results (id, time_ms, kind, label, server, interface, link, tool, system, plan, result)
				VALUES (?, ?, ?, ?, ?, '', '', '', '', NULL, ?)`, want.ID, want.Time.UnixMilli(), want.Kind, want.Label, want.Server, packed)
		err = errors.Join(err, conn.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, have)), conn.Close())
		if err != nil {
			t.Fatal(err)
		}
		withStore(t, path, func(s *Store) {
			got, err := s.Get(t.Context(), want.ID[:6])
			if err != nil || !cmp.Equal(got, want) {
				t.Errorf("layout %d: %v: %s", have, err, cmp.Diff(want, got))
			}
			list, err := s.List(t.Context(), Filter{})
			if err != nil || len(list) != 1 || have < 2 && list[0].Grade != "F" {
				t.Errorf("layout %d: %v: %+v", have, err, list)
			}
		})
	}
}

// TestNotOurs: foreign, damaged and newer files are refused, and not changed by
// a byte.
func TestNotOurs(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, sql string) string {
		path := filepath.Join(dir, name)
		conn, err := sqlite3.Open(path)
		if err == nil {
			err = errors.Join(conn.Exec(sql), conn.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		text: ErrNoStore,
		make("foreign.db", "CREATE TABLE t (x); PRAGMA user_version = 1"):                                    ErrForeign,
		make("newer.db", fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 99", applicationID)): ErrNewer,
	} {
		before, _ := os.ReadFile(path)
		_, err := Save(t.Context(), path, aRecord(t))
		if !errors.Is(err, want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "it was left as it is; ") {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		after, _ := os.ReadFile(path)
		if !bytes.Equal(before, after) {
			t.Errorf("%s was changed", path)
		}
	}
	if _, err := OpenExisting(t.Context(), filepath.Join(dir, "none.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestDamaged: if any byte of the file is changed, reading returns the saved
// result or says that the file is damaged, but never anything else. Other
// results can still be read if SQLite can read them.
func TestDamaged(t *testing.T) {
	await.NotShort(t)
	path := filepath.Join(t.TempDir(), "results.db")
	kept := map[string]Record{}
	for i := range 20 {
		r := aRecord(t)
		r.Time = r.Time.Add(time.Duration(i) * time.Minute)
		r, _ = r.normal()
		kept[r.ID] = r
		if _, err := Save(t.Context(), path, r); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for range 150 {
		at := rng.IntN(len(whole))
		broken := bytes.Clone(whole)
		for i := at; i < min(at+8, len(broken)); i++ {
			broken[i] ^= byte(1 + rng.IntN(255))
		}
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(path + "-wal")
		s, err := OpenExisting(t.Context(), path)
		if err != nil {
			refused++
			continue
		}
		for id, want := range kept {
			got, err := s.Get(t.Context(), id)
			switch {
			case err != nil && !strings.Contains(err.Error(), path):
				t.Errorf("byte %d: %v", at, err)
			case err != nil:
				refused++
			case !cmp.Equal(got, want):
				t.Errorf("byte %d: another result: %s", at, cmp.Diff(want, got))
			}
		}
		_ = s.Close()
	}
	t.Logf("%d readings were refused", refused)
	if refused == 0 {
		t.Error("no damage was ever noticed")
	}
}

func BenchmarkSave(b *testing.B) {
	path := filepath.Join(b.TempDir(), "results.db")
	r := aRecord(b)
	for b.Loop() {
		r.Time = r.Time.Add(time.Second)
		if _, err := Save(b.Context(), path, r); err != nil {
			b.Fatal(err)
		}
	}
}
