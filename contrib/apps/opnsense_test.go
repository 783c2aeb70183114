package apps

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"unbloat/internal/keep/config"
	"unbloat/testkit/await"
	"unbloat/testkit/opnsensefake"
)

// Places in OPNsense's tree.
const (
	opnsenseApp     = "opnsense/src/opnsense/mvc/app/"
	opnsenseScripts = "opnsense/src/opnsense/scripts/OPNsense/Unbloat/"
)

// fieldsOf lists the fields of the model, as forms name them.
func fieldsOf(t *testing.T) (fields []string) {
	t.Helper()
	var model struct {
		Items struct {
			General struct {
				Fields []struct{ XMLName xml.Name } `xml:",any"`
			} `xml:"general"`
			Page struct {
				Fields []struct{ XMLName xml.Name } `xml:",any"`
			} `xml:"page"`
			Line struct {
				Fields []struct{ XMLName xml.Name } `xml:",any"`
			} `xml:"lines>line"`
			Entry struct {
				Fields []struct{ XMLName xml.Name } `xml:",any"`
			} `xml:"schedule>entry"`
		} `xml:"items"`
	}
	if err := xml.Unmarshal([]byte(read(t, opnsenseApp+"models/OPNsense/Unbloat/Unbloat.xml")), &model); err != nil {
		t.Fatal(err)
	}
	for _, f := range model.Items.General.Fields {
		fields = append(fields, "unbloat.general."+f.XMLName.Local)
	}
	for _, f := range model.Items.Line.Fields {
		fields = append(fields, "line."+f.XMLName.Local)
	}
	for _, f := range model.Items.Page.Fields {
		fields = append(fields, "unbloat.page."+f.XMLName.Local)
	}
	for _, f := range model.Items.Entry.Fields {
		fields = append(fields, "entry."+f.XMLName.Local)
	}
	return fields
}

// TestOPNsenseForms: the page asks for every field of the model, and for no other;
// what it asks for is in what the daemon reads.
func TestOPNsenseForms(t *testing.T) {
	var asked []string
	for _, name := range []string{"settings", "line", "entry"} {
		var form struct {
			IDs []string `xml:"field>id"`
		}
		if err := xml.Unmarshal([]byte(read(t, opnsenseApp+"controllers/OPNsense/Unbloat/forms/"+name+".xml")), &form); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, form.IDs...)
	}
	fields := fieldsOf(t)
	slices.Sort(asked)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, asked); diff != "" {
		t.Errorf("the model's fields (-) and the forms' (+):\n%s", diff)
	}
	written := read(t, "opnsense/src/opnsense/service/templates/OPNsense/Unbloat/unbloat.toml") + read(t, "opnsense/src/opnsense/service/templates/OPNsense/Unbloat/rc.conf.d") + read(t, opnsenseScripts+"setup.php")
	for _, f := range fields {
		name := f[strings.LastIndexByte(f, '.')+1:]
		if name != "description" && !regexp.MustCompile(`(general(\.|->)|line\.|page\.|entry\.)`+name+`\b`).MatchString(written) {
			t.Errorf("nothing is made of %s", f)
		}
	}
}

// opnsenseXML is a router's config.xml with these settings.
func opnsenseXML(port string, certificate []byte, general map[string]string, lines ...map[string]string) string {
	elements := func(m map[string]string) (s string) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			var b strings.Builder
			_ = xml.EscapeText(&b, []byte(m[k]))
			s += "<" + k + ">" + b.String() + "</" + k + ">"
		}
		return s
	}
	text := "<?xml version=\"1.0\"?>\n<opnsense><system><webgui><protocol>https</protocol><port>" + port + "</port><ssl-certref>62a0</ssl-certref></webgui></system>" +
		"<cert><refid>0000</refid><crt/></cert><cert><refid>62a0</refid><crt>" + base64.StdEncoding.EncodeToString(certificate) + "</crt></cert>" +
		"<OPNsense><unbloat version=\"0.1.0\"><general>" + elements(general) + "</general><lines>"
	for i, l := range lines {
		text += fmt.Sprintf("<line uuid=\"00000000-0000-4000-8000-%012d\">%s</line>", i, elements(l))
	}
	return text + "</lines></unbloat></OPNsense></opnsense>\n"
}

