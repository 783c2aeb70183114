package tc

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// textKey holds bare text in a decoded object. What tc(8) and ip(8) print with -j
// is not always JSON: keys occur twice (the matches of a u32 filter, tbf's mpu),
// kinds without JSON support print text, alone ({default 10 }) or among members (u32
// before iproute2 5.14), and values are printed twice ("17":"0x11" of an ERSPAN
// tunnel). So objects are kept as ordered lists, and what is no member is kept as
// text under this key, where it was. One entry of a list that nobody understands
// does not keep the others from being read.
const textKey = "?text"

// maxDepth bounds the nesting that is accepted; tc(8) never goes beyond 5.
const maxDepth = 32

type member struct {
	key   string
	value any // string (scalars as text), []any, object or nil
}

type object []member

// get returns the first value under key.
func (o object) get(key string) (any, bool) {
	for _, m := range o {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

// text returns the scalar under key as text, "" if there is none.
func (o object) text(key string) string {
	v, _ := o.get(key)
	s, _ := v.(string)
	return s
}

// child returns the object under key, nil if there is none.
func (o object) child(key string) object {
	v, _ := o.get(key)
	c, _ := v.(object)
	return c
}

// children returns the objects in the list under key.
func (o object) children(key string) (out []object) {
	v, _ := o.get(key)
	items, _ := v.([]any)
	for _, it := range items {
		if c, ok := it.(object); ok {
			out = append(out, c)
		}
	}
	return out
}

// spelledOut returns the object with the members that its text stands for.
func (o object) spelledOut(read func(words []string) object) object {
	var out object
	for _, m := range o {
		if m.key == textKey {
			out = append(out, read(strings.Fields(flat(m.value)))...)
		} else {
			out = append(out, m)
		}
	}
	return out
}

// decodeList reads the arrays of objects that `tc -j` and `ip -j` print; no
// output at all is an empty list. It fails only if the output is cut off, or is something else.
func decodeList(b []byte) ([]object, error) {
	var list []object
	for r := (reader{b: b}); ; {
		if r.next() == 0 {
			return list, nil
		}
		v, err := r.value(0)
		if err != nil {
			return nil, fmt.Errorf("read tool's JSON: %w", err)
		}
		items, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("read tool's JSON: not a list")
		}
		for _, it := range items {
			o, ok := it.(object)
			if !ok {
				return nil, fmt.Errorf("read tool's JSON: the list holds something other than objects")
			}
			if len(o) > 0 { // ip -j prints {} for what it filtered out
				list = append(list, o)
			}
		}
	}
}

// parts cuts apart what n lines of batch mode print: arrays, but for the last, which may
// be text; nil if it is something else.
func parts(b []byte, n int) (out [][]byte) {
	r := reader{b: b}
	for ; n > 1; n-- {
		c, from := r.next(), r.at
		if _, err := r.value(0); err != nil || c != '[' {
			return nil
		}
		out = append(out, b[from:r.at])
	}
	if r.next() == 0 {
		return nil // one printed nothing
	}
	return append(out, b[r.at:])
}

// A reader reads JSON, and what tools take for it.
type reader struct {
	b  []byte
	at int
}

// next skips blanks and returns the byte there; 0 at the end.
func (r *reader) next() byte {
	for ; r.at < len(r.b); r.at++ {
		if c := r.b[r.at]; c > ' ' {
			return c
		}
	}
	return 0
}

func (r *reader) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested too deeply")
	}
	switch r.next() {
	case 0:
		return nil, io.ErrUnexpectedEOF
	case '{':
		r.at++
		return r.object(depth)
	case '[':
		r.at++
		return r.array(depth)
	case '"':
		return r.text()
	case ',', '}', ']':
		return "", nil // it is missing
	}
	return r.bare(`,"{}[]`), nil
}

// array reads up to its end, or up to that of the object that it is in.
func (r *reader) array(depth int) ([]any, error) {
	list := []any{}
	for {
		switch r.next() {
		case ']':
			r.at++
			return list, nil
		case '}':
			if depth > 0 {
				return list, nil
			}
			fallthrough // one too many
		case ',':
			r.at++
			continue
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

func (r *reader) object(depth int) (object, error) {
	var o object
	for {
		var v any
		var err error
		key := textKey
		switch r.next() {
		case '}':
			r.at++
			return o, nil
		case ',':
			r.at++
			continue
		case 0, '{':
			v, err = r.value(depth + 1)
		case '"':
			var name string
			if name, err = r.text(); err == nil && r.next() == ':' {
				r.at++
				key = name
				v, err = r.value(depth + 1)
			} else {
				v = name
			}
		default:
			v = r.bare(`"{}`)
		}
		if err != nil {
			return nil, err
		}
		if key == textKey {
			v = flat(v)
		}
		o = append(o, member{key, v})
	}
}

// bare returns the text up to one of the bytes of ends.
func (r *reader) bare(ends string) string {
	from := r.at
	for r.at++; r.at < len(r.b) && strings.IndexByte(ends, r.b[r.at]) < 0; r.at++ {
	}
	return strings.TrimSpace(string(r.b[from:r.at]))
}

// text reads a string in quotes.
func (r *reader) text() (string, error) {
	for from := r.at; ; {
		r.at++
		if r.at >= len(r.b) {
			return "", io.ErrUnexpectedEOF
		}
		switch r.b[r.at] {
		case '\\':
			r.at++
		case '"':
			r.at++
			var s string
			if json.Unmarshal(r.b[from:r.at], &s) != nil {
				s = string(r.b[from+1 : r.at-1])
			}
			return s, nil
		}
	}
}
