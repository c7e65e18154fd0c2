package db_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
)

// faults makes commits fail in this order.
func faults(list ...db.Fault) func(*db.Config) {
	return func(c *db.Config) { c.Faults = dbtest.Every(1, list...) }
}

// If a transaction or the response to its commit is lost, Write repeats it, and the change is made exactly once.
func TestLostCommits(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t, faults(db.Sound, db.Dropped, db.Muted, db.Dropped, db.Dropped))
	table(t, d)
	woken, stop := d.Listen("t")
	defer stop()
	after := 0
	for range 20 {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			tx.AfterCommit(func() { after++ })
			tx.Notify("t")
			_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ('a', 1, TRUE, 0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		<-woken
	}
	var n int
	if err := d.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 20 || after != 20 {
		t.Errorf("%d of 20 writes, %d told: %v", n, after, err)
	}
}

// If the database doesn't answer after a commit, Write returns an Unknown error, and MarkTx recognizes the repetition.
func TestUnknownCommits(t *testing.T) {
	t.Parallel()
	for fault, applied := range map[db.Fault]bool{db.Silent: true, db.Gone: false} {
		d := dbtest.New(t, faults(db.Sound, fault))
		table(t, d)
		mark, runs := db.NewMark(), 0
		write := func() error {
			return d.Write(t.Context(), func(tx *db.Tx) error {
				if first, err := tx.MarkTx(t.Context(), mark); err != nil || !first {
					return err
				}
				runs++
				_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ('a', 1, TRUE, 0)")
				return err
			})
		}
		if err := d.Write(t.Context(), func(*db.Tx) error { return nil }); err != nil && !db.Unknown(err) { // the next commit has the fault
			t.Fatal(err)
		}
		err := write()
		for i := 0; db.Unknown(err) && i < 3; i++ {
			err = write()
		}
		want := 2
		if applied {
			want = 1
		}
		var n int
		if read := d.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || read != nil || n != 1 || runs > want {
			t.Errorf("fault %d: %d rows after %d runs: %v, %v", fault, n, runs, err, read)
		}
	}
}

// cutter forwards connections to PostgreSQL until cut stops forwarding on a client's message.
type cutter struct {
	network, address string // of the server
	// cut returns whether to forward a client's message, and whether to forward later responses.
	cut func(sent string) (pass, answer bool)
	on  atomic.Bool
	// silent keeps connections open when responses are no longer forwarded.
	silent atomic.Bool
}

// throughCutter returns a database that is reached through a cutter.
func throughCutter(t *testing.T, cut func(sent string) (pass, answer bool)) (*db.DB, *cutter) {
	t.Helper()
	dsn := dbtest.URL(t)
	if strings.HasPrefix(dsn, "sqlite:") {
		t.Skip("SQLite has no connections to lose")
	}
	to, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{cut: cut}
	c.network, c.address = pgconn.NetworkAddress(to.Host, to.Port)
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: l.Addr().String(), Path: to.Database, RawQuery: "sslmode=disable",
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	return dbtest.Open(t, through.String()), c
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(c.network, c.address)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	go func() {
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err == nil && mute.Load() && c.silent.Load() {
				continue
			}
			if err != nil || mute.Load() {
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if c.on.Load() {
			pass, answer := c.cut(string(b[:n]))
			if !answer {
				mute.Store(true)
			}
			if !pass {
				return
			}
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
		if mute.Load() { // until the server has executed it
			io.Copy(io.Discard, client)
			return
		}
	}
}

// If a real connection is closed when COMMIT is sent, or before its response arrives, the change is neither lost nor
// made twice.
func TestConnectionsCutAtCommits(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			d, c := throughCutter(t, func(sent string) (bool, bool) {
				// The mark's statement is sent together with COMMIT, as text or prepared. No other message contains the
				// mark.
				if strings.Contains(sent, "cm_") && left.Add(-1) >= 0 {
					return pass, false
				}
				return true, true
			})
			table(t, d)
			for i := range 4 {
				left.Store(1)
				c.on.Store(true)
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ('a', 1, TRUE, 0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1")
					return err
				})
				c.on.Store(false)
				if err != nil || left.Load() >= 1 {
					t.Fatalf("write %d: %v; %d left to cut", i, err, left.Load())
				}
			}
			var n int
			if err := d.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 4 {
				t.Errorf("%d of 4 writes: %v", n, err)
			}
		})
	}
}

