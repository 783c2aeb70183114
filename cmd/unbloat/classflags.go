package main

import (
	"context"

	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// classFlags are the flags about classes of traffic.
type classFlags struct {
	classes    string
	rules      []string
	classifier string
}

func (f *classFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.classes, "classes", "", "on, off, or a `FILE` of rules (docs/classes.md; default: on where the platform can)")
	fs.StringArrayVar(&f.rules, "rule", nil, "a `RULE` that gives traffic a class, as in class=voice,protocol=udp,far_port=19302-19309 (may be repeated)")
	fs.StringVar(&f.classifier, "classifier", "", "bpf: judge flows by a BPF program (Linux) even where it slows the router down; nft: the default")
}

// mostClassFile is the maximum size of a file of rules: enough for 128 rules
// with some hundred thousand addresses.
const mostClassFile = 4 * unit.MB

// preferences reads the file and the rules.
func (f *classFlags) preferences() (plan.ClassPreferences, error) {
	var w plan.ClassPreferences
	switch f.classes {
	case "", plan.ClassesOn, plan.ClassesOff:
		w.Use = f.classes
	default:
		text, err := readFile(nil, f.classes, mostClassFile)
		if err != nil {
			return w, cli.UsageError("read the classes: %w", err)
		}
		if w, err = plan.ParseClasses(f.classes, text); err != nil {
			return w, cli.UsageError("%w", err)
		}
	}
	for _, s := range f.rules {
		r, err := plan.ParseRule(s)
		if err != nil {
			return w, cli.UsageError("--rule: %w", err)
		}
		w.Rules = append(w.Rules, r)
	}
	switch f.classifier {
	case "":
	case string(plan.ByNFT), string(plan.ByBPF):
		w.Classifier = plan.Classifier(f.classifier)
	default:
		return w, cli.UsageError("--classifier %q: use nft or bpf", f.classifier)
	}
	if w.Use == plan.ClassesOff && len(w.Rules) > 0 {
		return w, cli.UsageError("--classes off and --rule: a rule needs classes")
	}
	return w, nil
}

// names resolves on the router the names of machines in the rules.
func (r *router) names(ctx context.Context, w plan.ClassPreferences, caps *plan.Capabilities) {
	for _, rule := range w.Rules {
		for _, h := range rule.Home {
			if kind, _ := plan.KindOfHost(h); kind == plan.HostName {
				if r.driver.Classes != nil {
					caps.Hosts = r.driver.Classes.Hosts(ctx, r.runner)
				}
				return
			}
		}
	}
}
