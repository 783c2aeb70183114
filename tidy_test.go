// Package unbloat_test holds the rules of this repository as tests: which
// package may import which; what pure packages may use; that everything public
// is documented; that every promise of docs/SPECIFICATION.md names an existing
// test; that tests wait for events; that make test runs all tests; that the map
// in ARCHITECTURE.md lists exactly the packages; and that links and figures in
// the documents are right. Sizes are for reviewers to judge: a file is one
// subject.
package unbloat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"unbloat/internal/cure/platform/all"
	"unbloat/testkit/conform"
)

// A source is one parsed Go file.
type source struct {
	path string // slash-separated, from the module's root
	dir  string
	file *ast.File
	text []byte
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// sources returns all of them.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readSources reads them, once.
var readSources = sync.OnceValues(func() ([]source, error) {
	set := token.NewFileSet()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == "testdata" || n == "node_modules" || n == "bin" || p != "." && strings.HasPrefix(n, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		out = append(out, source{p, path.Dir(p), f, text})
		return nil
	})
	return out, err
})

// below lists which of our packages a package may import. A package that is not
// listed may import any. "x/..." stands for x and everything below it.
func below() map[string][]string {
	return map[string][]string{
		"unit":                      {},
		"reason":                    {"unit"},
		"guard":                     {"unit"},
		"internal/measure/probe":    {"unit"},
		"internal/measure/netio":    {"unit", "internal/measure/probe"},
		"internal/measure/framing":  {"unit", "reason", "internal/measure/probe"},
		"internal/measure/verdict":  {"unit", "reason", "internal/measure/probe", "internal/measure/framing"},
		"internal/measure/phases":   {"unit", "reason", "internal/measure/probe", "internal/measure/netio", "internal/measure/verdict", "internal/measure/framing"},
		"internal/measure/protocol": {"unit", "guard", "internal/measure"},
		"internal/measure/path":     {"unit", "reason", "internal/measure"},
		"internal/cure/classify":    {"unit"},
		"internal/cure/plan":        {"unit", "reason", "internal/cure/classify"},
		"internal/cure/lang":        {"unit", "reason", "internal/cure/classify", "internal/cure/plan", "internal/cure/lang"},
		"internal/cure/platform":    {"unit", "reason", "guard", "internal/cure/classify", "internal/cure/plan", "internal/cure/lang", "internal/cure/platform", "internal/keep/flows"},
		"internal/cure/apply":       {"unit", "reason", "guard", "internal/cure/plan", "internal/cure/platform", "internal/cure/apply"},
		"internal/keep/supervise":   {},
		"internal/keep/config":      {"unit", "internal/cure/plan", "internal/cure/lang/uci"},
		"internal/keep/delay":       {"unit", "internal/measure/probe"},
		"internal/keep/follow":      {"unit", "reason", "internal/keep/delay"},
		"internal/keep/steer":       {"unit", "internal/keep/delay", "internal/keep/follow", "internal/keep/metrics", "internal/measure/netio"},
		"internal/keep/metrics":     {"unit", "guard", "internal/keep/follow", "internal/keep/supervise"},
		"internal/keep/flows":       {"unit"},
		"internal/keep/incident":    {"unit", "reason"},
		"internal/keep/tell":        {"reason", "internal/keep/config", "internal/keep/incident", "internal/keep/tell"},
		"internal/keep/daemon":      {"unit", "reason", "guard", "internal/cure/classify", "internal/cure/plan", "internal/cure/lang", "internal/cure/platform", "internal/cure/apply", "internal/cure/tune", "internal/measure/phases", "internal/keep/config", "internal/keep/supervise", "internal/keep/metrics", "internal/keep/follow", "internal/keep/steer", "internal/keep/delay", "internal/keep/incident", "internal/keep/tell", "internal/measure/netio", "internal/measure/path", "internal/measure/verdict"},
		"internal/keep/page":        {"unit", "reason", "guard", "web", "internal/measure/verdict", "internal/cure/classify", "internal/cure/platform", "internal/cure/tune", "internal/keep"},
		"internal/show/report":      {"unit", "reason", "guard", "internal/keep/incident", "internal/cure/plan", "internal/cure/tune", "internal/measure/framing", "internal/measure/verdict", "internal/measure/path"},
		"internal/show/terminal":    {"unit", "reason", "internal/keep/daemon", "internal/keep/follow", "internal/keep/supervise", "internal/measure/verdict", "internal/measure/phases", "internal/measure/path", "internal/cure/tune"},
		"internal/show/cli":         {"unit", "guard"},
		"web":                       {},
		"lab/aqm":                   {"unit"},
		"lab/sim":                   {"unit", "lab/aqm"},
		"lab/scenario":              {"unit"},
	}
}

