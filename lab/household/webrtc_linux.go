package household

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/interceptor/pkg/gcc"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"
	"golang.org/x/sys/unix"

	"unbloat/internal/measure/netio"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// How a call's two peers behave, where Pion leaves it to them.
const (
	callPort     = 3478 // at both ends; each call has its own
	callMTU      = 1200
	nackInterval = 20 * time.Millisecond
	nackBuffer   = 1024 // packets
	connectLimit = 30 * time.Second
	replayWindow = 1024 // packets, as in libwebrtc
	// A call that hears nothing ends after that long; people hang up sooner.
	callPatience = 10 * time.Minute

	payloadAudio = 111
	payloadVideo = 96
	clockAudio   = 48000
	clockVideo   = 90000
	stampBytes   = 1 + 4 + 8 // in front of a packet of sound, and of a frame: key, number, time
)

// calls are calls with audio and video between the home and the server node, by
// a real WebRTC stack. This process is both peers of each, so both have one clock.
type calls struct {
	task     Task
	clock    *netio.Clock
	up, down *meter
	calls    []*call
	tunnel   *quicFlows // the upload in the call's tunnel; nil: there is none
}

func (c *calls) prepare(ctx context.Context) error {
	if err := c.task.giveAddresses(ctx, 1); err != nil {
		return err
	}
	c.clock, c.up, c.down = netio.NewClock(), newMeter(), newMeter()
	for k := range c.task.Load.Flows {
		one := &call{}
		c.calls = append(c.calls, one)
		if err := c.connect(ctx, one, k); err != nil {
			return fmt.Errorf("connect call %d: %w", k+1, err)
		}
	}
	return nil
}

func (c *calls) close() {
	if c.tunnel != nil {
		c.tunnel.close()
	}
	for _, one := range c.calls {
		one.close()
	}
}

func (c *calls) run(ctx context.Context, d time.Duration) (_ *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	began := c.clock.Now().Add(-c.task.Load.Start)
	from, to := began.Add(c.task.From), began.Add(c.task.To)
	var wg sync.WaitGroup
	for _, one := range c.calls {
		for _, p := range []*peer{one.home, one.away} {
			wg.Go(func() { p.speak(ctx) })
		}
	}
	if c.tunnel != nil {
		c.tunnel.task.Load.Start = c.task.Load.Start
		var failed error
		wg.Go(func() { _, failed = c.tunnel.run(ctx, d) })
		defer func() { err = errors.Join(err, failed) }()
	}
	wg.Wait()
	// What is under way at the end has the time to come.
	time.Sleep(time.Second)
	o := &Outcome{Up: c.up.series(), Down: c.down.series()}
	var worst *CallResult
	for _, one := range c.calls {
		if err := errors.Join(one.home.failed(), one.away.failed()); err != nil {
			return nil, err
		}
		up, down := one.home.record(), one.away.record()
		r := &CallResult{Up: up.Way(from, to), Down: down.Way(from, to)}
		if worst == nil || r.Worse(*worst) {
			worst = r
		}
	}
	o.QoE.Call = worst
	return o, nil
}

// A call has one peer at home and one at the server node, which is a server:
// it waits to be spoken to (ICE lite).
type call struct{ home, away *peer }

func (c *call) close() {
	for _, p := range []*peer{c.home, c.away} {
		if p != nil {
			p.close()
		}
	}
}

