package tc

// measure is the type of an option's value: how JSON, canonical text and
// arguments write it.
type measure int

const (
	number      measure = iota // a plain number
	rate                       // JSON: bytes/s; canonical: bit/s
	micros                     // µs
	codelTime                  // µs, which the kernel keeps in units of 1024 ns
	size                       // bytes
	bucket                     // bytes, which tc(8) converts to ticks at `rate`
	latency                    // tbf: µs; only a limit in bytes sets it exactly
	flag                       // on and off words
	word                       // the value is the argument, perhaps spelled differently
	hexadecimal                // 0x10, given without the prefix
	list                       // a list of numbers
)

// A field is one option of a kind: its name in tc -j, its argument, its unit,
// and the kernel's default, which applies when the field is not printed.
type field struct {
	json    string
	arg     string
	unit    measure
	deflt   string
	off     string            // flag: the argument that clears it; arg sets it
	words   map[string]string // word: canonical → argument, where they differ
	fixed   bool              // set at creation only
	quiet   bool              // omitted at its default: older versions don't know it
	skip    bool              // a counter or a derived value: neither compared nor rendered
	of      string            // bucket: the field that holds its rate
	noInner bool              // class: hidden by the kernel while it has children
}

// A schema lists the options of one kind of qdisc or class.
type schema struct {
	fields []field
	change bool // the kernel can change it in place
}

// qdiscSchema returns the options of a kind of qdisc; ok is false for a kind
// that cannot be rebuilt from what tc(8) shows.
func qdiscSchema(kind string) (s schema, ok bool) {
	switch kind {
	case "htb":
		return schema{fields: []field{
			{json: "default", arg: "default", unit: hexadecimal, deflt: "0x0"},
			{json: "r2q", arg: "r2q", deflt: "10", quiet: true},
			{json: "direct_qlen", arg: "direct_qlen"},
			{json: "direct_packets_stat", skip: true},
			{json: "ver", skip: true},
			{json: "offload", arg: "offload", unit: flag, deflt: "0", fixed: true},
		}}, true
	case "cake":
		return schema{change: true, fields: cakeFields()}, true
	case "fq_codel":
		return schema{change: true, fields: append(codelFields("10240"),
			field{json: "flows", arg: "flows", deflt: "1024", fixed: true},
			field{json: "quantum", arg: "quantum"},
			field{json: "memory_limit", arg: "memory_limit", deflt: "33554432", quiet: true},
			field{json: "drop_batch", arg: "drop_batch", deflt: "64", quiet: true})}, true
	case "codel":
		return schema{change: true, fields: codelFields("1000")}, true
	case "pfifo", "bfifo", "pfifo_head_drop":
		return schema{change: true, fields: []field{{json: "limit", arg: "limit"}}}, true
	case "hfsc":
		return schema{fields: []field{{json: "default", arg: "default", unit: word, deflt: "0"}}}, true
	case "fq":
		return schema{change: true, fields: fqFields()}, true
	default:
		return otherSchema(kind)
	}
}

// otherSchema holds the kinds that only foreign shapers use.
func otherSchema(kind string) (s schema, ok bool) {
	switch kind {
	case "tbf":
		return schema{change: true, fields: []field{
			{json: "rate", arg: "rate", unit: rate},
			{json: "burst", arg: "burst", unit: bucket, of: "rate"},
			{json: "lat", arg: "limit", unit: latency},
			{json: "limit", arg: "limit"},
			{json: "mpu", arg: "mpu", unit: size, deflt: "0", quiet: true},
			{json: "linklayer", arg: "linklayer", unit: word, deflt: "ethernet", quiet: true},
		}}, true
	case "sfq":
		return schema{fields: []field{
			// An explicit limit also caps the flows, so the default one is
			// omitted.
			{json: "limit", arg: "limit", deflt: "127", quiet: true}, {json: "quantum", arg: "quantum"},
			{json: "depth", arg: "depth", deflt: "127", quiet: true}, {json: "flows", arg: "flows", deflt: "128", quiet: true}, {json: "divisor", arg: "divisor", deflt: "1024", fixed: true},
			{json: "perturb", arg: "perturb", deflt: "0", quiet: true},
		}}, true
	case "prio":
		return schema{change: true, fields: []field{
			{json: "bands", arg: "bands", deflt: "3"}, {json: "priomap", arg: "priomap", unit: list},
			{json: "multiqueue", unit: flag, skip: true},
		}}, true
	case "ets":
		return schema{change: true, fields: []field{
			{json: "bands", arg: "bands"}, {json: "strict", arg: "strict", deflt: "0"},
			{json: "quanta", arg: "quanta", unit: list}, {json: "priomap", arg: "priomap", unit: list},
		}}, true
	case "pie":
		return schema{change: true, fields: []field{
			{json: "limit", arg: "limit", deflt: "1000"}, {json: "target", arg: "target", unit: micros},
			{json: "tupdate", arg: "tupdate", unit: micros}, {json: "alpha", arg: "alpha"}, {json: "beta", arg: "beta"},
			{json: "ecn", arg: "ecn", off: "noecn", unit: flag, deflt: "0"},
			{json: "bytemode", arg: "bytemode", off: "nobytemode", unit: flag, deflt: "0"},
		}}, true
	case "drr", "qfq", "mq", "noqueue", "ingress", "clsact":
		return schema{}, true
	}
	return schema{}, false
}

