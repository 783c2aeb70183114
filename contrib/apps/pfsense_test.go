package apps

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

const pfsensePackage = "pfsense/files/usr/local/pkg/"

// A pfsense is a stand-in of the router, with the package.
type pfsense struct {
	t   *testing.T
	dir string
	env []string
}

// newPFSense makes one whose program is a path, and whose service notes what it is
// told and is running or not.
func newPFSense(t *testing.T, program string) pfsense {
	needs(t, "php")
	r := pfsense{t: t, dir: t.TempDir()}
	service := write(t, r.dir, "service", "#!/bin/sh\necho \"$1\" >>'"+r.dir+"/told'\n[ \"$1\" != status ] || [ -e '"+r.dir+"/runs' ]\n")
	r.env = []string{"TMPDIR=" + t.TempDir(), "UNBLOAT_PROGRAM=" + program, "UNBLOAT_RC=" + service, "UNBLOAT_ETC=" + filepath.Join(r.dir, "etc"), "UNBLOAT_STATE_DIR=" + filepath.Join(r.dir, "state")}
	return r
}

// does runs a function of the package.
func (r pfsense) does(config any, what string, given ...any) string {
	r.t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	argv := []string{"php", "testdata/pfsense.php", "pfsense/files", write(r.t, r.dir, "config.json", string(text)), what}
	for _, g := range given {
		text, err := json.Marshal(g)
		if err != nil {
			r.t.Fatal(err)
		}
		argv = append(argv, string(text))
	}
	out, code := run(r.t, r.env, argv...)
	if code != 0 {
		r.t.Fatalf("%s: %d %s", what, code, out)
	}
	return out
}

// told is what the service was told since the last time.
func (r pfsense) told() string {
	b, _ := os.ReadFile(filepath.Join(r.dir, "told"))
	_ = os.Remove(filepath.Join(r.dir, "told"))
	return strings.Join(strings.Fields(string(b)), " ")
}

type fields = map[string]any

// installed is what pfSense keeps of the package's settings.
func installed(settings fields, lines ...fields) fields {
	return fields{"unbloatsettings": fields{"config": []fields{settings}}, "unbloat": fields{"config": lines}}
}

// TestPFSenseForms: what the pages ask for is what the daemon's configuration is made
// of, and what they call is there.
func TestPFSenseForms(t *testing.T) {
	code := read(t, pfsensePackage+"unbloat.inc")
	for _, name := range []string{"unbloat.xml", "unbloat_settings.xml", "unbloat_schedule.xml"} {
		var page struct {
			Fields   []string `xml:"fields>field>fieldname"`
			Columns  []string `xml:"adddeleteeditpagefields>columnitem>fieldname"`
			Commands []struct {
				XMLName xml.Name
				Text    string `xml:",chardata"`
			} `xml:",any"`
		}
		text := read(t, pfsensePackage+name)
		if err := xml.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Fields) == 0 {
			t.Fatalf("%s asks for nothing", name)
		}
		for _, f := range append(page.Fields, page.Columns...) {
			if f != "description" && !strings.Contains(code, "'"+f+"'") {
				t.Errorf("%s: nothing is made of %s", name, f)
			}
		}
		for _, m := range regexp.MustCompile(`\b(unbloat_\w+)\(`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code, "function "+m[1]+"(") {
				t.Errorf("%s calls %s, which is not there", name, m[1])
			}
		}
	}
	for _, f := range []string{"etc/inc/priv/unbloat.priv.inc", "usr/local/etc/rc.d/unbloatd.sh", "usr/local/pkg/unbloat.inc", "usr/local/pkg/unbloat.xml", "usr/local/pkg/unbloat_settings.xml", "usr/local/pkg/unbloat_schedule.xml", "usr/local/www/unbloat_status.php"} {
		if _, err := os.Stat("pfsense/files/" + f); err != nil {
			t.Error(err)
		}
		if !strings.Contains(read(t, "pfsense/pkg-plist"), strings.TrimPrefix("/"+f, "/usr/local/")+"\n") {
			t.Errorf("pkg-plist does not have %s", f)
		}
	}
}

