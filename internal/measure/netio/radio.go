package netio

import (
	"time"

	"unbloat/unit"
)

// A RadioSample is the state of a wireless interface at one instant.
type RadioSample struct {
	At        unit.Instant
	Station   string    // hardware address of the access point
	SignalDBm int       // 0: unknown
	Down, Up  unit.Rate // of the link
	Legacy    bool      // 802.11a, b or g

	Frames, Retries, Failed int64 // sent so far; Failed: given up

	Active, Busy time.Duration // of the channel so far; zero: unknown
}

// radioEvery is the distance of samples.
const radioEvery = 500 * time.Millisecond

// A RadioWatch asks a wireless interface again and again how it fares.
type RadioWatch struct {
	name    string
	stop    chan struct{}
	done    chan struct{} // closed when samples is complete
	samples []RadioSample
}

// Name returns the interface's name.
func (w *RadioWatch) Name() string { return w.name }

// Stop ends the watch and returns what it heard; it may be called once.
func (w *RadioWatch) Stop() []RadioSample {
	close(w.stop)
	<-w.done
	return w.samples
}

// watchRadio asks until Stop, and a last time then; close ends the asking.
func watchRadio(clock *Clock, name string, ask func() (RadioSample, error), closeIt func()) *RadioWatch {
	w := &RadioWatch{name: name, stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // Stop waits for it
		defer close(w.done)
		defer closeIt()
		tick := time.NewTicker(radioEvery)
		defer tick.Stop()
		for over := false; ; {
			if s, err := ask(); err == nil { // a link that is down just now is no sample
				s.At = clock.Now()
				w.samples = append(w.samples, s)
			}
			if over {
				return
			}
			select {
			case <-w.stop:
				over = true
			case <-tick.C:
			}
		}
	}()
	return w
}