func codelFields(limit string) []field {
	return []field{
		{json: "limit", arg: "limit", deflt: limit},
		{json: "target", arg: "target", unit: codelTime, deflt: "4999"},
		{json: "interval", arg: "interval", unit: codelTime, deflt: "99999"},
		{json: "ce_threshold", arg: "ce_threshold", unit: codelTime},
		{json: "ecn", arg: "ecn", off: "noecn", unit: flag, deflt: "0"},
	}
}

func cakeFields() []field {
	same := func(json string, deflt string) field { return field{json: json, unit: word, deflt: deflt} }
	onOff := func(json, on, off, deflt string) field {
		return field{json: json, arg: on, off: off, unit: flag, deflt: deflt}
	}
	return []field{
		{json: "bandwidth", arg: "bandwidth", unit: rate, deflt: "0"},
		same("diffserv", "diffserv3"),
		same("flowmode", "triple-isolate"),
		onOff("nat", "nat", "nonat", "0"),
		onOff("wash", "wash", "nowash", "0"),
		onOff("ingress", "ingress", "egress", "0"),
		{json: "ack-filter", unit: word, deflt: "disabled", words: map[string]string{
			"disabled": "no-ack-filter", "enabled": "ack-filter", "aggressive": "ack-filter-aggressive"}},
		onOff("split_gso", "split-gso", "no-split-gso", "1"),
		{json: "rtt", arg: "rtt", unit: micros, deflt: "100000"},
		onOff("raw", "raw", "", "0"),
		same("atm", "noatm"),
		{json: "overhead", arg: "overhead", deflt: "0"},
		{json: "mpu", arg: "mpu", deflt: "0"},
		{json: "memlimit", arg: "memlimit", deflt: "0", quiet: true},
		{json: "fwmark", arg: "fwmark", unit: word, deflt: "0", quiet: true},
	}
}

func fqFields() []field {
	return []field{
		{json: "limit", arg: "limit", deflt: "10000"}, {json: "flow_limit", arg: "flow_limit", deflt: "100"},
		{json: "buckets", arg: "buckets", deflt: "1024"}, {json: "orphan_mask", arg: "orphan_mask"},
		{json: "quantum", arg: "quantum"}, {json: "initial_quantum", arg: "initial_quantum"},
		{json: "maxrate", arg: "maxrate", unit: rate}, {json: "low_rate_threshold", arg: "low_rate_threshold", unit: rate},
		{json: "refill_delay", arg: "refill_delay", unit: micros}, {json: "timer_slack", skip: true},
		{json: "ce_threshold", arg: "ce_threshold", unit: micros}, {json: "horizon", arg: "horizon", unit: micros},
		{json: "horizon_drop", arg: "horizon_drop", off: "horizon_cap", unit: flag, deflt: "0"},
	}
}

// classSchema returns the options of a kind of class. Kinds that create their
// classes themselves (the flows of fq_codel, the bands of prio) have none.
func classSchema(kind string) (s schema, ok bool) {
	switch kind {
	case "htb":
		return schema{change: true, fields: []field{
			{json: "prio", arg: "prio", deflt: "0", noInner: true},
			{json: "quantum", arg: "quantum", noInner: true},
			{json: "rate", arg: "rate", unit: rate},
			{json: "ceil", arg: "ceil", unit: rate},
			{json: "linklayer", arg: "linklayer", unit: word, deflt: "ethernet", quiet: true},
			{json: "overhead", arg: "overhead", deflt: "0", quiet: true},
			{json: "mpu", arg: "mpu", unit: size, deflt: "0", quiet: true},
			{json: "burst", arg: "burst", unit: bucket, of: "rate"},
			{json: "cburst", arg: "cburst", unit: bucket, of: "ceil"},
			{json: "level", skip: true},
			{json: "burst_cell", skip: true}, {json: "cburst_cell", skip: true}, {json: "mpu_ceil", skip: true},
		}}, true
	case "hfsc":
		return schema{change: true, fields: []field{
			{json: "sc", arg: "sc", unit: list}, {json: "rt", arg: "rt", unit: list},
			{json: "ls", arg: "ls", unit: list}, {json: "ul", arg: "ul", unit: list},
		}}, true
	case "drr":
		return schema{change: true, fields: []field{{json: "quantum", arg: "quantum", unit: size}}}, true
	case "qfq":
		return schema{change: true, fields: []field{{json: "weight", arg: "weight"}, {json: "maxpkt", arg: "maxpkt"}}}, true
	}
	return schema{}, false
}

// stabSchema returns the options of a size table, which any root qdisc may carry.
func stabSchema() schema {
	return schema{fields: []field{
		{json: "mtu", arg: "mtu", deflt: "2047"},
		{json: "tsize", arg: "tsize", deflt: "512"},
		{json: "mpu", arg: "mpu", deflt: "0"},
		{json: "overhead", arg: "overhead", deflt: "0"},
		{json: "linklayer", arg: "linklayer", unit: word},
	}}
}
