package follow

import "time"

const (
	below         = 0.95
	busyShare     = 0.5
	fullShare     = 0.8
	near          = 0.03
	rounded       = 0.01
	ratesOver     = 200 * time.Millisecond
	starvedFor    = 150 * time.Millisecond
	openFor       = 100 * time.Millisecond
	moment        = 2 * time.Second
	growth        = 5 * time.Millisecond
	guessAfter    = 150 * time.Millisecond
	guessShare    = 0.7
	riseEvery     = 200 * time.Millisecond
	riseFirst     = .01
	riseFaster    = 1.28
	riseMost      = .25
	riseVolatile  = .06
	riseFirstMost = .10
	riseBack      = .10
	retryShare    = .15
	retryMost     = 15 * time.Minute
	steadyBand    = .15
	holdsFirst    = 20 * time.Second
	holdsMost     = 10 * time.Hour
	holdsMean     = .3
	volatile      = 2.0
	markQueued    = 3 * time.Millisecond
	markSpan      = 120 * time.Millisecond
	spreadMost    = 60 * time.Millisecond
	ownMost       = 120 * time.Millisecond
	ownAgain      = 30 * time.Second
	ownFor        = 10 * time.Minute
	outageAfter   = 250 * time.Millisecond
	outageShare   = .1
	outageAgain   = 5 * time.Second
	blindAfter    = time.Second
	blindHold     = 30 * time.Second
	glideIn       = 30 * time.Second
	idleAfter     = 10 * time.Second
	idleShare     = .01
	alertFor      = 3 * time.Second
	stepBusy      = 50 * time.Millisecond
	stepIdle      = 200 * time.Millisecond
	clearFor      = 1500 * time.Millisecond
	drainDown     = .5
	leastDown     = .3
	drainUp       = .25
	leastUp       = .2
	dipMost       = 350 * time.Millisecond
	dipUnsure     = 250 * time.Millisecond
	dipBack       = .7
	dipMore       = .15
	dipLess       = .1
	varying       = 10.0
)
