// Package bpf has the rules of package classify as a BPF program, which is a
// filter of CAKE's own. It keeps connections, machines and ports in arrays of its
// own, so it needs neither nftables nor connection tracking.
//
// classify.Own is its state in Go. On the lab's kernel random packets get the same
// class from the program as from the table over that.
package bpf

// Building needs no clang: the objects for both byte orders are kept beside the
// source. Debian's clang-19 and llvm-19 make them.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -tags linux,!omit_bpf -target bpfel,bpfeb -no-global-types classifier classifier.c -- -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter
