package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/testkit/await"
)

// These tests use the file from other processes: this test binary, with its
// task in the environment: "PATH FIRST COUNT BYTES".
const saverEnv = "UNBLOAT_TEST_SAVER"

// TestSaverHelper saves results, and prints the id of each when it is saved.
func TestSaverHelper(t *testing.T) {
	task := strings.Fields(os.Getenv(saverEnv))
	if len(task) != 4 {
		t.Skip("SKIPPED: it only runs as a child of other tests")
	}
	first, _ := strconv.Atoi(task[1])
	count, _ := strconv.Atoi(task[2])
	size, _ := strconv.Atoi(task[3])
	for i := first; i < first+count; i++ {
		id, err := Save(context.Background(), task[0], nthRecord(i, size))
		if err != nil {
			fmt.Println("FAILED", err)
			os.Exit(3)
		}
		fmt.Println("KEPT", id)
	}
	os.Exit(0)
}

// nthRecord returns the i-th record. Its result has at least size bytes when
// compressed.
func nthRecord(i, size int) Record {
	var b strings.Builder
	for x := uint64(i); b.Len() < size; {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteString(strconv.FormatUint(x, 36))
	}
	return Record{
		Time: time.UnixMilli(1_800_000_000_000 + int64(i)), Kind: KindTest,
		Result: []byte(fmt.Sprintf(`{"schema":"unbloat.test/1","label":"%d","x":"%s"}`, i, b.String())),
	}
}

func saver(ctx context.Context, path string, first, count, size int) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestSaverHelper$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d", saverEnv, path, first, count, size))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// keptIDs returns the ids that a saver printed.
func keptIDs(out string) []string {
	var ids []string
	for _, l := range strings.SplitAfter(out, "\n") {
		if id, ok := strings.CutPrefix(l, "KEPT "); ok && strings.HasSuffix(id, "\n") {
			ids = append(ids, strings.TrimSpace(id))
		}
	}
	return ids
}

// wantKept checks that all ids can be read, and that the file is not damaged.
func wantKept(t *testing.T, path string, ids []string) {
	t.Helper()
	withStore(t, path, func(s *Store) {
		for _, id := range ids {
			if _, err := s.Get(t.Context(), id); err != nil {
				t.Errorf("%.8s was kept, and then: %v", id, err)
			}
		}
		err := s.db.query(t.Context(), "PRAGMA integrity_check", nil, func(r row) error {
			if said := r.text(0); said != "ok" {
				return errors.New(said)
			}
			return nil
		})
		if err != nil {
			t.Errorf("after %d results: %v", len(ids), err)
		}
	})
}

// TestKilled: kill -9 while saving leaves an intact file, with every result
// whose id was printed.
func TestKilled(t *testing.T) {
	await.NotShort(t)
	path := filepath.Join(t.TempDir(), "results.db")
	var ids []string
	rounds := 0
	delay := 20 * time.Millisecond
	for ; rounds < 20 || len(ids) == 0 && delay < 30*time.Second; delay += 7 * time.Millisecond {
		if rounds >= 20 { // on this machine it takes longer until the first is saved
			delay *= 2
		}
		ctx, cancel := context.WithTimeout(t.Context(), delay) // the time of death; any must do
		cmd, out := saver(ctx, path, 1000*rounds, 1000, 20_000)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		cancel()
		if strings.Contains(out.String(), "FAILED") {
			t.Fatalf("round %d: %s", rounds, out)
		}
		ids = append(ids, keptIDs(out.String())...)
		rounds++
		wantKept(t, path, ids)
	}
	t.Logf("%d processes were killed; %d results had been kept", rounds, len(ids))
	if len(ids) == 0 {
		t.Error("nothing was ever kept: the test proves nothing")
	}
}

// TestSideBySide: processes that save at the same time all succeed.
func TestSideBySide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.db")
	const processes, each = 4, 15
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	for i := range processes {
		cmd, out := saver(t.Context(), path, each*i, each, 5000)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	var ids []string
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, outs[i])
		}
		ids = append(ids, keptIDs(outs[i].String())...)
	}
	if len(ids) != processes*each {
		t.Errorf("%d results were kept, not %d", len(ids), processes*each)
	}
	wantKept(t, path, ids)
}

// TestDiskFull: if the disk is full, saving returns an error, the process goes
// on, and saved results can still be read. The test needs its own file system,
// which an unprivileged user gets in a user namespace.
func TestDiskFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: it needs Linux's unshare(1)")
	}
	for _, kib := range []int{4, 40, 200, 600} {
		dir := t.TempDir()
		path := filepath.Join(dir, "results.db")
		script := fmt.Sprintf(`mount -t tmpfs -o size=%dk none %s || exit 77
"$0" -test.run '^TestSaverHelper$'; echo EXIT $?
"$0" -test.run '^TestReaderHelper$'; echo EXIT $?`, kib, dir)
		cmd := exec.Command("unshare", "-Urm", "sh", "-c", script, os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s 0 1000 20000", saverEnv, path), readerEnv+"="+path)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 77 || strings.Contains(string(out), "Operation not permitted") {
			t.Skipf("SKIPPED: no user namespaces here: %v: %s", err, out)
		}
		if !strings.Contains(string(out), "FAILED") || !strings.Contains(string(out), ErrFull.Error()) || !strings.Contains(string(out), "EXIT 3") {
			t.Errorf("%d KiB: the saver said: %s", kib, out)
		}
		n := len(keptIDs(string(out)))
		if want := fmt.Sprintf("READ %d\n", n); n > 0 && !strings.Contains(string(out), want) {
			t.Errorf("%d KiB: %d were kept; the reader said: %s", kib, n, out)
		}
		t.Logf("%d KiB: %d results were kept before it was full", kib, n)
	}
}

const readerEnv = "UNBLOAT_TEST_READER"

// TestReaderHelper reads all results, and prints how many.
func TestReaderHelper(t *testing.T) {
	path := os.Getenv(readerEnv)
	if path == "" {
		t.Skip("SKIPPED: it only runs as a child of TestDiskFull")
	}
	s, err := OpenExisting(t.Context(), path)
	if err != nil {
		fmt.Println("UNREADABLE", err)
		os.Exit(4)
	}
	var b bytes.Buffer
	n, err := s.Export(t.Context(), &b, nil)
	if err != nil {
		fmt.Println("UNREADABLE", err)
	}
	fmt.Println("READ", n)
	os.Exit(0)
}