const module = "unbloat/"

// Lower layers do not import higher ones.
func TestLayers(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		if s.test() {
			continue
		}
		for layer, allowed := range below() {
			if s.dir != layer && !strings.HasPrefix(s.dir, layer+"/") {
				continue
			}
			for _, imp := range s.file.Imports {
				ours, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
				ok := !is || slices.ContainsFunc(allowed, func(a string) bool { return ours == a || strings.HasPrefix(ours, a+"/") })
				if !ok {
					t.Errorf("%s imports %s, which is not below it", s.path, ours)
				}
			}
		}
	}
}

// The laboratory is apart: nothing of the product imports it.
func TestLaboratoryApart(t *testing.T) {
	all := sources(t)
	under := func(p string, dirs ...string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
	}
	for _, s := range all {
		if s.test() || !under(s.dir, "cmd/unbloat", "internal", "guard", "reason", "unit", "web") {
			continue
		}
		for _, imp := range s.file.Imports {
			if ours, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module); is && under(ours, "lab", "scenarios", "testkit") {
				t.Errorf("%s imports %s: the product does without the laboratory", s.path, ours)
			}
		}
	}
}

// One tag tells builds apart, for few files: what only the whole program has is gathered,
// and a package that the other one does not import needs no tag.
func TestFewTaggedFiles(t *testing.T) {
	all := sources(t)
	var tagged, pairs []string
	for _, s := range all {
		for line := range strings.Lines(string(s.text)) {
			if !constraint.IsGoBuild(line) {
				continue
			}
			x, err := constraint.Parse(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("%s: %v", s.path, err)
			}
			x.Eval(func(tag string) bool {
				if tag == "router" {
					tagged = append(tagged, s.path)
				}
				return false
			})
		}
		if strings.HasSuffix(s.path, "_omit.go") || strings.HasSuffix(s.path, "_router.go") {
			pairs = append(pairs, s.path)
		}
	}
	const mostTagged, mostPairs = 25, 6
	if t.Logf("%d files with the tag router, %d of them only for it", len(tagged), len(pairs)); len(tagged) > mostTagged || len(tagged) == 0 {
		t.Errorf("%d files have the tag router, at most %d may: %q", len(tagged), mostTagged, tagged)
	}
	if len(pairs) > mostPairs {
		t.Errorf("%d files stand in for what is left out, at most %d may: %q", len(pairs), mostPairs, pairs)
	}
}

// A stand-in shares no code with what it tests: of our packages it only imports
// other stand-ins and the interfaces for a router's commands.
func TestStandInsAreIndependent(t *testing.T) {
	standIn := func(p string) bool {
		name, is := strings.CutPrefix(p, "testkit/")
		return is && (strings.HasSuffix(name, "fake") || slices.Contains([]string{"dnctl", "pfctl"}, name))
	}
	all := sources(t)
	seen := 0
	for _, s := range all {
		if s.test() || !standIn(s.dir) {
			continue
		}
		seen++
		for _, imp := range s.file.Imports {
			ours, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
			if is && !standIn(ours) && ours != "internal/cure/platform" && ours != "testkit/await" {
				t.Errorf("%s imports %s, which it would judge", s.path, ours)
			}
		}
	}
	if seen == 0 {
		t.Error("there are no stand-ins")
	}
}

