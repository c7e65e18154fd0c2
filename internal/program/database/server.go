package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// server is a MariaDB: an owner's private one, or the operator's. It is started when it is
// used and put to sleep when it is not.
type server struct {
	name    string     // in rows
	d       *Databases // whose it is
	owner   id.Owner   // whose databases it holds; empty: every owner's
	dir     string     // of a private one
	uid     int
	outside *mysql.Config // how the operator's is reached; nil: it is a private one
	log     *slog.Logger

	places *fair.Pool // connections of sites

	mu      sync.Mutex    // guards what follows
	users   int           // who need it now
	last    time.Time     // when the last of them ended
	running bool          // run is at work
	up      chan struct{} // closed while the server answers
	conns   *admin        // nil while it doesn't
	why     string        // it is away
	link    *sandbox.Link // into the private one; nil while it is away

	idle  chan struct{} // filled when nobody uses it any more
	yield chan struct{} // filled when another server waits for its place
}

// Connections of sites on one server at once, and of one owner's on a server that is every
// owner's. The server takes more, so that there always are some left for us.
const (
	serverConnections = 500
	ownerConnections  = 200
	mostConnections   = serverConnections + adminConnections + 100
)

func (d *Databases) newServer(name string, owner id.Owner, dir string, uid int) *server {
	s := &server{
		name:  name,
		d:     d,
		owner: owner,
		dir:   dir,
		uid:   uid,
		log:   d.c.Log,
		up:    make(chan struct{}),
		idle:  make(chan struct{}, 1),
		yield: make(chan struct{}, 1),
	}
	perOwner := ownerConnections
	if owner != "" {
		perOwner = serverConnections
	}
	// share: total 500 a server; owner has a server of their own, or 200 of an operator's; edge waits 10 s, then refused: too many connections
	s.places = fair.New(fair.Config{Places: serverConnections, Owner: perOwner, Site: d.c.Connections})
	return s
}

// wakePatience is how long who needs the server waits for it, and makePatience how long who makes a
// database: a server's first start writes its system tables, which takes minutes on a busy machine.
const (
	wakePatience = 30 * time.Second
	makePatience = 3 * time.Minute
)

// endPatience is how long a server may take to write what it holds in memory before it is
// killed, which loses nothing: it reads its log when it starts again.
const endPatience = 15 * time.Second

// use returns the way to administer the server, once it is up. It stays up until done is
// called.
func (s *server) use(ctx context.Context) (_ *admin, done func(), err error) {
	return s.useWithin(ctx, wakePatience)
}

// useWithin is use with a patience of its own for a server that has given no reason yet why it is away.
func (s *server) useWithin(ctx context.Context, patience time.Duration) (_ *admin, done func(), err error) {
	done = s.hold()
	timer, begun := time.NewTimer(wakePatience), time.Now()
	defer timer.Stop()
	for {
		s.mu.Lock()
		conns, up, why := s.conns, s.up, s.why
		s.mu.Unlock()
		if conns != nil {
			return conns, done, nil
		}
		select {
		case <-up:
		case <-s.d.servers.ended:
			done()
			return nil, nil, fault.New(fault.Unavailable, "database_unavailable", "The database server is not available",
				"the service is stopping")
		case <-timer.C:
			if left := patience - time.Since(begun); why == "" && left > 0 {
				timer.Reset(min(left, wakePatience))
				continue
			}
			done()
			if why == "" {
				why = "it does not respond"
			}
			return nil, nil, fault.New(fault.Unavailable, "database_unavailable", "The database server is not available", why)
		case <-ctx.Done():
			done()
			return nil, nil, context.Cause(ctx)
		}
	}
}

// hold has the server started, if it isn't up, and keeps it up until done is called.
func (s *server) hold() (done func()) {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	s.d.wake(s)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.users--
		s.last = time.Now()
		none := s.users == 0
		s.mu.Unlock()
		if none {
			tell(s.idle)
		}
		if none && s.d.crowded() {
			tell(s.yield)
		}
	})
}

// tell fills a channel of one place.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// current returns the way to administer the server, nil while it is away.
func (s *server) current() *admin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *server) setUp(a *admin, link *sandbox.Link) {
	s.mu.Lock()
	s.conns, s.why, s.link = a, "", link
	close(s.up)
	s.mu.Unlock()
}

