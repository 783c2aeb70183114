package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/show/cli"
)

const comeOverLong = `With the name of a program before the FILE of its settings, prints a configuration for
"unbloat daemon" that means the same, and says what has no counterpart. Nothing is
changed. sqm is /etc/config/sqm of sqm-scripts, qosmate /etc/config/qosmate, and
cake-autorate its config.primary.sh, of which plain assignments are read. "apply" and
the daemon refuse while cake-autorate or QoSmate runs here.`

const comeOverExample = "  unbloat import sqm /etc/config/sqm > /etc/unbloat/unbloat.toml\n  unbloat import cake-autorate /root/cake-autorate/config.primary.sh"

// comeOverWords are a program and a file.
const comeOverWords = 2

// comeOverArgs takes a file of results, or a program and a file.
func comeOverArgs(c *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > comeOverWords {
		return cli.UsageError("%s: takes FILE, or one of sqm, cake-autorate, qosmate and its FILE; - is standard input (see `%s --help`)", cli.NameOf(c), c.CommandPath())
	}
	return nil
}

// mostSettings is the longest file of settings that is read.
const mostSettings = 1 << 20

// comeOver prints a rival's settings as a configuration of ours.
func comeOver(c *cobra.Command, args []string) error {
	text, err := readFile(c.InOrStdin(), args[1], mostSettings)
	if err != nil {
		return cli.UsageError("import %s: %w", args[0], err)
	}
	t, err := kept.TakeOver(kept.Rival(args[0]), args[1], text)
	if err != nil {
		return cli.UsageError("import %s: %w", args[0], err)
	}
	for _, s := range t.Left {
		cli.Say(c.ErrOrStderr(), "No counterpart: %s.", guard.VisibleLine(s, 2*mostWords))
	}
	cli.Say(c.ErrOrStderr(), "Before you use it, stop %s: %s", args[0], kept.Rival(args[0]).Stop())
	_, err = fmt.Fprint(c.OutOrStdout(), t.Text)
	return err
}

// rivalRuns returns an error if cake-autorate runs on this machine, or QoSmate is started at
// boot: they would change what we set. root is the file system's. sqm-scripts are told from
// the kernel's queues and /etc/config/sqm, by the platform.
func rivalRuns(root, doing string) error {
	refuse := func(r kept.Rival, what string) error {
		return &platform.PreconditionError{Doing: doing, What: what + ", which changes what unbloat sets", Remedy: "stop it: " + r.Stop() + "; `unbloat import " + string(r) + " FILE` takes its settings over"}
	}
	if of, _ := filepath.Glob(filepath.Join(root, "etc/rc.d/S*qosmate")); len(of) > 0 {
		return refuse(kept.RivalQoSmate, "QoSmate is started at boot")
	}
	all, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*/cmdline"))
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		words := bytes.Split(text, []byte{0})
		for _, w := range words[:min(len(words), comeOverWords)] { // the shell, and its script
			if strings.HasPrefix(filepath.Base(string(w)), "cake-autorate") && strings.HasSuffix(string(w), ".sh") {
				return refuse(kept.RivalAutorate, "cake-autorate runs")
			}
		}
	}
	return nil
}
