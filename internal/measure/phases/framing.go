package phases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// ErrNoFraming is of servers that cannot send or count trains of datagrams.
var ErrNoFraming = errors.New("only a server of `unbloat serve` can measure what the line adds to each packet")

// A Framer is a Tester that can measure what the line adds to each packet.
type Framer interface {
	Framing(ctx context.Context, dir Direction, rate unit.Rate) (framing.Estimate, error)
}

// MeasureFraming measures both directions, one after the other, of a line that carries
// about these rates; 0 leaves a direction out.
func MeasureFraming(ctx context.Context, f Framer, down, up unit.Rate) (*verdict.Framing, error) {
	out := &verdict.Framing{}
	for _, way := range []struct {
		dir  Direction
		rate unit.Rate
		to   **framing.Estimate
	}{{Down, down, &out.Down}, {Up, up, &out.Up}} {
		if way.rate == 0 {
			continue
		}
		e, err := f.Framing(ctx, way.dir, way.rate)
		if err != nil {
			return nil, err
		}
		*way.to = &e
	}
	return out, nil
}

// Framing measures what the line adds to each packet in a direction, which carries
// about rate. Nothing else should use the line; the probes of phases end. An answer that is not sure is no error.
func (c *Client) Framing(ctx context.Context, dir Direction, rate unit.Rate) (framing.Estimate, error) {
	if rate < framing.LeastRate || rate > framing.MostRate {
		return framing.Estimate{Why: reason.Of(reason.FramingRate, "rate_bps", int(rate), "least_bps", int(framing.LeastRate), "most_bps", int(framing.MostRate))}, nil
	}
	headers := framing.HeadersIPv6
	if c.peer.Addr().Unmap().Is4() {
		headers = framing.HeadersIPv4
	}
	c.runner.silence()
	rng := rand.New(rand.NewPCG(uint64(c.clock.Now()), uint64(rate)))
	var all []framing.Train
	for pass := range framing.Passes {
		specs := framing.Trains(rate, headers, pass, rng)
		report, err := c.trains(ctx, dir, specs)
		if err != nil {
			return framing.Estimate{}, fmt.Errorf("measure the framing %s: %w", dir, err)
		}
		if report.Dropped > 0 {
			return framing.Estimate{Why: reason.Of(reason.FramingReceiver, "count", report.Dropped)}, nil
		}
		all = append(all, framing.Join(pass, headers, specs, report.Sent, report.Runs)...)
	}
	return framing.Estimated(all, rng), nil
}

const (
	trainsQuiet = 400 * time.Millisecond // of no arrivals, after which trains have come to their end
	trainsAsked = 100 * time.Millisecond // until the other end is told again where they go
	trainsRead  = time.Millisecond       // what has come is taken in as often: a socket holds few small packets
	trainsFirst = 3 * time.Second        // for the first to come
)

// trains sends trains up, or has them sent down, and returns what both ends know.
func (c *Client) trains(ctx context.Context, dir Direction, specs []probe.TrainSpec) (*probe.TrainsReport, error) {
	request := probe.Request{Op: probe.OpTrains, Dir: string(dir)}
	if dir == Down {
		request.Trains = specs
	}
	reply, err := c.control.do(ctx, request)
	if err != nil {
		return nil, err
	}
	token, err := probe.ParseToken(reply.StreamToken)
	if err != nil {
		return nil, fmt.Errorf("the server's token: %w", err)
	}
	socket, err := netio.DialDatagram(c.clock, c.peer, 0)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	sleep, err := netio.NewSleeper(c.clock)
	if err != nil {
		return nil, err
	}
	defer sleep.Close()
	release := netio.Urgent()
	defer release()
	listen := make([]byte, probe.MinSize)
	probe.PutHeader(listen, probe.Header{Kind: probe.KindListen, Token: token})
	var own probe.TrainsReport
	if dir == Up {
		own.Sent, err = c.sendTrains(ctx, socket, sleep, listen, specs)
		if err == nil {
			err = c.awaitRuns(ctx, reply.Stream)
		}
	} else {
		own.Runs, err = c.receiveTrains(ctx, socket, sleep, listen)
		own.Dropped = socket.Dropped()
	}
	ended, endErr := c.control.do(ctx, probe.Request{Op: probe.OpEnd, Stream: reply.Stream})
	if err = errors.Join(err, endErr); err != nil {
		return nil, err
	}
	if ended.Trains == nil {
		return nil, errors.New("the server's report is empty")
	}
	if dir == Up {
		ended.Trains.Sent = own.Sent
		return ended.Trains, nil
	}
	ended.Trains.Runs, ended.Trains.Dropped = own.Runs, own.Dropped
	return ended.Trains, nil
}

// sendTrains says thrice from where they come, and sends them.
func (c *Client) sendTrains(ctx context.Context, socket *netio.Datagram, sleep *netio.Sleeper, listen []byte, specs []probe.TrainSpec) ([]probe.SentTrain, error) {
	for range 3 {
		if err := socket.Send(listen); err != nil {
			return nil, err
		}
		sleep.Until(c.clock.Now().Add(trainsAsked))
	}
	source := probe.NewTrainSource(c.clock.Now(), specs)
	for {
		b, next := source.Poll(c.clock.Now())
		if next == 0 {
			return source.Sent(), nil
		}
		if b != nil {
			if err := socket.Send(b); err != nil {
				return nil, err
			}
		} else if sleep.Until(next); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// receiveTrains asks for trains until they come, and takes them in until no more come.
func (c *Client) receiveTrains(ctx context.Context, socket *netio.Datagram, sleep *netio.Sleeper, listen []byte) ([]probe.Run, error) {
	var sink probe.TrainSink
	began := c.clock.Now()
	ask := began
	for {
		now := c.clock.Now()
		last := sink.Last()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case last == 0 && now.Sub(began) > trainsFirst, last != 0 && now.Sub(last) > trainsQuiet:
			return sink.Runs(), nil
		case last == 0 && !now.Before(ask):
			if err := socket.Send(listen); err != nil {
				return nil, err
			}
			ask = now.Add(trainsAsked)
		}
		if err := socket.Drain(func(at unit.Instant, b []byte) { sink.Receive(at, len(b)) }); err != nil {
			return nil, err
		}
		sleep.Until(now.Add(trainsRead))
	}
}

// awaitRuns waits until no more of what was sent arrives at the server.
func (c *Client) awaitRuns(ctx context.Context, stream uint32) error {
	var before []probe.Run
	for {
		if err := Sleep(ctx, trainsQuiet); err != nil {
			return err
		}
		reply, err := c.control.do(ctx, probe.Request{Op: probe.OpReport, Stream: stream})
		if err != nil {
			return err
		}
		if reply.Trains == nil || slices.Equal(before, reply.Trains.Runs) {
			return nil
		}
		before = reply.Trains.Runs
	}
}