// setDown notes that the server is away, and why.
func (s *server) setDown(why string) {
	s.mu.Lock()
	old := s.away(why)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// away is setDown for who holds mu. It returns what is to be closed.
func (s *server) away(why string) *admin {
	old := s.conns
	if old != nil {
		s.up = make(chan struct{})
	}
	s.conns, s.why, s.link = nil, why, nil
	return old
}

// fallAsleep notes that the server is away, if nobody has used it for that long.
func (s *server) fallAsleep(after time.Duration) (ok bool, left time.Duration) {
	s.mu.Lock()
	if s.users > 0 {
		s.mu.Unlock()
		return false, 0
	}
	if left = after - time.Since(s.last); left > 0 {
		s.mu.Unlock()
		return false, left
	}
	old := s.away("")
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	return true, 0
}

var errAsleep = errors.New("asleep")

// run keeps a private server up while it is used, and returns when it isn't.
func (s *server) run(ctx context.Context) {
	wait, away := time.Duration(0), time.Time{}
	for ctx.Err() == nil && s.wanted(ctx) {
		release, err := s.d.place(ctx, s)
		if err != nil {
			s.setDown("as many database servers run on this machine as may")
			continue
		}
		lived := time.Now()
		err = s.live(ctx, func() {
			lived = time.Now()
			if !away.IsZero() {
				s.d.tellAll(s, fmt.Sprintf("The database server is back after %.1f s", time.Since(away).Seconds()))
				away = time.Time{}
			}
		})
		release()
		if errors.Is(err, errAsleep) {
			wait = 0
			continue
		}
		if ctx.Err() != nil {
			break
		}
		s.setDown(err.Error())
		s.log.ErrorContext(ctx, "database server ended, will be started again", "server", s.name, "err", err)
		if away.IsZero() || time.Since(lived) > time.Second {
			s.d.tellAll(s, "The database server ended unexpectedly ("+err.Error()+") and is being started again")
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
	if ctx.Err() != nil {
		s.setDown("the service is stopping")
	}
}

// wanted reports whether anybody uses the server. Where nobody does, and no database is left
// on it, its files are removed; run has ended then.
func (s *server) wanted(ctx context.Context) bool {
	s.mu.Lock()
	if s.users > 0 {
		s.mu.Unlock()
		return true
	}
	s.mu.Unlock()
	// Who makes a database notes it before it uses the server.
	if err := s.d.removeUnused(ctx, s); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "files of an unused database server not removed", "server", s.name, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = s.users > 0
	return s.running
}

// limits of a private server's processes. The memory is the kernel's word; the server's
// own settings are to stay below it.
func (s *server) limits() sandbox.Limits {
	return sandbox.Limits{
		Memory: s.d.c.Memory, Pids: 4096, Disk: sandbox.Unlimited, Files: sandbox.Unlimited, NoFile: 16384,
		Wall: 100 * 365 * 24 * time.Hour, Output: 1 << 50, TmpSize: 16 << 20, Foreground: true,
	}
}

func inside(name string) string { return sandbox.Root + "/" + name }

const redoLog = "32M"

// loadMemory is what the session of a load may take: several times the longest statement, so that what can
// be stored, a column at a time, can be loaded.
const loadMemory = 384 << 20

// arguments of a private server. What it takes before anybody asks is little, for there is
// one for each owner. What a session may set for itself is bounded by --maximum-…, for the
// memory is all its owner's sites'. Undo and temporary tables end at workMost.
func (s *server) arguments() []string {
	mib := s.d.c.Memory >> 20
	most := ""
	if s.owner != "" {
		most = fmt.Sprintf(":max:%dM", workMost>>20)
	}
	return []string{
		serverProgram,
		"--no-defaults",
		"--basedir=/usr",
		"--datadir=" + inside("data"),
		"--tmpdir=" + inside("tmp"),
		"--socket=" + inside("run/mysqld.sock"),
		"--pid-file=" + inside("run/mysqld.pid"),
		"--init-file=" + inside("init.sql"),
		"--lc-messages-dir=/usr/share/mysql", "--skip-networking", "--skip-name-resolve", "--unix-socket=OFF",
		"--local-infile=OFF", "--symbolic-links=OFF", "--event-scheduler=DISABLED", "--performance-schema=OFF",
		"--skip-show-database", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci",
		"--default-storage-engine=InnoDB", "--enforce-storage-engine=InnoDB",
		"--innodb-log-file-size=" + redoLog,
		fmt.Sprintf("--innodb-buffer-pool-size=%dM", max(mib/4, 32)),
		"--innodb-use-native-aio=OFF", "--innodb-log-buffer-size=4M", "--key-buffer-size=64K",
		"--aria-pagecache-buffer-size=8M", "--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
		"--innodb-data-file-path=ibdata1:12M:autoextend" + most,
		"--innodb-temp-data-file-path=ibtmp1:12M:autoextend" + most,
		"--max-connections=" + strconv.Itoa(mostConnections),
		"--connect-timeout=10", "--max-prepared-stmt-count=1000000", "--max-allowed-packet=64M",
		"--maximum-max-allowed-packet=64M", "--max-session-mem-used=64M",
		"--maximum-max-session-mem-used=" + strconv.Itoa(loadMemory),
		"--maximum-sort-buffer-size=4M", "--maximum-join-buffer-size=4M", "--maximum-read-buffer-size=1M",
		"--maximum-read-rnd-buffer-size=1M", "--maximum-tmp-memory-table-size=32M",
		"--maximum-max-heap-table-size=32M", "--maximum-bulk-insert-buffer-size=8M",
		"--maximum-myisam-sort-buffer-size=8M", "--tmp-disk-table-size=1G", "--maximum-tmp-disk-table-size=1G",
	}
}

// live starts the private server, calls started once it answers, and returns why it ended:
// errAsleep where nobody used it any more. It stops the server when ctx ends.
func (s *server) live(ctx context.Context, started func()) error {
	if why := Missing(); why != "" {
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
	// uncaught: runs the database server
	go func() {
		defer close(gone)
		res, err := s.d.c.Runner.Run(life, sandbox.Command{
			UID:    s.uid,
			Work:   s.dir,
			Limits: s.limits(),
			Argv:   s.arguments(),
			Stdout: &out,
			Stderr: &out,
			Linked: func(l *sandbox.Link) { linked <- l },
		})
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
	stop := func(patience time.Duration) {
		_ = link.Signal(unix.SIGTERM)
		select {
		case <-gone:
		case <-time.After(patience):
			kill()
			<-gone
		}
	}
	conns, err := s.untilReady(ctx, a, gone)
	if err != nil {
		stop(time.Second) // while it starts it may not listen to signals
		return fmt.Errorf("%w: %s", err, out.String())
	}
	_ = os.Remove(filepath.Join(s.dir, "init.sql"))
	s.setUp(conns, link)
	started()
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { panics.Loop(watching, func(ctx context.Context) { s.d.watch(ctx, s) }) })
	defer func() { unwatch(); watch.Wait() }()
	tell(s.idle) // who asked for it may have gone meanwhile
	var look <-chan time.Time
	for {
		after := s.d.c.Sleep
		select {
		case <-gone:
			return end
		case <-ctx.Done():
			s.setDown("the service is stopping")
			stop(endPatience)
			return context.Cause(ctx)
		case <-s.idle:
		case <-look:
		case <-s.yield:
			after = 0
		}
		asleep, left := s.fallAsleep(after)
		switch {
		case asleep:
			unwatch()
			watch.Wait()
			stop(endPatience)
			if err := s.d.measure(ctx, s, nil, nil); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "sizes of databases not read", "err", err)
			}
			return errAsleep
		case left > 0:
			look = time.After(left)
		}
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
	root, err := os.OpenRoot(s.dir) // the server's: whatever lies there is not followed outside
	if err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	defer root.Close()
	if err := root.Remove("init.sql"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("write administrator: %w", err)
	}
	// unsynced: each start of the database server writes it
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
	if s.outside != nil {
		return d.DialContext(ctx, "tcp", s.outside.Addr)
	}
	// The path may be longer than a socket's address holds: by way of its directory.
	dir, err := unix.Open(filepath.Join(s.dir, "run"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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

// reach dials the server, once it is up. Its caller holds it.
func (s *server) reach(ctx context.Context) (net.Conn, error) {
	for range 50 {
		_, done, err := s.use(ctx)
		if err != nil {
			return nil, err
		}
		c, err := s.dial(ctx)
		done()
		if err == nil {
			return c, nil
		}
		select { // it has just ended, and who watches it will see that
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, os.ErrDeadlineExceeded
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const tailSize = 4 << 10

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