// TestPFSenseSettings: the configuration that the settings become is the daemon's,
// which takes it or says in the form what it can't do.
func TestPFSenseSettings(t *testing.T) {
	r := newPFSense(t, built(t))
	full := fields{"enable": "on", "interface": "opt1", "lan": "lan", "down": "50.5", "up": "9.75", "shape_down": "97%", "shape_up": "9 Mbit/s", "classes": "off", "aqm": "fq_codel",
		"link_layer": "ptm", "overhead": "34", "goal": "7.5", "reflectors": "192.0.2.1", "least_down": "5", "description": `a "line"`}
	text := r.does(installed(fields{"enable": "on", "on_stop": "revert", "metrics": "127.0.0.1:9836"}, full, fields{"interface": "wan", "up": "1"}), "toml")
	var got any
	if err := toml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	want := fields{"on_stop": "revert", "metrics": "127.0.0.1:9836", "wan": []any{fields{"interface": "pppoe0", "platform": "pfsense", "lan": "igb1", "down": "50.5 Mbit/s", "up": "9.75 Mbit/s",
		"shape_down": "97%", "shape_up": "9 Mbit/s", "classes": "off", "aqm": "fq_codel", "link_layer": "ptm", "overhead": int64(34), "goal": "7.5ms"}}}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
	follows := r.does(installed(fields{}, fields{"enable": "on", "interface": "wan", "down": "50", "up": "10", "follow": "on", "least_down": "5", "most_down": "60", "least_up": "1", "most_up": "12", "reflectors": "192.0.2.1, 192.0.2.2"}), "toml")
	var line struct{ WAN []fields }
	if err := toml.Unmarshal([]byte(follows), &line); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]fields{{"interface": "igb0", "platform": "pfsense", "down": "50 Mbit/s", "up": "10 Mbit/s", "follow": true, "least_down": "5 Mbit/s", "most_down": "60 Mbit/s", "least_up": "1 Mbit/s", "most_up": "12 Mbit/s", "reflectors": []any{"192.0.2.1", "192.0.2.2"}}}, line.WAN); diff != "" {
		t.Error(diff)
	}
	none := installed(fields{})
	for says, form := range map[string]fields{
		"[]":                   full,
		"give a number":        {"enable": "on", "interface": "wan", "up": "fast"},
		"how fast the line is": {"enable": "on", "interface": "wan"},
		"aqm":                  {"enable": "on", "interface": "wan", "up": "10", "aqm": "cake"},
		"shape_up":             {"enable": "on", "interface": "wan", "up": "10", "shape_up": "\"\n[ui]"},
	} {
		if out := r.does(none, "line", form); !strings.Contains(out, says) || says != "[]" && out == "[]" {
			t.Errorf("%v: %s", form, out)
		}
	}
	if out := r.does(installed(fields{}, fields{"enable": "on", "interface": "wan", "up": "10"}), "settings", fields{"enable": "on", "metrics": "here"}); !strings.Contains(out, "metrics") {
		t.Error(out)
	}
	if out := r.does(none, "settings", fields{"enable": "on"}); !strings.Contains(out, "no [[wan]]") {
		t.Error(out)
	}
}

// noField says why what a line may be asked is not set on the pages.
const noField = "lines are watched for incidents where the daemon has a configuration of its own"

// TestPFSenseKeys: all keys of the daemon's configuration can be set on the pages, but
// those that pfSense can't do; the program takes them.
func TestPFSenseKeys(t *testing.T) {
	r := newPFSense(t, built(t))
	config := installed(fields{"enable": "on", "on_stop": "keep", "metrics": "127.0.0.1:9836", "server": "test.example.net", "history": "on", "listen": "192.168.1.1:7690", "allow": "10.8.0.0/24 10.9.0.1", "names": "router.example, r.example"},
		fields{"enable": "on", "interface": "wan", "lan": "lan", "down": "50", "up": "10", "follow": "on", "least_down": "5", "most_down": "60", "least_up": "1", "most_up": "12", "reflectors": "192.0.2.1", "learn": "on",
			"shape_down": "97%", "shape_up": "9 Mbit/s", "aqm": "fq_codel", "link_layer": "ptm", "overhead": "34", "goal": "7.5"},
		fields{"enable": "on", "interface": "opt1", "up": "10", "classes": "on", "learn": "on"})
	entry := fields{"enable": "on", "do": "rates", "interface": "wan", "from": "18:00", "to": "23:30", "down": "30", "up": "8.5", "days": []string{"mon", "sun"}}
	config["unbloatschedule"] = fields{"config": []fields{{"enable": "on", "do": "test", "interface": "wan", "at": "03:30"}, entry, {"do": "tune", "interface": "wan", "at": "05:00"}}}
	text := r.does(config, "toml")
	carries(t, text, map[string]string{"wan router": "it is this machine", "schedule router": "it is this machine", "wan side": "Linux alone has sides", "wan classifier": "Linux alone has another", "wan framing": "`unbloat tune` writes it",
		"wan first": noMachines, "wan last": noMachines, "wan rules": noMachines, "wan limits": "Linux alone has them", "schedule machine": noMachines,
		"wan watch": noField, "wan incidents": noField, "wan decisions": "a log for developers",
		" notify": noIncidents, "notify to": noIncidents, "notify url": noIncidents, "notify secret_file": noIncidents, "notify secret_env": noIncidents, "notify min_severity": noIncidents,
		"notify quiet": noIncidents, "notify most": noIncidents, "notify from": noIncidents, "notify recipients": noIncidents, "notify language": noIncidents})
	if out, code := run(t, nil, built(t), "daemon", "--check", "--config", write(t, r.dir, "all.toml", unkept(text))); code != 0 {
		t.Errorf("%d %s\n%s", code, out, text)
	}
	for _, c := range []struct {
		form fields
		says string
	}{{entry, "[]"}, {fields{"enable": "on", "do": "test", "interface": "wan", "at": "25:00"}, "time of day"}, {fields{"enable": "on", "do": "test", "interface": "lan", "at": "05:00"}, "wan"}, {fields{"enable": "on", "do": "rates", "interface": "wan", "from": "18:00", "to": "19:00", "up": "much"}, "give a number"}} {
		if out := r.does(config, "entry", c.form); !strings.Contains(out, c.says) || c.says != "[]" && out == "[]" {
			t.Errorf("%v: %s", c.form, out)
		}
	}
}