// Pure packages read no clock, file, environment or randomness: they are given
// the time and a seeded source.
func TestPurity(t *testing.T) {
	pure := []string{"unit", "reason", "lab/aqm", "lab/sim", "lab/scenario", "internal/measure/probe", "internal/measure/framing", "internal/measure/verdict", "internal/cure/classify", "internal/cure/plan", "internal/cure/lang", "internal/keep/supervise", "internal/keep/config", "internal/keep/delay", "internal/keep/metrics", "internal/keep/follow", "internal/keep/flows", "internal/keep/incident"}
	banned := []string{"os", "net", "os/exec", "syscall", "crypto/rand", "os/signal", "golang.org/x/sys/unix"}
	impure := map[string][]string{"time": {"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"}}
	global := regexp.MustCompile(`\brand\.(Int|IntN|Int64N|Uint64|Float64|Perm|Shuffle|N|Read)\b`)
	all := sources(t)
	for _, s := range all {
		if s.test() || !slices.ContainsFunc(pure, func(p string) bool { return s.dir == p || strings.HasPrefix(s.dir, p+"/") }) {
			continue
		}
		for _, imp := range s.file.Imports {
			if name := strings.Trim(imp.Path.Value, `"`); slices.Contains(banned, name) {
				t.Errorf("%s imports %s", s.path, name)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(impure[x.Name], sel.Sel.Name) {
				t.Errorf("%s uses %s.%s", s.path, x.Name, sel.Sel.Name)
			}
			return true
		})
		if m := global.Find(s.text); m != nil {
			t.Errorf("%s uses the global source of randomness: %s", s.path, m)
		}
	}
}

// Every package and everything public is documented, and nothing runs at
// program start.
func TestDocs(t *testing.T) {
	all := sources(t)
	documented := map[string]bool{}
	for _, s := range all {
		documented[s.dir] = documented[s.dir] || s.file.Doc != nil
	}
	for _, s := range all {
		if !documented[s.dir] && !s.test() {
			t.Errorf("package %s has no comment", s.dir)
			documented[s.dir] = true
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function", s.path)
			}
			if s.test() {
				continue
			}
			if ok && f.Name.IsExported() && publicReceiver(f) && f.Doc == nil && !obvious(f) {
				t.Errorf("%s: %s is not documented", s.path, f.Name.Name)
			}
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, spec := range g.Specs {
					if ts := spec.(*ast.TypeSpec); ts.Name.IsExported() && g.Doc == nil && ts.Doc == nil && ts.Comment == nil {
						t.Errorf("%s: type %s is not documented", s.path, ts.Name.Name)
					}
				}
			}
		}
	}
}

// obvious reports whether a method's name alone tells every Go reader what it
// does.
func obvious(f *ast.FuncDecl) bool {
	return f.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "Is", "String", "Write", "Read", "Close", "Len", "Less", "Swap", "Set", "Type",
		"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "Push", "Pop"}, f.Name.Name)
}

func publicReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	e := f.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if i, ok := e.(*ast.IndexExpr); ok {
		e = i.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

// A platform is named only in its own directories; other packages ask the
// driver. A name is a string that equals it, or the constant of its package.
func TestPlatformsNamedAtHome(t *testing.T) {
	at := map[string]string{} // each platform's directory
	for _, name := range all.Names() {
		at[name] = strings.TrimSuffix(name, "-altq")
	}
	// allowed are strings that only look like a platform's name. Each must be
	// needed, so that the list only gets shorter.
	allowed := map[string]string{
		"lab/aqm/dialect.go":                       "freebsd",    // FreeBSD's kernel's CoDel, as its own tables name it
		"internal/cure/platform/bsd/bsd.go":        "freebsd",    // the same
		"internal/cure/platform/linux/packages.go": "openwrt",    // the ID of a distribution, which --own-tc shapes as Linux
		"lab/build_linux.go":                       "linux",      // the file that the kernel's make produces
		"lab/kernel.go":                            "linux",      // the same
		"testkit/labtest/seccomp.go":               "linux",      // runtime.GOOS
		"internal/show/terminal/screen.go":         "linux",      // TERM of the console
		"contrib/package/main.go":                  "linux",      // GOOS
		"contrib/package/openwrt.go":               "openwrt",    // a kind of packages
		"lab/print.go":                             "linux.Name", // the lab's guests are Linux
		"lab/simlab/simlab.go":                     "linux.Name", // the default router of the simulator is the lab's
		"lab/simlab/spec.go":                       "linux.Name", // the same
	}
	needed := map[string]bool{}
	files := sources(t)
	for _, s := range files {
		if s.test() {
			continue
		}
		packages := map[string]string{} // imported packages that are platforms: name → directory
		for _, imp := range s.file.Imports {
			dir, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"internal/cure/platform/")
			if is {
				packages[path.Base(dir)] = dir
				if imp.Name != nil {
					packages[imp.Name.Name] = dir
				}
			}
		}
		home := func(dir string) bool {
			d := "internal/cure/platform/" + dir
			return s.dir == d || strings.HasPrefix(s.dir, d+"/") || s.dir == "testkit/"+dir+"fake"
		}
		named := func(text, dir string) {
			if home(dir) {
				return
			}
			if allowed[s.path] == text {
				needed[s.path] = true
				return
			}
			t.Errorf("%s names the platform %s (%s); ask its driver", s.path, dir, text)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && at[text] != "" {
					named(text, at[text])
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && strings.HasPrefix(n.Sel.Name, "Name") && slices.Contains(slices.Collect(maps.Values(at)), packages[x.Name]) {
					named(x.Name+"."+n.Sel.Name, packages[x.Name])
				}
			}
			return true
		})
	}
	for p := range allowed {
		if !needed[p] {
			t.Errorf("%s is allowed to name a platform and does not", p)
		}
	}
}

// sleeps lists the test files that may call time.Sleep, how often, and why. The
// list may only get shorter: a test waits for an event (package await), or runs
// in a bubble of testing/synctest, where sleeping is exact and takes no time.
// The same is true in the lab's guests, whose time is virtual.
func sleeps() map[string]struct {
	times int
	why   string
} {
	const (
		virtual = "in the lab's guest, where time is virtual"
		bubble  = "in a bubble of testing/synctest, from a method"
		paces   = "paces what it sends"
		figures = "a benchmark: so long it measures"
		silence = "silence is what is tested"
		moment  = "a process dies at this moment, whatever it does"
	)
	return map[string]struct {
		times int
		why   string
	}{
		"internal/cure/apply/lab_errors_linux_test.go":            {4, virtual},
		"internal/cure/apply/lab_retune_linux_test.go":            {4, virtual},
		"internal/keep/daemon/lab_follow_linux_test.go":           {3, virtual},
		"internal/keep/daemon/lab_incidents_linux_test.go":        {3, virtual},
		"internal/keep/daemon/lab_linux_test.go":                  {12, virtual},
		"internal/keep/daemon/conform_test.go":                    {3, bubble},
		"internal/keep/daemon/retune_test.go":                     {6, bubble},
		"internal/keep/daemon/soak_test.go":                       {2, bubble},
		"internal/keep/steer/lab_linux_test.go":                   {1, virtual},
		"cmd/unbloat/isolate_linux_test.go":                       {2, virtual},
		"lab/chromium_linux_test.go":                              {2, paces},
		"lab/cost_guest_linux_test.go":                            {1, virtual},
		"lab/interrupt_test.go":                                   {4, virtual},
		"lab/peers_test.go":                                       {4, virtual},
		"lab/public_test.go":                                      {1, virtual},
		"internal/measure/path/lab_servers_test.go":               {1, virtual},
		"internal/measure/path/lab_test.go":                       {3, virtual},
		"internal/cure/platform/linux/lab_classes_linux_test.go":  {2, virtual},
		"internal/cure/platform/linux/lab_domains_linux_test.go":  {1, virtual},
		"internal/cure/platform/linux/lab_families_linux_test.go": {2, virtual},
		"internal/cure/platform/linux/lab_marks_linux_test.go":    {2, virtual}, // a flood at a rate, and its end on its way
		"internal/cure/platform/linux/bpf/guest_linux_test.go":    {1, virtual},
		"internal/measure/protocol/lab_linux_test.go":             {2, virtual},
		"internal/cure/remote/lab_linux_test.go":                  {1, virtual},
		"internal/keep/daemon/change_test.go":                     {1, bubble},
		"internal/measure/protocol/web/small_test.go":             {2, bubble},
		"internal/measure/protocol/bench_bare_linux_test.go":      {2, paces},
		"internal/measure/protocol/bench_linux_test.go":           {4, figures},
		"internal/measure/protocol/bench_capacity_linux_test.go":  {3, figures},
		"internal/serve/fleet_test.go":                            {2, paces},
		"internal/show/store/spool_test.go":                       {1, moment},
		"internal/serve/abuse_test.go":                            {1, paces},
		"internal/serve/datagram_test.go":                         {1, paces},
		"internal/serve/shape_linux_test.go":                      {2, paces},
		"internal/measure/netio/moderation_test.go":               {1, silence},
	}
}

