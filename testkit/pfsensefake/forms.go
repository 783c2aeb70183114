package pfsensefake

import (
	"fmt"
	"strings"
)

// PipeErrors returns the errors that a limiter's form shows for these entries.
func PipeErrors(post map[string]string) []string {
	return pipeErrors(entered(post))
}

// ChildErrors returns those of the form of a limiter's queue.
func ChildErrors(post map[string]string) []string {
	return childErrors(entered(post))
}

func entered(post map[string]string) *array {
	a := newArray()
	for k, v := range post {
		a.set(k, v)
	}
	return a
}

// commonErrors returns the errors that both forms have.
func commonErrors(d *array) (out []string) {
	field := func(name string) string { return text(d.of[name]) }
	if v := field("plr"); truth(v) && (!isNumeric(v) || than(v, 0) < 0 || than(v, 1) > 0) {
		out = append(out, "Packet Loss Rate must be a value between 0 and 1.")
	}
	if v := field("buckets"); truth(v) && (!isNumeric(v) || than(v, 16) < 0 || than(v, 65535) > 0) {
		out = append(out, "Buckets must be an integer between 16 and 65535.")
	}
	if v := field("qlimit"); truth(v) && !isNumeric(v) {
		out = append(out, "Queue limit must be an integer")
	}
	for _, n := range []string{"newname", "name"} {
		if v := field(n); truth(v) && !properName(v) {
			out = append(out, "Queue names must be alphanumeric and _ or - only.")
		}
	}
	if v := field("maskbits"); v != "" && (!isNumeric(v) || than(v, 0) <= 0 || than(v, 32) > 0) {
		out = append(out, "IPv4 bit mask must be blank or numeric value between 1 and 32.")
	}
	if v := field("maskbitsv6"); v != "" && (!isNumeric(v) || than(v, 0) <= 0 || than(v, 128) > 0) {
		out = append(out, "IPv6 bit mask must be blank or numeric value between 1 and 128.")
	}
	return out
}

// properName reports whether a name has only letters, digits, _ and -. PHP's $
// also matches before a newline at the end.
func properName(s string) bool {
	s = strings.TrimSuffix(s, "\n")
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

func childErrors(d *array) []string {
	out := commonErrors(d)
	if v := text(d.of["aqm"]); truth(v) && !offered(aqms(), v) {
		out = append(out, "Selected AQM not recognized.")
	}
	if v := text(d.of["weight"]); truth(v) && !isNumeric(v) { // the range is never checked
		out = append(out, "Weight must be an integer between 1 and 100.")
	}
	return out
}

func offered(of map[string]algorithm, name string) bool { _, ok := of[name]; return ok }

func pipeErrors(d *array) []string {
	out := commonErrors(d)
	scheduled, none, entries := 0, 0, 0
	for i := range 2900 {
		field := func(name string) string { return text(d.of[fmt.Sprint(name, i)]) }
		if v := field("bwsched"); truth(v) {
			if v == "none" {
				none++
			} else {
				scheduled++
			}
		}
		v, burst := field("bandwidth"), field("burst")
		switch {
		case !truth(v):
		case !isNumeric(v):
			out = append(out, fmt.Sprintf("Bandwidth for schedule %s must be an integer.", field("bwsched")))
		case burst != "" && !isNumeric(burst):
			out = append(out, fmt.Sprintf("Burst for schedule %s must be an integer.", field("bwsched")))
		default:
			entries++
		}
	}
	if scheduled == 0 && entries > 1 {
		out = append(out, "A schedule needs to be specified for every additional entry.")
	}
	if none > 0 && entries > 1 {
		out = append(out, "If more than one bandwidth configured all schedules need to be selected.")
	}
	if entries == 0 {
		out = append(out, "At least one bw specification is necessary.")
	}
	if v := text(d.of["delay"]); truth(v) {
		switch {
		case !isNumeric(v):
			out = append(out, "Delay must be an integer.")
		case than(v, 0) < 0 || than(v, 10000) > 0:
			out = append(out, "Delay must be an integer between 0 and 10000.")
		}
	}
	if !offered(schedulers(), text(d.of["sched"])) {
		out = append(out, "Selected scheduler not recognized.")
	}
	if v := text(d.of["aqm"]); truth(v) && !offered(aqms(), v) {
		out = append(out, "Selected AQM not recognized.")
	}
	return out
}
