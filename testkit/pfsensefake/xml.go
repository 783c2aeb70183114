package pfsensefake

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// listTags are the elements that pfSense always reads as lists, even a single
// one.
func listTags() map[string]bool {
	const names = `acls alias aliasurl allowedip allowedhostname authserver bridged build_port_path ca cacert cert crl clone config
container columnitem checkipservice depends_on_package disk dnsserver dnsupdate domainoverrides dyndns earlyshellcmd element
encryption-algorithm-option field fieldname gateway_item gateway_group gif gre group hash-algorithm-option hosts ifgroupentry igmpentry
interface_array item key lagg laggroup lbaction lbpool l7rules lbprotocol member menu tab mobilekey mobilegroup monitor_type mount npt
ntpserver onetoone openvpn-server openvpn-client openvpn-csc option package passthrumac phase1 phase2 ppp pppoe priv proxyarpnet pool
qinqentry queue pages pipe radnsserver roll route row rrddatafile rule schedule service servernat servers sshkeyfile serversdisabled
shellcmd staticmap subqueue switch swport timerange tunnel user vip virtual_server vlan vlangroup voucherdbfile vxlan wgpeer winsserver
wolentry widget xmldatafile`
	out := map[string]bool{}
	for _, n := range strings.Fields(names) {
		out[n] = true
	}
	return out
}

// An xmlError is the reason why pfSense cannot read its configuration.
type xmlError struct{ message string }

func (e xmlError) Error() string { return e.message }

// readXML converts a configuration to PHP's arrays as xmlparse.inc does, and
// returns the content of the element root.
func readXML(text, root string) (value, error) {
	p := &xmlParser{lists: listTags(), top: newArray()}
	if err := p.parse(text); err != nil {
		return nil, err
	}
	v := p.top.of[root]
	if !truth(v) {
		return nil, xmlError{"XML error: no " + root + " object found!"}
	}
	return v, nil
}

// An xmlParser is the state of the parser. path has the keys from top to the
// open element.
type xmlParser struct {
	lists    map[string]bool
	top      *array
	path     []string
	depth    int
	haveData int
}

func (p *xmlParser) parse(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	at := int64(0)
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			if p.depth != 0 || len(p.top.keys) != 1 {
				return xmlError{"XML error: Invalid document end"}
			}
			return nil
		}
		if err != nil {
			return xmlError{"XML error: " + err.Error()}
		}
		raw := text[at:d.InputOffset()]
		at = d.InputOffset()
		line := 1 + strings.Count(text[:at], "\n")
		switch x := token.(type) {
		case xml.StartElement:
			if err := p.start(strings.ToLower(x.Name.Local), line); err != nil {
				return err
			}
		case xml.EndElement:
			if name := strings.ToLower(x.Name.Local); p.depth == 0 || !strings.EqualFold(p.name(), name) {
				return xmlError{fmt.Sprintf("XML error: Mismatched tag at line %d", line)}
			}
			p.end()
		case xml.CharData:
			if p.depth == 0 {
				continue
			}
			for _, piece := range pieces(raw, string(x)) {
				p.data(piece)
			}
		}
	}
}

// pieces splits text as the parser does: each entity is a piece of its own.
func pieces(raw, text string) (out []string) {
	if strings.HasPrefix(raw, "<![CDATA[") || !strings.Contains(raw, "&") {
		return []string{text}
	}
	for raw != "" {
		at := strings.IndexByte(raw, '&')
		switch {
		case at < 0:
			return append(out, raw)
		case at > 0:
			out, raw = append(out, raw[:at]), raw[at:]
		default:
			end := strings.IndexByte(raw, ';') + 1
			out, raw = append(out, decoded(raw[:end])), raw[end:]
		}
	}
	return out
}

// decoded replaces XML's entities. pfSense does this a second time, after the
// parser.
func decoded(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	return regexp.MustCompile(`&(amp|lt|gt|quot|apos|#\d+|#[xX][0-9a-fA-F]+);`).ReplaceAllStringFunc(s, func(e string) string {
		e = e[1 : len(e)-1]
		if number, ok := strings.CutPrefix(e, "#"); ok {
			base := 10
			if number[0] == 'x' || number[0] == 'X' {
				number, base = number[1:], 16
			}
			n, err := strconv.ParseInt(number, base, 32)
			if err != nil {
				return "&" + e + ";"
			}
			return string(rune(n))
		}
		return map[string]string{"amp": "&", "lt": "<", "gt": ">", "quot": `"`, "apos": "'"}[e]
	})
}

