package linux

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"unbloat/internal/host"
	"unbloat/internal/mechanism/nft"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Why says for both directions which class a packet of the flow has on this
// router, and which rule of the plan decides it now.
func Why(ctx context.Context, r host.Runner, p plan.Plan, f nft.Flow) []nft.Verdict {
	var c nft.Connection
	in := func(string, string) bool { return false }
	if p.Classes != nil && p.Classes.Behaviour != (plan.Behaviour{}) { // else the router has nothing to say about it
		c = connection(ctx, r, f)
		in = func(set, key string) bool {
			_, err := host.Output(ctx, r, "nft", "get", "element", nft.Family, nft.TableIs, set, "{ "+key+" }")
			return err == nil
		}
	}
	var out []nft.Verdict
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		out = append(out, nft.Decide(p, d, f, c, in))
	}
	return out
}

var bytesShown = regexp.MustCompile(`bytes=(\d+)`)

// connection asks connection tracking, by the file that kernels with procfs for
// it have, or by conntrack(8). Where neither is there, it is not known.
func connection(ctx context.Context, r host.Runner, f nft.Flow) nft.Connection {
	out, err := host.Output(ctx, r, "cat", "/proc/net/nf_conntrack")
	if err != nil {
		family := "ipv6"
		if f.Home.Addr().Is4() {
			family = "ipv4"
		}
		if out, err = host.Output(ctx, r, "conntrack", "-L", "-f", family, "-p", f.Protocol, "-o", "extended"); err != nil {
			return nft.Connection{}
		}
	}
	for line := range strings.Lines(string(out)) {
		if c, ok := tracked(line, f); ok {
			return c
		}
	}
	return nft.Connection{}
}

// tracked reads one line of connection tracking, if it is of this flow, whoever
// of the two began it.
func tracked(line string, f nft.Flow) (c nft.Connection, ok bool) {
	if !strings.Contains(line, " "+f.Protocol+" ") {
		return c, false
	}
	end := func(src, dst, sport, dport string) string {
		return "src=" + src + " dst=" + dst + " sport=" + sport + " dport=" + dport
	}
	home, far := f.Home.Addr().StringExpanded(), f.Far.Addr().StringExpanded()
	hp, fp := strconv.Itoa(int(f.Home.Port())), strconv.Itoa(int(f.Far.Port()))
	short, long := f.Home.Addr().String(), f.Far.Addr().String()
	ok = false
	for _, want := range []string{end(short, long, hp, fp), end(home, far, hp, fp), end(long, short, fp, hp), end(far, home, fp, hp)} {
		ok = ok || strings.Contains(line, want)
	}
	if !ok {
		return c, false
	}
	c.Known, c.Answered = true, !strings.Contains(line, "[UNREPLIED]")
	for _, m := range bytesShown.FindAllStringSubmatch(line, -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		c.Bytes += unit.Size(n)
	}
	for w := range strings.FieldsSeq(line) {
		if v, is := strings.CutPrefix(w, "mark="); is {
			n, _ := strconv.ParseUint(v, 10, 32)
			c.Mark = uint32(n)
		}
	}
	return c, true
}

var elementHome = regexp.MustCompile(`(?:tcp|udp) \. ([0-9a-fA-F.:]+) \. \d+ \. `)

// Flows counts the flows of each machine of the home that the meters know now,
// by what they say of them: "up calm", "up busy", "down calm", "down busy".
func Flows(ctx context.Context, r host.Runner) map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, d := range []string{"up", "down"} {
		for _, what := range []string{"calm", "busy"} {
			for _, n := range []string{"4", "6"} {
				text, err := host.Output(ctx, r, "nft", "list", "set", nft.Family, nft.TableIs, what+n+"_"+d)
				if err != nil {
					continue
				}
				for _, m := range elementHome.FindAllStringSubmatch(string(text), -1) {
					if out[m[1]] == nil {
						out[m[1]] = map[string]int{}
					}
					out[m[1]][d+" "+what]++
				}
			}
		}
	}
	return out
}
