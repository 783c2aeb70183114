package walk_test

import (
	"encoding/json"
	"math"
	"os/exec"
	"testing"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/path"
)

// trace runs `unbloat path` on home1 and returns its result.
func trace(t *testing.T, cmd *exec.Cmd) *path.Result {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		var e *exec.ExitError
		t.Fatalf("%v: %v: %s%s", cmd.Args, err, out, func() []byte {
			if ee, ok := err.(*exec.ExitError); ok {
				e = ee
				return e.Stderr
			}
			return nil
		}())
	}
	var r path.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// Under an upload the increase begins at the uplink: the router does not slow
// down, the provider's side and the server do.
func TestLabPathUpload(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true}) {
		return
	}
	cmd := exec.CommandContext(t.Context(), labtest.Unbloat(), "path", lab.ServerAddr, "--load", lab.Server(), "--direction", "up", "--json", "--quiet")
	r := trace(t, cmd)
	for _, h := range r.Hops {
		t.Logf("%+v idle %+v loaded %+v inc %+v conf %+v", h, h.Idle, h.Loaded, h.Increase, h.Confirmed)
	}
	t.Logf("%s %v %+v %+v", r.Verdict, r.Notes, r.Load, r.Begins)
	_ = math.Abs
}
