package netio

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/mdlayher/wifi"

	"unbloat/unit"
)

// WatchRadio watches the wireless interface towards an address over nl80211,
// which needs no right. It is an error if there is none.
func WatchRadio(clock *Clock, to netip.Addr) (*RadioWatch, error) {
	name, err := InterfaceTowards(to)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", name, "phy80211")); err != nil {
		return nil, fmt.Errorf("watch the radio of %s: %w: it has none", name, ErrNotSupported)
	}
	c, err := wifi.New()
	if err != nil {
		return nil, fmt.Errorf("watch the radio of %s: %w", name, err)
	}
	ifs, err := c.Interfaces()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("watch the radio of %s: %w", name, err)
	}
	for _, i := range ifs {
		if i.Name == name {
			return watchRadio(clock, name, func() (RadioSample, error) { return askRadio(c, i) }, func() { c.Close() }), nil
		}
	}
	c.Close()
	return nil, fmt.Errorf("watch the radio of %s: nl80211 does not know it", name)
}

// askRadio asks nl80211 for the station and the channel of an interface.
func askRadio(c *wifi.Client, i *wifi.Interface) (RadioSample, error) {
	stations, err := c.StationInfo(i)
	if err != nil {
		return RadioSample{}, err
	}
	if len(stations) != 1 {
		return RadioSample{}, fmt.Errorf("%s has %d stations, and is no client", i.Name, len(stations))
	}
	s := radioSample(stations[0])
	surveys, err := c.SurveyInfo(i)
	if err != nil {
		return s, nil // many drivers do not tell
	}
	for _, v := range surveys {
		if v.InUse {
			s.Active, s.Busy = v.ChannelTime, v.ChannelTimeBusy
			if s.Active == 0 {
				s.Active = v.ChannelTimeActive
			}
		}
	}
	return s, nil
}

// radioSample translates what nl80211 says of the access point.
func radioSample(s *wifi.StationInfo) RadioSample {
	signal := s.SignalAverage
	if signal == 0 {
		signal = s.Signal
	}
	return RadioSample{
		Station: s.HardwareAddr.String(), SignalDBm: signal,
		Down: unit.Rate(s.ReceiveBitrate), Up: unit.Rate(s.TransmitBitrate), Legacy: s.TransmitRateInfo.ModulationType == wifi.RateModulationInfoTypeLegacy,
		Frames: int64(s.TransmittedPackets), Retries: int64(s.TransmitRetries), Failed: int64(s.TransmitFailed),
	}
}
