package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"

	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/sandbox"
)

// server is the MariaDB that holds the databases: one of ours, or the operator's.
type server struct {
	dir    string // of the private one
	runner sandbox.Runner
	uid    int
	memory int64
	log    *slog.Logger
	dsn    *mysql.Config // of the operator's; nil: the private one

	outage func(text string) // tells the sites. It must not block.

	wanted chan struct{} // filled when the server is asked for

	mu    sync.Mutex    // guards what follows
	up    chan struct{} // closed while the server answers
	conns *admin        // nil while it doesn't
	why   string        // it is away
	usage func() int64  // bytes of memory; nil while it is away
}

// ParseServer reads the address of an operator's server:
// mysql://user:password@host:port. The user needs ALL PRIVILEGES and GRANT OPTION.
func ParseServer(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" || u.User == nil || u.User.Username() == "" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, errors.New("the address must be mysql://USER:PASSWORD@HOST:PORT")
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = u.User.Username(), "tcp", u.Host
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return c, nil
}

// newServer returns the server and its name in rows.
func newServer(c Config) (*server, string, error) {
	s := &server{dir: c.Dir, runner: c.Runner, uid: c.UID, memory: c.Memory, log: c.Log, outage: func(string) {}, wanted: make(chan struct{}, 1), up: make(chan struct{})}
	if c.External != "" {
		dsn, err := ParseServer(c.External)
		if err != nil {
			return nil, "", err
		}
		s.dsn = dsn
		return s, "mariadb/" + dsn.Addr, nil
	}
	if err := os.MkdirAll(c.Dir, 0o711); err != nil {
		return nil, "", fmt.Errorf("make directory of databases: %w", err)
	}
	// Which data this is: another node's databases are not here.
	file := filepath.Join(c.Dir, "id")
	id, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		id = []byte(db.Random(10))
		err = os.WriteFile(file, id, 0o600)
	}
	if err != nil {
		return nil, "", fmt.Errorf("name the database server: %w", err)
	}
	return s, "private/" + string(id), nil
}

// programs that the private server needs.
const (
	serverProgram  = "mariadbd"
	installProgram = "mariadb-install-db"
)

// missing says why the server can't run here.
func (s *server) missing() string {
	if s.dsn != nil {
		return ""
	}
	return Missing()
}

// Missing says what the private server needs and the host lacks; empty: nothing.
func Missing() string {
	for _, name := range []string{serverProgram, installProgram} {
		if _, err := exec.LookPath(name); err != nil {
			return "MariaDB is not installed: the operator can install it (apt-get install mariadb-server) or name a server with --mariadb"
		}
	}
	return ""
}

// Version names the MariaDB that is installed.
func Version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, serverProgram, "--version").Output()
	if err != nil {
		return "MariaDB"
	}
	if _, rest, ok := strings.Cut(string(out), "Ver "); ok {
		v, _, _ := strings.Cut(rest, "-")
		return "MariaDB " + v
	}
	return "MariaDB"
}

// want asks for the server to be started.
func (s *server) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// wakePatience is how long who needs the server waits for it.
const wakePatience = 30 * time.Second

