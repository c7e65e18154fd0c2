package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter decides correctly about corner cases of all architectures. The test runs it in a BPF virtual machine,
// while the canary tests it in the kernel.
func TestFilter(t *testing.T) {
	t.Parallel()
	machines := map[bool]*bpf.VM{}
	for _, uncounted := range []bool{false, true} {
		vm, err := bpf.NewVM(program(uncounted))
		if err != nil {
			t.Fatal(err)
		}
		machines[uncounted] = vm
	}
	const (
		allow   = retAllow
		eperm   = retErrno | int(unix.EPERM)
		nosys   = retErrno | int(unix.ENOSYS)
		noproto = retErrno | int(unix.EPROTONOSUPPORT)
		noaf    = retErrno | int(unix.EAFNOSUPPORT)
	)
	for name, tt := range map[string]struct {
		arch uint32
		nr   uint32
		args [3]uint64
		want int

		uncounted bool
	}{
		"read":                         {nr: unix.SYS_READ, want: allow},
		"execve":                       {nr: unix.SYS_EXECVE, want: allow},
		"mount":                        {nr: unix.SYS_MOUNT, want: eperm},
		"keyctl":                       {nr: unix.SYS_KEYCTL, want: eperm},
		"ptrace":                       {nr: unix.SYS_PTRACE, want: eperm},
		"io_uring":                     {nr: unix.SYS_IO_URING_SETUP, want: eperm},
		"fallocate":                    {nr: unix.SYS_FALLOCATE, want: retErrno | int(unix.EOPNOTSUPP)},
		"clone3":                       {nr: unix.SYS_CLONE3, want: nosys},
		"fsopen":                       {nr: unix.SYS_FSOPEN, want: nosys},
		"clone of a thread":            {nr: unix.SYS_CLONE, args: [3]uint64{unix.CLONE_VM | unix.CLONE_THREAD}, want: allow},
		"clone with a user namespace":  {nr: unix.SYS_CLONE, args: [3]uint64{unix.CLONE_NEWUSER | 17}, want: eperm},
		"clone with a net namespace":   {nr: unix.SYS_CLONE, args: [3]uint64{unix.CLONE_NEWNET | 17}, want: eperm},
		"ioctl TCGETS":                 {nr: unix.SYS_IOCTL, args: [3]uint64{0, 0x5401}, want: allow},
		"ioctl TIOCSTI":                {nr: unix.SYS_IOCTL, args: [3]uint64{0, unix.TIOCSTI}, want: eperm},
		"ioctl TIOCSTI with high bits": {nr: unix.SYS_IOCTL, args: [3]uint64{0, 1<<32 | unix.TIOCSTI}, want: eperm},
		"ioctl TIOCLINUX":              {nr: unix.SYS_IOCTL, args: [3]uint64{0, unix.TIOCLINUX}, want: eperm},
		"socket unix":                  {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_UNIX}, want: allow},
		"socket inet":                  {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_INET}, want: allow},
		"socket inet6":                 {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_INET6}, want: allow},
		"socket netlink route":         {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_NETLINK, 3, unix.NETLINK_ROUTE}, want: allow},
		"socket netlink audit":         {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_NETLINK, 3, unix.NETLINK_AUDIT}, want: noaf},
		"socket packet":                {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_PACKET}, want: noaf},
		"socket vsock":                 {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_VSOCK}, want: noaf},
		"socket tcp": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP},
			want: allow,
		},
		"socket udp over IPv6": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
			want: allow,
		},
		"socket icmp over IPv6": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
			want: allow,
		},
		"socket mptcp": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
			want: noproto,
		},
		"socket udp-lite": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
			want: noproto,
		},
		"socket sctp": {
			nr:   unix.SYS_SOCKET,
			args: [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
			want: noproto,
		},
		"socket unix with a protocol": {nr: unix.SYS_SOCKET, args: [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM, 1}, want: allow},
		"io_setup":                    {nr: unix.SYS_IO_SETUP, want: nosys},
		"cachestat":                   {nr: unix.SYS_CACHESTAT, want: nosys},
		"memfd_create":                {nr: unix.SYS_MEMFD_CREATE, want: allow},
		"memfd_create uncounted":      {nr: unix.SYS_MEMFD_CREATE, uncounted: true, want: nosys},
		"read uncounted":              {nr: unix.SYS_READ, uncounted: true, want: allow},
		"socketpair unix":             {nr: unix.SYS_SOCKETPAIR, args: [3]uint64{unix.AF_UNIX}, want: allow},
		"socketpair tipc":             {nr: unix.SYS_SOCKETPAIR, args: [3]uint64{unix.AF_TIPC}, want: noaf},
		"32-bit":                      {arch: 0x40000003, nr: unix.SYS_READ, want: retKill},
	} {
		// The virtual machine loads big-endian words, the kernel native ones.
		packet := make([]byte, offArg+6*8)
		arch := tt.arch
		if arch == 0 {
			arch = auditArch
		}
		binary.BigEndian.PutUint32(packet[offNr:], tt.nr)
		binary.BigEndian.PutUint32(packet[offArch:], arch)
		for i, a := range tt.args {
			binary.BigEndian.PutUint32(packet[offArg+8*i:], uint32(a))
			binary.BigEndian.PutUint32(packet[offArg+8*i+4:], uint32(a>>32))
		}
		if got, err := machines[tt.uncounted].Run(packet); err != nil || uint32(got) != uint32(tt.want) {
			t.Errorf("%s: %#x, %v, want %#x", name, got, err, tt.want)
		}
	}
}