// Connections that stop responding are given up within seconds, and other connections of the same age aren't tried.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	var old atomic.Bool
	d, c := throughCutter(t, func(string) (bool, bool) { return true, !old.Load() })
	var held []func() error
	for range 6 {
		rows, err := d.Query(t.Context(), "SELECT 1")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, rows.Close)
	}
	for _, end := range held {
		end()
	}
	c.on.Store(true)
	c.silent.Store(true)
	old.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	if err := d.Ping(ctx); !db.Lost(err) {
		t.Fatalf("while all is silent, after %s: %v", time.Since(begun), err)
	}
	old.Store(false) // new connections work
	for {
		err := d.Ping(ctx)
		if err == nil {
			break
		}
		if !db.Lost(err) && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Fatalf("after %s: %v", time.Since(begun), err)
		}
	}
}

// A write that waits too long for another transaction's lock fails with a busy error. TakesWrites succeeds meanwhile if
// only one row is locked, and fails if all write connections wait.
func TestWaitsForLocks(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite has one writer")
	}
	table(t, d)
	update := func(then func()) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ('a', 1, TRUE, 0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1")
			then()
			return err
		})
	}
	locked, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(locked) })
	go func() { ended <- update(func() { once(); <-goOn }) }()
	<-locked
	if err := d.TakesWrites(t.Context()); err != nil {
		t.Errorf("TakesWrites fails because of one locked row: %v", err)
	}
	waiting := make(chan error, 40)
	for range cap(waiting) {
		go func() { waiting <- update(func() {}) }()
	}
	wait.Until(t, "writes wait for their turn", func() bool { return d.Waiting() > 0 })
	bounded, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.TakesWrites(bounded); err == nil {
		t.Error("TakesWrites succeeds although all connections are in use")
	}
	if err := <-waiting; !db.Busy(err) {
		t.Errorf("a write that waits for the lock: %v", err)
	}
	close(goOn)
	<-ended
	for range cap(waiting) - 1 {
		<-waiting
	}
}

// A statement that finds no free connection fails with a busy error. A request waits only for its first such statement.
func TestNoConnectionFree(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t, func(c *db.Config) { c.Readers, c.Wait = 2, 4*time.Second })
	if d.Single() {
		t.Skip("SQLite's readers never wait for a network")
	}
	for range 2 {
		rows, err := d.Query(t.Context(), "SELECT 1")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tries := map[string]func(ctx context.Context) error{
		"rows": func(ctx context.Context) error { _, err := d.Query(ctx, "SELECT 1"); return err },
		"row":  func(ctx context.Context) error { var n int; return d.QueryRow(ctx, "SELECT 1").Scan(&n) },
		"snapshot": func(ctx context.Context) error {
			return d.Snapshot(ctx, func(db.Reader) error { return nil })
		},
		"write": func(ctx context.Context) error { return d.Write(ctx, func(*db.Tx) error { return nil }) },
	}
	for what, try := range tries {
		if err := try(ctx); !db.Busy(err) || ctx.Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	request, begun := db.ForRequest(ctx), time.Now()
	for what, try := range tries {
		if err := try(request); !db.Busy(err) {
			t.Errorf("%s of a request: %v", what, err)
		}
	}
	if took := time.Since(begun); took > 7*time.Second { // 2 s in total per request, whose statements would wait 2 s each
		t.Errorf("the request waited for %s", took)
	}
}