// Tests wait for events, not for a time after which something should have
// happened.
func TestSleeps(t *testing.T) {
	all := sources(t)
	found := map[string]int{}
	for _, s := range all {
		if s.test() {
			found[s.path] = slept(s.file)
		}
	}
	allowed := sleeps()
	for p, n := range found {
		if most := allowed[p].times; n > most {
			t.Errorf("%s calls time.Sleep %d times, at most %d: wait for the event with package await, or use testing/synctest", p, n, most)
		}
	}
	for p := range allowed {
		if _, ok := found[p]; !ok {
			t.Errorf("the list of sleeps has %s, which is not there", p)
		}
	}
}

// slept counts the calls of time.Sleep in a file, except in functions that are
// passed to synctest.Test.
func slept(n ast.Node) (times int) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called(call) {
		case "time.Sleep":
			times++
		case "synctest.Test":
			return false
		}
		return true
	})
	return times
}

// called returns the package and name of a called function.
func called(c *ast.CallExpr) string {
	if f, ok := c.Fun.(*ast.SelectorExpr); ok {
		if p, ok := f.X.(*ast.Ident); ok {
			return p.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// make test runs every test: those whose names end in Alone one by one, the
// others in parallel.
func TestEveryTestIsRun(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-skip 'Alone$$'", "-run 'Alone$$'", "--include='*_test.go' cmd internal lab testkit |", "UNBLOAT_RAN="} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in the Makefile", want)
		}
	}
	all := sources(t)
	alone := 0
	for _, s := range all {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test() || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || !strings.HasSuffix(f.Name.Name, "Alone") {
				continue
			}
			alone++
			if top, _, _ := strings.Cut(s.path, "/"); !slices.Contains([]string{"cmd", "internal", "lab", "testkit"}, top) {
				t.Errorf("%s: make test looks for %s in cmd, internal, lab and testkit only", s.path, f.Name.Name)
			}
		}
	}
	if alone == 0 {
		t.Error("no test runs alone")
	}
}

// Every promise names existing tests that hold it. After a run of `make test`, whose
// events UNBLOAT_RAN has, one of them at least has passed; and what was skipped is listed.
// Two kinds are listed in place of failing: what takes a quiet machine (Alone) where this
// one was busy, and what has a benchmark too, since others' programs it takes may be missing.
func TestSpecification(t *testing.T) {
	text, err := os.ReadFile("docs/SPECIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	names := testNames(t)
	passed, skipped := ranTests(t, os.Getenv("UNBLOAT_RAN"))
	promise := namedTest()
	first := map[string]int{} // promise → line
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| S") {
			continue
		}
		id := strings.Fields(line)[1]
		if at, twice := first[id]; twice {
			t.Errorf("docs/SPECIFICATION.md:%d: %s is the name of line %d already", i+1, id, at)
		}
		first[id] = i + 1
		held := promise.FindAllStringSubmatch(line, -1)
		if !slices.ContainsFunc(held, func(h []string) bool { return !strings.HasPrefix(h[2], "Benchmark") }) {
			t.Errorf("docs/SPECIFICATION.md:%d: no test that `make test` runs holds this promise", i+1)
		}
		ran, elsewhere := false, false
		for _, h := range held {
			elsewhere = elsewhere || strings.HasPrefix(h[2], "Benchmark") || strings.HasSuffix(h[2], "Alone")
			if !names[h[1]+"."+h[2]] {
				t.Errorf("docs/SPECIFICATION.md:%d: there is no %s.%s", i+1, h[1], h[2])
			}
			ran = ran || passed[h[1]+"."+h[2]]
		}
		switch {
		case passed == nil || ran:
		case elsewhere:
			skipped = append(skipped, "NOT HELD in this run: "+id+", which takes a quiet machine or what this system lacks")
		default:
			t.Errorf("docs/SPECIFICATION.md:%d: no test of %s has run and passed", i+1, id)
		}
	}
	if len(first) == 0 {
		t.Error("docs/SPECIFICATION.md promises nothing")
	}
	for _, s := range skipped {
		fmt.Println(s)
	}
	if passed != nil {
		fmt.Printf("%d tests passed, %d were skipped, for the reasons above\n", len(passed), len(skipped))
	}
}

