package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/path"
	"unbloat/internal/show/cli"
	"unbloat/reason"
)

// marksUsage explains --marks of plan and doctor.
const marksUsage = "also say what follows from the marks in `FILE`, the output of \"unbloat path --marks --json\" (- is standard input)"

// readMarks reads what `unbloat path --marks --json` printed; nil without a file.
func readMarks(stdin io.Reader, file string) (*path.Marks, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readFile(stdin, file, maxResultBytes)
	if err != nil {
		return nil, fmt.Errorf("read what became of marks: %w", err)
	}
	var r path.Result
	if err := json.Unmarshal(text, &r); err != nil || r.Schema != path.Schema || r.Marks == nil {
		return nil, cli.UsageError("--marks %s is not what `unbloat path --marks --json` prints; measure it again with that command", file)
	}
	return r.Marks, nil
}

// marksFinding is what the doctor says of marks; false if nothing follows.
func marksFinding(m *path.Marks) (platform.Finding, bool) {
	if len(m.Follows) == 0 {
		return platform.Finding{}, false
	}
	return platform.Finding{
		ID: "marks", What: strings.Join(reason.Texts(m.Told()), "; "), Why: strings.Join(reason.Texts(m.Follows), "; "),
		Remedy: "what changes them is beyond this router; `unbloat plan --marks FILE` says it beside the plan, and --ecn off makes one without ECN where the queue is fq_codel",
	}, true
}
