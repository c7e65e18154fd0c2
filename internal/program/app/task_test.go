package app

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/platform/wait"
	"slipway/internal/program/applog"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

// fleet has several nodes on one database. Their site serves deployments with tasks.
type fleet struct {
	t       *testing.T
	db      *db.DB
	ops     *operation.Operations
	nodes   []*Apps
	engines []*fakeEngine

	mu    sync.Mutex             // guards tasks
	tasks map[string][]task.Task // by deployment
}

func newFleet(t *testing.T, nodes int, change ...func(*Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, db: dbtest.New(t), tasks: map[string][]task.Task{}}
	for _, q := range []string{
		`DROP VIEW live`,
		`CREATE TABLE live (site_id TEXT PRIMARY KEY, deployment_id TEXT NOT NULL, state TEXT NOT NULL, backend TEXT NOT NULL,
			host_label TEXT NOT NULL, owner_id TEXT NOT NULL)`,
		`INSERT INTO live VALUES ('site', 'one', 'live', 'program', 'shop', 'owner')`,
	} {
		if err := f.db.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	f.ops = operation.New(operation.Config{DB: f.db})
	for range nodes {
		f.add(change...)
	}
	return f
}

// add adds a node.
func (f *fleet) add(change ...func(*Config)) {
	e := &fakeEngine{}
	c := Config{DB: f.db, Engine: e, Operations: f.ops, Launch: wants(func(_ context.Context, deployment string) (Wanted, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return Wanted{
			Drain:      77 * time.Second,
			Site:       "site",
			Owner:      "owner",
			Deployment: id.Deployment(deployment),
			Tasks:      f.tasks[deployment],
			Health:     time.Minute,
			Sleep:      time.Minute,
		}, nil
	})}
	for _, change := range change {
		change(&c)
	}
	f.nodes, f.engines = append(f.nodes, New(c)), append(f.engines, e)
}

func (f *fleet) exec(q string, args ...any) {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(f.t.Context(), q, args...); return err })
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) jobs() (n int) {
	f.t.Helper()
	if err := f.db.QueryRow(f.t.Context(), `SELECT count(*) FROM jobs WHERE kind = 'app.cron'`).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fleet) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	wait.Until(f.t, what, ok)
}

