package daemon

import (
	"fmt"
	"testing"
	"time"
)

// TestEvents: the newest are remembered, of each not more than a person reads, as they were. What
// came of a change is said of the event that made it, once.
func TestEvents(t *testing.T) {
	var l events
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	what := make([]string, 30)
	for i := range what {
		what[i] = fmt.Sprint(i)
	}
	for i := range mostEvents + 10 {
		e := Happening{WAN: "eth0", Kind: EventApplied, Undone: UndoneMay, Change: fmt.Sprint(i), What: what[:i%len(what)]}
		if i%2 == 1 {
			e.WAN = "eth1"
		}
		l.add(at.Add(time.Duration(i)*time.Second), e)
	}
	clear(what) // they are another's
	all := l.newest(func(Happening) bool { return true })
	if len(all) != mostEvents || all[mostEvents-1].Change != "10" || all[mostEvents-1].N != 11 || all[0].Time != at.Add((mostEvents+9)*time.Second).Format(time.RFC3339) {
		t.Fatalf("%d are remembered, from %+v to %+v", len(all), all[len(all)-1], all[0])
	}
	for i, e := range all {
		if n := int(e.N-1) % 30; len(e.What) != min(n, 20) || n > 0 && e.What[0] != "0" || i > 0 && e.N+1 != all[i-1].N {
			t.Errorf("%+v", e)
		}
	}
	if one := l.newest(func(e Happening) bool { return e.WAN == "eth1" }); len(one) != mostEvents/2 || one[0].N != mostEvents+10 {
		t.Errorf("of one line %d are remembered", len(one))
	}
	l.settle("100", UndoneYes)
	l.settle("100", UndoneNo)
	l.settle("1", UndoneNo) // forgotten
	may := l.newest(func(e Happening) bool { return e.Undone == UndoneMay })
	yes := l.newest(func(e Happening) bool { return e.Undone == UndoneYes })
	if len(may) != mostEvents-1 || len(yes) != 1 || yes[0].Change != "100" {
		t.Errorf("%d may be undone, and undone is %+v", len(may), yes)
	}
	if none := l.newest(func(Happening) bool { return false }); none == nil {
		t.Error("nothing is null")
	}
}
