package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/wait"
)

type work struct {
	Name string
}

func (work) Kind() string { return "test.work" }

// node runs one process's workers on a test database.
type node struct {
	*Jobs
	stop func()
}

func start(t *testing.T, d *db.DB, slots int, p Policy, fn func(ctx context.Context, a work, attempt int64) error) *node {
	t.Helper()
	j := New(Config{
		DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": slots},
		Lease: 300 * time.Millisecond, Poll: 20 * time.Millisecond, Drain: 5 * time.Second,
	})
	Handle(j, p, fn)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	var once sync.Once
	n := &node{Jobs: j, stop: func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}}
	t.Cleanup(n.stop)
	return n
}

func enqueue(t *testing.T, d *db.DB, name string, o Options) (fresh bool) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		fresh, err = Enqueue(t.Context(), tx, work{name}, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func count(t *testing.T, d *db.DB, where string) (n int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// recorder records the jobs that ran, in order.
type recorder struct {
	mu  sync.Mutex // guards ran
	ran []string
}

func (r *recorder) add(s string) { r.mu.Lock(); r.ran = append(r.ran, s); r.mu.Unlock() }
func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ran)
}

func TestJobRunsOnceAfterCommitAndNeverAfterRollback(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var r recorder
	start(t, d, 4, Policy{}, func(_ context.Context, a work, _ int64) error { r.add(a.Name); return nil })
	d.Write(t.Context(), func(tx *db.Tx) error {
		Enqueue(t.Context(), tx, work{"rolled back"}, Options{})
		return errors.New("no")
	})
	enqueue(t, d, "kept", Options{})
	wait.Until(t, "the job is done and gone", func() bool { return len(r.all()) == 1 && count(t, d, "TRUE") == 0 })
	if got := r.all(); got[0] != "kept" {
		t.Fatalf("ran %v", got)
	}
}

func TestUniqueHoldsUntilTheEnd(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	release := make(chan struct{})
	start(t, d, 4, Policy{}, func(context.Context, work, int64) error { <-release; return nil })
	if !enqueue(t, d, "a", Options{Unique: "k"}) {
		t.Fatal("the first job was not enqueued")
	}
	wait.Until(t, "running", func() bool { return count(t, d, "state = 'running'") == 1 })
	if enqueue(t, d, "b", Options{Unique: "k"}) {
		t.Fatal("a second job with the same key was enqueued")
	}
	close(release)
	wait.Until(t, "gone", func() bool { return count(t, d, "TRUE") == 0 })
	if !enqueue(t, d, "c", Options{Unique: "k"}) {
		t.Fatal("the key is still taken after the job's end")
	}
}

// Jobs of a group run one at a time and in order, on any number of nodes. Other groups run at the same time.
func TestGroupRunsInOrder(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	var mu sync.Mutex
	active, most := map[string]int{}, 0
	var r recorder
	fn := func(_ context.Context, a work, _ int64) error {
		mu.Lock()
		active[a.Name[:1]]++
		most = max(most, active[a.Name[:1]])
		mu.Unlock()
		r.add(a.Name)
		mu.Lock()
		active[a.Name[:1]]--
		mu.Unlock()
		return nil
	}
	for i := range 10 {
		enqueue(t, d, fmt.Sprintf("a%d", i), Options{Group: "a"})
		enqueue(t, d, fmt.Sprintf("b%d", i), Options{Group: "b"})
	}
	start(t, d, 4, Policy{}, fn)
	if !d.Single() {
		start(t, dbtest.Open(t, url), 4, Policy{}, fn)
	}
	wait.Until(t, "all done", func() bool { return count(t, d, "TRUE") == 0 })
	var a []string
	for _, s := range r.all() {
		if s[0] == 'a' {
			a = append(a, s)
		}
	}
	if len(r.all()) != 20 || most != 1 || !slices.IsSorted(a) {
		t.Fatalf("ran %v, %d at once; want each group in order, one at a time", r.all(), most)
	}
}

func TestSharesTakeTurns(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for i := range 6 {
		enqueue(t, d, fmt.Sprintf("greedy%d", i), Options{Share: "greedy"})
	}
	enqueue(t, d, "modest", Options{Share: "modest"})
	release := make(chan struct{})
	var r recorder
	start(t, d, 2, Policy{}, func(_ context.Context, a work, _ int64) error { r.add(a.Name); <-release; return nil })
	wait.Until(t, "two run", func() bool { return len(r.all()) == 2 })
	if !slices.Contains(r.all(), "modest") {
		t.Errorf("%v run; want the modest share to have its turn", r.all())
	}
	close(release)
	wait.Until(t, "all done", func() bool { return count(t, d, "TRUE") == 0 })
}

func TestFailuresAreTriedAgainThenGivenUp(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var r recorder
	p := Policy{
		Attempts: 3, Backoff: func(int) time.Duration { return time.Millisecond },
		GivenUp: func(_ context.Context, args []byte, why error) error { r.add("given up " + string(args)); return nil },
	}
	start(t, d, 1, p, func(_ context.Context, a work, attempt int64) error {
		r.add(fmt.Sprint("try ", attempt))
		if attempt == 2 {
			panic("a panic is a failure")
		}
		return errors.New("no luck")
	})
	enqueue(t, d, "x", Options{})
	wait.Until(t, "dead", func() bool { return count(t, d, "state = 'dead'") == 1 })
	want := []string{"try 1", "try 2", "try 3", `given up {"Name":"x"}`}
	if got := r.all(); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// A job whose GivenUp panics too is dead, and isn't retried forever.
func TestPanicOfTheEnd(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	p := Policy{
		Attempts: 2, Backoff: func(int) time.Duration { return time.Millisecond },
		GivenUp: func(context.Context, []byte, error) error { panic("poisonous") },
	}
	start(t, d, 1, p, func(context.Context, work, int64) error { panic("poisonous") })
	enqueue(t, d, "x", Options{})
	wait.Until(t, "dead", func() bool { return count(t, d, "state = 'dead' AND error LIKE '%poisonous%'") == 1 })
}

// If the database fails while jobs start, Run returns an error. Another Run works.
func TestRunAfterFailedStart(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := d.Admin(t.Context(), `ALTER TABLE job_kinds RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	enqueue(t, d, "x", Options{})
	j := New(Config{
		DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 1},
		Lease: 300 * time.Millisecond, Poll: 20 * time.Millisecond, Drain: 5 * time.Second,
	})
	ctx, cancel := context.WithCancel(t.Context())
	Handle(j, Policy{Attempts: 2}, func(context.Context, work, int64) error { cancel(); return nil })
	if err := j.Run(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("started without its table: %v", err)
	}
	if err := d.Admin(t.Context(), `ALTER TABLE away RENAME TO job_kinds`); err != nil {
		t.Fatal(err)
	}
	if err := j.Run(ctx); err != nil || count(t, d, "1=1") != 0 {
		t.Errorf("run again: %v, %d jobs left", err, count(t, d, "1=1"))
	}
}

// A panic while leasing or running an item ends neither the loop nor other items.
func TestLoopOutlivesPanics(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	turns, failed := 0, 0
	Loop{
		Places: 1, Poll: time.Millisecond,
		Lease: func(context.Context) (func(), error) {
			switch turns++; turns {
			case 1:
				panic("a row that can't be read")
			case 2:
				return func() { panic("an item that can't be done") }, nil
			}
			return cancel, nil
		},
		Failed: func(_ context.Context, err error) {
			if failed++; !errors.Is(err, panics.ErrPanic) {
				t.Error(err)
			}
		},
	}.Run(ctx)
	if turns < 3 || failed != 1 {
		t.Errorf("%d turns, %d failed", turns, failed)
	}
}

func TestLaterIsNoFailure(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	start(t, d, 1, Policy{Attempts: 1}, func(_ context.Context, _ work, attempt int64) error {
		if attempt < 4 {
			return Later(time.Millisecond)
		}
		return nil
	})
	enqueue(t, d, "x", Options{})
	wait.Until(t, "done", func() bool { return count(t, d, "TRUE") == 0 })
}

func TestCancelEndsRunningAndRemovesWaiting(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	causes := make(chan error, 1)
	start(t, d, 1, Policy{}, func(ctx context.Context, _ work, _ int64) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	enqueue(t, d, "running", Options{Unique: "r"})
	wait.Until(t, "running", func() bool { return count(t, d, "state = 'running'") == 1 })
	enqueue(t, d, "waiting", Options{Unique: "w"})
	for _, key := range []string{"w", "unknown", "r"} { // the running one last, because its end lets the waiting one run
		var running bool
		want := key == "r"
		if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			running, err = Cancel(
				t.Context(),
				tx,
				key,
			)
			return err
		}); err != nil || running != want {
			t.Errorf("cancel %s: running %v, %v; want %v", key, running, err, want)
		}
	}
	if cause := <-causes; !errors.Is(cause, ErrCanceled) {
		t.Fatalf("the handler saw %v, want ErrCanceled", cause)
	}
	wait.Until(t, "both gone", func() bool { return count(t, d, "TRUE") == 0 })
}

// A crashed process's job runs again: on SQLite immediately after the restart, on PostgreSQL when its lease has ended.
func TestRestartTakesOver(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	enqueue(t, d, "x", Options{Group: "g"})
	dead := New(Config{DB: d, Log: slog.New(slog.DiscardHandler), Lease: 400 * time.Millisecond})
	Handle(dead, Policy{}, func(context.Context, work, int64) error { return nil })
	c, err := dead.lease(t.Context(), "default")
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	attempts := make(chan int64, 1)
	start(t, d, 1, Policy{}, func(_ context.Context, _ work, attempt int64) error { attempts <- attempt; return nil })
	if got := <-attempts; got != 2 {
		t.Fatalf("attempt %d, want 2", got)
	}
	wait.Until(t, "done", func() bool { return count(t, d, "TRUE") == 0 })
}

// A worker whose lease was taken over can neither end the job nor renew its lease.
func TestLostLeaseIsFenced(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	enqueue(t, d, "x", Options{})
	j := New(Config{DB: d, Log: slog.New(slog.DiscardHandler)})
	Handle(j, Policy{}, func(context.Context, work, int64) error { return nil })
	first, err := j.lease(t.Context(), "default")
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	if err := j.rescue(t.Context(), 1<<62); err != nil {
		t.Fatal(err)
	}
	second, err := j.lease(t.Context(), "default")
	if err != nil || second == nil || second.attempt != 2 {
		t.Fatal(second, err)
	}
	if err := j.settle(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	if count(t, d, "state = 'running' AND attempt = 2") != 1 {
		t.Fatal("the first worker ended the second worker's job")
	}
	ctx, release := j.leases.Hold(t.Context(), first.id, first.attempt)
	defer release()
	if err := j.leases.RenewAll(t.Context()); err != nil || !errors.Is(context.Cause(ctx), ErrLost) {
		t.Fatalf("renewing: %v, cause %v; want ErrLost", err, context.Cause(ctx))
	}
}

// Stopping lets running jobs finish, and returns those that don't to the queue.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	started, release := make(chan struct{}, 2), make(chan struct{})
	n := start(t, d, 2, Policy{}, func(ctx context.Context, a work, _ int64) error {
		started <- struct{}{}
		if a.Name == "stubborn" {
			<-ctx.Done()
			return ctx.Err()
		}
		<-release
		return nil
	})
	n.c.Drain = 50 * time.Millisecond
	enqueue(t, d, "quick", Options{})
	enqueue(t, d, "stubborn", Options{})
	<-started
	<-started
	close(release)
	n.stop()
	if count(t, d, "TRUE") != 1 || count(t, d, "state = 'ready' AND failures = 0") != 1 {
		t.Fatal("want the slow job to be ready again without a failure, and the quick one to be gone")
	}
}

// Cancel finds its job by an index on the key, however many jobs wait.
func TestCancelReadsOneJob(t *testing.T) {
	t.Parallel()
	var asked []string
	d := dbtest.New(t, func(c *db.Config) { c.Seen = func(q string) { asked = append(asked, q) } })
	if !d.Single() {
		t.Skip("PostgreSQL plans by what is in the table")
	}
	asked = nil
	if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := Cancel(t.Context(), tx, "none"); return err }); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 {
		t.Fatalf("asked %q", asked)
	}
	for _, q := range asked {
		rows, err := d.Query(t.Context(), "EXPLAIN QUERY PLAN "+q, "none")
		steps, err := db.Collect(rows, err, func(r db.Scanner) (step string, err error) {
			var a, b, c int
			return step, r.Scan(&a, &b, &c, &step)
		})
		if err != nil || len(steps) != 1 || !strings.Contains(steps[0], "SEARCH jobs USING INDEX jobs_uniq") {
			t.Errorf("%s: %q, %v", q, steps, err)
		}
	}
}

// A job for another node is passed to it, and its first call there counts as the first attempt. If that node is gone,
// any other node may take the job.
func TestJobGoesToItsNode(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	live := func(name string, until db.Time) {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `
				INSERT INTO nodes (id, run, name, address, version, roles, blobs, site_domain, ahead_ms, state, started_at, seen_at, lease_until)
				VALUES ($1, '', $1, '', '', '', '', '', 0, 'up', 0, 0, $2) ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`, name, until)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	live("a", 1<<60)
	live("b", 1<<60)
	var r recorder
	run := func(name string) *node {
		n := &node{Jobs: New(Config{
			DB: dbtest.Open(t, url), Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 2}, Node: name,
			Lease: time.Second, Poll: 20 * time.Millisecond,
		})}
		Handle(n.Jobs, Policy{}, func(_ context.Context, a work, attempt int64) error {
			r.add(fmt.Sprint(name, " ", a.Name, " ", attempt))
			if a.Name != name && !slices.Contains(r.all(), "gone") {
				return On(a.Name)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		n.stop = sync.OnceFunc(func() { cancel(); <-done })
		t.Cleanup(n.stop)
		return n
	}
	run("a")
	b := run("b")
	for range 10 {
		enqueue(t, d, "b", Options{})
	}
	wait.Until(t, "all are done", func() bool { return count(t, d, "TRUE") == 0 })
	at := 0
	for _, x := range r.all() {
		if strings.HasPrefix(x, "b b") {
			at++
			if x != "b b 1" {
				t.Errorf("a call of the right node is %q", x)
			}
		}
	}
	if at != 10 {
		t.Errorf("%d of 10 ran on b: %v", at, r.all())
	}
	b.stop()
	enqueue(t, d, "b", Options{})
	wait.Until(t, "it waits for b", func() bool { return count(t, d, "node = 'b' AND state = 'ready'") == 1 })
	r.add("gone")
	live("b", 1)
	wait.Until(t, "a looks at it", func() bool { return count(t, d, "TRUE") == 0 })
}
