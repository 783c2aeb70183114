package scenario

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// index maps every key path of a TOML text ("load[0].flows") to its line, from 1.
// The text has been decoded already, so it is known to be well-formed.
func index(text []byte) map[string]int {
	x := &indexer{lines: map[string]int{}, count: map[string]int{}}
	var p unstable.Parser
	p.Reset(text)
	x.parser = &p
	prefix := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			prefix = x.resolve(e.Key())
		case unstable.ArrayTable:
			prefix = x.resolve(e.Key())
			n := x.count[prefix]
			x.count[prefix]++
			prefix = fmt.Sprintf("%s[%d]", prefix, n)
			x.mark(prefix, e.Key())
		case unstable.KeyValue:
			x.keyValue(prefix, e)
		}
	}
	return x.lines
}

type indexer struct {
	parser *unstable.Parser
	lines  map[string]int
	count  map[string]int // array tables seen so far, by path
}

// resolve joins the parts of a table header, choosing the newest element of
// each array of tables on the way, and marks the table's own line.
func (x *indexer) resolve(it unstable.Iterator) string {
	path := ""
	for it.Next() {
		path = join(path, string(it.Node().Data))
		x.markAt(path, it.Node())
		if n := x.count[path]; n > 0 && !it.IsLast() {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
	}
	return path
}

func (x *indexer) keyValue(prefix string, e *unstable.Node) {
	path := prefix
	for it := e.Key(); it.Next(); {
		path = join(path, string(it.Node().Data))
		x.markAt(path, it.Node())
	}
	x.value(path, e.Value())
}

func (x *indexer) value(path string, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			x.keyValue(path, it.Node())
		}
	case unstable.Array:
		n := 0
		for it := v.Children(); it.Next(); n++ {
			x.value(fmt.Sprintf("%s[%d]", path, n), it.Node())
		}
	}
}

func (x *indexer) mark(path string, it unstable.Iterator) {
	if it.Next() {
		x.markAt(path, it.Node())
	}
}

func (x *indexer) markAt(path string, n *unstable.Node) {
	if _, ok := x.lines[path]; !ok {
		x.lines[path] = x.parser.Shape(n.Raw).Start.Line
	}
}

func join(path, key string) string {
	return strings.TrimPrefix(path+"."+key, ".")
}
