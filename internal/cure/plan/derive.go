package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// CoDel's usual numbers (RFC 8289 §4.2, §4.3), and those of field practice.
const (
	usualTarget   = 5 * time.Millisecond
	usualInterval = 100 * time.Millisecond
	usualFlows    = 1024
	usualLatency  = 100 * time.Millisecond // of a FIFO, as in the ALTQ article
	segment       = 1460                   // that article's packet: an Ethernet TCP segment without options
	noECNBelow    = 4 * unit.MbitPerSecond // uploads; advice of the bufferbloat wiki
	splitBelow    = 100 * unit.MbitPerSecond
	leastLimit    = 1001 // sqm-scripts
	mostLimit     = 10240
	leastQuantum  = 300
	mostQuantum   = 1514
)

// codelTarget returns the larger of 5 ms and 1.5 times a full packet's time. It
// rounds up to a whole millisecond, which every platform can express.
func codelTarget(r unit.Rate, full unit.Size) time.Duration {
	t := max(usualTarget, (r.Time(full)*3+1)/2)
	return (t + time.Millisecond - 1).Truncate(time.Millisecond)
}

// codelInterval returns sqm-scripts' 95 ms + target, which is 100 ms at the usual target.
func codelInterval(target time.Duration) time.Duration {
	return usualInterval - usualTarget + target
}

// flowQuantum returns a quantum for fq_codel by CAKE's formula: clamp(bytes/s >>
// 12, 300, 1514). At low rates a small packet then waits for 300 bytes of every
// other flow, not for a full packet of each.
func flowQuantum(r unit.Rate) unit.Size {
	return min(max(unit.Size(r/8)>>12, leastQuantum), mostQuantum)
}

// packetLimit returns a second's worth of full packets, rounded up, within
// 1001…10240. It only bounds memory in a flood; CoDel keeps the queue short.
func packetLimit(r unit.Rate) int {
	return int(min(max((r/8+mostQuantum-1)/mostQuantum, leastLimit), mostLimit))
}

// FIFOLimit returns the length in packets of a FIFO that adds at most the given
// latency, by the formula of the ALTQ article: rate / 8 / 1460 × latency, rounded
// up. It is at least 2, since a queue of one packet leaves the line idle.
func FIFOLimit(r unit.Rate, latency time.Duration) int {
	bytes := int64(r.Bytes(latency))
	return int(max((bytes+segment-1)/segment, 2))
}

// htbBurst returns HTB's bucket as sqm-scripts computes it: a full packet in ATM
// cells, or 1 ms at the rate, whichever is larger.
func htbBurst(r unit.Rate, mtu int) unit.Size {
	cells := (unit.Size(mtu) + 48 + 47) / 48 * 53
	return max(cells, r.Bytes(time.Millisecond))
}

// ackIP is the IP packet of an ACK without data, with timestamps.
const ackIP = 52

// ackShare returns the share of the upload that the ACKs of a full download take: one for every
// two full packets (RFC 5681 §4.2), each of the size that it has on the line.
func (l Line) ackShare(down, up unit.Rate) float64 {
	if up <= 0 {
		return 0
	}
	return float64(down) * float64(l.Wire(ackIP)) / float64(2*l.Wire(fullIP)) / float64(up)
}

// make builds the plan for these rates; 0 leaves a direction unshaped.
func (m *maker) make(down, up unit.Rate) (Plan, error) {
	if down == 0 && up == 0 {
		return Plan{}, ErrNothingToShape
	}
	down, up = m.wholeSteps(down), m.wholeSteps(up)
	m.plan = Plan{
		Schema: Schema, Platform: m.lang.Platform, WAN: m.capabilities.WAN, LAN: m.capabilities.LAN,
		DownBps: down, UpBps: up, AQM: m.aqm, Goal: m.goal(),
		Basis: &Basis{Line: m.line, Capabilities: m.capabilities, Preferences: m.preferences},
	}
	if down != 0 {
		if err := m.chooseSide(); err != nil {
			return Plan{}, err
		}
	}
	m.division, m.patient = m.wantClasses(), map[Direction][]Reason{}
	if m.division.on && m.lang.Weights {
		m.aqmWhy = say(reason.AQMWeights)
	}
	m.because("aqm", symbol(string(m.aqm)), m.aqmWhy)
	if !m.lang.Rates.IsZero() {
		m.because("rates", m.lang.Rates, m.lang.RatesWhy)
	}
	m.control()
	if up != 0 {
		m.plan.Up = m.shaper(DirectionUp, up)
	}
	if down != 0 {
		m.plan.Down = m.shaper(DirectionDown, down)
	}
	m.sayUndivided()
	if m.division.on {
		if err := m.classes(); err != nil {
			return Plan{}, err
		}
	}
	m.offloads()
	if m.table() {
		m.plan.FlowTable = []string{m.capabilities.LAN, m.capabilities.WAN}
		m.because("flow_table", symbol(m.capabilities.LAN+", "+m.capabilities.WAN), say(reason.FlowTable))
		m.warning(say(reason.FlowTableGives, "lan", m.capabilities.LAN))
	}
	m.limits()
	m.warnOfSFQ()
	m.warnOfWork()
	return m.plan, m.plan.Validate(m.lang)
}

