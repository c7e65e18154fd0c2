// Package app owns which programs run on this machine: waking and sleeping, switching from one to the next, and their output.
//
// A program belongs to a deployment. Acquire is for callers with a request for it: a sleeping program is woken while the request waits,
// once for any number of callers. Start is for a deployment that is about to go live: it returns when the program is healthy. Run is the
// loop that compares the programs that should run with those that do: idle programs are put to sleep, programs of a replaced deployment
// are drained, programs of stopped or deleted sites end, and programs that never sleep are restarted. Nothing else stops a program, and
// no program outlives the process.
//
// A site's program is accompanied by its workers (always, on one node), its scheduled commands
// (once for each time, on any node), and commands started by Execute and RunTx.
//
// The package runs nothing itself: a [runtime.Engine] does.
package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/build/buildlog"
	"slipway/internal/edge/compress"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/alert"
	"slipway/internal/program/applog"
	"slipway/internal/program/figures"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/remote"
	"slipway/internal/program/runtime"
	"slipway/internal/program/scale"
	"slipway/internal/program/storage"
	"slipway/internal/program/task"
	"slipway/internal/program/transport"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/usage"
)

// Wanted says what a deployment runs, and how it is kept running.
type Wanted struct {
	Spec runtime.Spec // its ID and Output are this package's

	PHP *transport.PHP // how requests find their script; nil where the program speaks HTTP

	Secrets    *buildlog.Redactor // hides secrets in what it prints. Optional.
	Site       id.Site
	Owner      account.OwnerID // who owns the site
	Deployment id.Deployment
	Live       bool          // the site serves it
	Tasks      []task.Task   // what runs beside it while it is live
	Host       string        // of the site, for health checks
	HealthPath string        // Optional: empty means that a connection is enough.
	Health     time.Duration // how long it may take to become healthy
	Sleep      time.Duration // unused for so long, it stops; 0: never
	Drain      time.Duration // what it is given to finish once another has taken its place
	MaxBody    int64         // bytes of a request's body; 0: no limit
	FirstByte  time.Duration // until an answer's first byte; 0: as the edge has it
	Stored     int64         // bytes of storage before its owner's room bounds it; this package's
	Instances  scale.Range   // how many may run at once, of what the site serves
	Root       string        // the project's folder in the bundle, to which the names of storage are relative
	Settings   string        // of the site, as the view run_settings has them
	Revision   int64         // of what it reads when it starts: one that runs is started anew where the site's is another
	Pinned     bool          // it has databases on this node alone
	Missing    error         // why it can't start on this node. Optional.
}

// Config holds what Apps needs.
type Config struct {
	DB         *db.DB
	Engine     runtime.Engine // Optional: nil refuses with Why.
	Why        string
	Launch     Launch                // or Connect's, where that is made later
	Places     *placement.Places     // Optional: nil is an installation of one node.
	Relay      *relay.Dialer         // reaches the programs of other nodes. Optional: nil refuses them.
	Node       string                // this one's id. Optional with one node.
	Storage    storage.Disk          // Optional: without it nobody counts what is stored.
	Operations *operation.Operations // required by RestartTx, RunTx and their jobs
	// Limits say how many programs and commands an owner may run at once, and how much its sites
	// may store. Optional: nil leaves the first to Most.
	Limits Limits
	Usage  *usage.Usage // of memory and CPU. Optional: nil counts none.
	Log    *slog.Logger // Optional.
	People alert.People // or Connect's. Optional: nobody is told of crashes.

	Spool string // directory of what is on its way to and from PHP. Optional: empty is the system's.

	WakeTime time.Duration // how long a request waits for a program to come up. Optional: 0 means 30s.
	Tick     time.Duration // how often the loop looks. Optional: 0 means 1s.
	Most     int           // programs at once. Optional: 0 means 500.
}

// Launch says what deployments run. Package launch does, which stands on this one.
type Launch interface {
	// Wanted returns what a deployment runs, as it is now: with today's variables.
	Wanted(ctx context.Context, deployment id.Deployment) (Wanted, error)
	// TidyPreviews deletes what is stored of previews that have ended.
	TidyPreviews(ctx context.Context) error
}

// Limits say what an owner may have. *account.Limits does.
type Limits interface {
	LimitOf(ctx context.Context, r db.Reader, owner account.OwnerID, name limits.Name) (int64, error)
	UseOf(ctx context.Context, r db.Reader, owner account.OwnerID, name limits.Name) (limits.Use, error)
}

// Apps holds the programs that run on this machine. It is safe for concurrent use.
type Apps struct {
	c       Config
	logs    *applog.Logs
	alerts  *alert.Alerts
	owners  fair.Count // what runs of each
	tasks   *task.Tasks
	workers workers
	figures *figures.Counter
	storage *storage.Meter
	remotes *remote.Programs
	states  states
	copies  *compress.Copies
	quiet   quiet
	starts  *fair.Pool // programs that visitors wake, until they listen
	node    string     // this one, among others that hold workers

	// giving says since when sites are being given away; keepHandingOver's alone.
	// share: total the sites of this node; owner its sites; edge emptied when the node no longer drains
	giving map[id.Site]time.Time

	compared atomic.Int64 // the lapses of this node's lease after which its sites were compared

	// instances, those on their way up or down included //share: total Most (500); owner sites.running; edge an
	// idle one of the owner that runs the most sleeps, else 503
	up   atomic.Int64
	work panics.Background // what starts or stops one
	down chan struct{}     // closed when the service stops

	mu sync.Mutex // guards programs, closing; taken before a program's own
	// share: total of the deployments that exist; owner of its own deployments; edge those that don't run are forgotten after 10 minutes
	programs map[id.Deployment]*program
	closing  bool

	// share: total the sites with programs; owner its sites; edge none: it is as long as their list
	known map[id.Site]row // what the sites of programs serve; Run's alone
	asked time.Time       // when it was read
}

