package household

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"unbloat/internal/measure/verdict"
)

//go:embed torrent.py
var torrentScript []byte

// torrentPieces of 256 KiB are more than a line of 100 Mbit/s moves in minutes.
const (
	torrentPieces = 16384
	torrentBin    = 250 * time.Millisecond
)

// torrent is a libtorrent client in the home, in a swarm of libtorrent
// sessions on the server node.
type torrent struct {
	task      Task
	dir       string
	far, home *program
}

// torrentTask is the script's argument.
type torrentTask struct {
	Dir       string   `json:"dir"`
	Transport string   `json:"transport"`
	Pieces    int      `json:"pieces"`
	BinMs     int      `json:"bin_ms"`
	Peers     []string `json:"peers"`
	Address   string   `json:"address"` // of the home's client
	Seconds   float64  `json:"seconds"`
}

// torrentReport is what the script prints at its end.
type torrentReport struct {
	Series    verdict.Series `json:"series"`
	Connected int            `json:"connected"`
	Error     string         `json:"error"`
}

func (t *torrent) prepare(ctx context.Context) (err error) {
	// Debian's own: the binding is no module of any other Python.
	const python = "/usr/bin/python3"
	if out, err := in(ctx, t.task.Home.ServerNode, python, "-c", "import libtorrent").CombinedOutput(); err != nil {
		return fmt.Errorf("needs libtorrent for %s: apt-get install python3-libtorrent: %w: %s", python, err, out)
	}
	if err := t.task.giveAddresses(ctx, t.task.Load.Peers); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("/dev/shm", "torrent-"); err != nil {
		return err
	}
	script := filepath.Join(t.dir, "torrent.py")
	if err := os.WriteFile(script, torrentScript, 0o644); err != nil {
		return err
	}
	d := t.task.Phase - t.task.Load.Start
	if t.task.Load.Stop > 0 {
		d = t.task.Load.Stop - t.task.Load.Start
	}
	config := torrentTask{Transport: t.task.Load.Transport, Pieces: torrentPieces, BinMs: int(torrentBin.Milliseconds()),
		Address: "0.0.0.0", Seconds: d.Seconds()}
	for k := 1; k <= t.task.Load.Peers; k++ {
		config.Peers = append(config.Peers, t.task.address(k))
	}
	for _, side := range []struct {
		role, node string
		program    **program
	}{{"far", t.task.Home.ServerNode, &t.far}, {"home", t.task.Home.Node, &t.home}} {
		config.Dir = filepath.Join(t.dir, side.role)
		text, err := json.Marshal(config)
		if err != nil {
			return err
		}
		p, err := start(ctx, side.node, python, script, side.role, string(text))
		if err != nil {
			return err
		}
		*side.program = p
		if s, err := p.line(); err != nil {
			return err
		} else if s != Ready {
			return p.failed(fmt.Errorf("said %q, not %q", s, Ready))
		}
	}
	return nil
}

func (t *torrent) run(context.Context, time.Duration) (*Outcome, error) {
	for _, p := range []*program{t.far, t.home} {
		if err := p.say("go"); err != nil {
			return nil, err
		}
	}
	home, err := t.report(t.home)
	if err != nil {
		return nil, err
	}
	if err := t.far.say("stop"); err != nil {
		return nil, err
	}
	far, err := t.report(t.far)
	if err != nil {
		return nil, err
	}
	return &Outcome{Down: &home.Series, Up: &far.Series, QoE: QoE{Torrent: &TorrentResult{
		Peers: t.task.Load.Peers, Connected: far.Connected, Transport: t.task.Load.Transport,
	}}}, nil
}

func (t *torrent) report(p *program) (*torrentReport, error) {
	line, err := p.line()
	if err != nil {
		return nil, err
	}
	var r torrentReport
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return nil, p.failed(err)
	}
	if r.Error != "" {
		return nil, fmt.Errorf("libtorrent: %s", r.Error)
	}
	return &r, nil
}

func (t *torrent) close() {
	t.home.end()
	t.far.end()
	if t.dir != "" {
		_ = os.RemoveAll(t.dir)
	}
}