// withMore is a config.xml with the settings of the page and of the schedule, too.
func withMore(config, page string, entries ...string) string {
	more := "<page>" + page + "</page><schedule>"
	for i, e := range entries {
		more += fmt.Sprintf("<entry uuid=\"00000000-0000-4000-9000-%012d\">%s</entry>", i, e)
	}
	return strings.Replace(config, "</lines></unbloat>", "</lines>"+more+"</schedule></unbloat>", 1)
}

// TestOPNsenseKeys: all keys of the daemon's configuration can be set on the page, but
// those that OPNsense can't do; the program takes them.
func TestOPNsenseKeys(t *testing.T) {
	line := map[string]string{"enabled": "1", "interface": "wan", "lan": "lan", "down": "50", "up": "10", "follow": "1", "least_down": "5", "most_down": "60", "least_up": "1", "most_up": "12", "reflectors": "192.0.2.1",
		"learn": "1", "shape_down": "97%", "shape_up": "9 Mbit/s", "aqm": "fq_codel", "link_layer": "ptm", "overhead": "34", "goal": "7.5"}
	classed := map[string]string{"enabled": "1", "interface": "opt1", "up": "10", "follow": "0", "learn": "1", "classes": "on"}
	text := withMore(opnsenseXML("443", nil, map[string]string{"enabled": "1", "on_stop": "keep", "metrics": "127.0.0.1:9836", "server": "test.example.net", "history": "1"}, line, classed),
		"<listen>192.168.1.1:7690</listen><tls>1</tls><allow>10.8.0.0/24</allow><names>router.example,r.example</names>",
		"<enabled>1</enabled><do>test</do><wan>wan</wan><at>03:30</at><days>mon,sun</days>",
		"<enabled>1</enabled><do>rates</do><wan>wan</wan><from>18:00</from><to>23:30</to><down>30</down><up>8.5</up>",
		"<enabled>0</enabled><do>tune</do><wan>wan</wan><at>04:00</at>")
	root := rendered(t, write(t, t.TempDir(), "config.xml", text))
	file := filepath.Join(root, "usr/local/etc/unbloat/unbloat.toml")
	carries(t, read(t, file), map[string]string{"wan platform": "the way to the router says it", "wan side": "Linux alone has sides", "wan classifier": "Linux alone has another", "wan framing": "`unbloat tune` writes it",
		"wan first": noMachines, "wan last": noMachines, "wan rules": noMachines, "wan limits": "Linux alone has them", "schedule machine": noMachines,
		"wan watch": byAPI, "wan incidents": byAPI, "wan decisions": "a log for developers",
		" notify": noIncidents, "notify to": noIncidents, "notify url": noIncidents, "notify secret_file": noIncidents, "notify secret_env": noIncidents, "notify min_severity": noIncidents,
		"notify quiet": noIncidents, "notify most": noIncidents, "notify from": noIncidents, "notify recipients": noIncidents, "notify language": noIncidents})
	if out, code := run(t, nil, built(t), "daemon", "--check", "--config", write(t, root, "unkept.toml", unkept(read(t, file)))); code != 0 {
		t.Errorf("%d %s\n%s", code, out, read(t, file))
	}
}

// unkept is a configuration without a history on a disk and without tests at a time:
// the program of these tests is built without both.
func unkept(text string) string {
	text = regexp.MustCompile(`\n\[\[schedule\]\]\n(.+\n)*?do = "test"\n(.+\n)*`).ReplaceAllString(text, "")
	return strings.Replace(text, "history = \"/var/db/unbloat/history.db\"\n", "", 1)
}

// byAPI says why a line is not watched there, and noIncidents what follows from it.
const (
	byAPI       = "the daemon reaches OPNsense by its API, and watches lines of its own machine alone"
	noIncidents = "without incidents there is nothing to tell"
)

// noMachines says why machines have no rules of their own there.
const noMachines = "dummynet's classes have no machines"

