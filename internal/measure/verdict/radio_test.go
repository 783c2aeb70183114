package verdict

import (
	"strings"
	"testing"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// heard returns samples of a link that stays the same for ten seconds.
func heard(s RadioSample) []RadioSample {
	first := RadioSample{Station: s.Station, SignalDBm: s.SignalDBm, Down: s.Down, Up: s.Up, Legacy: s.Legacy}
	s.At = unit.Instant(10 * time.Second)
	return []RadioSample{first, s}
}

// The first case was recorded: iperf3 over an RTL8812BU (lwfinger/rtw88, issue
// 224). The others have the best rates of each standard, by the rule of 65 % of
// the link's rate, and 45 % before 802.11n.
func TestRadioIsTheBottleneck(t *testing.T) {
	const mbit = unit.MbitPerSecond
	for _, c := range []struct {
		name     string
		down, up float64 // goodput, Mbit/s
		s        RadioSample
		want     string // in the reason; "": the link is not the bottleneck
	}{
		{"RTL8812BU, 80 MHz, two streams, to the access point", 0, 566, RadioSample{SignalDBm: -25, Down: 866700000, Up: 866700000}, "itself full"},
		{"802.11ac, 1300 Mbit/s, before a line of 300", 300, 0, RadioSample{SignalDBm: -50, Down: 1300 * mbit, Up: 1300 * mbit}, ""},
		{"802.11n, one stream of 20 MHz, far away", 48, 0, RadioSample{SignalDBm: -67, Down: 72200000, Up: 65 * mbit}, "itself full"},
		{"802.11g, 54 Mbit/s", 0, 22, RadioSample{SignalDBm: -60, Down: 54 * mbit, Up: 54 * mbit, Legacy: true}, "itself full"},
		{"a line of 30/5 Mbit/s behind 802.11n", 28.6, 0, RadioSample{SignalDBm: -55, Down: 144400000, Up: 144400000}, ""},
		{"both ways share the air", 100, 100, RadioSample{Down: 400 * mbit, Up: 400 * mbit}, "itself full"},
		{"one of them has room", 100, 0, RadioSample{Down: 400 * mbit, Up: 400 * mbit}, ""},
		{"the neighbours' air", 20, 0, RadioSample{SignalDBm: -60, Down: 144 * mbit, Up: 144 * mbit, Active: 10 * time.Second, Busy: 9200 * time.Millisecond}, "busy for 92 %"},
		{"some of the neighbours' air", 20, 0, RadioSample{Down: 144 * mbit, Up: 144 * mbit, Active: 10 * time.Second, Busy: 5 * time.Second}, ""},
		{"behind three walls", 2, 0, RadioSample{SignalDBm: -84, Down: 13 * mbit, Up: 6500000, Frames: 2000, Retries: 1700, Failed: 90}, "lost 4.5 %"},
		{"retries alone", 2, 0, RadioSample{SignalDBm: -70, Down: 65 * mbit, Up: 65 * mbit, Frames: 2000, Retries: 900}, ""},
		{"a driver that tells nothing", 20, 20, RadioSample{}, ""},
	} {
		p := &Phase{GoodputDownBps: c.down * 1e6, GoodputUpBps: c.up * 1e6}
		r := radio(Raw{Radio: heard(c.s), RadioName: "wlan0"}, p)
		got := ""
		if why := r.bottleneck(); why != nil {
			got = why.Text(reason.English(), reason.Terminal)
		}
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %+v: %q, want %q", c.name, r, got, c.want)
		}
		t.Logf("%s: airtime %.2f, %s", c.name, r.Airtime, got)
	}
	if r := radio(Raw{}, &Phase{GoodputDownBps: 1e9}); r != nil || r.bottleneck() != nil {
		t.Errorf("a cable: %+v", r)
	}
}

// A station that changes its access point has another path. Its counters start
// again and are not compared. The phase is invalid and says why.
func TestRadioRoams(t *testing.T) {
	s := heard(RadioSample{Station: "02:00:00:00:00:01", Down: 1e9, Up: 1e9, Frames: 100})
	s[1].Station, s[1].Frames, s[1].Failed = "02:00:00:00:00:02", 5, 5
	raw := Raw{Name: PhaseDownload, Radio: s, RadioName: "wlan0"}
	p := &Phase{}
	p.Radio = radio(raw, p)
	if p.Radio.Failed != 0 || !p.Radio.Roamed {
		t.Errorf("%+v", p.Radio)
	}
	if why := strings.Join(reason.Texts(invalid(raw, p, MaxLatenessMs)), " "); !strings.Contains(why, "changed its access point") {
		t.Error(why)
	}
}