// ranTests reads the events of `go test -json` in the files of a directory: which tests
// have passed, by package and name, and a line for each that was skipped, with the reason
// that it gave. One of which all parts were skipped has not passed. Without a directory it
// returns nil.
func ranTests(t *testing.T, dir string) (passed map[string]bool, skipped []string) {
	t.Helper()
	if dir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("UNBLOAT_RAN=%s has no events of tests: %v", dir, err)
	}
	passed = map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]string{} // test → the last line that says SKIPPED
		parts := map[string]bool{}  // test with parts → whether one of them has passed
		for line := range strings.Lines(string(text)) {
			var e struct{ Action, Package, Test, Output string }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v: %s", file, err, line)
			}
			name := strings.TrimPrefix(e.Package, module) + "." + e.Test
			switch e.Action {
			case "output":
				if _, why, ok := strings.Cut(e.Output, "SKIPPED"); ok {
					said[name] = strings.TrimSpace(why)
				}
			case "pass", "skip":
				if e.Test == "" {
					continue
				}
				one, has := parts[name]
				ran := e.Action == "pass" && (one || !has)
				if ran {
					passed[name] = true
				} else if !has {
					skipped = append(skipped, "SKIPPED "+name+said[name])
				}
				if i := strings.LastIndex(e.Test, "/"); i >= 0 {
					whole := strings.TrimSuffix(name, e.Test[i:])
					parts[whole] = parts[whole] || ran
				}
			}
		}
	}
	slices.Sort(skipped)
	return passed, skipped
}

// namedTest matches a test's name in a document: `lab.TestSeeds`.
func namedTest() *regexp.Regexp {
	return regexp.MustCompile("`([a-z0-9/_-]+)\\.((?:Test|Benchmark|Fuzz)[A-Za-z0-9]+)`")
}

// testNames returns all tests, fuzz targets and benchmarks, with their
// packages.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	all := sources(t)
	for _, s := range all {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test() {
				names[s.dir+"."+f.Name.Name] = true
			}
		}
	}
	return names
}

// Tests and make targets that documents mention exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	names := testNames(t)
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	run := regexp.MustCompile(`go test [^` + "`" + `\n]*`)
	target := regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)")
	for _, d := range documents(t) {
		if d.path == "CHANGELOG.md" {
			continue // it also describes the past
		}
		for _, m := range namedTest().FindAllStringSubmatch(d.text, -1) {
			if !names[m[1]+"."+m[2]] {
				t.Errorf("%s: there is no %s.%s", d.path, m[1], m[2])
			}
		}
		for _, m := range target.FindAllStringSubmatch(d.text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: make has no target %s", d.path, m[1])
			}
		}
		for _, command := range run.FindAllString(d.text, -1) {
			at := regexp.MustCompile(`\./([a-z0-9/]+)`).FindStringSubmatch(command)
			if at == nil {
				continue
			}
			if _, err := os.Stat(at[1]); err != nil {
				t.Errorf("%s: %s: there is no such package", d.path, command)
			}
			for _, m := range regexp.MustCompile(`-(?:run|bench) '?\^?([A-Z][A-Za-z0-9]*)`).FindAllStringSubmatch(command, -1) {
				found := false
				for name := range names {
					found = found || strings.HasPrefix(name, at[1]+".") && strings.Contains(name, m[1])
				}
				if !found {
					t.Errorf("%s: %s: there is no such test", d.path, command)
				}
			}
		}
	}
}

