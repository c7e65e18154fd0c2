// Command ondatabases runs a test program on SQLite and, where its package needs a database
// and PostgreSQL is there, once more on PostgreSQL: go test -exec ondatabases.
//
// SLIPWAY_TEST_DSN names the PostgreSQL cluster; withpostgres sets it. SLIPWAY_TEST_BOTH
// lists the folders of the packages that run on both, as PATH lists folders. What is built
// for one run is not built again for the other.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

const (
	cluster = "SLIPWAY_TEST_DSN"
	both    = "SLIPWAY_TEST_BOTH"
	once    = "Browser|Linters" // tests of pages and of a document, which no database changes
)

func main() {
	runtime.LockOSThread() // the test program dies with the thread that started it
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -exec ondatabases …")
		os.Exit(2)
	}
	dir, err := os.Getwd() // which is the package's
	if err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		os.Exit(2)
	}
	status := 0
	for i, env := range environments(os.Environ(), dir) {
		argv := os.Args[1:]
		if i > 0 {
			argv = append(argv, "-test.skip="+once)
		}
		got := run(argv, env)
		if got != 0 && i > 0 {
			fmt.Println("(this was the run on PostgreSQL)")
		}
		status = max(status, got)
	}
	os.Exit(status)
}

// environments returns those of the runs of the package in dir.
func environments(env []string, dir string) [][]string {
	value := func(name string) (v string) {
		for _, e := range env {
			if rest, ok := strings.CutPrefix(e, name+"="); ok {
				v = rest
			}
		}
		return v
	}
	plain := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, cluster+"=") })
	if value(cluster) == "" || !slices.Contains(filepath.SplitList(value(both)), dir) {
		return [][]string{plain}
	}
	return [][]string{plain, env}
}

// run runs the test program and returns its exit status.
func run(argv, env []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT) // go test sends the last to see where one hangs
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		return 2
	}
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
	switch err := cmd.Wait(); {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		return max(1, failed.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "ondatabases:", err)
		return 2
	}
}