// connect makes the two peers of the k-th call, and connects them.
func (c *calls) connect(ctx context.Context, one *call, k int) (err error) {
	t := c.task
	port := callPort + k
	away, err := listenUDP(t.Home.ServerNode, fmt.Sprintf("%s:%d", t.address(1), port))
	if err != nil {
		return err
	}
	route, err := net.Dial("udp4", t.address(1)+":9") // sends nothing: the address that this machine has towards the server
	if err != nil {
		return err
	}
	own := route.LocalAddr().(*net.UDPAddr).IP
	route.Close()
	home, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own}) // any port: two calls of one machine are two flows
	if err != nil {
		return err
	}
	for _, c := range []*net.UDPConn{away, home} {
		if err := markAll(c, t.Load.CodePoint()); err != nil {
			return err
		}
	}
	atHome, atFar := net.PacketConn(home), net.PacketConn(away)
	switch t.Load.Through {
	case scenario.ThroughTLS:
		if atHome, atFar, err = c.relayed(ctx, home, away); err != nil {
			return err
		}
	case scenario.ThroughTunnel:
		if atHome, atFar, err = c.tunnelled(ctx, home, away); err != nil {
			return err
		}
	}
	seed := uint64(t.Index)<<16 + uint64(k)<<1
	if one.home, err = newPeer(atHome, c.clock, c.down, t.Load.Bitrate, false, seed); err != nil {
		return err
	}
	if one.away, err = newPeer(atFar, c.clock, c.up, t.Load.Bitrate, true, seed+1); err != nil {
		return err
	}
	one.home.other, one.away.other = one.away, one.home
	return agree(ctx, one.home, one.away)
}

// markAll gives all packets of a socket a DSCP.
func markAll(c *net.UDPConn, dscp uint8) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, int(dscp)<<2) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("mark the call's packets: %w", failed)
	}
	return nil
}

// agree exchanges the two descriptions of the call. It is the signalling, which
// in a real call goes through a web server.
func agree(ctx context.Context, a, b *peer) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	describe := func(p *peer, make func() (webrtc.SessionDescription, error)) (webrtc.SessionDescription, error) {
		d, err := make()
		if err != nil {
			return d, err
		}
		gathered := webrtc.GatheringCompletePromise(p.pc)
		if err := p.pc.SetLocalDescription(d); err != nil {
			return d, err
		}
		select {
		case <-gathered:
			return *p.pc.LocalDescription(), nil
		case <-ctx.Done():
			return d, fmt.Errorf("gather the addresses of the call: %w", ctx.Err())
		}
	}
	offer, err := describe(a, func() (webrtc.SessionDescription, error) { return a.pc.CreateOffer(nil) })
	if err != nil {
		return err
	}
	if err := b.pc.SetRemoteDescription(offer); err != nil {
		return err
	}
	answer, err := describe(b, func() (webrtc.SessionDescription, error) { return b.pc.CreateAnswer(nil) })
	if err != nil {
		return err
	}
	if err := a.pc.SetRemoteDescription(answer); err != nil {
		return err
	}
	for _, p := range []*peer{a, b} {
		select {
		case <-p.connected:
		case <-ctx.Done():
			return fmt.Errorf("no connection in %v", connectLimit)
		}
	}
	return nil
}

// A peer is one side of a call.
type peer struct {
	clock     *netio.Clock
	got       *meter // what arrived here
	other     *peer
	most      unit.Rate
	random    *rand.Rand
	mux       *ice.UDPMuxDefault
	pc        *webrtc.PeerConnection
	estimator cc.BandwidthEstimator
	audio     *webrtc.TrackLocalStaticRTP
	video     *webrtc.TrackLocalStaticRTP
	connected chan struct{}

	mu     sync.Mutex
	camera Camera
	viewer Viewer
	heard  map[int]unit.Instant // arrivals of the other side's sound
	spoken []unit.Instant       // when each packet of sound was sent
	made   []unit.Instant
	sent   map[uint64]unit.Instant // RTP packets that have not come yet, by stream and number
	times  []unit.Instant          // of all RTP packets sent
	lost   []unit.Instant          // of those of them that were sent again before they came
	err    error
}

