package apps

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// A clearos is a stand-in of the machine, with the app.
type clearos struct {
	t   *testing.T
	dir string
	env []string
}

func newClearOS(t *testing.T, program string) clearos {
	needs(t, "php")
	c := clearos{t: t, dir: t.TempDir()}
	c.env = []string{"CLEAROS_TEST=" + c.dir, "UNBLOAT_PROGRAM=" + program, "UNBLOAT_STATE_DIR=" + filepath.Join(c.dir, "state")}
	return c
}

// page runs a method of a controller, and returns what it shows.
func (c clearos) page(controller, method string, post fields, args ...string) string {
	c.t.Helper()
	text, err := json.Marshal(post)
	if err != nil {
		c.t.Fatal(err)
	}
	out, code := run(c.t, c.env, append([]string{"php", "testdata/clearos/page.php", controller, method, string(text)}, args...)...)
	if code != 0 || strings.Contains(out, "Warning") || strings.Contains(out, "Notice") || strings.Contains(out, "Deprecated") {
		c.t.Fatalf("%s.%s: %d %s", controller, method, code, out)
	}
	return out
}

// ran is what was run as root, and what became of the service, since the last time.
func (c clearos) ran() string {
	b, _ := os.ReadFile(filepath.Join(c.dir, "ran"))
	_ = os.Remove(filepath.Join(c.dir, "ran"))
	return string(b)
}

func (c clearos) config() string {
	return read(c.t, filepath.Join(c.dir, "root/etc/unbloat/unbloat.toml"))
}

// TestClearOSSpeeds: speeds that are given on the page are in the daemon's
// configuration, in which everything else stays.
func TestClearOSSpeeds(t *testing.T) {
	c := newClearOS(t, built(t))
	if out := c.page("lines", "index", nil); !strings.Contains(out, "wan |  |  |  [anchor_add /app/unbloat/lines/edit/wan]") || strings.Contains(out, "Turn") {
		t.Errorf("before anything is set:\n%s", out)
	}
	if out := c.page("lines", "enable", nil); !strings.Contains(out, "exception: Give the speeds") {
		t.Error(out)
	}
	c.ran()
	for says, post := range map[string]fields{"down: Give the speed": {"submit": "1", "down": "fast", "up": "10"}, "up: Give the speed": {"submit": "1", "down": "50", "up": "0"}} {
		if out := c.page("lines", "edit", post, "wan"); !strings.Contains(out, says) || c.ran() != "" {
			t.Error(out)
		}
	}
	if out := c.page("lines", "edit", fields{"submit": "1", "down": "50", "up": "9.5"}, "wan; reboot"); !strings.Contains(out, "exception: There is no such interface") || c.ran() != "" {
		t.Error(out)
	}
	if out := c.page("lines", "edit", fields{"submit": "1", "down": "50", "up": "9.5"}, "wan"); out != "updated\nredirect /unbloat\n" {
		t.Fatal(out)
	}
	if diff := cmp.Diff("/usr/bin/unbloat daemon --check --config /var/tmp/unbloat-X\n", c.ran()); diff != "" {
		t.Error(diff)
	}
	c.page("lines", "edit", fields{"submit": "1", "down": "100", "up": "20"}, "ppp0")
	// What a person writes, and the daemon, which tells rates in other units.
	text := "# mine\nmetrics = \"127.0.0.1:9836\"\n\n[[wan]]\n  interface = 'wan' # cable\n  down = \"47500 kbit/s\" # tuned\ngoal = \"5ms\"\n\n[[wan]]\ninterface = \"ppp0\"\nup = \"20 Mbit/s\"\n"
	write(t, c.dir, "root/etc/unbloat/unbloat.toml", text)
	if out := c.page("lines", "edit", fields{}, "wan"); !strings.Contains(out, "<down>47.5\n") || !strings.Contains(out, "<up>\n") {
		t.Error(out)
	}
	write(t, c.dir, "unbloatd.runs", "")
	c.ran()
	c.page("lines", "edit", fields{"submit": "1", "down": "48", "up": "10"}, "wan")
	want := strings.Replace(strings.Replace(text, "47500 kbit/s", "48 Mbit/s", 1), "[[wan]]\n  int", "[[wan]]\nup = \"10 Mbit/s\"\n  int", 1)
	if diff := cmp.Diff(want, c.config()); diff != "" || !strings.HasSuffix(c.ran(), "\nreload\n") {
		t.Error(diff)
	}
	var got struct {
		Metrics string
		WAN     []fields
	}
	if err := toml.Unmarshal([]byte(c.config()), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]fields{{"interface": "wan", "down": "48 Mbit/s", "up": "10 Mbit/s", "goal": "5ms"}, {"interface": "ppp0", "up": "20 Mbit/s"}}, got.WAN); diff != "" {
		t.Error(diff)
	}
	// What the daemon refuses is not written.
	write(t, c.dir, "root/etc/unbloat/unbloat.toml", text+"nonsense = 1\n")
	if out := c.page("lines", "edit", fields{"submit": "1", "down": "48", "up": "10"}, "wan"); !strings.Contains(out, "exception: ") || !strings.Contains(out, "nonsense") || c.config() != text+"nonsense = 1\n" {
		t.Error(out)
	}
	write(t, c.dir, "root/etc/unbloat/unbloat.toml", text)
	if out := c.page("lines", "delete", nil, "wan"); !strings.Contains(out, "/app/unbloat/lines/destroy/wan") {
		t.Error(out)
	}
	c.ran()
	c.page("lines", "destroy", nil, "wan")
	if ran := c.ran(); !strings.HasPrefix(ran, "/usr/bin/unbloat revert --wan wan\n") || strings.Contains(c.config(), "'wan'") || !strings.Contains(c.config(), "# mine\n") || !strings.Contains(c.config(), "ppp0") {
		t.Errorf("%s\n%s", ran, c.config())
	}
}

