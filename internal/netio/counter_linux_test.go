package netio

import "testing"

// A line of /proc/net/wireless, and what is none.
func TestParseWireless(t *testing.T) {
	const text = `Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      0     29        0
 wlan1: 0000   54.  x
`
	if w, ok := parseWireless(text, "wlan0"); !ok || w.Signal != -56 || w.Interface != "wlan0" {
		t.Errorf("%+v %v", w, ok)
	}
	for _, name := range []string{"eth0", "wlan1", "wlan"} {
		if w, ok := parseWireless(text, name); ok {
			t.Errorf("%s: %+v", name, w)
		}
	}
}