// newPeer makes one side of a call on a socket.
func newPeer(conn net.PacketConn, clock *netio.Clock, got *meter, most unit.Rate, lite bool, seed uint64) (*peer, error) {
	p := &peer{clock: clock, got: got, most: most, random: rand.New(rand.NewPCG(seed, 3)), connected: make(chan struct{}),
		heard: map[int]unit.Instant{}, sent: map[uint64]unit.Instant{}}
	p.camera.Random = p.random
	p.mux = ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn})
	var settings webrtc.SettingEngine
	settings.SetLite(lite)
	settings.SetICEUDPMux(p.mux)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	// Packets sent again come late. Pion's own window, of 64, has them dropped as
	// replayed, asked for again, and taken for lost over and over.
	settings.SetSRTPReplayProtectionWindow(replayWindow)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetICETimeouts(callPatience, callPatience, 2*time.Second)
	media, registry, err := p.engines()
	if err != nil {
		return p, err
	}
	api := webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(media), webrtc.WithInterceptorRegistry(registry))
	if p.pc, err = api.NewPeerConnection(webrtc.Configuration{BundlePolicy: webrtc.BundlePolicyMaxBundle}); err != nil {
		return p, err
	}
	var once sync.Once
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			once.Do(func() { close(p.connected) })
		case webrtc.PeerConnectionStateFailed:
			p.fail(errors.New("the call's connection failed"))
		}
	})
	p.pc.OnTrack(p.receive)
	if p.audio, err = p.track(webrtc.MimeTypeOpus, "audio"); err != nil {
		return p, err
	}
	p.video, err = p.track(webrtc.MimeTypeVP8, "video")
	return p, err
}

// engines are the codecs of the call, and what stands between its tracks and
// the network: congestion control, packets sent again, reports.
func (p *peer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	media, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	for _, c := range []struct {
		kind    webrtc.RTPCodecType
		mime    string
		clock   uint32
		ways    uint16
		payload webrtc.PayloadType
	}{
		{webrtc.RTPCodecTypeAudio, webrtc.MimeTypeOpus, clockAudio, 2, payloadAudio},
		{webrtc.RTPCodecTypeVideo, webrtc.MimeTypeVP8, clockVideo, 0, payloadVideo},
	} {
		if err := media.RegisterCodec(webrtc.RTPCodecParameters{
			RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: c.mime, ClockRate: c.clock, Channels: c.ways}, PayloadType: c.payload,
		}, c.kind); err != nil {
			return nil, nil, err
		}
	}
	start := int(p.most + CallSound)
	control, err := cc.NewInterceptor(func() (cc.BandwidthEstimator, error) {
		// A call begins at its most: libwebrtc finds it in the first second, by
		// probes that Pion does not send.
		return gcc.NewSendSideBWE(gcc.SendSideBWEInitialBitrate(start), gcc.SendSideBWEMaxBitrate(start),
			gcc.SendSideBWEMinBitrate(int(CallLeast+CallSound)), gcc.SendSideBWEPacer(gcc.NewNoOpPacer()))
	})
	if err != nil {
		return nil, nil, err
	}
	control.OnNewPeerConnection(func(_ string, e cc.BandwidthEstimator) { p.estimator = e })
	registry.Add(ledger{p}) // first: nearest to the network
	registry.Add(control)
	if err := webrtc.ConfigureTWCCHeaderExtensionSender(media, registry); err != nil {
		return nil, nil, err
	}
	if err := webrtc.ConfigureNackWithOptions(media, registry,
		[]nack.GeneratorOption{nack.GeneratorInterval(nackInterval)}, nack.ResponderSize(nackBuffer)); err != nil {
		return nil, nil, err
	}
	if err := webrtc.ConfigureRTCPReports(registry); err != nil {
		return nil, nil, err
	}
	return media, registry, webrtc.ConfigureTWCCSender(media, registry)
}

// track adds a track that this side sends, and listens to what the other says of it.
func (p *peer) track(mime, name string) (*webrtc.TrackLocalStaticRTP, error) {
	t, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{MimeType: mime}, name, "call")
	if err != nil {
		return nil, err
	}
	sender, err := p.pc.AddTrack(t)
	if err != nil {
		return nil, err
	}
	go p.reports(sender.ReadRTCP)
	return t, nil
}