// A scheduled command must be enqueued once per scheduled time, even if several nodes check at once. It must not be
// enqueued while its previous run has not ended, for a deployment that is not live, or hours late.
func TestCronOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.tasks["one"] = []task.Task{{Kind: "cron", Name: "tidy", Schedule: "* * * * *", Command: task.Command{Argv: []string{"node", "tidy.js"}}}}
	f.tasks["two"] = []task.Task{
		{Kind: "cron", Name: "tidy", Schedule: "* * * * *", Command: task.Command{Argv: []string{"node", "two.js"}}},
		{Kind: "cron", Name: "yearly", Schedule: "@yearly", Command: task.Command{Shell: "x"}},
	}
	all := func(do func(*Apps) error) {
		t.Helper()
		var wg sync.WaitGroup
		for _, a := range f.nodes {
			wg.Go(func() {
				if err := do(a); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	all(func(a *Apps) error { return a.declare(t.Context()) })
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 0 {
		t.Fatalf("%d runs before the time", n)
	}
	due := func() { f.exec(`UPDATE app_tasks SET next_at = $1 WHERE name = 'tidy'`, db.Now()-1) }
	due()
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 1 {
		t.Fatalf("%d runs, want 1", n)
	}
	due()
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 1 {
		t.Errorf("%d runs, although the first has not ended", n)
	}
	f.exec(`DELETE FROM jobs`)
	f.exec(`UPDATE app_tasks SET next_at = $1 WHERE name = 'tidy'`, db.Now().Add(-2*lateCron))
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 0 {
		t.Errorf("%d runs for a time long gone", n)
	}
	f.exec(`UPDATE live SET deployment_id = 'two'`)
	due()
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 0 {
		t.Errorf("%d runs of a deployment that is not live any more", n)
	}
	all(func(a *Apps) error { return a.declare(t.Context()) })
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	var args string
	f.ok(f.db.QueryRow(t.Context(), `SELECT args FROM jobs WHERE kind = 'app.cron'`).Scan(&args))
	if !strings.Contains(args, "two.js") {
		t.Errorf("the job runs %s", args)
	}
	states, err := f.nodes[0].Tasks(t.Context(), "site")
	f.ok(err)
	if len(states) != 2 || states[0].Name != "tidy" || states[0].Next <= db.Now() || states[1].Name != "yearly" {
		t.Errorf("tasks %+v", states)
	}
	f.exec(`UPDATE live SET state = 'stopped'`)
	f.exec(`DELETE FROM jobs`)
	due()
	all(func(a *Apps) error { return a.schedule(t.Context()) })
	if n := f.jobs(); n != 0 {
		t.Errorf("%d runs of a stopped site", n)
	}
}

// A run must be logged from its start to its end, and a run that a crash interrupted must not be repeated.
func TestCronRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a, e := f.nodes[0], f.engines[0]
	e.dieIn = 10 * time.Millisecond
	f.tasks["one"] = []task.Task{{Kind: "cron", Name: "tidy", Schedule: "@daily", Command: task.Command{Argv: []string{"node", "tidy.js"}}}}
	f.ok(a.declare(t.Context()))
	state := func() TaskState {
		t.Helper()
		list, err := a.Tasks(t.Context(), "site")
		f.ok(err)
		return list[0]
	}
	if s := state(); s.Last != 0 {
		t.Errorf("before it has run: %+v", s)
	}
	r := RunCron{Site: "site", Deployment: "one", Name: "tidy", Command: task.Command{Argv: []string{"node", "tidy.js"}}}
	f.ok(a.runCron(t.Context(), r, 1))
	if s := state(); s.Last == 0 || s.LastExit != 1 {
		t.Errorf("after it has ended: %+v", s)
	}
	f.ok(a.runCron(t.Context(), r, 2))
	r.Queued = state().Last + 1 // another run, whose node was killed before the run began
	f.ok(a.runCron(t.Context(), r, 2))
	if n := e.starts(); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	lines, err := a.Logs(t.Context(), "site", applog.Filter{Process: "cron:tidy", Flush: true})
	f.ok(err)
	var said []string
	for _, l := range lines {
		said = append(said, l.Message)
	}
	if len(said) != 4 || said[0] != "Started: node tidy.js" || !strings.HasPrefix(
		said[1],
		"Ended with exit code 1 after ",
	) || !strings.HasPrefix(said[2], "Interrupted") || !strings.HasPrefix(said[3], "Missed: ") {
		t.Errorf("its log: %q", said)
	}
	// A run on request must be an operation, and must count as a run of the task.
	f.exec(`UPDATE app_tasks SET last_at = 0, last_exit = -1`)
	var op operation.Operation
	f.ok(f.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		op, err = a.RunCronTx(t.Context(), tx, "owner", "site", "tidy")
		return err
	}))
	f.ok(a.runCommand(t.Context(), RunCommand{
		Operation:  op.ID,
		Site:       "site",
		Deployment: "one",
		Command:    r.Command,
		Timeout:    cronTime,
		Cron:       "tidy",
	}, 1))
	op, err = f.ops.Get(t.Context(), "owner", op.ID)
	f.ok(err)
	if s := state(); op.Status != operation.Failed || !strings.Contains(
		string(op.Result),
		`"exitCode":1`,
	) || s.Last == 0 || s.LastExit != 1 {
		t.Errorf("on request: %+v, %+v", op, s)
	}
	if n, m := a.up.Load(), a.Running("owner"); n != 0 || m != 0 {
		t.Errorf("%d and %d still counted", n, m)
	}
}