// because records why a field has its value.
func (m *maker) because(field string, value, why reason.Reason) {
	m.plan.Reasons = append(m.plan.Reasons, Reason{Field: field, Value: value, Why: why})
}

// warning adds a warning to the plan.
func (m *maker) warning(w reason.Reason) {
	m.plan.Warnings = append(m.plan.Warnings, w)
}

func (m *maker) goal() time.Duration {
	if m.preferences.Goal > 0 {
		return m.preferences.Goal
	}
	return DefaultGoal(m.line)
}

// shaper builds one direction.
func (m *maker) shaper(d Direction, r unit.Rate) *Shaper {
	s := &Shaper{
		Device: m.capabilities.WAN, Rate: r, AQM: m.aqm,
		LinkLayer: m.framing.layer, Overhead: m.framing.overhead, MPU: m.framing.mpu, HeaderLen: m.headerLen(),
	}
	m.because(field(d, "rate"), say(reason.RateValue, "rate_bps", r), m.whyRate(d, r))
	if d == DirectionDown {
		m.placeDownload(s)
	}
	m.frame(d, s)
	switch m.aqm {
	case CAKE:
		m.cake(d, s)
	case FQCoDel:
		m.fqCodel(d, s)
	case FIFO:
		m.fifo(d, s)
	}
	if m.lang.HTB && m.aqm != CAKE {
		m.htb(d, s)
	}
	return s
}

func field(d Direction, name string) string { return string(d) + "." + name }

// whyRate explains a rate by the measured one.
func (m *maker) whyRate(d Direction, r unit.Rate) reason.Reason {
	measured, asked, start := m.line.Up, m.preferences.Up, StartUp
	why := []reason.Reason{say(reason.RateBelowUp)}
	if d == DirectionDown {
		measured, asked, start = m.line.Down, m.preferences.Down, StartDown
		why[0] = say(reason.RateBelowDown)
	}
	if measured == 0 {
		return say(reason.RateUnmeasured)
	}
	if asked.IsZero() && m.uncounted() {
		why = append(why, say(reason.RateUncounted, "bytes", m.line.Overhead, "less", 1-1/m.line.Uncounted(m.headerLen())))
	}
	share := say(reason.RateShare, "share", float64(r)/float64(measured), "measured_bps", measured)
	if r == measured && m.preferences.Style == StyleArticle && m.lang.Article.Down == 1 {
		m.warning(say(reason.RateOfArticle, "direction", d))
		return share.With(say(reason.RateItself))
	}
	if r > measured {
		m.warning(say(reason.RateAboveLine, "direction", d, "rate_bps", r, "measured_bps", measured))
		return share.With(say(reason.AsAsked))
	}
	if asked.IsZero() && r == m.wholeSteps(measured.Scale(start)) && m.preferences.Style == StyleDefault {
		why = append(why, say(reason.RateToTune))
	}
	if asked.IsZero() && m.preferences.Style == StyleArticle && m.lang.Article.Rounds {
		why = append(why, say(reason.RateTwoDigits))
	}
	return share.With(why...)
}

// placeDownload sets the device on which the download is shaped.
func (m *maker) placeDownload(s *Shaper) {
	switch m.side {
	case SideIFB:
		s.Device, s.IngressOf = IFBName(m.capabilities.WAN), m.capabilities.WAN
		m.because("down.device", symbol(s.Device), say(reason.DeviceIFB).With(m.sideWhy))
	case SideLAN:
		s.Device = m.capabilities.LAN
		s.HeaderLen = EthernetHeader // the LAN is Ethernet, whatever the WAN is
		m.because("down.device", symbol(s.Device), say(reason.DeviceLAN).With(m.sideWhy))
	case SideIn:
		s.IngressOf = m.capabilities.WAN
		m.because("down.device", symbol(s.Device), m.sideWhy)
	}
}

