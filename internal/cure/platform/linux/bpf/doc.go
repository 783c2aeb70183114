// Package bpf has the decision table of package classify as a BPF program, which is a
// filter of the shaper's own. It keeps flows, machines and ports in arrays of its
// own, so it needs neither nftables nor connection tracking.
//
// On the lab's kernel random packets get the same class from both.
package bpf

// Building needs no clang: the objects for both byte orders are kept beside the
// source. Debian's clang-19 and llvm-19 make them, without what a debugger wants.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -tags linux -target bpfel,bpfeb -no-global-types classifier classifier.c -- -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter
//go:generate llvm-objcopy-19 --remove-section=.BTF.ext --remove-section=.rel.BTF.ext --remove-section=.llvm_addrsig classifier_bpfel.o
//go:generate llvm-objcopy-19 --remove-section=.BTF.ext --remove-section=.rel.BTF.ext --remove-section=.llvm_addrsig classifier_bpfeb.o