// A worker must run on one node while its deployment is live, must be restarted after it has ended, and must never run
// beside the worker of the next deployment.
func TestWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	for _, d := range []string{"one", "two"} {
		f.tasks[d] = []task.Task{{Kind: "worker", Name: "mail", Command: task.Command{Argv: []string{"node", d + ".js"}}}}
	}
	ctx, stop := context.WithCancel(t.Context())
	look := func() {
		t.Helper()
		for i, a := range f.nodes {
			if f.db.Single() && i > 0 {
				break // there is only one node
			}
			f.ok(a.declare(ctx))
			f.ok(a.keepWorkers(ctx))
		}
	}
	up := func() (argv []string) {
		for _, e := range f.engines {
			e.mu.Lock()
			for _, p := range e.started {
				if p.running() {
					argv = append(argv, strings.Join(p.spec.Argv, " "))
				}
			}
			e.mu.Unlock()
		}
		return argv
	}
	want := func(what string, argv ...string) {
		t.Helper()
		f.until(what, func() bool { look(); return slices.Equal(up(), argv) })
	}
	want("the worker", "node one.js")
	for _, e := range f.engines {
		if n := e.starts(); n > 1 {
			t.Errorf("%d starts", n)
		}
	}
	f.exec(`UPDATE live SET deployment_id = 'two'`)
	f.until("the next one", func() bool {
		look()
		now := up()
		if len(now) > 1 {
			t.Fatalf("side by side: %q", now)
		}
		return slices.Equal(now, []string{"node two.js"})
	})
	for _, e := range f.engines {
		for _, p := range e.started {
			if p.running() {
				p.end(exitOne)
				continue
			}
			p.mu.Lock()
			if p.grace != 77*time.Second { // a worker gets as much time to finish as requests do
				t.Errorf("a worker had %s to end, want the site's drain time", p.grace)
			}
			p.mu.Unlock()
		}
	}
	want("it again after its end", "node two.js")
	f.exec(`UPDATE live SET state = 'stopped'`)
	want("its end")
	f.exec(`UPDATE live SET state = 'live'`)
	want("it again", "node two.js")
	stop()
	for _, a := range f.nodes {
		a.closeWorkers()
	}
	if now := up(); len(now) > 0 {
		t.Errorf("after the end %q run", now)
	}
}

// A command must end at its timeout or when the service stops, its output must be stored in the operation, and it must
// count towards the owner's limit.
func TestCommand(t *testing.T) {
	t.Parallel()
	most := int64(1)
	f := newFleet(t, 1, func(c *Config) {
		c.Limits = allowance{most: func() int64 { return most }}
	})
	a, e := f.nodes[0], f.engines[0]
	run := func(timeout time.Duration, attempt int64) operation.Operation {
		t.Helper()
		var op operation.Operation
		f.ok(f.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			op, err = a.RunTx(t.Context(), tx, account.Caller{Owner: "owner"}, "site", "one", task.Command{Argv: []string{"node", "x.js"}}, timeout)
			return err
		}))
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := a.RunTx(t.Context(), tx, account.Caller{Owner: "owner"}, "site", "one", task.Command{Argv: []string{"node"}}, timeout)
			return err
		}); code(err) != "operation_running" {
			t.Errorf("a second at once: %v", err)
		}
		if attempt > 2 { // the command had begun
			f.ok(a.advance(t.Context(), op.ID, "Running"))
		}
		f.ok(a.runCommand(t.Context(), RunCommand{
			Operation:  op.ID,
			Site:       "site",
			Deployment: "one",
			Command:    task.Command{Argv: []string{"node", "x.js"}},
			Timeout:    timeout,
		}, attempt))
		op, err := f.ops.Get(t.Context(), "owner", op.ID)
		f.ok(err)
		return op
	}
	e.dieIn = 10 * time.Millisecond
	for attempt := range int64(2) { // the second attempt comes after a crash before the command began
		op := run(time.Minute, attempt+1)
		if op.Status != operation.Failed || op.Error != "The command failed: exit code 1" || !strings.Contains(string(op.Result), `"exitCode":1`) {
			t.Errorf("ended as %+v %s", op, op.Result)
		}
	}
	e.dieIn = 0
	if op := run(20*time.Millisecond, 1); op.Status != operation.Failed || !strings.Contains(op.Error, "did not end within 20ms") {
		t.Errorf("out of time it ended as %+v", op)
	}
	starts := e.starts()
	if op := run(time.Minute, 3); op.Status != operation.Failed || !strings.Contains(op.Error, "not repeated") || e.starts() != starts {
		t.Errorf("after a crash it ended as %+v", op)
	}
	most = 0
	if op := run(
		time.Minute,
		1,
	); op.Status != operation.Failed || !strings.Contains(op.Error, "programs of this account are running already") {
		t.Errorf("over the limit it ended as %+v", op)
	}
	if _, err := a.Acquire(t.Context(), "one"); err == nil || e.starts() != starts {
		t.Errorf("over the limit a program was woken: %v", err)
	}
	if n, m := a.up.Load(), a.Running("owner"); n != 0 || m != 0 {
		t.Errorf("%d and %d still counted", n, m)
	}
}