// frame explains the overhead and mpu, or drops them where the platform has no
// setting for them, or the article does not use it.
func (m *maker) frame(d Direction, s *Shaper) {
	f := field(d, "overhead")
	switch {
	case !m.lang.NoOverhead.IsZero():
		if m.line.LinkLayer == ATM || m.line.LinkLayer == PTM || s.Overhead > EthernetHeader {
			m.warning(say(reason.OverheadUntold, "direction", d, "overhead", s.Overhead, "link_layer", s.LinkLayer).With(m.lang.NoOverhead))
		}
		s.Overhead, s.MPU, s.LinkLayer = s.HeaderLen, 0, Ethernet
		m.because(f, count(s.Overhead), m.lang.NoOverhead)
	case m.preferences.Style == StyleArticle:
		s.Overhead, s.MPU, s.LinkLayer = s.HeaderLen, 0, Ethernet
	default:
		m.because(f, count(s.Overhead), say(reason.OverheadOf, "bytes", s.WireSize(fullIP)).With(m.framing.why))
		if s.MPU > 0 {
			m.because(field(d, "mpu"), count(s.MPU), say(reason.MPULeast))
		}
	}
}

// htb sets the numbers of the HTB class.
func (m *maker) htb(d Direction, s *Shaper) {
	if m.preferences.Style == StyleArticle {
		if !m.lang.Article.NoQuantum {
			s.ClassQ = mostQuantum
			m.because(field(d, "class_q"), inBytes(s.ClassQ), say(reason.ClassQuantumOfArticle))
		}
		return
	}
	s.Burst = htbBurst(s.Rate, m.mtu())
	m.because(field(d, "burst"), inBytes(s.Burst), say(reason.BurstOfHTB))
}

func (m *maker) mtu() int {
	if m.capabilities.MTU > 0 {
		return m.capabilities.MTU
	}
	return int(fullIP)
}

// offloads lists the offloads to switch off, so that HTB sees single packets.
func (m *maker) offloads() {
	if !m.lang.HTB || m.aqm == CAKE || m.preferences.Style == StyleArticle {
		return
	}
	need := func(device, feature string) {
		able := m.capabilities.Offloads
		if able == nil {
			able = []Offload{{Device: device, Feature: feature}}
		}
		for _, o := range able { // what receives for a VLAN or a bridge is below it
			known := slices.ContainsFunc(m.plan.Offloads, func(x Offload) bool { return x.Device == o.Device && x.Feature == o.Feature })
			if device != "" && o.Feature == feature && cmp.Or(o.Below, o.Device) == device && !known {
				m.plan.Offloads = append(m.plan.Offloads, o)
			}
		}
	}
	slow := unit.Rate(0)
	if s := m.plan.Up; s != nil && s.Rate < splitBelow {
		slow = s.Rate
		need(m.capabilities.WAN, "tso")
		need(m.capabilities.WAN, "gso")
		need(m.capabilities.LAN, "gro") // packets that the LAN merges leave the WAN merged
	}
	if s := m.plan.Down; s != nil && s.Rate < splitBelow {
		if slow == 0 || s.Rate < slow {
			slow = s.Rate
		}
		need(m.capabilities.WAN, "gro")
		if m.side == SideLAN {
			need(m.capabilities.LAN, "tso")
			need(m.capabilities.LAN, "gso")
		}
	}
	if len(m.plan.Offloads) > 0 {
		m.because("offloads", m.offloadsOff(), say(reason.OffloadsOff, "rate_bps", slow, "time_ms", slow.Time(65536)))
	}
}

// offloadsOff prints the offloads that are switched off, as in "eth0 tso gso gro, eth1 gro".
func (m *maker) offloadsOff() reason.Reason {
	var devices []string
	features := map[string]string{}
	for _, o := range m.plan.Offloads {
		if features[o.Device] == "" {
			devices = append(devices, o.Device)
		}
		features[o.Device] += " " + o.Feature
	}
	for i, d := range devices {
		devices[i] = d + features[d]
	}
	return say(reason.OffValue, "features", strings.Join(devices, ", "))
}
