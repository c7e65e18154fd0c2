// Command ondatabases runs a test program on SQLite and, if its package uses a database and PostgreSQL is available,
// at the same time on PostgreSQL: go test -exec ondatabases. Running both at once is faster, because these tests wait
// half of the time; the second run's output follows the first one's. On PostgreSQL, it runs only the tests that use a
// database, or those that go test was asked to run.
//
// Environment variables:
//
//	SLIPWAY_TEST_DSN    URL of the PostgreSQL cluster, set by withpostgres
//	SLIPWAY_TEST_BOTH   folders of the packages that run on both databases, as a list like PATH
//	SLIPWAY_TEST_NODES  those of them of which only tests of several nodes run on PostgreSQL
//	SLIPWAY_TEST_COSTS  file to which each run appends two lines: "begin SECONDS DATABASE FOLDER" with the Unix
//	                    time, and "end PROCESSOR TOOK STATUS DATABASE FOLDER" with its processor time including
//	                    children and its duration, both in seconds, and the exit status
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	cluster = "SLIPWAY_TEST_DSN"
	both    = "SLIPWAY_TEST_BOTH"
	nodes   = "SLIPWAY_TEST_NODES"
	costs   = "SLIPWAY_TEST_COSTS"
	once    = "Browser|Linters" // tests of pages and of a document, which no database changes
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -exec ondatabases …")
		os.Exit(2)
	}
	dir, err := os.Getwd() // the package's folder
	if err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		os.Exit(2)
	}
	runs := environments(os.Environ(), dir)
	if len(runs) == 1 {
		os.Exit(run(os.Args[1:], runs[0], os.Stdout))
	}
	// A file rather than a pipe: with a pipe, leftover processes of a test would block this one.
	second, err := os.CreateTemp("", "ondatabases-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		os.Exit(2)
	}
	os.Remove(second.Name())
	ended := make(chan int, 1)
	argv := append(slices.Clone(os.Args[1:]), "-test.skip="+once)
	if !slices.ContainsFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, "-test.run=") }) {
		limited, err := onDatabase(dir, slices.Contains(filepath.SplitList(os.Getenv(nodes)), dir))
		if err != nil {
			fmt.Fprintln(os.Stderr, "ondatabases:", err)
			os.Exit(2)
		}
		argv = append(argv, limited...)
	}
	again := func() { ended <- run(argv, runs[1], second) }
	apart := slices.ContainsFunc(os.Args, writesFile)
	if !apart {
		go again()
	}
	status := run(os.Args[1:], runs[0], os.Stdout)
	if apart {
		go again()
	}
	got := <-ended
	if _, err := second.Seek(0, io.SeekStart); err == nil {
		io.Copy(os.Stdout, second)
	}
	if got != 0 {
		fmt.Println("(this was the run on PostgreSQL)")
	}
	os.Exit(max(status, got))
}

// writesFile reports whether an argument makes the test program write a file, which two concurrent runs would corrupt.
func writesFile(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return strings.HasPrefix(name, "-test.") && (strings.HasSuffix(name, "profile") || name == "-test.trace" || name == "-test.gocoverdir")
}

// environments returns the environments of the runs of the package in dir.
func environments(env []string, dir string) [][]string {
	value := func(name string) (v string) {
		for _, e := range env {
			if rest, ok := strings.CutPrefix(e, name+"="); ok {
				v = rest
			}
		}
		return v
	}
	// Garbage collection settings for the go command's builds must not apply to the tests.
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return strings.HasPrefix(e, "GOGC=") || strings.HasPrefix(e, "GOMEMLIMIT=")
	})
	plain := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, cluster+"=") })
	if value(cluster) == "" || !slices.Contains(filepath.SplitList(value(both)), dir) {
		return [][]string{plain}
	}
	return [][]string{plain, env}
}

// run runs the test program with its output to out, and returns the exit status.
func run(argv, env []string, out *os.File) int {
	runtime.LockOSThread() // the parent-death signal depends on this thread
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT) // go test sends the last one to a test that hangs
	defer signal.Stop(signals)
	started := time.Now()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		return 2
	}
	note(env, "begin %.1f", float64(started.UnixMilli())/1000)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	var failed *exec.ExitError
	err := cmd.Wait()
	status := 0
	if errors.As(err, &failed) {
		status = max(1, failed.ExitCode())
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		status = 2
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	note(env, "end %.1f %.1f %d", used.Seconds(), time.Since(started).Seconds(), status)
	return status
}

// note appends a line about a run to the file of costs.
func note(env []string, format string, args ...any) {
	name := os.Getenv(costs)
	dir, err := os.Getwd()
	if name == "" || err != nil {
		return
	}
	on := "SQLite"
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, cluster+"=") }) {
		on = "PostgreSQL"
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	fmt.Fprintf(file, format+" %s %s\n", append(args, on, dir)...)
}
