package bsd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const byHand = `<?xml version="1.0"?>
<!-- by hand -->
<pfsense>
	<dnshaper>
		<queue><name>a</name><descr><![CDATA[café & <tea>]]></descr><bandwidth><item><bw>3</bw></item></bandwidth><queue><name>a_q</name></queue></queue>
		<queue><name>b</name></queue>
	</dnshaper>
	<filter><rule><any/></rule></filter>
</pfsense>`

func TestParse(t *testing.T) {
	root, err := ParseConfig(byHand)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(root.Array())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"dnshaper":{"queue":[{"bandwidth":{"item":[{"bw":"3"}]},"descr":"café \u0026 \u003ctea\u003e","name":"a","queue":[{"name":"a_q"}]},{"name":"b"}]},"filter":{"rule":[{"any":""}]}}`
	if d := cmp.Diff(want, string(b)); d != "" {
		t.Error(d)
	}
	if got := root.Child("dnshaper").All("queue")[1].Value("name"); got != "b" || root.Child("none").Value("x") != "" || root.Child("none").All("x") != nil {
		t.Errorf("%q", got)
	}
	without := root.Without(func(n *ConfigNode) bool { return n.Value("name") == "a" })
	if got := len(without.Child("dnshaper").All("queue")); got != 1 || len(root.Child("dnshaper").All("queue")) != 2 {
		t.Errorf("%d queues are left", got)
	}
	for _, bad := range []string{"", "<a>", "<a></b>", "<a/><b/>", "no xml"} {
		if _, err := ParseConfig(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestParseIsInverse: Parse reads back the same nodes and arrays that were
// written.
func TestParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var node func(depth int) *ConfigNode
		node = func(depth int) *ConfigNode {
			n := &ConfigNode{Name: rapid.SampledFrom([]string{"queue", "item", "name", "descr", "if", "x1"}).Draw(t, "name")}
			if depth < 3 && rapid.Bool().Draw(t, "leaf") {
				for range rapid.IntRange(1, 4).Draw(t, "children") {
					n.Children = append(n.Children, node(depth+1))
				}
				return n
			}
			n.Text = strings.TrimSpace(rapid.StringMatching(`[ -Z^-~é]{0,12}`).Draw(t, "text")) // ]]> ends a CDATA
			return n
		}
		n := node(0)
		back, err := ParseConfig(n.String())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(n, back); d != "" {
			t.Fatalf("%s\n%s", n, d)
		}
		again := from(n.Name, n.Array(), func(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) })
		if len(again) != 1 {
			t.Fatalf("%d elements", len(again))
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(byHand)
	f.Add("<a><b>&lt;</b><b/></a>")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseConfig(text)
		if err != nil {
			return
		}
		n.Array()
		if !strings.Contains(text, "]]") && strings.IndexFunc(n.String(), func(c rune) bool { return c == '\r' || c == 0xfffd }) < 0 {
			if _, err := ParseConfig(n.String()); err != nil {
				t.Fatalf("%q → %q: %v", text, n.String(), err)
			}
		}
	})
}

// from makes nodes from what Array returns; keys orders a map's keys.
func from(name string, v any, keys func(map[string]any) []string) []*ConfigNode {
	switch x := v.(type) {
	case []any:
		var out []*ConfigNode
		for _, e := range x {
			out = append(out, from(name, e, keys)...)
		}
		return out
	case map[string]any:
		n := &ConfigNode{Name: name}
		for _, k := range keys(x) {
			n.Children = append(n.Children, from(k, x[k], keys)...)
		}
		return []*ConfigNode{n}
	}
	return []*ConfigNode{{Name: name, Text: fmt.Sprint(v)}}
}
