package clearos

import (
	"context"
	"fmt"
	"strings"

	"unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

// Shapers explains the kernel's shapers and the settings in qos.conf and
// network.conf.
func (b *Backend) Shapers(ctx context.Context, wan string) ([]platform.Shaped, error) {
	out, err := linux.Shapers(ctx, b.Runner)
	if err != nil {
		return nil, err
	}
	files, err := conf.Read(ctx, b.Runner, clearos.QoSConf, clearos.NetworkConf, clearos.EngineFile)
	if err != nil {
		return nil, err
	}
	set, err := clearos.Parse(files.Text(clearos.QoSConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clearos.QoSConf, err)
	}
	if clearos.Get(set, "QOS_ENABLE") != "on" {
		return out, nil
	}
	speeds, err := clearos.Parse(files.Text(clearos.NetworkConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clearos.NetworkConf, err)
	}
	engine := clearos.Get(set, "QOS_ENGINE")
	x := platform.Shaped{Device: clearos.QoSConf, Ours: engine == clearos.EngineFile, Counters: []tc.Counters{}}
	switch engine {
	case "", clearos.OwnEngineFile:
		x.Queue, x.Says = string(plan.SFQ), "QoS is on, with ClearOS's own engine: seven classes of sfq, which has no AQM"
	case clearos.EngineFile:
		x.Queue, x.Says = "htb + fq_codel", "QoS is on, with unbloat's engine "+engine
	default:
		x.Queue, x.Says = engine, "QoS is on, with the engine "+engine+" (not unbloat's)"
	}
	for _, dev := range shapedDevices(set, wan) {
		if !clearos.HasSpeeds(dev) {
			continue
		}
		down, up, err := (clearos.Settings{Network: speeds}).Speeds(dev)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", clearos.NetworkConf, err)
		}
		x.Says += fmt.Sprintf("; %s: up %s, down %s", dev, speed(up), speed(down))
	}
	return append(out, x), nil
}

func speed(r unit.Rate) string {
	if r == 0 {
		return "not set"
	}
	return r.Short()
}

// shapedDevices returns the devices in qos.conf and the WAN.
func shapedDevices(set []clearos.Setting, wan string) []string {
	var out []string
	for _, w := range append(strings.Fields(clearos.Get(set, "QOS_UPSTREAM")), wan) {
		if dev, _, _ := strings.Cut(w, ":"); dev != "" && (len(out) == 0 || out[0] != dev) {
			out = append(out, dev)
		}
	}
	return out
}
