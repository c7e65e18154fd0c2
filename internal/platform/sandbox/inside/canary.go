package inside

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CanaryArg makes the helper try the forbidden actions.
const CanaryArg = "--canary"

// Attempt is one forbidden action and its result.
type Attempt struct {
	Action  string
	Refused bool
	Detail  string // how it was refused, or what it obtained
}

// Bait holds the canary's targets, which exist on the host.
type Bait struct {
	Pid      int               // a process of the host
	Spaces   map[string]string // the host's namespaces by name
	Port     int               // a TCP listener on the host's loopback
	Other    string            // a file in another site's work directory
	Env      string            // environment value of a process outside
	Abstract string            // an abstract unix socket of the host
}

var spaceNames = []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"}

// Spaces returns the namespaces of this process by name.
func Spaces() map[string]string {
	m := map[string]string{}
	for _, n := range spaceNames {
		m[n], _ = os.Readlink("/proc/self/ns/" + n)
	}
	return m
}

func canary(told string, out io.Writer) int {
	var t Bait
	if err := json.Unmarshal([]byte(told), &t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := json.NewEncoder(out).Encode(forbidden(t)); err != nil {
		return 2
	}
	return 0
}

// forbidden tries the twelve actions, then the protections behind them. An action returns an error if it was refused.
func forbidden(t Bait) []Attempt {
	runtime.LockOSThread() // some actions would change the thread
	all := []struct {
		name string
		try  func(Bait) error
	}{
		{"read the host's /etc/shadow", readShadow},
		{"see the host's processes", seeProcesses},
		{"connect to the host's loopback", func(t Bait) error {
			return connects("tcp", fmt.Sprintf("127.0.0.1:%d", t.Port), fmt.Sprintf("[::1]:%d", t.Port),
				fmt.Sprintf("[::ffff:127.0.0.1]:%d", t.Port))
		}},
		{"connect to the metadata address and private ranges", func(Bait) error {
			return connects("tcp", "169.254.169.254:80", "[fd00:ec2::254]:80", "10.0.0.1:80", "172.16.0.1:80",
				"192.168.0.1:80", "100.64.0.1:80")
		}},
		{"make a user namespace", makeNamespace},
		{"mount", tryMount},
		{"trace the parent", trace},
		{"use kernel keys", func(Bait) error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
			return err
		}},
		{"write to /usr and /", writeSystem},
		{"open another site's work directory", func(t Bait) error { return opens(t.Other) }},
		{"see the environment of the control plane", func(t Bait) error { return environs(t.Env) }},
		{"reach an abstract unix socket of the host", func(t Bait) error { return connects("unix", t.Abstract) }},
		{"hold a capability or gain one", capable},
		{"share a namespace with the host", shares},
		{"open a raw, packet or vsock socket", sockets},
		{"use bpf, perf, io_uring or userfaultfd", kernelDoors},
	}
	got := make([]Attempt, 0, len(all))
	for _, a := range all {
		err := a.try(t)
		at := Attempt{Action: a.name, Refused: err != nil, Detail: "it worked"}
		if err != nil {
			at.Detail = err.Error()
		}
		got = append(got, at)
	}
	return got
}

// opens returns nil if the file can be opened in any way.
func opens(file string) error {
	var errs []error
	for _, prefix := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/../../../../..", "/build/../.."} {
		f, err := os.Open(prefix + file)
		if err == nil {
			_ = f.Close()
			return nil
		}
		errs = append(errs, err)
	}
	return errs[0]
}

func readShadow(Bait) error { return opens("/etc/shadow") }

func seeProcesses(t Bait) error {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		line, _ := os.ReadFile(name)
		if bytes.Contains(line, []byte("\x00hold\x00")) {
			return nil
		}
	}
	return errors.New("only our own processes are there")
}

func connects(network string, addresses ...string) (err error) {
	for _, a := range addresses {
		var c net.Conn
		if c, err = net.DialTimeout(network, a, 500*time.Millisecond); err == nil {
			_ = c.Close()
			return nil
		}
	}
	return err
}

func makeNamespace(Bait) error {
	if _, _, e := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0); e == 0 {
		return nil
	}
	// Try clone with the flag; a child must exit at once.
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if e == 0 {
		return nil
	}
	if _, _, e3 := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e3 != unix.ENOSYS {
		return nil // clone3 hides its flags, so it must look absent
	}
	return e
}

func tryMount(Bait) error {
	err := unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "")
	if err == nil {
		return nil
	}
	if fd, err := unix.Fsopen("tmpfs", 0); err == nil {
		_ = unix.Close(fd)
		return nil
	}
	if err := unix.Chroot("/tmp"); err == nil {
		return nil
	}
	if err := unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err == nil {
		return nil
	}
	return err
}

func trace(Bait) error {
	for _, pid := range []int{1, os.Getppid()} {
		if err := unix.PtraceAttach(pid); err == nil {
			return nil
		}
		if f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/mem", os.O_RDWR, 0); err == nil {
			var b [1]byte
			_, err = f.ReadAt(b[:], 4096)
			_ = f.Close()
			if err == nil {
				return nil
			}
		}
	}
	b := make([]byte, 1)
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	if _, err := unix.ProcessVMReadv(1, local, []unix.RemoteIovec{{Base: 4096, Len: 1}}, 0); !errors.Is(err, unix.EPERM) {
		return nil
	}
	return unix.EPERM
}

func writeSystem(Bait) error {
	for _, p := range []string{
		"/usr/canary", "/usr/bin/canary", "/canary", "/etc/canary", "/dev/canary", "/run/canary", "/lib/canary",
		Self, "/etc/passwd",
	} {
		if f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_ = f.Close()
			return nil
		}
	}
	return unix.EROFS
}

func environs(secret string) error {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, n := range append(names, "/proc/self/environ") {
		text, _ := os.ReadFile(n)
		if bytes.Contains(text, []byte(secret)) {
			return nil
		}
	}
	return errors.New("no environment contains it")
}

func capable(Bait) error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	want := map[string]string{"CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "0", "CapAmb": "0", "NoNewPrivs": "1", "Seccomp": "2"}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(line, ":")
		w, ok := want[k]
		if !ok {
			continue
		}
		v = strings.TrimLeft(strings.TrimSpace(v), "0")
		if v == "" {
			v = "0"
		}
		if v != w {
			return nil
		}
		delete(want, k)
	}
	if len(want) > 0 || os.Getuid() == 0 {
		return nil
	}
	return errors.New("no capability, no new privileges, filter on")
}

func shares(t Bait) error {
	for name, link := range Spaces() {
		if link == "" || link == t.Spaces[name] {
			return nil
		}
	}
	return errors.New("all seven are its own")
}

func sockets(Bait) error {
	for _, s := range [][3]int{
		{unix.AF_PACKET, unix.SOCK_RAW, 0},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	} {
		if fd, err := unix.Socket(s[0], s[1], s[2]); err == nil {
			_ = unix.Close(fd)
			return nil
		}
	}
	return unix.EAFNOSUPPORT
}

func kernelDoors(Bait) error {
	for _, nr := range []uintptr{
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_IO_URING_SETUP, unix.SYS_USERFAULTFD,
		unix.SYS_OPEN_BY_HANDLE_AT,
	} {
		if _, _, e := unix.RawSyscall6(nr, 0, 0, 0, 0, 0, 0); e != unix.EPERM {
			return nil
		}
	}
	return unix.EPERM
}