// TestPFSenseService: on, changed, wrong and off become what the service is told.
func TestPFSenseService(t *testing.T) {
	r := newPFSense(t, built(t))
	file := filepath.Join(r.dir, "etc", "unbloat.toml")
	on := fields{"enable": "on"}
	r.does(installed(on, fields{"enable": "on", "interface": "wan", "up": "10"}), "resync")
	if told := r.told(); told != "status start" || !strings.Contains(read(t, file), "10 Mbit/s") {
		t.Errorf("%s\n%s", told, read(t, file))
	}
	write(t, r.dir, "runs", "")
	r.does(installed(on, fields{"enable": "on", "interface": "wan", "up": "11"}), "resync")
	if told := r.told(); told != "status reload" || !strings.Contains(read(t, file), "11 Mbit/s") {
		t.Errorf("%s\n%s", told, read(t, file))
	}
	if out := r.does(installed(on, fields{"enable": "on", "interface": "wan"}), "resync"); r.told() != "" || !strings.Contains(out, "nothing was changed") || !strings.Contains(read(t, file), "11 Mbit/s") {
		t.Errorf("a wrong line changes something: %s", out)
	}
	r.does(installed(fields{}, fields{"enable": "on", "interface": "wan", "up": "11"}), "resync")
	if _, err := os.Stat(file); err == nil || r.told() != "stop" {
		t.Errorf("it is not off: %v", err)
	}
	// At boot the script starts what has a configuration.
	script := "pfsense/files/usr/local/etc/rc.d/unbloatd.sh"
	service := write(t, r.dir, "port", "#!/bin/sh\necho \"$UNBLOAT_STATE_DIR $*\"\n")
	env := []string{"UNBLOAT_SERVICE=" + service, "UNBLOAT_ETC=" + filepath.Join(r.dir, "etc"), "UNBLOAT_STATE_DIR="}
	if out, code := run(t, env, "sh", script, "start"); code != 0 || out != "" {
		t.Errorf("%d %s", code, out)
	}
	write(t, r.dir, "etc/unbloat.toml", "x")
	if out, code := run(t, env, "sh", script, "start"); code != 0 || out != "/var/run/unbloat onestart\n" {
		t.Errorf("%d %s", code, out)
	}
}

// TestPFSensePage: the status page shows lines, reasons and queues; what comes from
// the router is text. Its buttons turn a line off and on, and no other.
func TestPFSensePage(t *testing.T) {
	dir := t.TempDir()
	status := `{"daemon":{"failure":"line <3>","wans":[{"wan":"igb0","state":"waiting","why":"<b>gone</b>","up_bps":9500000,"mends":2,"mended_by":"pfctl"},{"wan":"pppoe0","state":"suspended"}]},"shapers":[{"device":"pipe 1","says":"9.5 Mbit/s","counters":[{"kind":"pipe","handle":"1","bytes":1234567,"packets":7,"drops":3}]}]}`
	program := write(t, dir, "program", "#!/bin/sh\necho \"$*\" >>'"+dir+"/asked'\ncase $1 in status) echo '"+strings.ReplaceAll(status, "'", "")+"'; exit 1 ;; revert) echo 'not <now>' >&2; exit 3 ;; esac\n")
	r := newPFSense(t, program)
	page := r.does(fields{}, "page", fields{})
	for _, want := range []string{"[danger] line &lt;3&gt;", "&lt;b&gt;gone&lt;/b&gt; Put back: 2 pfctl", "9.5 Mbit/s", "1,234,567", `name="off" value="igb0"`, `name="on" value="pppoe0"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<b>gone") || strings.Contains(page, "Warning") {
		t.Error(page)
	}
	if page := r.does(fields{}, "page", fields{"off": "igb0"}); !strings.Contains(page, "[danger] not &lt;now&gt;") {
		t.Error(page)
	}
	r.does(fields{}, "page", fields{"on": "igb0"})
	r.does(fields{}, "page", fields{"on": "igb0; reboot"})
	// A new filter is told to the daemon, if it is on.
	for _, settings := range []fields{{}, {"enable": "on"}} {
		if out := r.does(installed(settings), "rules"); out != "" {
			t.Errorf("there are rules of its own: %s", out)
		}
	}
	if got, want := read(t, filepath.Join(dir, "asked")), "status --json\nrevert --wan igb0\nstatus --json\napply --again --yes --wan igb0\nstatus --json\nstatus --json\ndaemon --look\n"; got != want {
		t.Errorf("the program was asked\n%swant\n%s", got, want)
	}
	r = newPFSense(t, "/nowhere/unbloat")
	if page := r.does(fields{}, "page", fields{}); !strings.Contains(page, "[danger]") {
		t.Errorf("nothing says that the program is missing:\n%s", page)
	}
}