// Connect says what deployments run, and who tells people of crashes, where these are made after Apps. It belongs before Run.
func (a *Apps) Connect(l Launch, p alert.People) {
	a.c.Launch, a.alerts = l, alert.New(a.c.DB, p, a.c.Log)
}

// maxStarts is how many programs come up at once for visitors. One that hangs holds its owner's place alone.
const maxStarts = 32

// New returns Apps. It starts nothing: Run keeps the order.
func New(c Config) *Apps {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.WakeTime = cmp.Or(c.WakeTime, 30*time.Second)
	c.Tick = cmp.Or(c.Tick, time.Second)
	c.Most = cmp.Or(c.Most, 500)
	a := &Apps{
		c:        c,
		logs:     applog.New(c.DB, c.Log),
		alerts:   alert.New(c.DB, c.People, c.Log),
		figures:  figures.New(c.DB),
		storage:  storage.New(storage.Config{DB: c.DB, Disk: c.Storage, Limits: c.Limits, Places: c.Places, Log: c.Log}),
		programs: map[id.Deployment]*program{},
		down:     make(chan struct{}),
		copies:   compress.New(compress.Config{}),
		node:     cmp.Or(c.Node, db.NewID("node")),
	}
	a.remotes = remote.New(c.Relay, a.figures, a.logs)
	// share: total 32 starts; owner 8; edge the wake waits its turn, and its visitors for WakeTime
	a.starts = fair.New(fair.Config{Places: maxStarts, Owner: maxStarts / 4})
	a.tasks = task.New(task.Config{DB: c.DB, Places: c.Places, Node: a.node})
	return a
}

// State says where a program stands.
type State string

// The states.
const (
	None     State = "none"     // the site has no program
	Starting State = "starting" // it is on its way up
	Running  State = "running"
	Sleeping State = "sleeping" // the next request wakes it
	Stopped  State = "stopped"  // the site is stopped
	Crashed  State = "crashed"  // it ends again and again, and is tried again later
)

// Process says how a site's program is.
type Process struct {
	State      State
	Since      time.Time
	Deployment id.Deployment
	Restarts   int
	Instances  int   // that run
	Memory     int64 // bytes
	CPU        time.Duration
	Message    string // why it crashed
	// NeedsRestart says that it runs with other settings than its site has by now: limits, ports, storage, variables or the command.
	NeedsRestart bool
	// Written are the places outside of storage that programs and commands of the deployment wrote to on this node, relative
	// to the project: what is lost at the next start.
	Written []runtime.Written
}

// Status returns how the program of a deployment is, wherever it runs.
func (a *Apps) Status(deployment id.Deployment) Process {
	a.mu.Lock()
	p := a.programs[deployment]
	a.mu.Unlock()
	here := Process{State: Sleeping, Deployment: deployment}
	if p != nil {
		here = p.status()
	}
	if here.State == Sleeping {
		if there, ok := a.elsewhere(string(deployment)); ok {
			return there
		}
	}
	return here
}

// Note writes what the service says into a site's log.
func (a *Apps) Note(site id.Site, text string) { a.logs.System(site, "", text) }

// Logs returns lines of a site, the oldest first. The caller knows that the site is its own.
func (a *Apps) Logs(ctx context.Context, site id.Site, f applog.Filter) ([]applog.Line, error) {
	return a.logs.Read(ctx, site, f)
}

// Metrics returns a site's figures, as package figures reads them. The caller knows that the site is its own.
func (a *Apps) Metrics(
	ctx context.Context, site id.Site, since, until db.Time, step time.Duration,
) ([]figures.Point, figures.Figures, time.Duration, error) {
	return a.figures.Read(ctx, site, since, until, step)
}

// ForgetSite removes what is stored of a deleted site's programs, on the node that keeps it; the site has a node no longer.
func (a *Apps) ForgetSite(ctx context.Context, site id.Site) error {
	if err := a.c.Places.Here(ctx, site); err != nil {
		return err
	}
	if a.c.Storage != nil {
		if err := a.c.Storage.ForgetStorage(site); err != nil {
			return err
		}
	}
	return a.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := a.purgeTx(ctx, tx, site); err != nil {
			return err
		}
		return placement.ForgetTx(ctx, tx, site)
	})
}

// purgeTx forgets what is stored of a deleted site's programs in the database.
func (a *Apps) purgeTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	return errors.Join(a.logs.PurgeTx(ctx, tx, site), a.figures.PurgeTx(ctx, tx, site),
		a.storage.PurgeTx(ctx, tx, site), a.tasks.PurgeTx(ctx, tx, site))
}
