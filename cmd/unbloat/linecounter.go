package main

import (
	"sync"

	"unbloat/internal/measure/netio"
)

// lineCounter returns what reads the bytes of an interface of this machine.
func lineCounter() func(device string) (received, sent uint64, ok bool) {
	counter, err := netio.OpenLinkCounter()
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	return func(device string) (uint64, uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		var out [1]netio.LinkCounts
		if err := counter.Read([]string{device}, out[:]); err != nil || out[0].Index == 0 {
			return 0, 0, false
		}
		return out[0].RxBytes, out[0].TxBytes, true
	}
}
