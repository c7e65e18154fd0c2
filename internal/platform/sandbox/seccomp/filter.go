// Package seccomp owns the filter of system calls for sandboxes, as a BPF program for the kernel.
package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter is Flatpak's deny list, for its reasons (flatpak-run.c), plus bpf, userfaultfd, io_uring and the rest of
// the new mount API. With --disable-userns and no capabilities, most of these are already refused; the filter also
// reduces the kernel's attack surface.

// Results of a filter (seccomp(2)).
const (
	retKill  = 0x80000000 // kills the process
	retErrno = 0x00050000
	retAllow = 0x7fff0000
)

// Offsets in struct seccomp_data. Both supported architectures are little endian, so the low word of argument n is at
// offArg + 8n.
const (
	offNr   = 0
	offArch = 4
	offArg  = 16
)

// refused lists calls that return EPERM.
var refused = []uint32{
	unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY, // keyrings have no namespaces
	unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_SET_MEMPOLICY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_MEMFD_SECRET,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_VHANGUP, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
}

// unknown lists calls that return ENOSYS, so that libraries fall back to calls whose arguments can be checked: clone3
// hides its flags behind a pointer (CVE-2021-41133).
var unknown = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_IO_SETUP,  // its contexts are limited for the whole host (fs.aio-max-nr)
	unix.SYS_CACHESTAT, // reveals which pages of shared files others have read
}

// unsupported lists calls that return EOPNOTSUPP, as on file systems without them. fallocate could take the whole disk
// between two checks of its usage; posix_fallocate falls back to writing.
var unsupported = []uint32{unix.SYS_FALLOCATE}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// protocols lists the allowed protocols of internet sockets; 0 is the socket type's default. Builds don't need others,
// such as MPTCP, SCTP and UDP-Lite, and their kernel code is attack surface; libraries fall back to TCP.
var protocols = []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}

// Supported reports whether there is a filter for this architecture.
func Supported() bool { return auditArch != 0 }

// Filter returns the program as struct sock_filter records for bwrap --seccomp. uncounted says that no cgroup counts
// the command's memory.
func Filter(uncounted bool) ([]byte, error) {
	if !Supported() {
		return nil, errors.New("no seccomp filter is written for this processor architecture")
	}
	raw, err := bpf.Assemble(program(uncounted))
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	var b bytes.Buffer
	for _, r := range raw {
		_ = binary.Write(&b, binary.LittleEndian, struct {
			Op     uint16
			Jt, Jf uint8
			K      uint32
		}{r.Op, r.Jt, r.Jf, r.K})
	}
	return b.Bytes(), nil
}

func program(uncounted bool) []bpf.Instruction {
	errno := func(e unix.Errno) bpf.Instruction { return bpf.RetConstant{Val: retErrno | uint32(e)} }
	load := func(off uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: off, Size: 4} }
	equal := func(v uint32, yes, no uint8) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: yes, SkipFalse: no}
	}
	p := []bpf.Instruction{
		load(offArch), // a 32-bit call has other numbers
		equal(auditArch, 1, 0),
		bpf.RetConstant{Val: retKill},
		load(offNr),
	}
	if x32 { // the x32 ABI has the same arch value and sets bit 30
		p = append(p, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1}, bpf.RetConstant{Val: retKill})
	}
	for _, n := range append(append([]uint32(nil), refused...), refusedHere...) {
		p = append(p, equal(n, 0, 1), errno(unix.EPERM))
	}
	missing := unknown
	if uncounted { // such a file's memory belongs to no process
		missing = append(slices.Clone(unknown), unix.SYS_MEMFD_CREATE)
	}
	for _, n := range missing {
		p = append(p, equal(n, 0, 1), errno(unix.ENOSYS))
	}
	for _, n := range unsupported {
		p = append(p, equal(n, 0, 1), errno(unix.EOPNOTSUPP))
	}
	// clone with any namespace flag.
	p = append(p, equal(unix.SYS_CLONE, 0, 4),
		load(offArg),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipTrue: 0, SkipFalse: 1},
		errno(unix.EPERM),
		bpf.RetConstant{Val: retAllow})
	// ioctl TIOCSTI and TIOCLINUX inject input into the terminal (CVE-2017-5226). Like the kernel, compare 32 bits of
	// the request (CVE-2019-10063).
	p = append(p, equal(unix.SYS_IOCTL, 0, 5),
		load(offArg+8),
		equal(unix.TIOCSTI, 1, 0),
		equal(unix.TIOCLINUX, 0, 1),
		errno(unix.EPERM),
		bpf.RetConstant{Val: retAllow})
	// socket and socketpair: allow only families and protocols that builds need; of netlink only route, for getifaddrs.
	for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		internet := []bpf.Instruction{load(offArg + 16)}
		for i, n := range protocols {
			internet = append(internet, equal(n, uint8(len(protocols)-i), 0)) // skip the remaining checks and the refusal
		}
		internet = append(internet, errno(unix.EPROTONOSUPPORT), bpf.RetConstant{Val: retAllow})
		body := []bpf.Instruction{
			load(offArg),
			equal(unix.AF_UNIX, 5, 0),
			equal(unix.AF_INET, 6, 0),
			equal(unix.AF_INET6, 5, 0),
			equal(unix.AF_NETLINK, 0, 3),
			load(offArg + 16),
			equal(unix.NETLINK_ROUTE, 0, 1),
			bpf.RetConstant{Val: retAllow},
			errno(unix.EAFNOSUPPORT),
		}
		body = append(body, internet...)
		p = append(p, equal(call, 0, uint8(len(body))))
		p = append(p, body...)
	}
	return append(p, bpf.RetConstant{Val: retAllow})
}
