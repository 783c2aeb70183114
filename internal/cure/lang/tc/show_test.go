package tc_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/tc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares the results with the archive's files of the same names.
func golden(t *testing.T, path string, ar *txtar.Archive, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(mapKeys(files)) {
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == name })
		if *update {
			if i < 0 {
				ar.Files = append(ar.Files, txtar.File{Name: name})
				i = len(ar.Files) - 1
			}
			ar.Files[i].Data = []byte(files[name])
			continue
		}
		if i < 0 || string(ar.Files[i].Data) != files[name] {
			t.Errorf("%s: %s is now\n%s(run with -update if that is right)", path, name, files[name])
		}
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// readArchive reads a tree from what `tc -j -d …` printed on kernel 7.3 with iproute2 6.1.
func readArchive(t *testing.T, ar *txtar.Archive) tc.Tree {
	t.Helper()
	tree, err := tc.ReadTree("wan", tc.Tree{}, func(lines ...string) (out []byte, err error) {
		for _, line := range lines {
			i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "tc -j -d "+line })
			switch {
			case i >= 0:
				out = append(out, ar.Files[i].Data...)
			case strings.HasPrefix(line, "filter"):
				out = append(out, "[]\n"...)
			default:
				err = fmt.Errorf("the archive has no %q", line)
			}
		}
		return out, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestShow parses the output of the real tools into trees and renders the
// commands that rebuild them.
func TestShow(t *testing.T) {
	paths, err := filepath.Glob("testdata/show/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tree := readArchive(t, ar)
			b, err := json.MarshalIndent(tree, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			var build strings.Builder
			if lost := tree.Unrebuildable(); lost != nil {
				build.WriteString("# can't be rebuilt: " + strings.Join(lost, "; ") + "\n")
			} else {
				for _, c := range tree.Build("wan") {
					build.WriteString(c.String() + "\n")
				}
			}
			golden(t, path, ar, map[string]string{"tree.json": string(b) + "\n", "build": build.String()})
			if diffs := tree.Differences(tree); diffs != nil {
				t.Errorf("the tree differs from itself: %v", diffs)
			}
			var back tc.Tree
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if diffs := tree.Differences(back); diffs != nil {
				t.Errorf("the journal would change it: %v", diffs)
			}
		})
	}
}

// TestBuckets derives the argument from the printed bucket size, for both of
// tc(8)'s rounding rules. The first rows are output of tc 6.1.
func TestBuckets(t *testing.T) {
	for _, c := range [][3]int64{{1125000, 1749, 1747}, {118750, 3000, 2999}, {125000000, 1500, 1375}} {
		if old, _ := tc.BucketShown(c[0], c[1]); old != c[2] {
			t.Errorf("%d bytes at %d bytes/s show as %d, not %d", c[1], c[0], old, c[2])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1000, 1_250_000_000).Draw(t, "bytes/s")
		// Ticks are 32 bits wide: a bucket holds at most 274 s of the rate.
		burst := rapid.Int64Range(1, min(1_000_000, rate*274)).Draw(t, "burst")
		old, newer := tc.BucketShown(rate, burst)
		if again, _ := tc.BucketShown(rate, tc.BucketArg(rate, old)); again != old {
			t.Errorf("old: %d shows as %d, whose argument shows as %d", burst, old, again)
		}
		// Newer tools round up in floating point, where a whole number of ticks
		// may come out slightly too large and be rounded up again (961 bytes at
		// 10 Gbit/s: 1040, then 1120). So the result may be off by one tick.
		tick := rate*64/1e9 + 1
		if _, again := tc.BucketShown(rate, newer); again < newer || again > newer+tick {
			t.Errorf("new: %d shows as %d, which shows as %d", burst, newer, again)
		}
	})
}

// TestShownBursts: a burst is chosen that tc(8)'s text output shows exactly, a little below
// the one that was asked for: tc 6.1 shows 11250 bytes at 90 Mbit/s as "11Kb".
func TestShownBursts(t *testing.T) {
	if got := tc.ShownBurst(11_250_000, 11250); got != 11248 {
		t.Errorf("at 90 Mbit/s: %d", got)
	}
	for rate := int64(12_500); rate <= 1_250_000_000; rate += 1 + rate/977 {
		asked := max(rate/1000, 1590)
		n := tc.ShownBurst(rate, asked)
		if n > asked || n < asked-4096-rate/100_000 {
			t.Errorf("at %d bytes/s: %d for %d", rate, n, asked)
		}
		old, newer := tc.BucketShown(rate, n)
		for _, x := range []int64{old, newer} {
			for _, of := range []struct{ unit, near float64 }{{1 << 20, 1024}, {1 << 10, 16}} {
				if y := float64(x); y >= of.unit && y != of.unit*math.Round(y/of.unit) && math.Abs(y-of.unit*math.Round(y/of.unit)) < of.near {
					t.Errorf("at %d bytes/s %d is shown as %g of %g", rate, x, math.Round(y/of.unit), of.unit)
					break
				}
			}
		}
	}
}