// reports reads control packets, until the call is closed, and does what they
// ask of the camera; the interceptors before it do the rest.
func (p *peer) reports(read func() ([]rtcp.Packet, interceptor.Attributes, error)) {
	for {
		packets, _, err := read()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
			return
		}
		if err != nil {
			p.fail(fmt.Errorf("read RTCP: %w", err))
			return
		}
		for _, packet := range packets {
			if _, ok := packet.(*rtcp.PictureLossIndication); ok {
				p.mu.Lock()
				p.camera.AskKey()
				p.mu.Unlock()
			}
		}
	}
}

// speak sends sound and pictures until the time is over.
func (p *peer) speak(ctx context.Context) {
	sound := rtp.NewPacketizer(callMTU, payloadAudio, 0, &codecs.OpusPayloader{}, rtp.NewRandomSequencer(), clockAudio)
	picture := rtp.NewPacketizer(callMTU, payloadVideo, 0, &codecs.VP8Payloader{EnablePictureID: true}, rtp.NewRandomSequencer(), clockVideo)
	filler := make([]byte, 1<<20)
	for i := range filler {
		filler[i] = byte(p.random.Uint32())
	}
	ticker := time.NewTicker(CallTick)
	defer ticker.Stop()
	var queue []*rtp.Packet
	var credit float64 // bytes of video that may leave
	start, last := time.Now(), time.Duration(0)
	for sounds, frames := 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Since(start)
		rate := VideoRate(unit.Rate(p.estimator.GetTargetBitrate()), p.most)
		for ; time.Duration(sounds)*SoundLength <= now; sounds++ {
			p.write(p.audio, sound.Packetize(p.sound(sounds, filler), uint32(clockAudio*SoundLength/time.Second))...)
		}
		for ; time.Duration(frames)*FrameLength <= now; frames++ {
			queue = append(queue, picture.Packetize(p.frame(frames, now, rate, filler), clockVideo/FramesPerSecond)...)
		}
		credit = min(credit+CallPacing*float64(rate)/8*(now-last).Seconds(), CallPacing*float64(rate)/8*CallTick.Seconds()*2)
		last = now
		for len(queue) > 0 && credit > 0 {
			credit -= float64(len(queue[0].Payload))
			p.write(p.video, queue[0])
			queue = queue[1:]
		}
	}
}

func (p *peer) write(t *webrtc.TrackLocalStaticRTP, packets ...*rtp.Packet) {
	for _, packet := range packets {
		if err := t.WriteRTP(packet); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			p.fail(fmt.Errorf("send %s: %w", t.ID(), err))
		}
	}
}

// sound is the n-th packet of sound.
func (p *peer) sound(n int, filler []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	p.spoken = append(p.spoken, now)
	return stamp(filler[:SoundSize(p.random)], false, n, now)
}

// frame is the n-th picture of the camera.
func (p *peer) frame(n int, now time.Duration, rate unit.Rate, filler []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, key := p.camera.Frame(now, rate)
	made := p.clock.Now()
	p.made = append(p.made, made)
	return stamp(filler[:min(int(size), len(filler))], key, n, made)
}

// stamp writes what the receiver is to know of it in front of a payload.
func stamp(b []byte, key bool, n int, at unit.Instant) []byte {
	b[0] = 1
	if key {
		b[0] = 0 // as in VP8: the first bit of a key frame
	}
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	binary.BigEndian.PutUint64(b[5:], uint64(at))
	return b
}

// receive reads a track of the other side until the call is closed.
func (p *peer) receive(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
	go p.reports(receiver.ReadRTCP)
	if track.Kind() == webrtc.RTPCodecTypeVideo {
		go p.watch(track)
	}
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return // the call is closed
		}
		now := p.clock.Now()
		p.got.add(len(packet.Payload))
		if track.Kind() == webrtc.RTPCodecTypeAudio {
			p.hear(now, packet)
		} else {
			p.see(now, packet)
		}
	}
}

