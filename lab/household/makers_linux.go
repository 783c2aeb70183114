package household

import "unbloat/lab/scenario"

// newMaker returns what makes a load, nil for a kind that it does not know.
func newMaker(t Task) maker {
	switch t.Load.Kind {
	case scenario.Upload, scenario.Download, scenario.VoIP, scenario.UDP:
		return &native{task: t}
	case scenario.Game:
		return newGame(t)
	case scenario.CloudGame:
		return &cloudGame{game{task: t}}
	case scenario.Torrent:
		return &torrent{task: t}
	case scenario.IMAP:
		return &mail{task: t}
	case scenario.Web:
		return &web{site: site{task: t}}
	case scenario.DNS:
		return &names{task: t}
	case scenario.SSH:
		return &shell{task: t}
	case scenario.Video:
		return &video{site{task: t}}
	case scenario.WebRTC:
		return &calls{task: t}
	case scenario.QUICUpload, scenario.QUICDownload:
		return &quicFlows{task: t}
	}
	return nil
}
