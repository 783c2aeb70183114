package tc

import (
	"fmt"
	"strconv"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// markMask selects the bits of a connection's mark that hold its class, in the
// form that tc(8) prints.
const markMask = "0xf000000"

// cakeClasses returns CAKE with one tin per class. On egress the tin comes from
// the priority that nftables set. On an ifb it comes from the connection's
// mark; a packet of an unmarked connection goes to the normal tin, by the
// priority that the redirect sets (see unmarked).
func cakeClasses(s plan.Shaper) Tree {
	q := Qdisc{Kind: "cake", Handle: OurRoot, Parent: rootAt, Options: cakeOptions(s)}
	if s.IngressOf != "" {
		q.Options["fwmark"] = Value{Kernel: markMask}
	}
	return Tree{Qdiscs: []Qdisc{q}}
}

// unmarked returns the actions on the redirect to the ifb: set the normal class
// first, then copy the connection's mark, which overrides it. It returns none
// if the shaper has no classes. HTB needs none either: it has a default class.
func unmarked(s plan.Shaper, shares []plan.Share) []string {
	if len(shares) == 0 {
		return nil
	}
	var args []string
	for _, sh := range shares {
		if sh.Class == plan.Normal && s.AQM == plan.CAKE {
			args = append(args, "action", "skbedit", "priority", OurRoot+strconv.Itoa(int(sh.Tin)))
		}
	}
	return append(args, "action", "ctinfo", "cpmark", markMask)
}

// lanesID is the HTB class that holds the interactive class and its
// acknowledgements. Acknowledgements go first and get two thirds of its
// guaranteed rate: one ACK of 66 bytes answers two packets of 1514.
const lanesID = OurRoot + "20"

// htbClasses returns an HTB class for each class of the plan, with a fq_codel
// of its own, and one for acknowledgements. own says that a BPF program gives packets
// their classes.
func htbClasses(s plan.Shaper, shares []plan.Share, own bool, mtu int) Tree {
	t := Tree{
		Qdiscs: []Qdisc{{Kind: "htb", Handle: OurRoot, Parent: rootAt, Stab: stab(s), Options: Options{
			"default": {Kernel: "0x10"}, "direct_qlen": num(1000)}}},
		Classes: []Class{{Kind: "htb", ID: rootClass, Parent: OurRoot, Inner: true, Options: classOptions(s)}},
	}
	prio := 0
	leaf := func(tin plan.Tin, parent string, least, most unit.Rate) {
		id := OurRoot + strconv.FormatInt(int64(tin.HTBMinor()), 16)
		o := classBetween(s, max(min(least, most), plan.MinRate), most)
		o["prio"] = num(prio)
		t.Classes = append(t.Classes, Class{Kind: "htb", ID: id, Parent: parent, Options: o})
		t.Qdiscs = append(t.Qdiscs, Qdisc{Kind: "fq_codel", Handle: fmt.Sprintf("%x:", 0xb10b+prio), Parent: id, Options: fqCodelOptions(s, mtu)})
		if s.IngressOf != "" && !own {
			t.Filters = append(t.Filters, Filter{Kind: "fw", Parent: OurRoot, Protocol: "all", Pref: OurPref,
				Handle: fmt.Sprintf("0x%x/%s", int(tin)<<classify.MarkShift, markMask), Args: []string{"classid", id}})
		}
		prio++
	}
	for _, sh := range shares {
		most := sh.Limit
		if most == 0 {
			most = s.Rate
		}
		least := max(min(sh.Guarantee, most), plan.MinRate)
		acks := plan.AckTin(shares)
		switch {
		case sh.Class == plan.Interactive && acks != sh.Tin:
			t.Classes = append(t.Classes, Class{Kind: "htb", ID: lanesID, Parent: rootClass, Inner: true, Options: classBetween(s, least, most)})
			leaf(acks, lanesID, least*2/3, most)
			leaf(sh.Tin, lanesID, least/3, most)
			continue
		case sh.Class == plan.Normal:
			t.Qdiscs[0].Options["default"] = Value{Kernel: "0x" + strconv.FormatInt(int64(sh.Tin.HTBMinor()), 16)}
		}
		leaf(sh.Tin, rootClass, least, most)
	}
	sortMarks(t.Filters)
	return t
}