// TestClearOSSwitch: on and off are so over reboots; off takes the shaping back.
func TestClearOSSwitch(t *testing.T) {
	dir := t.TempDir()
	status := `{"daemon":{"wans":[{"wan":"wan","state":"in place","mends":2},{"wan":"eth9","state":"suspended"},{"wan":"ppp0","state":"waiting","why":"<b>gone</b>"}]}}`
	c := newClearOS(t, write(t, dir, "program", "#!/bin/sh\n[ $1 != status ] || echo '"+status+"'\n"))
	write(t, c.dir, "root/etc/unbloat/unbloat.toml", "[[wan]]\ninterface = \"wan\"\ndown = \"50 Mbit/s\"\n[[wan]]\ninterface = \"eth9\"\n[[wan]]\ninterface = \"ppp0\"\n")
	if out := c.page("lines", "index", nil); !strings.Contains(out, "[Turn on /app/unbloat/lines/enable]") || !strings.Contains(out, "wan | 50 |  | off") {
		t.Error(out)
	}
	c.ran()
	if out := c.page("lines", "enable", nil); out != "updated\nredirect /unbloat\n" {
		t.Error(out)
	}
	if diff := cmp.Diff("boot 1\nruns 1\n/usr/bin/unbloat status --json\n/usr/bin/unbloat apply --again --yes --wan eth9\n", c.ran()); diff != "" {
		t.Error(diff)
	}
	out := c.page("lines", "index", nil)
	for _, want := range []string{"[Turn off /app/unbloat/lines/disable]", "wan | 50 |  | in place, put back 2×", "eth9 |  |  | off", "ppp0 |  |  | waiting: &lt;b&gt;gone&lt;/b&gt;"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page has no %q:\n%s", want, out)
		}
	}
	c.ran()
	c.page("lines", "disable", nil)
	if diff := cmp.Diff("/usr/bin/unbloat revert --wan wan\n/usr/bin/unbloat revert --wan eth9\n/usr/bin/unbloat revert --wan ppp0\nruns 0\nboot 0\n", c.ran()); diff != "" {
		t.Error(diff)
	}
	if out := c.page("unbloat", "index", nil); out != "unbloat/server unbloat/lines\n" {
		t.Error(out)
	}
	if out := c.page("server", "daemon", nil); out != "unbloatd of unbloat\n" {
		t.Error(out)
	}
	if out, code := run(t, c.env, "php", "-r", `putenv("CLEAROS_BOOTSTRAP=testdata/clearos"); include "clearos/packaging/unbloatd.php"; echo json_encode($configlet);`); code != 0 || !strings.Contains(out, `"title":"Queue Control"`) {
		t.Error(out)
	}
}

// TestClearOSRights: what the pages run as root is what sudo allows, and each text
// is there in both languages.
func TestClearOSRights(t *testing.T) {
	rights := read(t, "clearos/packaging/app-unbloat.sudoers")
	library := read(t, "clearos/app/libraries/Unbloat.php")
	for _, m := range regexp.MustCompile(`_run\(["'](.*?)( ?\$\w+)?["'][,)]`).FindAllStringSubmatch(library, -1) {
		if !strings.Contains(rights, "/usr/bin/unbloat "+strings.TrimSpace(m[1])) {
			t.Errorf("sudo does not allow %q", m[1])
		}
	}
	words := regexp.MustCompile(`lang(?:\['|\(')(unbloat_\w+)'`)
	names := func(text string) map[string]bool {
		out := map[string]bool{}
		for _, m := range words.FindAllStringSubmatch(text, -1) {
			out[m[1]] = true
		}
		return out
	}
	en, de := names(read(t, "clearos/app/language/en_US/unbloat_lang.php")), names(read(t, "clearos/app/language/de_DE/unbloat_lang.php"))
	if diff := cmp.Diff(en, de); diff != "" || len(en) == 0 {
		t.Errorf("English and German differ:\n%s", diff)
	}
	used := library
	for _, f := range sources(t, ".php") {
		if strings.HasPrefix(f, "clearos/app/") && !strings.Contains(f, "/language/") || strings.HasPrefix(f, "clearos/packaging/") {
			used += read(t, f)
		}
	}
	for name := range names(used) {
		if !en[name] {
			t.Errorf("there is no text %s", name)
		}
	}
	for name := range en {
		if !names(used)[name] {
			t.Errorf("nothing shows %s", name)
		}
	}
}