// carries checks that a configuration has every key that there is, but the named ones,
// each with the reason; a table that is a list has it in one of them.
func carries(t *testing.T, text string, without map[string]string) {
	t.Helper()
	var got map[string]any
	if err := toml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	has := map[string]bool{}
	for table, value := range got {
		has[" "+table] = true
		list, is := value.([]any)
		if !is {
			list = []any{value}
		}
		for _, x := range list {
			if m, is := x.(map[string]any); is {
				for key := range m {
					has[table+" "+key] = true
				}
			}
		}
	}
	for table, keys := range config.Keys() {
		for _, key := range keys {
			name := table + " " + key
			if _, exempt := without[name]; has[name] == exempt {
				t.Errorf("%s: it is there: %t; reason to be without: %q", name, has[name], without[name])
			}
			delete(without, name)
		}
	}
	for name := range without {
		t.Errorf("there is no key %s", name)
	}
}

// rendered renders the templates with a config.xml, and returns the directory below
// which their files are.
func rendered(t *testing.T, config string) string {
	t.Helper()
	needs(t, "python3")
	if out, code := run(t, nil, "python3", "-c", "import jinja2"); code != 0 {
		t.Skipf("SKIPPED: python3 has no jinja2: %s", out)
	}
	root := t.TempDir()
	argv := []string{"python3", "testdata/opnsense.py", "", config, root}
	var err error
	if argv[2], err = filepath.Abs("opnsense/src/opnsense/service"); err != nil {
		t.Fatal(err)
	}
	if core := os.Getenv("UNBLOAT_OPNSENSE_CORE"); core != "" {
		argv = append(argv, core)
	}
	if out, code := run(t, nil, argv...); code != 0 {
		t.Fatal(out)
	}
	return root
}