// TestCodelTimes derives from the reported time an argument that reads back the
// same.
func TestCodelTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(1, 10_000_000).Draw(t, "us")
		shown := tc.CodelKernel(us)
		arg, err := strconv.ParseInt(tc.CodelArg(strconv.FormatInt(shown, 10)), 10, 64)
		if err != nil || tc.CodelKernel(arg) != shown {
			t.Errorf("%d µs show as %d, whose argument %d shows as %d", us, shown, arg, tc.CodelKernel(arg))
		}
	})
}

// TestClassesInJSON: iproute2 from 6.2 on prints JSON for HTB classes, with
// different names, and broken JSON for hfsc classes.
func TestClassesInJSON(t *testing.T) {
	text := "class htb 1:10 parent 1:1 leaf 110: prio 1 quantum 3000 rate 1Mbit ceil 5Mbit linklayer ethernet burst 2850b/1 mpu 0b cburst 7850b/1 mpu 0b level 0\n" +
		"class htb 1:1 root rate 5Mbit overhead 4 ceil 5Mbit linklayer atm burst 15Kb/1 mpu 64b cburst 7850b/1 mpu 64b level 7\n"
	js := `[{"class":"htb","handle":"1:10","parent":"1:1","leaf":"0x110","prio":1,"quantum":3000,"rate":125000,"ceil":625000,"linklayer":"ethernet",` +
		`"burst":2850,"burst_cell":1,"mpu_rate":0,"cburst":7850,"cburst_cell":1,"mpu_ceil":0,"level":0},` +
		`{"class":"htb","handle":"1:1","root":true,"rate":625000,"overhead":4,"ceil":625000,"linklayer":"atm",` +
		`"burst":15360,"burst_cell":1,"mpu_rate":64,"cburst":7850,"cburst_cell":1,"mpu_ceil":64,"level":7}]`
	a, err := tc.ParseClasses([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := tc.ParseClasses([]byte(js))
	if err != nil {
		t.Fatal(err)
	}
	if d := (tc.Tree{Classes: a}).Differences(tc.Tree{Classes: b}); d != nil || len(a) != 2 {
		t.Errorf("text and JSON differ: %q", d)
	}
	if lost := (tc.Tree{Classes: b}).Unrebuildable(); lost != nil {
		t.Errorf("can't be rebuilt: %q", lost)
	}
}

// TestVersions: what iproute2 5.10, 6.1 and 6.15 print of the same queues is read as the
// same tree: 5.10 prints u32 as text, 6.15 HTB's classes and fw as JSON.
func TestVersions(t *testing.T) {
	paths, err := filepath.Glob("testdata/versions/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no recorded output", err)
	}
	for _, path := range paths {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var first tc.Tree
		for i, version := range []string{"5.10", "6.1", "6.15"} {
			of := &txtar.Archive{}
			for _, f := range ar.Files {
				if name, ok := strings.CutPrefix(f.Name, "iproute2 "+version+": "); ok {
					of.Files = append(of.Files, txtar.File{Name: name, Data: f.Data})
				}
			}
			tree := readArchive(t, of)
			for j := range tree.Filters {
				if tree.Filters[j].Opaque != "" {
					tree.Filters[j].Handle = "" // 0x1 or 1
				}
			}
			if i == 0 {
				first = tree
			}
			if d := first.Differences(tree); d != nil || len(tree.Filters) == 0 {
				t.Errorf("%s: iproute2 %s: %q", path, version, d)
			}
		}
	}
}

// TestLinks: all that is needed of a device is read from what iproute2 5.10, 6.1 and 6.15
// print; 5.10 forgets a value of an ERSPAN tunnel.
func TestLinks(t *testing.T) {
	ar, err := txtar.ParseFile("testdata/links.txtar")
	if err != nil || len(ar.Files) != 3 {
		t.Fatal(err)
	}
	want := []tc.Link{
		{Name: "lo", Up: true, Carrier: true, MTU: 65536},
		{Name: "d1", Kind: "dummy", Up: true, Carrier: true, MTU: 1500, AltNames: []string{"enp9s0f1", "averyverylongname0"}},
		{Name: "d2", Kind: "dummy", Up: true, Carrier: true, MTU: 1500},
		{Name: "er", Kind: "erspan", MTU: 1446},
		{Name: "d1.7", Kind: "vlan", MTU: 1500, Below: []string{"d1"}},
	}
	for _, f := range ar.Files {
		links, err := tc.ParseLinks(f.Data)
		if err != nil || !cmp.Equal(want, links, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v: %s", f.Name, err, cmp.Diff(want, links, cmpopts.EquateEmpty()))
		}
	}
}

// TestNoJSON: what is among members as text is read, and what nobody understands keeps
// nothing else from being read. What is cut off is an error.
func TestNoJSON(t *testing.T) {
	const reported = `[{"protocol":"all","pref":9,"kind":"u32","chain":0,"options":{fh 800::800 order 2048 key ht 800 bkt 0 flowid 1:1 not_in_hw ` + "\n" +
		`  match 00000000/00000000 at 0"actions":[{"order":1,"kind":"mirred","mirred_action":"redirect","direction":"egress","to_dev":"ifb9","control_action":{"type":"stolen"}}]}},` +
		`{"protocol":"ip","pref":10,"kind":"odd","chain":0,"options":{"a":"17":"0x11","b":[1,{x y},"c":],d "e" 5}}},{"protocol":"ip","pref":11,"kind":"fw","chain":0,"options":{handle 0x1 classid 1:2 }}]`
	fs, err := tc.ParseFilters([]byte(reported), tc.AtIngress)
	if err != nil || len(fs) != 3 {
		t.Fatalf("%v: %+v", err, fs)
	}
	want := "tc filter add dev wan ingress protocol all pref 9 u32 classid 1:1 match u32 0x0 0x0 at 0 action mirred egress redirect dev ifb9"
	if got := (tc.Tree{Filters: fs[:1]}).Build("wan"); len(got) != 1 || got[0].String() != want || fs[0].Opaque != "" || fs[0].Handle != "800::800" {
		t.Errorf("%q\nof %+v", got, fs[0])
	}
	if fs[1].Opaque == "" || fs[2].Opaque != "" || fs[2].Handle != "0x1" {
		t.Errorf("%+v", fs[1:])
	}
	const erspan = `[{"ifname":"er","flags":["UP"],"mtu":1464,"link_type":"ether","linkinfo":{"info_kind":"erspan","info_data":{"erspan_ver":2,"erspan_hwid":"17":"0x11","remote":"192.0.2.2"}}},` +
		`{"ifname":"wan","flags":["UP","LOWER_UP"],"mtu":1500,"link_type":"ether","altnames":["enp9s0f1","uplink"]}]`
	links, err := tc.ParseLinks([]byte(erspan))
	if err != nil || len(links) != 2 || links[0].Kind != "erspan" || links[0].MTU != 1464 || !links[1].Carrier || !slices.Equal(links[1].AltNames, []string{"enp9s0f1", "uplink"}) {
		t.Errorf("%v: %+v", err, links)
	}
	for n := range len(reported) - 1 {
		if fs, err := tc.ParseFilters([]byte(reported[:n+1]), tc.AtIngress); err == nil {
			t.Fatalf("cut off after %d bytes: %+v", n+1, fs)
		}
	}
	// Of a tree with such a part the rest is read, and the part is never made again.
	for _, cut := range []string{`[{"protocol":"all"`, "no list"} {
		tree, err := tc.ReadTree("wan", tc.Tree{}, func(lines ...string) ([]byte, error) {
			switch {
			case strings.HasPrefix(lines[0], "qdisc"):
				return []byte(`[{"kind":"htb","handle":"1:","root":true,"options":{"default":"0x10","r2q":"ten"}},{"kind":"ingress","handle":"ffff:","parent":"ffff:fff1"}]`), nil
			case len(lines) == 2:
				return []byte("[]\n" + cut), nil
			case strings.HasSuffix(lines[0], "ingress"):
				return []byte(cut), nil
			}
			return []byte("[]"), nil
		})
		if lost := tree.Unrebuildable(); err != nil || len(lost) != 2 || len(tree.Qdiscs) != 2 {
			t.Errorf("%v: %q of %+v", err, lost, tree)
		}
	}
}
