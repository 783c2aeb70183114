package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A sourceChange replaces a text that a file of the kernel's source has once.
type sourceChange struct{ file, old, new string }

const hostRandom = "UNBLOAT_LAB_HOST_RANDOM"

// kernelChanges are what the lab's kernel is that Debian's source is not. None is in
// the network.
//
// No random numbers of the host, unless the environment has hostRandom. Without them
// all the guest's own come from its boot, which is the same every time, and from the
// seed that its first process gives. In virtual time the kernel makes its first ones
// from its own clock; in real time it would wait for ever, so a shell has the host's.
//
// The others are for speed: whatever stops a process of the guest (a system call, a
// page fault) is half a dozen system calls of the host.
//
//   - The clock is read without a system call. Time stands still while a process runs,
//     but for 256 ns a reading. The vDSO adds these itself, 64 times, in the page that
//     each address space shares with the kernel, which advances its clock by as much
//     at the next stop.
//   - A process gets its floating point registers back only if they are not those that
//     were read when it stopped. A signal's handler may change them, a system call can't.
//   - A write to an anonymous page makes those around it too, as reading a file does:
//     a fault costs three stops. PR_SET_THP_DISABLE turns it off, for who counts pages.
//     Of a file, half a megabyte around is mapped, not 64 kB.
var kernelChanges = []sourceChange{
	{
		"arch/um/os-Linux/util.c", "return getrandom(buf, len, flags);",
		"extern char *getenv(const char *); return getenv(\"" + hostRandom + "\") ? getrandom(buf, len, flags) : -1;",
	},

	{"arch/um/include/shared/skas/stub-data.h", "#define FUTEX_IN_CHILD 0", `#define FUTEX_IN_CHILD 0
#define STUB_DATA_MARK 0x5354554244415441 /* in the vDSO, where STUB_DATA belongs */
#define CLOCK_READINGS 64
#define CLOCK_READING_NS 256 /* TIMER_MULTIPLIER */`},
	{"arch/um/include/shared/skas/stub-data.h", "	unsigned short mctx_offset;\n", `	unsigned short mctx_offset;

	/* not where a fault's handler writes, at the beginning */
	int clock_readings; /* that are left until the next system call */
	unsigned long long clock_ns[2]; /* by clockid_t */
`},
	{"arch/um/include/shared/skas/stub-data.h", "sigstack[UM_KERN_PAGE_SIZE] __aligned(UM_KERN_PAGE_SIZE);\n};\n", `sigstack[UM_KERN_PAGE_SIZE] __aligned(UM_KERN_PAGE_SIZE);
};

void clock_lend(struct stub_data *stub);
void clock_return(struct stub_data *stub);
`},
	{"arch/x86/um/vdso/um_vdso.c", "#include <asm/unistd.h>", "#include <asm/unistd.h>\n#include <skas/stub-data.h>"},
	{"arch/x86/um/vdso/um_vdso.c", `int __vdso_clock_gettime(clockid_t clock, struct __kernel_timespec *ts)
{
	long ret;
`, `static struct stub_data *const volatile stub_data = (void *)STUB_DATA_MARK;

int __vdso_clock_gettime(clockid_t clock, struct __kernel_timespec *ts)
{
	struct stub_data *stub = stub_data;
	long ret;

	if ((clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC) && stub->clock_readings > 0) {
		stub->clock_readings--;
		stub->clock_ns[CLOCK_REALTIME] += CLOCK_READING_NS;
		stub->clock_ns[CLOCK_MONOTONIC] += CLOCK_READING_NS;
		ts->tv_sec = stub->clock_ns[clock] / 1000000000;
		ts->tv_nsec = stub->clock_ns[clock] % 1000000000;
		return 0;
	}
`},
	{"arch/x86/um/vdso/vma.c", "#include <linux/init.h>", "#include <linux/init.h>\n#include <skas/stub-data.h>"},
	{"arch/x86/um/vdso/vma.c", "	copy_page(page_address(um_vdso), vdso_start);", `	copy_page(page_address(um_vdso), vdso_start);
	for (int i = 0; i < PAGE_SIZE / sizeof(long); i++) {
		unsigned long *word = (unsigned long *)page_address(um_vdso) + i;

		if (*word == STUB_DATA_MARK)
			*word = STUB_DATA;
	}`},
	{"arch/um/kernel/time.c", "#include <shared/init.h>", "#include <shared/init.h>\n#include <skas/stub-data.h>"},
	{"arch/um/kernel/time.c", "static struct clocksource timer_clocksource = {", `void clock_lend(struct stub_data *stub)
{
	unsigned long flags;

	stub->clock_readings = 0;
	if (time_travel_mode != TT_MODE_INFCPU)
		return;
	local_irq_save(flags);
	stub->clock_ns[CLOCK_REALTIME] = ktime_get_real_ns();
	stub->clock_ns[CLOCK_MONOTONIC] = ktime_get_ns();
	local_irq_restore(flags);
	stub->clock_readings = CLOCK_READINGS;
}

void clock_return(struct stub_data *stub)
{
	if (time_travel_mode == TT_MODE_INFCPU && stub->clock_readings < CLOCK_READINGS)
		time_travel_update_time_rel((CLOCK_READINGS - stub->clock_readings) * CLOCK_READING_NS);
}

static struct clocksource timer_clocksource = {`},
	{"arch/um/os-Linux/skas/process.c", "			if (put_fp_registers(pid, regs->fp)) {", `			clock_lend((void *)mm_id->stack);
			if (put_fp_if_changed(pid, regs->fp)) {`},
	{"arch/um/os-Linux/skas/process.c", "		UPT_SYSCALL_NR(regs) = -1;", `		if (!using_seccomp)
			clock_return((void *)mm_id->stack);
		UPT_SYSCALL_NR(regs) = -1;`},

	{"arch/um/os-Linux/skas/process.c", "			if (get_fp_registers(pid, regs->fp)) {", "			if (get_fp(pid, status, regs->fp)) {"},
	{"arch/um/os-Linux/skas/process.c", "static int unscheduled_userspace_iterations;", `static int fp_pid; /* whose registers are still fp_read */
static char fp_read[1 << 14];

static int get_fp(int pid, int status, unsigned long *fp)
{
	int err = get_fp_registers(pid, fp);
	int syscall = WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80);

	fp_pid = 0;
	if (!err && syscall && host_fp_size <= sizeof(fp_read)) {
		memcpy(fp_read, fp, host_fp_size);
		fp_pid = pid;
	}
	return err;
}

static int put_fp_if_changed(int pid, unsigned long *fp)
{
	if (pid == fp_pid && memcmp(fp_read, fp, host_fp_size) == 0)
		return 0;
	return put_fp_registers(pid, fp);
}

static int unscheduled_userspace_iterations;`},

	{"arch/um/kernel/trap.c", "	} while (!pte_present(*pte));\n	err = 0;\n", `	} while (!pte_present(*pte));
	err = 0;
	if (is_user && is_write && vma_is_anonymous(vma) && !mm_flags_test(MMF_DISABLE_THP_COMPLETELY, mm)) {
		unsigned long at = max(vma->vm_start, address & ~0xffffUL);
		unsigned long end = min(vma->vm_end, (address | 0xffff) + 1);

		for (; at < end; at += PAGE_SIZE) {
			pte = pte_offset_kernel(pmd, at);
			if (pte_none(*pte) &&
			    handle_mm_fault(vma, at, flags, NULL) & (VM_FAULT_RETRY | VM_FAULT_COMPLETED))
				return 0; /* with the lock released */
		}
	}
`},
	{"mm/memory.c", "\t65536 >> PAGE_SHIFT;", "\t524288 >> PAGE_SHIFT;"},
}

// changeSource makes the changes in a tree of the kernel's source.
func changeSource(tree string) error {
	for _, c := range kernelChanges {
		file := filepath.Join(tree, c.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), c.old); n != 1 {
			return fmt.Errorf("%s has %q %d times, not once: the recipe does not know this kernel", c.file, c.old, n)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