// A document is one Markdown file for people.
type document struct {
	path string // slash-separated, from the module's root
	text string
}

func documents(t *testing.T) []document {
	t.Helper()
	var out []document
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == "testdata" || n == "node_modules" || n == "bin" || p != "." && strings.HasPrefix(n, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		out = append(out, document{filepath.ToSlash(p), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The map in ARCHITECTURE.md lists every package once, and no other. X in a
// path stands for any single name.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Code map\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no code map")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]int{} // number of packages for each row
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("ARCHITECTURE.md: %s is in the map twice", m[1])
		}
		rows[m[1]] = 0
	}
	matches := func(row, dir string) bool {
		return slices.EqualFunc(strings.Split(row, "/"), strings.Split(dir, "/"), func(a, b string) bool { return a == b || a == "X" })
	}
	all := sources(t)
	seen := map[string]bool{}
	for _, s := range all {
		if s.test() || seen[s.dir] {
			continue
		}
		seen[s.dir] = true
		if _, ok := rows[s.dir]; ok {
			rows[s.dir]++
			continue
		}
		found := 0
		for row := range rows {
			if matches(row, s.dir) {
				rows[row]++
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s is in %d rows of ARCHITECTURE.md's map", s.dir, found)
		}
	}
	for row, n := range rows {
		if n == 0 {
			t.Errorf("ARCHITECTURE.md's map has %s, and there is no such package", row)
		}
	}
}

// Links lead somewhere, to a heading that is there if they name one; and a page
// that a comment or message names exists.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, d := range documents(t) {
		for i, line := range strings.Split(d.text, "\n") {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				file, heading, _ := strings.Cut(m[1], "#")
				to := path.Join(path.Dir(d.path), file)
				if file == "" {
					to = d.path
				}
				info, err := os.Stat(to)
				if err != nil {
					t.Errorf("%s:%d: %s is not there", d.path, i+1, m[1])
					continue
				}
				if heading == "" || info.IsDir() {
					continue
				}
				text, err := os.ReadFile(to)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(anchors(string(text)), heading) {
					t.Errorf("%s:%d: %s has no heading %s", d.path, i+1, to, heading)
				}
			}
		}
	}
	page := regexp.MustCompile(`\bdocs/[a-z/-]+\.(md|svg|toml)\b`)
	named := func(file, text string) {
		for _, p := range page.FindAllString(text, -1) {
			if _, err := os.Stat(p); err != nil {
				t.Errorf("%s names %s, which is not there", file, p)
			}
		}
	}
	for _, d := range documents(t) {
		named(d.path, d.text)
	}
	all := sources(t)
	for _, s := range all {
		named(s.path, string(s.text))
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named("Makefile", string(makefile))
}

// anchors are what links call the headings of a page.
func anchors(text string) []string {
	var out []string
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if code || !strings.HasPrefix(line, "#") {
			continue
		}
		title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, title))
	}
	return out
}

// Every page can be found from the index, and the index from the README; the commands in
// those of the module's directory are checked, too.
func TestIndexHasEveryPage(t *testing.T) {
	const at = "docs/README.md"
	texts := map[string]string{}
	for _, d := range documents(t) {
		texts[d.path] = d.text
	}
	if !strings.Contains(texts["README.md"], "("+at+")") {
		t.Errorf("README.md does not lead to %s", at)
	}
	for p := range texts {
		name, in := strings.CutPrefix(p, "docs/")
		if !strings.Contains(p, "/") && p != "CHANGELOG.md" && !slices.Contains(conform.Front, p) {
			t.Errorf("%s is not one of conform.Front, so its commands are not checked", p)
		}
		if strings.HasPrefix(name, "evidence/") {
			name = "evidence"
		}
		if in && p != at && !strings.Contains(texts[at], "("+name+")") {
			t.Errorf("%s does not lead to %s", at, p)
		}
	}
}

