package bpf_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// kernelDir is where scripts/debian-kernels puts Debian's kernels.
func kernelDir(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return filepath.Join(cache, "unbloat", "debian-kernels")
}

// Programs that the guest needs, and busybox's other names there.
var (
	guestPrograms = []string{"ip", "tc", "nft", "ethtool", "kmod", "busybox"}
	guestApplets  = []string{"sh", "cat", "ls", "rm", "unshare", "sysctl"}
	guestModules  = []string{"drivers/net/ifb.ko", "drivers/net/veth.ko", "net/sched", "net/netfilter", "net/ipv4/netfilter", "net/ipv6/netfilter", "lib", "crypto", "arch/x86/crypto"}
)

// bootKernel runs this test's program as the first process on a kernel of Debian's,
// under QEMU, and returns what it printed.
func bootKernel(t testing.TB, dir, cpu, what string) string {
	t.Helper()
	for _, p := range append([]string{lab.QEMU, "depmod", "cpio", "ldd"}, guestPrograms...) {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: %s is missing; `make setup-bench` installs it", p)
		}
	}
	kernel, version := findKernel(t, dir)
	work := t.TempDir()
	initrd := filepath.Join(work, "initrd")
	packGuest(t, dir, version, initrd)
	args := []string{"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot",
		"-accel", "tcg", "-cpu", cpu, "-m", "1024", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off nolapic_timer " + guestEnv + "=" + what,
		// The guest's clock counts its instructions: what it measures is a cost, and its
		// deadlines hold however busy this machine is. To learn how fast the local APIC's
		// timer is takes QEMU five seconds then, so the kernel uses another.
		"-icount", "shift=0,sleep=off"}
	cmd := exec.CommandContext(t.Context(), lab.QEMU, args...)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, guestPassed) {
		t.Fatalf("%s: %v: %s", version, err, text)
	}
	return text
}

// findKernel returns a kernel's file and version in the unpacked packages of it.
func findKernel(t testing.TB, dir string) (kernel, version string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(filepath.Base(path), "vmlinuz") {
			kernel = path
		}
		return nil
	})
	found := modulesIn(dir)
	if kernel == "" || len(found) != 1 {
		t.Fatalf("%s has kernel %q and modules %q; remove it and run scripts/debian-kernels again", dir, kernel, found)
	}
	return kernel, filepath.Base(found[0])
}

func modulesIn(dir string) []string {
	a, _ := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	b, _ := filepath.Glob(filepath.Join(dir, "usr/lib/modules/*"))
	return append(a, b...)
}

