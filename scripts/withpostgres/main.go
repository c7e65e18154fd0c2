// Command withpostgres runs a command with a throw-away PostgreSQL cluster.
//
// SLIPWAY_TEST_DSN names the cluster to the command, SLIPWAY_TEST_TEMPLATE the database in which the first test program keeps the
// schema for the others; the cluster ends with the command, and nothing of it stays. It runs as the user postgres where this is root,
// because PostgreSQL refuses root, and listens on a Unix socket alone. Where PostgreSQL is not there and can't be
// installed, it says so loudly and exits 77 without running the command.
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

// Unavailable is the exit status where there is no PostgreSQL (the number that test
// drivers use for "skipped").
const unavailable = 77

func main() {
	runtime.LockOSThread() // the cluster dies with the thread that started it
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

// run runs the command beside a cluster that loses what it likes with the machine, or,
// durable, with PostgreSQL's own settings.
func run(argv []string, durable bool) (int, error) {
	bin, err := binaries()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp(place(), "slipway-pg-") // a socket's path may have 107 bytes at most
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
		// SIGINT is PostgreSQL's fast shutdown; anything harder leaks shared memory.
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

// binaries finds the newest PostgreSQL.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, byVersion)), nil
	}
	path, err := exec.LookPath("postgres")
	return filepath.Dir(path), err
}

// byVersion orders programs by the version that their path names: 9.6 before 17.
func byVersion(a, b string) int {
	version := func(path string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64) // what is none comes first
		return v
	}
	return cmp.Compare(version(a), version(b))
}

// servant returns whom PostgreSQL runs as, and gives that user the folder.
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
		time.Sleep(20 * time.Millisecond) // pg_isready is the condition; there is nothing to listen to
	}
	return fmt.Errorf("postgres didn't become ready: %s", strings.TrimSpace(string(last)))
}

// place is where the cluster lies: in memory where there is room for some hundred databases,
// since making and dropping them is mostly files. A socket's path may have 107 bytes at most.
func place() string {
	const memory = "/dev/shm"
	var st syscall.Statfs_t
	if syscall.Statfs(memory, &st) == nil && st.Bavail*uint64(st.Bsize) > 4<<30 && syscall.Access(memory, 2) == nil {
		return memory
	}
	return "/tmp"
}
