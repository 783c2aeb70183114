package dummynet

import "fmt"

// ShownQueue writes the queue's line of `dnctl queue show`.
func ShownQueue(q Queue) string {
	slots := q.Slots
	if slots == 0 {
		slots = DefaultSlots
	}
	drops := "droptail"
	if q.CoDel != "" {
		drops = " AQM CoDel " + q.codelShown()
	}
	return fmt.Sprintf("q%05d %3d sl. 0 flows (1 buckets) sched %d weight %d lmax 0 pri 0 %s", q.Number, slots, q.Sched, q.Weight, drops)
}