// If the paragraph before a table links to a file of docs/evidence, each cell
// with a figure must be a cell of that file.
func TestFiguresAreEvidence(t *testing.T) {
	source := regexp.MustCompile(`\]\(((?:docs/)?evidence/[a-z]+\.md)\)`)
	cells := func(row string) []string {
		out := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		for i := range out {
			out[i] = strings.TrimSpace(out[i])
		}
		return out
	}
	cited := 0
	for _, d := range documents(t) {
		if strings.HasPrefix(d.path, "docs/evidence/") {
			continue
		}
		blocks := strings.Split(d.text, "\n\n")
		for i := 1; i < len(blocks); i++ {
			from := source.FindStringSubmatch(blocks[i-1])
			rows := strings.Split(strings.TrimSpace(blocks[i]), "\n")
			if from == nil || !strings.HasPrefix(rows[0], "|") || len(rows) < 3 {
				continue
			}
			file := path.Join(path.Dir(d.path), from[1])
			text, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: %v", d.path, err)
				continue
			}
			measured := map[string]bool{}
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "|") {
					for _, c := range cells(line) {
						median, _, _ := strings.Cut(c, " (") // the range may be left out
						measured[c], measured[median] = true, true
					}
				}
			}
			for _, row := range rows[2:] {
				for _, c := range cells(row)[1:] {
					if strings.ContainsAny(c, "0123456789") && !measured[c] {
						t.Errorf("%s: %q is no figure of %s; copy it from there", d.path, c, file)
					}
				}
			}
			if d.path == "README.md" {
				cited++
			}
		}
	}
	if cited == 0 {
		t.Error("README.md cites no table of docs/evidence")
	}
}

// The house: how many packages hold code, and how many lines the product is. A bound is
// lowered when the house gets smaller, and raised only by a commit that says why. `make
// house` prints the figures, and the sizes of the programs beside them.
func TestHouse(t *testing.T) {
	all := sources(t)
	lines := map[string]int{} // by package
	product := 0
	for _, s := range all {
		if s.test() {
			continue
		}
		n := codeLines(s.text)
		lines[s.dir] += n
		if top, _, _ := strings.Cut(s.dir, "/"); !slices.Contains([]string{"lab", "scenarios", "testkit"}, top) {
			product += n
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		t.Logf("%6d lines of code in %s", lines[dir], dir)
	}
	for _, x := range []struct {
		what    string
		n, most int
	}{
		{"packages with code", len(lines), 80},
		{"lines of product code, without the laboratory, stand-ins, tests, comments and blank lines", product, 90819},
	} {
		t.Logf("%d %s, at most %d", x.n, x.what, x.most)
		if x.n > x.most {
			t.Errorf("%d %s, at most %d", x.n, x.what, x.most)
		}
	}
}

// The program that people copy to a machine stays small; `make router` holds the size of
// the one for routers.
func TestProgramIsSmall(t *testing.T) {
	const most = 30e6
	info, err := os.Stat("bin/unbloat")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("SKIPPED: there is no bin/unbloat; `make build` makes it")
	} else if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("bin/unbloat has %.1f MB, at most %.1f", float64(info.Size())/1e6, most/1e6)
	}
}

// codeLines counts the lines that hold more than comments and blanks.
func codeLines(text []byte) int {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var sc scanner.Scanner
	sc.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := sc.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(lit, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

// A target of the Makefile, or a script, names no package that has moved.
func TestPathsOfScripts(t *testing.T) {
	files, err := filepath.Glob("scripts/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range append(files, "Makefile") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range regexp.MustCompile(`\./(?:cmd|contrib|guard|internal|lab|reason|testkit|unit|web)/[\w/.-]*\w`).FindAllString(string(text), -1) {
			if _, err := os.Stat(strings.TrimSuffix(p, "/...")); err != nil {
				t.Errorf("%s names %s: %v", file, p, err)
			}
			seen++
		}
	}
	if seen == 0 {
		t.Error("no path is seen")
	}
}
