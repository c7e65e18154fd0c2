// Command withpostgres runs a command with a temporary PostgreSQL cluster.
//
// SLIPWAY_TEST_DSN is the cluster's URL for the command, and SLIPWAY_TEST_TEMPLATE the database in which the first test
// program stores the schema for the others. The cluster is deleted when the command exits. As root, it runs as the user
// postgres, because PostgreSQL refuses to run as root. It listens on a Unix socket only. If PostgreSQL can't be found
// or installed, it prints a warning and exits with 77 without running the command.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slipway/scripts/internal/machine"
)

// unavailable is the exit status without PostgreSQL (test drivers use 77 for "skipped").
const unavailable = 77

func main() {
	runtime.LockOSThread() // the parent-death signal depends on this thread
	argv := os.Args[1:]
	durable := len(argv) > 0 && argv[0] == "-durable"
	if durable {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpostgres [-durable] COMMAND…")
		os.Exit(2)
	}
	if err := machine.Install("postgresql"); err != nil {
		fmt.Fprintln(os.Stderr, "NOT RUN ON POSTGRESQL:", err)
		os.Exit(unavailable)
	}
	status, err := run(argv, durable)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
	}
	os.Exit(status)
}

// run runs the command with a cluster: with fsync off, or, if durable is set, with PostgreSQL's default settings.
func run(argv []string, durable bool) (int, error) {
	bin, err := binaries()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp(place(), "slipway-pg-") // a socket's path may have at most 107 bytes
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	as, err := servant(dir)
	if err != nil {
		return 1, err
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
		// SIGINT is PostgreSQL's fast shutdown; a harder one leaks shared memory.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGINT}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
		"--no-sync", "--no-instructions").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("initdb: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 1, err
	}
	defer log.Close()
	settings := []string{"-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "shared_buffers=64MB", "-c", "max_connections=400"}
	if !durable {
		settings = append(settings, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	server := command("postgres", settings...)
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return 1, fmt.Errorf("start postgres: %w", err)
	}
	defer server.Wait()
	defer server.Process.Signal(syscall.SIGINT)
	if err := ready(command, dir); err != nil {
		said, _ := os.ReadFile(log.Name())
		return 1, fmt.Errorf("%w: %s", err, said)
	}

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	dsn := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres", RawQuery: url.Values{"host": {dir}}.Encode()}
	cmd.Env = append(os.Environ(), "SLIPWAY_TEST_DSN="+dsn.String(), "SLIPWAY_TEST_TEMPLATE=migrated")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	var failed *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &failed) {
		return max(1, failed.ExitCode()), nil
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}

// binaries returns the folder of the newest PostgreSQL.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, byVersion)), nil
	}
	path, err := exec.LookPath("postgres")
	return filepath.Dir(path), err
}

// byVersion compares programs by the version in their path: 9.6 before 17.
func byVersion(a, b string) int {
	version := func(path string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64) // paths without a version come first
		return v
	}
	return cmp.Compare(version(a), version(b))
}

// servant returns the user that PostgreSQL runs as, and gives that user the folder.
func servant(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := errors.Join(os.Chown(dir, uid, gid), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func ready(command func(string, ...string) *exec.Cmd, dir string) error {
	var last []byte
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		out, err := command("pg_isready", "-q", "-h", dir, "-U", "postgres").CombinedOutput()
		if err == nil {
			return nil
		}
		last = out
		time.Sleep(20 * time.Millisecond) // polls pg_isready, because there is nothing to wait for
	}
	return fmt.Errorf("postgres didn't become ready: %s", strings.TrimSpace(string(last)))
}

// place returns the cluster's folder: in memory, if there is room for some hundred databases, because creating and
// dropping them mostly writes files. A socket's path may have at most 107 bytes.
func place() string {
	const memory = "/dev/shm"
	var st syscall.Statfs_t
	if syscall.Statfs(memory, &st) == nil && st.Bavail*uint64(st.Bsize) > 4<<30 && syscall.Access(memory, 2) == nil {
		return memory
	}
	return "/tmp"
}