// When a site is deleted, its tasks must be deleted too.
func TestTasksOfDeletedSite(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.tasks["one"] = []task.Task{{Kind: "worker", Name: "mail", Command: task.Command{Argv: []string{"node"}}}}
	f.ok(f.nodes[0].declare(t.Context()))
	f.ok(f.nodes[0].ForgetSite(t.Context(), "site"))
	var n int
	f.ok(f.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM app_tasks) + (SELECT count(*) FROM app_declared)`).Scan(&n))
	if n != 0 {
		t.Errorf("%d rows stay", n)
	}
}

// Two commands of one owner may run at a time, whatever their names are. Each must take the lane with the fewest jobs,
// and one that waits behind a long run must move to the other lane when that is free. If a run never began, the log
// must say that it waits.
func TestLanes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	for _, name := range []string{"a", "c", "e", "g"} { // the sums of their bytes are all even or all odd
		f.tasks["one"] = append(f.tasks["one"], task.Task{Kind: "cron", Name: name, Schedule: "* * * * *", Command: task.Command{Argv: []string{"node"}}})
	}
	f.ok(a.declare(t.Context()))
	due := func() {
		t.Helper()
		f.exec(`UPDATE app_tasks SET next_at = $1`, db.Now()-1)
		f.ok(a.schedule(t.Context()))
	}
	due()
	of := func(state string) map[string][]string { // the names of jobs, by lane
		t.Helper()
		rows, err := f.db.Query(t.Context(), `SELECT grp, args FROM jobs WHERE state = $1 ORDER BY id`, state)
		out := map[string][]string{}
		_, err = db.Collect(rows, err, func(s db.Scanner) (struct{}, error) {
			var lane, args string
			var r RunCron
			err := s.Scan(&lane, &args)
			f.ok(errors.Join(err, json.Unmarshal([]byte(args), &r)))
			out[lane] = append(out[lane], r.Name)
			return struct{}{}, nil
		})
		f.ok(err)
		return out
	}
	zero, one := lanes("owner")[0], lanes("owner")[1]
	if got := of("ready"); len(got[zero]) != 2 || len(got[one]) != 2 {
		t.Fatalf("four commands wait as %v", got)
	}
	// The first job of each lane begins. Then the running job of the other lane ends, and after it the job that waited
	// there.
	f.exec(`UPDATE jobs SET state = 'running' WHERE id IN (SELECT MIN(id) FROM jobs GROUP BY grp)`)
	a.leaveLane(t.Context(), "owner", one) // a job waits in this lane itself
	if got := of("ready"); len(got[zero]) != 1 || len(got[one]) != 1 {
		t.Errorf("with one that waits in each lane they wait as %v", got)
	}
	f.exec(`DELETE FROM jobs WHERE grp = $1 AND state = 'ready'`, one)
	a.leaveLane(t.Context(), "owner", one)
	if got := of("ready"); len(got[zero]) != 0 || len(got[one]) != 1 {
		t.Errorf("behind a long command they wait as %v", got)
	}
	f.exec(`DELETE FROM jobs WHERE grp = $1 AND state = 'running'`, one)

	// When both commands are due again, the running one and the waiting one must be skipped, each with its own reason.
	running, waiting := of("running")[zero][0], of("ready")[one][0]
	f.ok(a.tasks.Ran(t.Context(), "site", running, db.Now(), -1))
	due()
	for name, want := range map[string]string{running: "Skipped: the run before has not ended yet", waiting: "Skipped: the run before still waits for other"} {
		lines, err := a.Logs(t.Context(), "site", applog.Filter{Process: "cron:" + name, Flush: true})
		f.ok(err)
		if len(lines) != 1 || !strings.HasPrefix(lines[0].Message, want) {
			t.Errorf("the log of %s says %+v, want %q", name, lines, want)
		}
	}
}

// An operation must keep the last part of its command's output, in whole lines.
func TestTail(t *testing.T) {
	t.Parallel()
	var short, long task.Tail
	short.Add("stdout", "one")
	short.Add("stderr", "two\xff")
	if got := short.Get(); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	for i := range 50_000 {
		long.Add("stdout", strconv.Itoa(i))
	}
	if got := long.Get(); len(got) > task.TailBytes || len(got) < task.TailBytes-8 || !strings.HasSuffix(
		got,
		"\n49998\n49999\n",
	) || len(got[:strings.IndexByte(got, '\n')]) != 5 {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
	var endless task.Tail
	endless.Add("stdout", strings.Repeat("x", 3*task.TailBytes))
	if got := endless.Get(); len(got) > task.TailBytes || !strings.HasSuffix(got, "xx\n") {
		t.Errorf("%d bytes", len(got))
	}
}

// A command must end when the user who started it loses the right to run commands, whether it has begun or not. A
// command started with a service key must keep running.
func TestCommandEndsWithTheRight(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a, e := f.nodes[0], f.engines[0]
	users := account.New(account.Config{DB: f.db})
	grace, err := users.CreateUser(t.Context(), "grace@example.test", "", false)
	f.ok(err)
	for _, q := range []string{
		`INSERT INTO owners (id, kind, created_at) VALUES ('owner', 'team', 1)`,
		`INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, suspended_at, deleting_at, deleted_at)
			VALUES ('team', 'owner', 'Acme', 'acme', FALSE, FALSE, 'all', 1, 0, 0, 0)`,
	} {
		f.exec(q)
	}
	is := func(role string) {
		f.exec(`DELETE FROM team_members`)
		if role != "" {
			f.exec(`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ('owner', '` + string(grace.ID) + `', '` + role + `', FALSE, 1, '')`)
		}
	}
	run := func(by account.Caller, meanwhile func()) operation.Operation {
		t.Helper()
		by.Owner = "owner"
		var op operation.Operation
		f.ok(f.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			op, err = a.RunTx(t.Context(), tx, by, "site", "one", task.Command{Argv: []string{"node"}}, time.Minute)
			return err
		}))
		var args []byte
		f.ok(f.db.QueryRow(t.Context(), `SELECT args FROM jobs WHERE kind = 'app.command' ORDER BY id DESC LIMIT 1`).Scan(&args))
		f.exec(`DELETE FROM jobs WHERE kind = 'app.command'`)
		var r RunCommand
		f.ok(json.Unmarshal(args, &r))
		began := e.starts()
		over := make(chan error)
		go func() { over <- a.runCommand(t.Context(), r, 1) }()
		if meanwhile != nil {
			wait.Until(t, "the command", func() bool { return e.starts() > began })
			meanwhile()
		}
		f.ok(<-over)
		op, err := f.ops.Get(t.Context(), "owner", op.ID)
		f.ok(err)
		return op
	}
	for name, end := range map[string]func(){
		"removed": func() { is("") }, "demoted": func() { is("viewer") },
		"suspended": func() { f.exec(`UPDATE users SET suspended_at = 1 WHERE id = '` + string(grace.ID) + `'`) },
	} {
		f.exec(`UPDATE users SET suspended_at = 0`)
		is("developer")
		if op := run(account.Caller{User: grace.ID}, end); op.Status != operation.Failed || !strings.Contains(op.Error, "may not run it any more") {
			t.Errorf("%s, the command ended as %+v", name, op)
		}
		began := e.starts()
		if op := run(account.Caller{User: grace.ID}, nil); e.starts() != began || !strings.Contains(op.Error, "may not run it any more") {
			t.Errorf("%s before it began, it ended as %+v", name, op)
		}
	}
	if op := run(account.Caller{User: grace.ID, Service: true}, func() { e.last().end(runtime.Exit{}) }); op.Status != operation.Success {
		t.Errorf("that of a service key ended as %+v", op)
	}
}