func (p *peer) hear(now unit.Instant, packet *rtp.Packet) {
	if len(packet.Payload) < stampBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int(binary.BigEndian.Uint32(packet.Payload[1:]))
	if _, twice := p.heard[n]; !twice {
		p.heard[n] = now
	}
}

func (p *peer) see(now unit.Instant, packet *rtp.Packet) {
	var v codecs.VP8Packet
	payload, err := v.Unmarshal(packet.Payload)
	if err != nil {
		return
	}
	f := Fragment{Seq: packet.SequenceNumber, First: v.S == 1, Last: packet.Marker, Bytes: unit.Size(len(payload))}
	if f.First && len(payload) >= stampBytes {
		f.Key = payload[0]&1 == 0
		f.No = int(binary.BigEndian.Uint32(payload[1:]))
		f.Made = unit.Instant(binary.BigEndian.Uint64(payload[5:]))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewer.Receive(now, f)
}

// watch asks for key frames when too much is missing.
func (p *peer) watch(track *webrtc.TrackRemote) {
	ticker := time.NewTicker(4 * CallTick)
	defer ticker.Stop()
	for range ticker.C {
		p.mu.Lock()
		ask := p.viewer.Wait(p.clock.Now())
		p.mu.Unlock()
		if !ask {
			continue
		}
		err := p.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(track.SSRC())}})
		if err != nil {
			return // the call is closed
		}
	}
}

// record is what became of this side's packets, which the other side received.
func (p *peer) record() CallRecord {
	other := p.other
	p.mu.Lock()
	defer p.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	r := CallRecord{Made: p.made, Shown: other.viewer.Shown, Asked: other.viewer.Asked, Packets: p.times, Lost: p.lost}
	for n, at := range p.spoken {
		r.Sounds = append(r.Sounds, Heard{Sent: at, Arrived: other.heard[n]})
	}
	for _, at := range p.sent {
		r.Lost = append(r.Lost, at)
	}
	return r
}

func (p *peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

func (p *peer) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *peer) close() {
	if p.pc != nil {
		_ = p.pc.Close()
	}
	_ = p.mux.Close()
}

// ledger counts the packets that a side sends, and those of them that arrive:
// it stands next to the network, so it sees what is sent again too.
type ledger struct{ *peer }

// NewInterceptor implements interceptor.Factory.
func (l ledger) NewInterceptor(string) (interceptor.Interceptor, error) {
	return &counter{peer: l.peer}, nil
}

type counter struct {
	interceptor.NoOp
	peer *peer
}

// BindLocalStream implements interceptor.Interceptor.
func (c *counter) BindLocalStream(_ *interceptor.StreamInfo, w interceptor.RTPWriter) interceptor.RTPWriter {
	return interceptor.RTPWriterFunc(func(h *rtp.Header, payload []byte, a interceptor.Attributes) (int, error) {
		c.peer.left(packetKey(h))
		return w.Write(h, payload, a)
	})
}

// BindRemoteStream implements interceptor.Interceptor.
func (c *counter) BindRemoteStream(_ *interceptor.StreamInfo, r interceptor.RTPReader) interceptor.RTPReader {
	return interceptor.RTPReaderFunc(func(b []byte, a interceptor.Attributes) (int, interceptor.Attributes, error) {
		n, a, err := r.Read(b, a)
		if err != nil {
			return n, a, err
		}
		var h rtp.Header
		if _, err := h.Unmarshal(b[:n]); err == nil {
			c.peer.other.came(packetKey(&h))
		}
		return n, a, nil
	})
}

func packetKey(h *rtp.Header) uint64 { return uint64(h.SSRC)<<16 | uint64(h.SequenceNumber) }

// left files a packet that this side sends.
func (p *peer) left(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if before, again := p.sent[key]; again {
		p.lost = append(p.lost, before)
	}
	p.sent[key] = now
	p.times = append(p.times, now)
}

// came files that one of this side's packets arrived.
func (p *peer) came(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sent, key)
}
