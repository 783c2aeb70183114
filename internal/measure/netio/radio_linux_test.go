package netio

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/wifi"
)

// nl80211's attributes are converted. The average signal is preferred.
func TestRadioSample(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	got := radioSample(&wifi.StationInfo{
		HardwareAddr: mac, ReceiveBitrate: 72200000, TransmitBitrate: 54000000, Signal: -61, SignalAverage: -63,
		TransmittedPackets: 1000, TransmitRetries: 70, TransmitFailed: 3,
		TransmitRateInfo: wifi.RateInfo{ModulationType: wifi.RateModulationInfoTypeLegacy},
	})
	want := RadioSample{Station: mac.String(), SignalDBm: -63, Down: 72200000, Up: 54000000, Legacy: true, Frames: 1000, Retries: 70, Failed: 3}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := radioSample(&wifi.StationInfo{Signal: -61, TransmitBitrate: 54000000, TransmitRateInfo: wifi.RateInfo{ModulationType: wifi.RateModulationInfoTypeHT}}); got.SignalDBm != -61 || got.Legacy {
		t.Errorf("%+v", got)
	}
}

// A watch takes a sample at its start and at its end. A link that is down gives
// none.
func TestRadioWatch(t *testing.T) {
	n, closed := 0, false
	w := watchRadio(NewClock(), "wlan9", func() (RadioSample, error) {
		n++
		if n == 1 {
			return RadioSample{}, errors.New("down")
		}
		return RadioSample{Frames: int64(n)}, nil
	}, func() { closed = true })
	got := w.Stop()
	if len(got) == 0 || len(got) != n-1 || got[0].Frames != 2 || got[0].At == 0 || !closed || w.Name() != "wlan9" {
		t.Errorf("%+v of %d, closed %v", got, n, closed)
	}
}

// The loopback has no radio.
func TestNoRadio(t *testing.T) {
	if _, err := WatchRadio(NewClock(), netip.MustParseAddr("127.0.0.1")); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
}
