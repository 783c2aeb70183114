package clearos

import (
	"fmt"
	"slices"

	"unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
)

// Settled returns the state after the next start of the firewall, which runs the
// engine in the settings, after the shapers that are there were removed. What an
// engine of somebody else makes is not known: there it returns what runs.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	set, err := clearos.Parse(s.Files.Text(clearos.QoSConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clearos.QoSConf, err)
	}
	switch engine := clearos.Get(set, "QOS_ENGINE"); {
	case clearos.Get(set, "QOS_ENABLE") != "on":
		s.Facts = nil
	case engine == clearos.EngineFile:
		if s.Facts, err = engined(s); err != nil {
			return nil, err
		}
	case engine == "" || engine == clearos.OwnEngineFile:
		if s.Facts, err = ownEngined(s, set); err != nil {
			return nil, err
		}
	}
	return conf.Encode(s)
}

// engined returns what our engine makes on the devices that were observed. If its
// file is gone, ClearOS runs no engine.
func engined(s conf.State) ([]conf.Fact, error) {
	list, err := clearos.EngineShapers(s.Files.Text(clearos.EngineFile))
	if err != nil {
		return nil, err
	}
	var out []conf.Fact
	for _, e := range list {
		if slices.Contains(s.Scope, e.Device) {
			out = append(out, linux.Held{Device: e.Device, Enters: e.Enters, Queue: "htb + fq_codel", Rate: tc.ShownRate(e.Rate)}.Fact())
		}
	}
	return out, nil
}

// ownEngined returns what ClearOS's own engine makes with settings like ours: one
// interface with both speeds. With others it returns what runs.
func ownEngined(s conf.State, set []clearos.Setting) ([]conf.Fact, error) {
	speeds, err := clearos.Parse(s.Files.Text(clearos.NetworkConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clearos.NetworkConf, err)
	}
	for _, dev := range s.Scope {
		if one := dev + ":auto"; clearos.Get(set, "QOS_UPSTREAM") != one || clearos.Get(set, "QOS_DOWNSTREAM") != one {
			continue
		}
		down, up, err := (clearos.Settings{Network: speeds}).Speeds(dev)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", clearos.NetworkConf, err)
		}
		if down > 0 && up > 0 {
			return wanted(plan.Plan{WAN: dev, AQM: plan.SFQ, UpBps: up, DownBps: down}), nil
		}
	}
	return s.Facts, nil
}
