package apply_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// without is a Runner on whose router some tools are not installed.
type without struct {
	*linuxfake.Kernel
	tools []string
}

func (w *without) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	for _, t := range w.tools {
		if argv[0] == t {
			return nil, nil, &platform.MissingToolError{Tool: t}
		}
	}
	return w.Kernel.Run(ctx, argv, stdin)
}

// TestWithoutTools: the error names a missing tool. Without unshare(1) features
// cannot be tested in advance, so a missing module shows only during the
// change, which is then undone, and no foreign shaper is replaced.
func TestWithoutTools(t *testing.T) {
	p := smallPlan(t)
	begin := func(k *linuxfake.Kernel, replace bool, tools ...string) error {
		r := &without{k, tools}
		e := fakeEngine(t, k)
		defer os.RemoveAll(e.Dir)
		e.Runner, e.Backend = r, &linux.Backend{Runner: r, Replace: replace}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err == nil {
			tr.Close()
		}
		return err
	}
	var pre *platform.PreconditionError
	for _, tool := range []string{"tc", "ip"} {
		k := linuxfake.New()
		if err := begin(k, false, tool); !errors.As(err, &pre) || !strings.Contains(err.Error(), "install") || len(k.Ran) > 0 {
			t.Errorf("without %s: %v, ran %q", tool, err, k.Ran)
		}
	}
	if err := begin(linuxfake.New(), false, "unshare"); err != nil {
		t.Errorf("without unshare: %v", err)
	}
	k := linuxfake.New()
	k.Missing = []string{"cake"}
	start := k.Text()
	if err := begin(k, false, "unshare"); !errors.As(err, &pre) || !strings.Contains(err.Error(), "modprobe sch_cake") || k.Text() != start {
		t.Errorf("without unshare and cake: %v, and the state is\n%s", err, k.Text())
	}
	k = linuxfake.New()
	if _, _, err := k.Run(t.Context(), strings.Fields("tc qdisc add dev wan root handle 8001: tbf rate "+(1*unit.MbitPerSecond).Tc()+" burst 3000 limit 30000"), nil); err != nil {
		t.Fatal(err)
	}
	start = k.Text()
	if err := begin(k, true, "unshare"); !errors.As(err, &pre) || k.Text() != start {
		t.Errorf("replacing what can't be tried out: %v", err)
	}
}