// packGuest makes the guest's file system: this program as its first process,
// unbloat, the programs it runs, and the kernel's modules.
func packGuest(t testing.TB, dir, version, initrd string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"bin", "sbin", "dev", "proc", "sys", "tmp", "run", "lib/modules/" + version} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			to = filepath.Join(root, to)
			if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
				err = os.WriteFile(to, text, 0o755)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(self, "init")
	copyFile(labtest.Binary(t), "bin/unbloat")
	for _, p := range guestPrograms {
		path, _ := exec.LookPath(p)
		copyFile(path, "bin/"+p)
		libs, _ := exec.Command("ldd", path).Output() // fails for what is static
		for _, lib := range regexp.MustCompile(`/[^ \n]+`).FindAllString(string(libs), -1) {
			copyFile(lib, lib)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	names := "icmp 1\ntcp 6\nudp 17\nipv6-icmp 58\nudplite 136\n" // nft needs them
	if err := os.WriteFile(filepath.Join(root, "etc/protocols"), []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range guestApplets {
		link("busybox", "bin/"+a)
	}
	link("/bin/kmod", "sbin/modprobe") // what the kernel runs
	from := modulesIn(dir)[0]
	err = filepath.WalkDir(filepath.Join(from, "kernel"), func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(filepath.Join(from, "kernel"), path)
		if err == nil && !d.IsDir() && slices.ContainsFunc(guestModules, func(m string) bool { return strings.HasPrefix(rel, m) }) {
			copyFile(path, filepath.Join("lib/modules", version, "kernel", rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		if _, err := os.Stat(filepath.Join(from, f)); err == nil { // newer packages leave some to be made
			copyFile(filepath.Join(from, f), filepath.Join("lib/modules", version, f))
		}
	}
	script := `depmod -b "$1" "$2" && cd "$1" && find . | cpio -o -H newc -R 0:0 --quiet > "$3"`
	if out, err := exec.Command("sh", "-c", script, "sh", root, version, initrd).CombinedOutput(); err != nil {
		t.Fatalf("pack the guest: %v: %s", err, out)
	}
}

// costCPU is the processor whose instructions are counted.
//
// QEMU 7.2 leaves garbage in EFLAGS after a CMPXCHG16B that an interrupt follows: Linux 6.12,
// whose allocator uses it, died in seven boots of ten, and in none of six with -cx16. That in
// turn makes the allocator of 6.1 dearer, in which the cost is counted.
const costCPU = "max,-erms,-fsrm"

// TestDebianKernels applies plans with the program on Debian's kernels under QEMU,
// from Linux 5.10 on: it is loaded, attached, read back, gives packets their class,
// and is gone after a revert.
func TestDebianKernels(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it boots four kernels under QEMU; with UNBLOAT_LONG=1 it runs")
	}
	dirs, _ := filepath.Glob(filepath.Join(kernelDir(t), "*"))
	if len(dirs) == 0 {
		t.Skip("SKIPPED: there are no kernels; scripts/debian-kernels downloads them")
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			start := time.Now()
			said := regexp.MustCompile(`guest: kernel (\S+)`).FindStringSubmatch(bootKernel(t, dir, costCPU+",-cx16", "load"))
			t.Logf("%s, in %.0f s", said[1], time.Since(start).Seconds())
		})
	}
}

// What a packet may cost with a plan's default, in parts of CAKE that looks for machines
// behind NAT: where the home has one LAN, and where it has two, which plan says.
const (
	mostOfCAKE     = 0.95
	mostOfCAKETwo  = 1.15
	cakeWithNAT    = "CAKE with nat"
	defaultOneLAN  = "default"
	defaultTwoLANs = "default, two LANs"
)

// TestForwarding holds what a forwarded packet may cost. Each boot is a draw: its kernel's hashes
// have seeds of their own.
func TestForwarding(t *testing.T) {
	await.NotShort(t)
	labtest.OverDraws(t, func(d *labtest.Draw) {
		cost := forwarding(d, "promised")
		for what, most := range map[string]float64{defaultOneLAN: mostOfCAKE, defaultTwoLANs: mostOfCAKETwo} {
			if cost[what] <= 0 {
				d.Fatalf("no figure of %s", what)
			}
			d.AtMost("a packet of "+what+", in parts of "+cakeWithNAT, cost[what]/cost[cakeWithNAT], most)
		}
	})
}

// BenchmarkForwarding counts what a forwarded packet takes of a router's processor: without
// a shaper, with HTB and fq_codel, with CAKE, and with a plan's default, which has the BPF
// program.
func BenchmarkForwarding(b *testing.B) {
	for b.Loop() {
		cost := forwarding(b, "cost")
		for what, n := range cost {
			what = strings.NewReplacer(" ", "", ",", "-").Replace(strings.ToLower(what))
			b.ReportMetric(n, what+"-instructions/packet")
			b.ReportMetric(n/cost[cakeWithNAT], what+"/cake-with-nat")
		}
	}
}

// forwarding returns what a forwarded packet takes with each way to sort them, in
// instructions of Debian's kernel under QEMU, at 1000 flows. No load of this machine changes
// the figures, and from one boot to the next they move by some per mille.
func forwarding(t testing.TB, what string) map[string]float64 {
	t.Helper()
	dir := filepath.Join(kernelDir(t), "6.1")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("SKIPPED: scripts/debian-kernels has not downloaded it: %v", err)
	}
	text := bootKernel(t, dir, costCPU, what)
	cost := map[string]float64{}
	for _, m := range regexp.MustCompile(`guest: cost "([^"]+)" (-?\d+) instructions`).FindAllStringSubmatch(text, -1) {
		cost[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	if cost[cakeWithNAT] <= 0 {
		t.Fatalf("no figures: %s", text)
	}
	t.Logf("instructions for each packet: %s", strings.Join(regexp.MustCompile(`guest: cost .*`).FindAllString(text, -1), "; "))
	return cost
}
