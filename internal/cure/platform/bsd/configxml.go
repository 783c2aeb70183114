// This part reads and writes pfSense's config.xml: elements without
// attributes, nested, with text in the leaves. Source: pfSense's xmlparse.inc.

package bsd

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Node is one element: a leaf has Text, any other Children.
type ConfigNode struct {
	Name     string
	Text     string
	Children []*ConfigNode
}

// Parse reads a file and returns its root element. pfSense escapes inside CDATA
// too. The error names what is not XML.
func ParseConfig(text string) (*ConfigNode, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	top := &ConfigNode{}
	open := []*ConfigNode{top}
	for {
		at := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read config.xml: %w", err)
		}
		last := open[len(open)-1]
		switch x := token.(type) {
		case xml.StartElement:
			n := &ConfigNode{Name: x.Name.Local}
			last.Children = append(last.Children, n)
			open = append(open, n)
		case xml.CharData:
			if strings.HasPrefix(text[at:], "<![CDATA[") {
				last.Text += strings.NewReplacer(entities()...).Replace(string(x))
			} else {
				last.Text += string(x)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
			last.Text = strings.TrimSpace(last.Text)
			if len(last.Children) > 0 {
				last.Text = ""
			}
		}
	}
	if len(top.Children) != 1 {
		return nil, fmt.Errorf("read config.xml: %d elements at the top instead of one", len(top.Children))
	}
	return top.Children[0], nil
}

// entities returns the entities that pfSense writes, each followed by its
// character.
func entities() []string {
	return []string{"&amp;", "&", "&lt;", "<", "&gt;", ">", "&quot;", `"`, "&apos;", "'"}
}

// Child returns the first child of this name; nil if there is none. A nil node
// has no children.
func (n *ConfigNode) Child(name string) *ConfigNode {
	if n == nil {
		return nil
	}
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Value returns the text of the child of this name, "" if there is none.
func (n *ConfigNode) Value(name string) string {
	if c := n.Child(name); c != nil {
		return c.Text
	}
	return ""
}

// All returns the children of this name.
func (n *ConfigNode) All(name string) []*ConfigNode {
	var out []*ConfigNode
	if n != nil {
		for _, c := range n.Children {
			if c.Name == name {
				out = append(out, c)
			}
		}
	}
	return out
}

// Without returns a deep copy without the elements for which drop is true.
func (n *ConfigNode) Without(drop func(*ConfigNode) bool) *ConfigNode {
	c := &ConfigNode{Name: n.Name, Text: n.Text}
	for _, child := range n.Children {
		if !drop(child) {
			c.Children = append(c.Children, child.Without(drop))
		}
	}
	return c
}

// lists returns the names that pfSense always reads as lists.
func lists() []string { return []string{"queue", "item", "rule", "gateway_item"} }

// Array returns the element as pfSense's PHP arrays: a leaf is a string, any
// other element a map[string]any; lists are []any.
func (n *ConfigNode) Array() any {
	if len(n.Children) == 0 {
		return n.Text
	}
	out := map[string]any{}
	for _, c := range n.Children {
		if slices.Contains(lists(), c.Name) {
			list, _ := out[c.Name].([]any)
			out[c.Name] = append(list, c.Array())
			continue
		}
		out[c.Name] = c.Array()
	}
	return out
}

// String writes the element as pfSense does: indented with tabs, descriptions
// as CDATA.
func (n *ConfigNode) String() string {
	var b strings.Builder
	n.write(&b, 0)
	return b.String()
}

func (n *ConfigNode) write(b *strings.Builder, depth int) {
	indent := strings.Repeat("\t", depth)
	b.WriteString(indent + "<" + n.Name + ">")
	switch {
	case len(n.Children) > 0:
		b.WriteString("\n")
		for _, c := range n.Children {
			c.write(b, depth+1)
		}
		b.WriteString(indent)
	case n.Text != "" && (strings.HasPrefix(n.Name, "descr") || n.Name == "detail"):
		names := entities()
		slices.Reverse(names)
		b.WriteString("<![CDATA[" + strings.NewReplacer(names...).Replace(n.Text) + "]]>")
	default:
		_ = xml.EscapeText(b, []byte(n.Text))
	}
	b.WriteString("</" + n.Name + ">\n")
}