// admin returns the way to administer the server, once it is up.
func (s *server) admin(ctx context.Context) (*admin, error) {
	s.want()
	timer := time.NewTimer(wakePatience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		conns, up, why := s.conns, s.up, s.why
		s.mu.Unlock()
		if conns != nil {
			return conns, nil
		}
		select {
		case <-up:
		case <-timer.C:
			if why == "" {
				why = "it does not answer"
			}
			return nil, &fault.Error{Kind: fault.Unavailable, Message: "The database server is not available", Details: why, Code: "database_unavailable"}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *server) setUp(a *admin, usage func() int64) {
	s.mu.Lock()
	s.conns, s.why, s.usage = a, "", usage
	close(s.up)
	s.mu.Unlock()
}

// setDown notes that the server is away, and why.
func (s *server) setDown(why string) {
	s.mu.Lock()
	old := s.conns
	if old != nil {
		s.up = make(chan struct{})
	}
	s.conns, s.why, s.usage = nil, why, nil
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// run waits until the server is asked for, then keeps it up until ctx ends.
func (s *server) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.wanted:
	}
	if s.dsn != nil {
		s.runExternal(ctx)
		return
	}
	wait, away := time.Duration(0), time.Time{}
	for ctx.Err() == nil {
		lived := time.Now()
		err := s.live(ctx, func() {
			lived = time.Now()
			if !away.IsZero() {
				s.outage(fmt.Sprintf("The database server is back after %.1f s", time.Since(away).Seconds()))
			}
		})
		if ctx.Err() != nil {
			s.setDown("the service is stopping")
			return
		}
		s.setDown(err.Error())
		s.log.ErrorContext(ctx, "database server ended, will be started again", "err", err)
		if away.IsZero() || time.Since(lived) > time.Second {
			s.outage("The database server ended unexpectedly (" + err.Error() + ") and is being started again")
		}
		away = time.Now()
		// One that lived is started again at once; one that can't start is not tried in a loop.
		if wait = min(max(2*wait, 100*time.Millisecond), 10*time.Second); time.Since(lived) > 10*time.Second {
			wait = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// runExternal watches the operator's server.
func (s *server) runExternal(ctx context.Context) {
	up := false
	for ctx.Err() == nil {
		a, err := s.connect(s.dsn, "%")
		if err == nil && up {
			a.close() // the one in use is as good
		} else if err == nil {
			s.setUp(a, nil)
			up = true
		}
		if err != nil {
			if up {
				s.outage("The database server does not answer")
			}
			up = false
			s.setDown(err.Error())
			s.log.WarnContext(ctx, "database server does not answer", "err", err)
		}
		wait := time.Second
		if up {
			wait = 5 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	s.setDown("the service is stopping")
}

func (s *server) work() string { return filepath.Join(s.dir, "server") }

// limits of the private server's processes. The memory is the kernel's word; the server's
// own settings are to stay below it.
func (s *server) limits() sandbox.Limits {
	return sandbox.Limits{Memory: s.memory, Pids: 4096, Disk: sandbox.Unlimited, Files: sandbox.Unlimited, NoFile: 16384,
		Wall: 100 * 365 * 24 * time.Hour, Output: 1 << 50, TmpSize: 16 << 20}
}

// install makes the server's own tables where there are none. A crash half-way leaves
// nothing that counts.
func (s *server) install(ctx context.Context) error {
	if _, err := os.Stat(s.work()); err == nil {
		return nil
	}
	fresh := s.work() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear new database server: %w", err)
	}
	for _, dir := range []string{fresh, filepath.Join(fresh, "run"), filepath.Join(fresh, "tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make database server: %w", err)
		}
	}
	if err := sandbox.Own(fresh, s.uid); err != nil {
		return err
	}
	var out tail
	res, err := s.runner.Run(ctx, sandbox.Command{UID: s.uid, Work: fresh, Limits: s.limits(), Stdout: &out, Stderr: &out,
		Argv: []string{installProgram, "--no-defaults", "--basedir=/usr", "--datadir=" + inside("data"), "--tmpdir=" + inside("tmp"), "--skip-test-db", "--skip-name-resolve",
			"--cross-bootstrap", "--auth-root-authentication-method=socket", "--auth-root-socket-user=root", "--innodb-log-file-size=" + redoLog}})
	if err != nil {
		return fmt.Errorf("install database server: %w", err)
	}
	if !res.OK() {
		return fmt.Errorf("install database server: %s: %s", res, out.String())
	}
	return os.Rename(fresh, s.work())
}

func inside(name string) string { return sandbox.Root + "/" + name }

const redoLog = "32M"

// arguments of the private server. What a session may set for itself is bounded by
// --maximum-…, for the memory is everybody's.
func (s *server) arguments() []string {
	mib := s.memory >> 20
	return []string{serverProgram, "--no-defaults", "--basedir=/usr", "--datadir=" + inside("data"), "--tmpdir=" + inside("tmp"), "--socket=" + inside("run/mysqld.sock"),
		"--pid-file=" + inside("run/mysqld.pid"), "--init-file=" + inside("init.sql"), "--lc-messages-dir=/usr/share/mysql",
		"--skip-networking", "--skip-name-resolve", "--unix-socket=OFF", "--local-infile=OFF", "--symbolic-links=OFF", "--event-scheduler=DISABLED", "--performance-schema=OFF",
		"--skip-show-database",
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci", "--default-storage-engine=InnoDB", "--enforce-storage-engine=InnoDB",
		"--innodb-log-file-size=" + redoLog, fmt.Sprintf("--innodb-buffer-pool-size=%dM", max(mib/4, 32)), "--innodb-use-native-aio=OFF",
		"--max-connections=1000", "--connect-timeout=10", "--max-prepared-stmt-count=1000000", "--max-allowed-packet=64M", "--maximum-max-allowed-packet=64M",
		"--max-session-mem-used=64M", "--maximum-max-session-mem-used=64M", "--maximum-sort-buffer-size=4M", "--maximum-join-buffer-size=4M", "--maximum-read-buffer-size=1M",
		"--maximum-read-rnd-buffer-size=1M", "--maximum-tmp-memory-table-size=32M", "--maximum-max-heap-table-size=32M", "--maximum-bulk-insert-buffer-size=8M", "--maximum-myisam-sort-buffer-size=8M",
		"--tmp-disk-table-size=1G", "--maximum-tmp-disk-table-size=1G"}
}

// live starts the private server, calls started once it answers, and returns why it ended.
// It stops the server when ctx ends.
func (s *server) live(ctx context.Context, started func()) error {
	if why := s.missing(); why != "" {
		return errors.New(why)
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	a, err := s.credentials()
	if err != nil {
		return err
	}
	life, kill := context.WithCancel(context.Background())
	defer kill()
	var out tail
	linked, gone := make(chan *sandbox.Link, 1), make(chan struct{})
	var end error
	go func() {
		defer close(gone)
		res, err := s.runner.Run(life, sandbox.Command{UID: s.uid, Work: s.work(), Limits: s.limits(), Argv: s.arguments(), Stdout: &out, Stderr: &out,
			Linked: func(l *sandbox.Link) { linked <- l }})
		if end = err; err == nil {
			end = errors.New(res.String())
		}
	}()
	var link *sandbox.Link
	select {
	case link = <-linked:
	case <-gone:
		return fmt.Errorf("%w: %s", end, out.String())
	}
	stop := func() {
		_ = link.Signal(unix.SIGTERM)
		select {
		case <-gone:
		case <-time.After(15 * time.Second):
			kill()
			<-gone
		}
	}
	conns, err := s.untilReady(ctx, a, gone)
	if err != nil {
		stop()
		return fmt.Errorf("%w: %s", err, out.String())
	}
	_ = os.Remove(filepath.Join(s.work(), "init.sql"))
	s.setUp(conns, func() int64 { return link.Usage().Memory })
	started()
	select {
	case <-gone:
		return end
	case <-ctx.Done():
		s.setDown("the service is stopping")
		stop()
		return context.Cause(ctx)
	}
}

// credentials gives the private server an administrator with a new password, and no other
// account that a site could guess its way into: who connects comes through us, so the
// server can't tell who that is by the socket.
func (s *server) credentials() (*mysql.Config, error) {
	password := newPassword()
	text := "DROP USER IF EXISTS 'root'@'localhost', 'mysql'@'localhost', ''@'localhost';\n" +
		"CREATE OR REPLACE USER 'slipway'@'localhost' IDENTIFIED BY '" + password + "';\n" +
		"GRANT ALL PRIVILEGES ON *.* TO 'slipway'@'localhost' WITH GRANT OPTION;\n"
	root, err := os.OpenRoot(s.work()) // the server's: whatever lies there is not followed outside
	if err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	defer root.Close()
	if err := root.Remove("init.sql"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("write administrator: %w", err)
	}
	if err := root.WriteFile("init.sql", []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write administrator: %w", err)
	}
	if unix.Geteuid() == 0 {
		if err := root.Lchown("init.sql", s.uid, s.uid); err != nil {
			return nil, fmt.Errorf("write administrator: %w", err)
		}
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net = "slipway", password, "unix"
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
	return c, nil
}

// dial connects to the server as a stranger.
func (s *server) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if s.dsn != nil {
		return d.DialContext(ctx, "tcp", s.dsn.Addr)
	}
	// The path may be longer than a socket's address holds: by way of its directory.
	dir, err := unix.Open(filepath.Join(s.work(), "run"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return d.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(dir), "mysqld.sock"))
}

// untilReady waits until the server takes its administrator.
func (s *server) untilReady(ctx context.Context, c *mysql.Config, gone <-chan struct{}) (*admin, error) {
	deadline := time.Now().Add(2 * time.Minute) // one that was killed has its log to read first
	for {
		a, err := s.connect(c, "localhost")
		if err == nil {
			return a, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the database server does not become ready: %w", err)
		}
		select {
		case <-gone:
			return nil, errors.New("the database server ended before it was ready")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const tailSize = 4 << 10

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*tailSize {
		t.text = append([]byte(nil), t.text[len(t.text)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text[max(0, len(t.text)-tailSize):])
}