// name returns the open element.
func (p *xmlParser) name() string {
	last := p.path[len(p.path)-1]
	if _, err := strconv.Atoi(last); err == nil && len(p.path) > 1 && p.lists[p.path[len(p.path)-2]] {
		return p.path[len(p.path)-2]
	}
	return last
}

// at returns the value at the path, and creates what is missing on the way.
func (p *xmlParser) at() (holder *array, key string, v value) {
	holder = p.top
	for i, k := range p.path {
		if i == len(p.path)-1 {
			if _, ok := holder.of[k]; !ok {
				holder.set(k, nil)
			}
			return holder, k, holder.of[k]
		}
		switch next := holder.of[k].(type) {
		case *array:
			holder = next
		case nil:
			a := newArray()
			holder.set(k, a)
			holder = a
		default:
			panic(unknown{"an element inside of a text"})
		}
	}
	panic("no element is open")
}

func (p *xmlParser) start(name string, line int) error {
	p.path = append(p.path, name)
	holder, key, v := p.at()
	switch {
	case p.lists[name]:
		list, ok := v.(*array)
		if !ok {
			list = newArray()
			holder.set(key, list)
		}
		p.path = append(p.path, strconv.Itoa(len(list.keys)))
	case v != nil:
		return xmlError{fmt.Sprintf("XML error: %s at line %d cannot occur more than once\n", strings.ToUpper(name), line)}
	}
	p.depth++
	p.haveData = p.depth
	return nil
}

// end closes an element. An element without content becomes "", and an empty
// one in a list is removed.
func (p *xmlParser) end() {
	name := p.name()
	if p.haveData == p.depth {
		holder, key, _ := p.at()
		holder.set(key, "")
	}
	p.path = p.path[:len(p.path)-1]
	if p.lists[name] {
		if _, _, v := p.at(); v != nil {
			list := v.(*array)
			last := list.keys[len(list.keys)-1]
			if _, is := list.of[last].(*array); !is && text(list.of[last]) == "" {
				list.remove(last)
			}
		}
		p.path = p.path[:len(p.path)-1]
	}
	p.depth--
}

// data adds a piece of text.
func (p *xmlParser) data(s string) {
	s = strings.Trim(s, "\t\n\r")
	if s == "" {
		return
	}
	holder, key, v := p.at()
	if was, ok := v.(string); ok {
		holder.set(key, was+decoded(s))
		return
	}
	if strings.Trim(s, " ") != "" {
		holder.set(key, decoded(s))
		p.haveData++
	}
}

// writeXML writes a configuration as pfSense saves it: indented with tabs, and
// descriptions as CDATA, inside of which entities are escaped too.
func writeXML(root *array, name string) string {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\"?>\n<" + name + ">\n")
	writeElements(&b, root, listTags(), 1)
	b.WriteString("</" + name + ">\n")
	return b.String()
}

func writeElements(b *strings.Builder, of *array, lists map[string]bool, depth int) {
	indent := strings.Repeat("\t", depth)
	for _, name := range of.keys {
		values := []value{of.of[name]}
		if a, ok := values[0].(*array); ok && lists[strings.ToLower(name)] {
			values = a.list()
		}
		for _, v := range values {
			b.WriteString(indent + "<" + name + ">")
			switch v := v.(type) {
			case *array:
				if len(v.keys) > 0 {
					b.WriteString("\n")
					writeElements(b, v, lists, depth+1)
					b.WriteString(indent)
				}
			default:
				s := entities(text(v))
				if s != "" && isCDATA(name) {
					s = "<![CDATA[" + s + "]]>"
				}
				b.WriteString(s)
			}
			b.WriteString("</" + name + ">\n")
		}
	}
}

// entities escapes special characters as PHP does, the apostrophe included.
func entities(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(s)
}

// isCDATA reports whether pfSense writes an element's text as CDATA.
func isCDATA(name string) bool {
	const begin = `aclname auth_pass auth_prompt auth_user certca certname city common_name descr detail email encryption_password hint ldap_attr ldap_authcn
ldap_basedn ldap_basedomain ldap_bind ldapbinddn ldapbindpass ldap_extended_query ldap_filter ldap_pam_groupdn ldap_pass ldap_user login_banner
organization password proxypass proxyuser rangedescr state text username varusersusername varuserspassword`
	for _, f := range strings.Fields(begin) {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}