// TestOPNsenseTemplate: what the page's settings become. The program takes it, or
// says what it can't do.
func TestOPNsenseTemplate(t *testing.T) {
	if os.Getenv("UNBLOAT_OPNSENSE_CORE") == "" {
		t.Log("OPNsense's own template.py: SKIPPED: UNBLOAT_OPNSENSE_CORE names no checkout; a stand-in renders")
	}
	type settings = map[string]string
	full := settings{"enabled": "1", "interface": "opt2", "lan": "lan", "down": "50.5", "up": "9.75", "follow": "0", "shape_down": "97%", "shape_up": "9 Mbit/s",
		"classes": "off", "aqm": "fq_codel", "link_layer": "ptm", "overhead": "34", "goal": "7.5", "reflectors": "192.0.2.1", "least_down": "5", "description": `a "line" \ with <signs>`}
	follows := settings{"enabled": "1", "interface": "wan", "down": "50", "up": "10", "follow": "1", "least_down": "5", "most_down": "60", "least_up": "1", "most_up": "12", "reflectors": "192.0.2.1,2001:db8::1"}
	for name, c := range map[string]struct {
		general settings
		lines   []settings
		want    any
		says    string // of a refusal
	}{
		"one line": {settings{"enabled": "1"}, []settings{{"enabled": "1", "interface": "wan", "down": "50", "up": "10", "follow": "0"}},
			map[string]any{"wan": []any{map[string]any{"interface": "wan", "router": "opnsense+https://127.0.0.1:8443", "down": "50 Mbit/s", "up": "10 Mbit/s"}}}, ""},
		"everything": {settings{"enabled": "1", "on_stop": "revert", "metrics": "127.0.0.1:9836"}, []settings{full, {"enabled": "0", "interface": "opt3", "up": "1"}},
			map[string]any{"on_stop": "revert", "metrics": "127.0.0.1:9836", "wan": []any{map[string]any{"interface": "opt2", "router": "opnsense+https://127.0.0.1:8443", "lan": "lan", "down": "50.5 Mbit/s", "up": "9.75 Mbit/s",
				"shape_down": "97%", "shape_up": "9 Mbit/s", "classes": "off", "aqm": "fq_codel", "link_layer": "ptm", "overhead": int64(34), "goal": "7.5ms"}}}, ""},
		"no line": {settings{"enabled": "1"}, nil, map[string]any{}, "there is no [[wan]]"},
		"off":     {settings{"enabled": "0"}, []settings{{"enabled": "0", "interface": "wan", "up": "10"}}, map[string]any{}, "there is no [[wan]]"},
		"no rate": {settings{"enabled": "1"}, []settings{{"enabled": "1", "interface": "wan"}}, map[string]any{"wan": []any{map[string]any{"interface": "wan", "router": "opnsense+https://127.0.0.1:8443"}}}, "how fast the line is"},
	} {
		t.Run(name, func(t *testing.T) {
			root := rendered(t, write(t, t.TempDir(), "config.xml", opnsenseXML("8443", nil, c.general, c.lines...)))
			text := read(t, filepath.Join(root, "usr/local/etc/unbloat/unbloat.toml"))
			var got any
			if err := toml.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s\n%s", diff, text)
			}
			enable := `unbloatd_enable="YES"`
			if c.general["enabled"] != "1" {
				enable = `unbloatd_enable="NO"`
			}
			conf := filepath.Join(root, "etc/rc.conf.d/unbloatd")
			if !strings.Contains(read(t, conf), enable+"\n") {
				t.Errorf("no %s in %s", enable, read(t, conf))
			}
			if out, code := run(t, nil, "sh", "-n", conf); code != 0 {
				t.Error(out)
			}
			out, code := run(t, nil, built(t), "daemon", "--check", "--config", filepath.Join(root, "usr/local/etc/unbloat/unbloat.toml"))
			if c.says == "" && code != 0 || c.says != "" && (code != 2 || !strings.Contains(out, c.says)) {
				t.Errorf("exit code %d: %s\n%s", code, out, text)
			}
		})
	}
	t.Run("follow", func(t *testing.T) {
		root := rendered(t, write(t, t.TempDir(), "config.xml", opnsenseXML("443", nil, settings{"enabled": "1"}, follows)))
		var got struct{ WAN []map[string]any }
		if err := toml.Unmarshal([]byte(read(t, filepath.Join(root, "usr/local/etc/unbloat/unbloat.toml"))), &got); err != nil {
			t.Fatal(err)
		}
		want := []map[string]any{{"interface": "wan", "router": "opnsense+https://127.0.0.1:443", "down": "50 Mbit/s", "up": "10 Mbit/s", "follow": true, "least_down": "5 Mbit/s", "most_down": "60 Mbit/s",
			"least_up": "1 Mbit/s", "most_up": "12 Mbit/s", "reflectors": []any{"192.0.2.1", "2001:db8::1"}}}
		if diff := cmp.Diff(want, got.WAN); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOPNsenseSetup: the way to the API is made of the router's own settings, and
// only root reads it. What is missing is said.
func TestOPNsenseSetup(t *testing.T) {
	needs(t, "php")
	if out, code := run(t, nil, "php", "-r", "exit(extension_loaded('simplexml') && extension_loaded('openssl') ? 0 : 1);"); code != 0 {
		t.Skipf("SKIPPED: php lacks SimpleXML or openssl %s", out)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	dir := t.TempDir()
	setup := func(config string) (string, int) {
		return run(t, nil, "php", opnsenseScripts+"setup.php", write(t, dir, "config.xml", config), filepath.Join(dir, "etc"))
	}
	general := map[string]string{"key": "a+/=", "secret": "s'e"}
	for says, config := range map[string]string{
		"no API key":           opnsenseXML("", certificate, map[string]string{"key": "a"}),
		"certificate":          opnsenseXML("", nil, general),
		"without encryption":   strings.Replace(opnsenseXML("", certificate, general), "https", "http", 1),
		"config.xml can not":   "<opnsense>",
		"there is no API key:": "<opnsense/>",
	} {
		if out, code := setup(config); code != 1 || !strings.Contains(out, says) {
			t.Errorf("%s: %d %s", says, code, out)
		}
	}
	if out, code := setup(opnsenseXML("", certificate, general)); code != 0 {
		t.Fatal(out)
	}
	file := filepath.Join(dir, "etc", "api.env")
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	out, code := run(t, nil, "sh", "-c", `. "$0"; printf '%s\n' "$ROUTER" "$OPNSENSE_KEY" "$OPNSENSE_SECRET" "$OPNSENSE_FINGERPRINT"`, file)
	want := fmt.Sprintf("opnsense+https://127.0.0.1:443\na+/=\ns'e\n%s\n", fingerprint(server))
	if code != 0 || out != want {
		t.Errorf("%s, not %s", out, want)
	}
}

// TestOPNsenseActions: what configd's actions and OPNsense's events become. A daemon
// that runs is started again for a new key alone.
func TestOPNsenseActions(t *testing.T) {
	dir := t.TempDir()
	scripts := filepath.Join(dir, "scripts")
	write(t, scripts, "control.sh", read(t, opnsenseScripts+"control.sh"))
	setup := func(text string) {
		write(t, scripts, "setup.php", "#!/bin/sh\n"+text+"\n")
	}
	note := func(name string) string {
		return write(t, dir, name, "#!/bin/sh\necho "+name+" \"$@\" >>'"+dir+"/noted'\n")
	}
	env := []string{"UNBLOAT_ETC=" + dir, "UNBLOAT_PROGRAM=" + note("program"), "UNBLOAT_SERVICE=" + note("service")}
	does := func(action string) string {
		_ = os.Remove(filepath.Join(dir, "noted"))
		if out, code := run(t, env, "sh", filepath.Join(scripts, "control.sh"), action); code != 0 {
			t.Errorf("%s: %d %s", action, code, out)
		}
		return strings.TrimSpace(read(t, filepath.Join(dir, "noted")))
	}
	setup("echo KEY=1 >'" + dir + "/api.env'")
	for _, c := range []struct{ action, want string }{{"start", "service start"}, {"stop", "service onestop"}, {"reload", "service reload"}, {"look", "program daemon --look"}} {
		if got := does(c.action); got != c.want {
			t.Errorf("%s: %s, not %s", c.action, got, c.want)
		}
	}
	for action, method := range map[string]string{"test": "test", "run": "status", "endrun": "stop", "enter": "enter", "visit": "look"} {
		if got := does(action); got != "program rpcd call "+method+" --config "+dir+"/unbloat.toml" {
			t.Errorf("%s: %s", action, got)
		}
	}
	setup("echo KEY=2 >'" + dir + "/api.env'")
	if got := does("reload"); got != "service restart" {
		t.Errorf("with a new key: %s", got)
	}
	setup("exit 1")
	if got := does("reload"); got != "service reload" {
		t.Errorf("without a key: %s", got)
	}
	actions := read(t, "opnsense/src/opnsense/service/conf/actions.d/actions_unbloat.conf")
	for _, m := range regexp.MustCompile(`unbloat (\w+)['"]`).FindAllStringSubmatch(read(t, "opnsense/src/etc/inc/plugins.inc.d/unbloat.inc")+read(t, opnsenseApp+"controllers/OPNsense/Unbloat/Api/StatusController.php")+read(t, opnsenseApp+"controllers/OPNsense/Unbloat/Api/ServiceController.php"), -1) {
		if !strings.Contains(actions, "["+m[1]+"]\n") {
			t.Errorf("configd has no action %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`control\.sh (\w+)`).FindAllStringSubmatch(actions, -1) {
		if !regexp.MustCompile(`(?m)^([a-z]+ \| )*` + m[1] + `( \| [a-z]+)*\)$`).MatchString(read(t, opnsenseScripts+"control.sh")) {
			t.Errorf("the script can't %s", m[1])
		}
	}
}

// opnsenseLives starts the daemon from the settings of a router whose API is a stand-in,
// with a page of its own, and returns the environment of control.sh there.
func opnsenseLives(t *testing.T, tls string, started func(control func(args ...string) (string, opnsenseAnswer))) (env []string) {
	t.Helper()
	needs(t, "php")
	router := opnsensefake.New()
	server := httptest.NewTLSServer(router)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := write(t, t.TempDir(), "config.xml", withMore(opnsenseXML(address.Port(), certificate, map[string]string{"enabled": "1", "key": router.Key, "secret": router.Secret},
		map[string]string{"enabled": "1", "interface": "wan", "lan": "lan", "down": "50", "up": "10", "follow": "0"}), "<listen>"+freeAddress(t)+"</listen><tls>"+tls+"</tls>"))
	root := rendered(t, config)
	etc := filepath.Join(root, "usr/local/etc/unbloat")
	state := t.TempDir()
	if out, code := run(t, []string{"UNBLOAT_STATE_DIR=" + state}, "php", opnsenseScripts+"setup.php", config, etc); code != 0 {
		t.Fatal(out)
	}
	env = []string{"UNBLOAT_ETC=" + etc, "UNBLOAT_PROGRAM=" + built(t)}
	started(func(args ...string) (string, opnsenseAnswer) { return control(t, env, args...) })
	daemon := exec.Command("sh", "-c", `set -a; . "$0/api.env"; exec "$1" daemon --config "$0/unbloat.toml"`, etc, built(t))
	var said strings.Builder
	daemon.Stderr = &said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return env
}

// An opnsenseAnswer is what control.sh says.
type opnsenseAnswer struct {
	OK          bool
	Says, Error string
	Daemon      *struct {
		WANs []struct{ WAN, State, Why string }
	}
	Shapers []struct {
		Device string
		Ours   bool
		Rate   int `json:"rate_bps"`
	}
}

// control runs control.sh as configd's actions do.
func control(t *testing.T, env []string, args ...string) (out string, answer opnsenseAnswer) {
	t.Helper()
	out, code := run(t, env, append([]string{"sh", opnsenseScripts + "control.sh"}, args...)...)
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
		t.Fatalf("%q: %d %v: %s", args, code, err, out)
	}
	return out, answer
}

// TestOPNsenseLives: from the settings of a router whose API is a stand-in to the
// shaping that is kept. Its page's buttons turn it off and on.
func TestOPNsenseLives(t *testing.T) {
	env := opnsenseLives(t, "1", func(control func(args ...string) (string, opnsenseAnswer)) {
		if out, a := control("check"); !a.OK {
			t.Fatal(out)
		}
		if out, a := control("show"); a.Daemon != nil || len(a.Shapers) > 0 {
			t.Errorf("before the start: %s", out)
		}
	})
	control := func(args ...string) (string, opnsenseAnswer) { t.Helper(); return control(t, env, args...) }
	is := func(want string) {
		t.Helper()
		await.Until(t, 2*time.Minute, "the line is "+want, func() bool {
			_, a := control("show")
			return a.Daemon != nil && len(a.Daemon.WANs) == 1 && a.Daemon.WANs[0].State == want
		})
	}
	is("in place")
	if out, a := control("show"); len(a.Shapers) != 3 || !a.Shapers[0].Ours || a.Shapers[0].Rate+a.Shapers[1].Rate+a.Shapers[2].Rate != 54_500_000 {
		t.Errorf("the queues are not those of the settings: %s", out)
	}
	if out, a := control("off", "wan"); !a.OK {
		t.Fatal(out)
	}
	is("suspended")
	if out, a := control("on", "wan"); !a.OK {
		t.Fatal(out)
	}
	is("in place")
	// From OPNsense's page into unbloat's: with the rights that its login has.
	for action, role := range map[string]string{"enter": "admin", "visit": "viewer"} {
		if got := entered(t, env, action); got != role {
			t.Errorf("%s: as %q, not %q", action, got, role)
		}
	}
	if out, code := run(t, env, "sh", opnsenseScripts+"control.sh", "run"); code != 0 || !strings.Contains(out, `"page":true`) {
		t.Errorf("run: %d %s", code, out)
	}
	if out, code := run(t, env, "sh", opnsenseScripts+"control.sh", "test", "wan"); code != 0 || !strings.Contains(out, `"run":"`) {
		t.Errorf("test: %d %s", code, out)
	}
	if out, a := control("on", "opt7"); a.OK || a.Says == "" {
		t.Errorf("a line that is not kept is turned on: %s", out)
	}
}

// entered goes to unbloat's page as the button of OPNsense's does, and returns who it is
// there. The way is good once, and the password's token is not told.
func entered(t *testing.T, env []string, action string) string {
	t.Helper()
	out, code := run(t, env, "sh", opnsenseScripts+"control.sh", action)
	var at struct {
		URLs   []string
		Ticket string
	}
	if err := json.Unmarshal([]byte(out), &at); err != nil || code != 0 || len(at.URLs) == 0 || strings.Contains(out, "token") {
		t.Fatalf("%s: %d %v: %s", action, code, err, out)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	who := ""
	for i, want := range []int{200, 403} {
		r, err := c.Post(at.URLs[0]+"api/enter", "application/json", strings.NewReader(fmt.Sprintf(`{"ticket":%q}`, at.Ticket)))
		if err != nil {
			t.Fatal(err)
		}
		var is struct{ User string }
		if err := json.NewDecoder(r.Body).Decode(&is); err != nil || r.StatusCode != want {
			t.Errorf("the %d. time: %d %v", i+1, r.StatusCode, err)
		}
		r.Body.Close()
		who += is.User
	}
	return who
}

// freeAddress is one of the loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestOPNsenseRealAPI: OPNsense's own model and controllers take the plugin: what is
// added through its API is in config.xml, and from there in the daemon's configuration.
func TestOPNsenseRealAPI(t *testing.T) {
	core := os.Getenv("UNBLOAT_OPNSENSE_CORE")
	if core == "" {
		t.Skip("SKIPPED: UNBLOAT_OPNSENSE_CORE names no checkout of OPNsense's core repository")
	}
	needs(t, "php")
	tree, dir := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{filepath.Join(core, "src/opnsense"), "opnsense/src/opnsense"} {
		if out, code := run(t, nil, "cp", "-a", from, filepath.Join(tree, "src")); code != 0 {
			t.Fatal(out)
		}
	}
	config := write(t, dir, "conf/config.xml", `<?xml version="1.0"?><opnsense><system><backupcount>0</backupcount><webgui><protocol>https</protocol></webgui></system>
<interfaces><wan><if>igb0</if><enable>1</enable><descr>WAN</descr></wan><lan><if>igb1</if><enable>1</enable><descr>LAN</descr></lan></interfaces></opnsense>`)
	var requests strings.Builder
	post := func(uri string, body any) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]string{"method": "POST", "uri": uri, "body": string(text)})
		if err != nil {
			t.Fatal(err)
		}
		requests.Write(append(line, '\n'))
	}
	line := map[string]string{"enabled": "1", "interface": "wan", "lan": "lan", "down": "50", "up": "10", "follow": "0", "aqm": "fq_codel", "link_layer": "ptm", "overhead": "34", "goal": "10", "reflectors": "192.0.2.1,192.0.2.2"}
	post("/api/unbloat/settings/set", map[string]any{"unbloat": map[string]any{"general": map[string]string{"enabled": "1", "key": "abc", "secret": "def", "on_stop": "revert"}}})
	post("/api/unbloat/settings/add_line", map[string]any{"line": line})
	post("/api/unbloat/settings/search_line", map[string]any{})
	post("/api/unbloat/settings/set", map[string]any{"unbloat": map[string]any{"general": map[string]string{"server": "test.example.net", "history": "1"}, "page": map[string]string{"listen": "[2001:db8::1]:7690", "tls": "0", "allow": "10.8.0.0/24,10.9.0.1", "names": "router.example,r.example"}}})
	post("/api/unbloat/settings/add_entry", map[string]any{"entry": map[string]string{"enabled": "1", "do": "rates", "wan": "wan", "from": "08:00", "to": "17:00", "days": "mon,tue", "up": "8"}})
	post("/api/unbloat/settings/add_entry", map[string]any{"entry": map[string]string{"enabled": "1", "do": "test", "wan": "wan", "at": "25:00"}})
	post("/api/unbloat/settings/search_entry", map[string]any{})
	requests.WriteString(`{"method":"GET","uri":"/api/unbloat/settings/get"}` + "\n")
	c := exec.CommandContext(t.Context(), "php", "../../testkit/conform/testdata/opnsense.php", tree, dir)
	c.Stdin = strings.NewReader(requests.String())
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, want := range []string{`"result":"saved"`, `"result":"saved"`, `"interface":"wan"`, `"result":"saved"`, `"result":"saved"`, `"result":"failed"`, `"17:00"`, `"on_stop"`} {
		if i >= len(answers) || !strings.Contains(strings.ReplaceAll(answers[i], `\"`, `"`), want) {
			t.Fatalf("answer %d has no %s:\n%s", i, want, out)
		}
	}
	if strings.Contains(answers[7], "def\\\"") {
		t.Errorf("the secret is shown: %s", answers[7])
	}
	text := read(t, filepath.Join(rendered(t, config), "usr/local/etc/unbloat/unbloat.toml"))
	var got any
	if err := toml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"on_stop": "revert", "server": "test.example.net", "history": "/var/db/unbloat/history.db",
		"ui": map[string]any{"listen": "[2001:db8::1]:7690", "tls": false, "allow": []any{"10.8.0.0/24", "10.9.0.1"}, "names": []any{"router.example", "r.example"}},
		"wan": []any{map[string]any{"interface": "wan", "router": "opnsense+https://127.0.0.1:443", "lan": "lan", "down": "50 Mbit/s", "up": "10 Mbit/s",
			"aqm": "fq_codel", "link_layer": "ptm", "overhead": int64(34), "goal": "10ms"}},
		"schedule": []any{map[string]any{"do": "rates", "wan": "wan", "router": "opnsense+https://127.0.0.1:443", "from": "08:00", "to": "17:00", "days": []any{"mon", "tue"}, "up": "8 Mbit/s"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
}

// TestOPNsenseWidget: the dashboard's widget tells the lines and what is wrong, as
// text, and changes nothing on the page while nothing changes.
func TestOPNsenseWidget(t *testing.T) {
	needs(t, "node")
	dir := t.TempDir()
	widget := write(t, dir, "widget.mjs", read(t, "opnsense/src/opnsense/www/js/widgets/Unbloat.js"))
	lines := `{"daemon":{"wans":[{"wan":"wan","state":"in place","down_bps":45000000,"up_bps":9500000},{"wan":"opt1","state":"suspended"},{"wan":"opt2","state":"waiting","why":"<b>gone</b>"}]}}`
	out, code := run(t, nil, "node", "testdata/widget.mjs", widget, write(t, dir, "answers.json", `[`+lines+`,`+lines+`,{"error":"<i>no"},{"shapers":[]}]`))
	want := `[["wan",["in place","45.0 Mbit/s down, 9.50 Mbit/s up"]],["opt1",["off"]],["opt2",["waiting","&lt;b&gt;gone&lt;/b&gt;"]]]
"unchanged"
[["&lt;i&gt;no",""]]
[["not running",""]]
`
	if code != 0 || out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	var metadata struct {
		Widget struct {
			Endpoints    []string `xml:"endpoints>endpoint"`
			Translations struct {
				Words []xmlElement `xml:",any"`
			} `xml:"translations"`
		} `xml:"Unbloat"`
	}
	if err := xml.Unmarshal([]byte(read(t, "opnsense/src/opnsense/www/js/widgets/Metadata/Unbloat.xml")), &metadata); err != nil {
		t.Fatal(err)
	}
	for _, word := range metadata.Widget.Translations.Words {
		if name := word.XMLName.Local; name != "title" && !regexp.MustCompile(`(\bt|translations)\.`+name+`\b`).MatchString(read(t, widget)) {
			t.Errorf("nothing shows the word %s", name)
		}
	}
	if !slices.Equal(metadata.Widget.Endpoints, []string{"/api/unbloat/status/get"}) {
		t.Errorf("%q", metadata.Widget.Endpoints)
	}
}

type xmlElement struct{ XMLName xml.Name }
