package tc_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/cure/lang/tc"
)

// seed adds the recorded output of the real tools from files whose name
// contains part.
func seed(f *testing.F, part string) {
	paths, err := filepath.Glob("testdata/show/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatal("no corpus", err)
	}
	for _, p := range paths {
		ar, err := txtar.ParseFile(p)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range ar.Files {
			if strings.Contains(file.Name, part) {
				f.Add(file.Data)
			}
		}
	}
}

// sane checks that any parsed tree equals itself and can be rendered.
func sane(t *testing.T, tree tc.Tree) {
	if d := tree.Differences(tree); d != nil {
		t.Errorf("it differs from itself: %q", d)
	}
	tree.Build("x")
	tree.Unrebuildable()
	_ = tree.Rate()
	_ = tree.Queue()
	root, in := tree.Split()
	if d := tree.Differences(tc.Join(root, in)); d != nil {
		t.Errorf("Join does not undo Split: %q", d)
	}
}

func FuzzParseQdiscs(f *testing.F) {
	seed(f, "qdisc show")
	f.Add([]byte(`[{"kind":"htb","handle":"1:","root":true,"options":{}}][{"kind":"htb","handle":"1:","root":true,"options":{a {b} }}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		qs, err := tc.ParseQdiscs(b)
		if err == nil {
			sane(t, tc.Tree{Qdiscs: qs})
		}
	})
}

func FuzzParseClasses(f *testing.F) {
	seed(f, "class show")
	f.Add([]byte(`[{"class":"htb","handle":"1:10","parent":"1:1","leaf":"110:","prio":0,"quantum":1749,"rate":1125000,"ceil":1125000,"burst":1749,"cburst":1749}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := tc.ParseClasses(b)
		if err == nil {
			sane(t, tc.Tree{Classes: cs})
		}
	})
}

func FuzzParseFilters(f *testing.F) {
	seed(f, "filter show")
	f.Fuzz(func(t *testing.T, b []byte) {
		fs, err := tc.ParseFilters(b, "1:")
		if err == nil {
			sane(t, tc.Tree{Filters: fs})
		}
	})
}

func FuzzParseCounters(f *testing.F) {
	seed(f, "qdisc show")
	f.Add([]byte(`[{"kind":"cake","handle":"8001:","dev":"wan","root":true,"bytes":1,"packets":2,"drops":3,"overlimits":4,"backlog":5,"qlen":6,"tins":[{"ecn_mark":7,"ack_drops":8}]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := tc.ParseCounters(b, "wan")
		for _, c := range cs {
			if err == nil && (c.Kind == "" || c.Device == "") {
				t.Errorf("%+v", c)
			}
		}
	})
}

func FuzzParseLinks(f *testing.F) {
	f.Add([]byte(`[{"ifname":"wan","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,"link_type":"ether","linkinfo":{"info_kind":"veth"}},{}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ls, err := tc.ParseLinks(b)
		for _, l := range ls {
			if err == nil && l.Name == "" {
				t.Error("a link without a name")
			}
		}
	})
}

func FuzzParseFeatures(f *testing.F) {
	f.Add([]byte("Features for wan:\nrx-checksumming: on [fixed]\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\ttx-tcp-ecn-segmentation: off [requested on]\ngeneric-receive-offload: on\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tc.SwitchableOffloads(tc.ParseFeatures(b))
	})
}
