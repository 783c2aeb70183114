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
// page fault) is several system calls of the host.
//
//   - Processes are stopped by seccomp, which takes fewer of these than ptrace. As Linux
//     has it each process installs a filter of its own, and a Linux 6.18 host was seen to
//     deadlock in its BPF compiler when a thousand of them ended at once. Here the kernel
//     installs one before it starts the first process, and all inherit it. By the address
//     of a call it tells those of the kernel and of the stub's program, which is linked to
//     the same place, from the guest's; so the kernel is linked statically, and does not
//     use the host's vDSO. Where there is no seccomp, ptrace stops them.
//   - The clock is read without a system call. Time stands still while a process runs,
//     but for 256 ns a reading. The vDSO adds these itself, 64 times, in the page that
//     each address space shares with the kernel, which advances its clock by as much
//     at the next stop.
//   - A write to an anonymous page makes those around it too, as reading a file does.
//     PR_SET_THP_DISABLE turns it off, for who counts pages.
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
	{"arch/um/os-Linux/skas/process.c", "		current_mm_sync();\n", "		current_mm_sync();\n		clock_lend((void *)mm_id->stack);\n"},
	{"arch/um/os-Linux/skas/process.c", "		UPT_SYSCALL_NR(regs) = -1;", "		clock_return((void *)mm_id->stack);\n		UPT_SYSCALL_NR(regs) = -1;"},

	{"arch/um/os-Linux/skas/process.c", "#include <stdlib.h>\n", `#include <stdlib.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
`},
	{"arch/um/os-Linux/skas/process.c", "static int stub_exe_fd;\n", `static int stub_exe_fd;

#define OWN_PROGRAMS 0x60000000 /* the kernel's and the stub's: 16 MB */

/* trap_guest has the system calls of this process's children trapped, but for those of
 * the stub, by its page's address or its program's. */
static void trap_guest(void)
{
#define ADDRESS(upper) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4 * (upper))
	struct sock_filter filter[] = {
		ADDRESS(0),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff000000),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_PROGRAMS, 0, 2),
		ADDRESS(1),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, 0), /* allow */
		ADDRESS(0),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfffff000),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STUB_START & 0xfffff000, 0, 3), /* or trap */
		ADDRESS(1),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STUB_START >> 32, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog prog = { ARRAY_SIZE(filter), filter };
	static int trapped;

	if (trapped)
		return;
	trapped = 1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		panic("install the seccomp filter: %d", errno);
}
`},
	{"arch/um/os-Linux/skas/process.c", "	if (using_seccomp)\n		proc_data->futex", "	if (using_seccomp)\n		trap_guest();\n	if (using_seccomp)\n		proc_data->futex"},
	{"arch/um/kernel/skas/stub_exe.c", `		if (stub_syscall3(__NR_seccomp, SECCOMP_SET_MODE_FILTER,
				  SECCOMP_FILTER_FLAG_TSYNC,
				  (unsigned long)&prog) != 0)`, `		(void)prog; /* the kernel has installed one */
		if (stub_syscall2(__NR_kill, stub_syscall0(__NR_getpid), SIGSYS) != 0)`},
	{"arch/um/kernel/skas/Makefile", "STUB_EXE_LDFLAGS = -Wl,-n -static", "STUB_EXE_LDFLAGS = -Wl,-n -static -Wl,-Ttext-segment=0x60000000"},
	{"arch/um/os-Linux/time.c", "#include <time.h>\n", `#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#define clock_gettime(clock, now) syscall(__NR_clock_gettime, clock, now)
`},

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
