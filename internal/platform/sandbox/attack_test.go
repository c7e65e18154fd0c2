package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/inside"
)

// hidden holds the files that the attack "hide" keeps open.
var hidden []*os.File

// The test binary is also the attacker in the sandbox and, in one test, a control plane to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside.Name { // if the helper is a separate program
		os.Exit(inside.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "attack" {
		os.Exit(attack(os.Args[2], os.Args[3:]))
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: these tests need bubblewrap 0.8 or newer; install it with: apt-get install bubblewrap")
		os.Exit(1)
	}
	os.Exit(runTests(m))
}

// helper is the path of the program that runs inside the sandbox; by default the test binary itself. With the race
// detector, the test binary needs more memory than the sandbox allows, so the attacker is a binary without it.
var helper, plainHelper string

const helperVar = "SANDBOX_TEST_HELPER"

func runTests(m *testing.M) int {
	helper = os.Getenv(helperVar)
	if raced && helper == "" {
		dir, err := os.MkdirTemp("", "sandbox-helper-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		helper = filepath.Join(dir, "helper")
		build := exec.Command("go", "test", "-c", "-o", helper, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil || os.Chmod(dir, 0o755) != nil {
			fmt.Fprintf(os.Stderr, "build helper: %v\n%s", err, out)
			return 1
		}
	}
	if helper == "" {
		self, err := os.Executable()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		helper, plainHelper = self, "/proc/self/exe" // through the link, because a site's uid may not have access to the directory
	} else {
		plainHelper = helper
	}
	return m.Run()
}

// attackArgv returns the command line of an attack.
func attackArgv(name string, args ...string) []string {
	return append([]string{inside.Self, "attack", name}, args...)
}

func attack(name string, args []string) int {
	self := func(name string, args ...string) *exec.Cmd {
		c := exec.Command("/proc/self/exe", append([]string{"attack", name}, args...)...)
		c.Stdout = os.Stdout
		return c
	}
	switch name {
	case "memory": // many processes, so that a limit per process isn't enough
		go func() {
			for range 3 {
				_ = self("eat").Start()
			}
		}()
		fallthrough
	case "eat":
		var hold [][]byte
		for {
			b := make([]byte, 8<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			hold = append(hold, b)
			if len(hold) > 4096 {
				fmt.Println("took it all")
				return 0
			}
		}
	case "forks":
		n := 0
		for ; n < 2000; n++ {
			if err := self("hang").Start(); err != nil {
				fmt.Println("refused after", n, err)
				hang()
			}
		}
		fmt.Println("never refused")
		hang()
	case "fill": // many files, each below the limit per file
		b := make([]byte, 1<<20)
		for i := 0; ; i++ {
			f, err := os.Create(filepath.Join(args[0], "fill"+strconv.Itoa(i)))
			if err != nil {
				fmt.Println(err)
				hang()
			}
			for range 4 {
				_, _ = f.Write(b)
			}
			_ = f.Close()
		}
	case "memfd": // files in memory that no process maps
		b := make([]byte, 1<<20)
		for i := range 512 {
			fd, err := unix.MemfdCreate("hidden", 0)
			if err != nil {
				fmt.Println("refused after", i, err)
				return 0
			}
			_, _ = unix.Write(fd, b)
		}
		hang()
	case "terminals":
		for i := 0; ; i++ {
			f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil || i == 200 {
				fmt.Println(i)
				return 0
			}
			hidden = append(hidden, f)
		}
	case "hide": // deleted files that are still open
		b := make([]byte, 1<<20)
		for i := 0; ; i++ {
			f, err := os.Create(filepath.Join(args[0], "hide"))
			if err != nil {
				hang()
			}
			_ = os.Remove(f.Name())
			for range 4 {
				_, _ = f.Write(b)
			}
			hidden = append(hidden, f) // stays open until the process ends
		}
	case "dark": // in a directory with mode 0
		_ = os.Mkdir(Root+"/dark", 0o700)
		f, err := os.Create(Root + "/dark/f")
		if err != nil {
			return 3
		}
		_ = os.Chmod(Root+"/dark", 0)
		b := make([]byte, 1<<20)
		for range 24 {
			_, _ = f.Write(b)
		}
		hang()
	case "inodes":
		for i := 0; ; i++ {
			if f, err := os.Create(Root + "/i" + strconv.Itoa(i)); err == nil {
				_ = f.Close()
			}
		}
	case "flood":
		b := []byte(strings.Repeat("all work and no play\n", 1000))
		for {
			if _, err := os.Stdout.Write(b); err != nil {
				return 1
			}
		}
	case "daemons": // new sessions, forked twice, ignoring every signal that can be ignored
		for range 3 {
			c := self("daemon", args...)
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := c.Run(); err != nil {
				return 1
			}
		}
		fmt.Println("ready")
		if len(args) > 1 && args[1] == "leave" {
			return 0
		}
		hang()
	case "daemon":
		c := self("deaf", args...)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return 1
		}
	case "deaf":
		for s := unix.Signal(1); s < 65; s++ {
			ignore(s)
		}
		hang()
	case "hang":
		fmt.Println("ready")
		hang()
	case "dial":
		c, err := net.DialTimeout("tcp", args[0], time.Second)
		if err != nil {
			fmt.Println("refused:", err)
			return 0
		}
		_ = c.Close()
		fmt.Println("connected")
	case "say": // like a client that doesn't know the proxy
		c, err := net.DialTimeout("tcp", args[0], 5*time.Second)
		if err != nil {
			fmt.Println(err)
			return 0
		}
		if _, err := fmt.Fprint(c, args[1]); err != nil { // after this reports a reset, reads return EOF
			fmt.Println(err)
			return 0
		}
		_ = c.(*net.TCPConn).CloseWrite()
		text, err := io.ReadAll(c)
		fmt.Printf("%s %v\n", text, err)
	case "texts": // size of a name's TXT records
		texts, err := net.LookupTXT(args[0])
		fmt.Println(len(strings.Join(texts, "")), err)
	case "answer": // a server that prints a line on SIGTERM
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, unix.SIGTERM)
		go func() {
			<-stop
			fmt.Println("stopping")
			_ = l.Close()
		}()
		fmt.Println("listening")
		for {
			c, err := l.Accept()
			if err != nil {
				return 7
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	case "show":
		fmt.Println("uid", os.Getuid(), "gid", os.Getgid(), "pid", os.Getpid())
		dir, _ := os.Getwd()
		fmt.Println("dir", dir)
		var l unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
		fmt.Println("nofile", l.Max)
		_ = unix.Getrlimit(unix.RLIMIT_CORE, &l)
		fmt.Println("core", l.Max)
		for _, f := range []string{"/proc/1/cmdline", "/proc/1/environ"} {
			text, _ := os.ReadFile(f)
			fmt.Printf("%s %q\n", f, text)
		}
		for _, d := range []string{"/", "/run/slipway", "/proc/self/fd"} {
			names, _ := filepath.Glob(d + "/*")
			fmt.Println("ls", d, strings.Join(names, " "))
		}
		for _, kv := range os.Environ() {
			fmt.Println("env", kv)
		}
	case "write":
		if err := os.WriteFile(args[0], []byte("made inside"), 0o644); err != nil {
			fmt.Println(err)
			return 1
		}
	case "exit":
		n, _ := strconv.Atoi(args[0])
		fmt.Fprintln(os.Stderr, "going")
		return n
	case "alternate":
		for i := range 500 {
			fmt.Fprintf([]io.Writer{os.Stdout, os.Stderr}[i%2], "line %d\n", i)
		}
	case "abort":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	case "spin":
		for range 2 {
			go func() {
				//lint:ignore SA5002 this attack spins
				for {
				}
			}()
		}
		hang()
	case "serve": // a control plane with one command
		return serve(args[0], args[1], args[2])
	}
	return 0
}

func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

func ignore(s unix.Signal) { signalIgnore(s) }

// lines calls f for each whole line written to it.
type lines struct {
	w    *io.PipeWriter
	done chan struct{}
}

func newLines(f func(string)) *lines {
	r, w := io.Pipe()
	l := &lines{w, make(chan struct{})}
	go func() {
		defer close(l.done)
		for s := bufio.NewScanner(r); s.Scan(); {
			f(s.Text())
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	return l
}

func (l *lines) Write(p []byte) (int, error) { return l.w.Write(p) }
