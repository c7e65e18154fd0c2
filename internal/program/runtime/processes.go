package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"golang.org/x/sys/unix"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/phpversion"
	"slipway/internal/build/root"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/watchdog"
	"slipway/internal/program/php"
	"slipway/internal/program/volume"
	"slipway/internal/program/wpcli"
)

// Config holds what Processes needs.
type Config struct {
	Runner    sandbox.Runner
	Bundles   *bundle.Bundles
	Toolchain *toolchain.Toolchain
	Roots     *root.Roots // Optional: nil is the host's tools alone.
	Egress    *egress.Egress
	Dir       string         // absolute, ours: scratch space of what runs
	Storage   string         // absolute, ours: what sites write and keep. Optional: empty refuses storage.
	Volume    *volume.Volume // of Storage. Optional: nil is a directory of this node's own.
	Lease     Lease          // under which programs write to a Volume that other nodes mount. Optional: nil never ends.
	Users     Users
	// Edge is where this machine's own sites answer over TLS, host:port. Optional: without it
	// no program reaches its own site.
	Edge  string
	WPCLI *wpcli.CLI // the program wp of commands that have PHP. Optional.
	// Redis is the program of a Redis server. Optional: empty is the one in PATH, if there is one.
	Redis string
	// RedisNamed says that the operator names a server, to which the ways lead: none is run here.
	RedisNamed bool
	Log        *slog.Logger // Optional.
}

// Users are the host's users of sites.
type Users interface {
	// UID returns the uid under which a site's programs run.
	UID(ctx context.Context, site id.Site) (int, error)
}

// Ways lead from a site's programs to what serves them.
type Ways interface {
	// DatabaseSocket returns the socket that leads to the databases of a program's site, or of its
	// preview, and done, which is called when the program has ended.
	DatabaseSocket(ctx context.Context, s Spec) (socket string, done func(), err error)
	// ServeMail takes a program's connections to its mail server until ctx ends.
	ServeMail(ctx context.Context, site id.Site, l net.Listener)
	// ServeRedis leads a program's connections to the operator's Redis server until ctx ends.
	ServeRedis(ctx context.Context, s Spec, l net.Listener)
	// Changed hears that a command of a site has ended, which may have changed its database, or a
	// program whose place another has taken, with other settings. It is called before others see the
	// end.
	Changed(site id.Site)
}

// Processes is the Engine that runs programs in sandboxes on this machine.
type Processes struct {
	c    Config
	ways Ways // nil: a Spec must ask for neither databases nor mail

	mu sync.Mutex // guards what follows
	// share: total the programs that run; owner those that it may run; edge gone with the program
	running map[*process]id.Site // by site
	// share: total the sites whose storage is copied or replaced; owner its sites; edge their programs wait
	held map[id.Site]chan struct{} // closed when the site's programs may write again
	// share: total the programs that run; owner those that it may run; edge gone with the program
	sharing map[id.Site]map[*process]bool // by site: those that may change its database

	watchdog *watchdog.Watchdog
	layers   layers
}

// Connect gives programs their ways, which are made after the engine. It belongs before the first Start.
func (p *Processes) Connect(w Ways) { p.ways = w }

// NewProcesses returns the engine and removes what an earlier process left behind. It
// starts nothing.
func NewProcesses(c Config) (*Processes, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if err := os.RemoveAll(c.Dir); err != nil {
		return nil, fmt.Errorf("clear programs: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make programs: %w", err)
	}
	place, _ := c.Runner.(watchdog.Place)
	return &Processes{
		c: c, running: map[*process]id.Site{}, held: map[id.Site]chan struct{}{}, sharing: map[id.Site]map[*process]bool{},
		watchdog: watchdog.New(watchdog.Config{Place: place, Log: c.Log}),
	}, nil
}

// stopPatience is how long the end of a program that was killed may take.
const stopPatience = 20 * time.Second

// process is a program that Processes has started.
type process struct {
	kill    context.CancelFunc
	link    *sandbox.Link
	linked  chan struct{} // closed when link is there
	gone    chan struct{}
	exit    Exit
	files   files
	socket  *socket        // nil where it listens on its port
	root    *root.Lease    // nil where it has the host's programs
	tty     *tty           // nil where it has no terminal
	kept    bool           // it writes to storage that outlives it
	lapses  int64          // of the lease when it was started
	watched *watchdog.Held // nil where no other node may write to what it does
	epoch   string         // the file that names its Redis's epoch; empty where it has none

	noDatabase func() // called at its end: it needs the server of its databases no longer
}

// Start runs the program of s in a sandbox of its own.
func (p *Processes) Start(ctx context.Context, s Spec) (Program, error) {
	switch waited, err := p.unheld(ctx, s.Site); {
	case err != nil:
		return nil, err
	case waited && s.Fresh:
		return nil, ErrHeld
	}
	uid, err := p.c.Users.UID(ctx, s.Site)
	if err != nil {
		return nil, err
	}
	x := &process{linked: make(chan struct{}), gone: make(chan struct{}), noDatabase: func() {}}
	var version phpversion.Version
	if s.PHP != nil {
		if version, x.root, err = p.c.Roots.PHP(ctx, s.PHP.Version, s.PHP.Extensions, nil); err != nil {
			return nil, err
		}
	}
	tools, err := p.c.Toolchain.Ready(ctx, toolchain.Want{Node: s.Node, Apart: x.root != nil}, nil)
	if err != nil {
		x.root.Release()
		return nil, fmt.Errorf("prepare Node.js: %w", err)
	}
	tree, closeTree, err := p.c.Bundles.Open(ctx, s.Owner, s.Bundle)
	if err != nil {
		tools.Release()
		x.root.Release()
		return nil, err
	}
	dir := filepath.Join(p.c.Dir, s.ID)
	if p.c.Lease != nil {
		x.lapses = p.c.Lease.Lapses()
	}
	clean := func() {
		x.files.close()
		x.socket.close()
		x.tty.close()
		x.root.Release()
		if err := os.RemoveAll(dir); err != nil {
			p.c.Log.Warn("scratch directory of a program not removed", "program", s.ID, "err", err)
		}
		x.noDatabase()
		closeTree()
		tools.Release()
	}
	cmd := sandbox.Command{
		Argv: s.Argv, Dir: path.Join(AppDir, s.Dir), Work: filepath.Join(dir, "work"), UID: uid,
		Env:   environment(s, tools),
		Binds: append([]sandbox.Bind{{Source: tree, Target: AppDir, Layer: p.layer(s, tree, dir, uid)}}, tools.Binds...),
		Limits: sandbox.Limits{
			Memory: s.Limits.Memory, CPU: s.Limits.CPUs, Pids: s.Limits.Pids, Disk: s.Limits.Disk, Files: s.Limits.Disk / leastFile,
			Wall: forever, Output: endless, Foreground: true,
		},
	}
	if s.Shell != "" {
		cmd.Argv = []string{"/bin/sh", "-c", s.Shell}
	}
	if err := os.MkdirAll(cmd.Work, 0o700); err != nil {
		clean()
		return nil, fmt.Errorf("make scratch space: %w", err)
	}
	if err := sandbox.Own(cmd.Work, uid); err != nil {
		clean()
		return nil, err
	}
	// Builds leave absolute paths in what they write.
	if err := os.Symlink(AppDir, filepath.Join(cmd.Work, build.RepoDir)); err != nil {
		clean()
		return nil, fmt.Errorf("link the build's path: %w", err)
	}
	if err := p.mount(ctx, &s, x, &cmd, tree, dir); err != nil {
		clean()
		return nil, err
	}
	if s.PHP != nil {
		if err := p.php(ctx, version, s, x, &cmd, dir); err != nil {
			clean()
			return nil, err
		}
	}
	if err := p.database(ctx, x, &cmd, s); err != nil {
		clean()
		return nil, err
	}
	if s.Terminal != nil {
		if x.tty, err = openTTY(s.Terminal, uid); err != nil {
			clean()
			return nil, err
		}
		cmd.Terminal = x.tty.inside
	}
	p.bound(&s, &cmd)
	x.kept = slices.ContainsFunc(cmd.Binds, func(b sandbox.Bind) bool { return b.Stored })
	if x.kept && p.c.Lease != nil && p.c.Volume.Shared() {
		cmd.Guard = guard{p, x}
	}
	out := &lines{stream: "stdout", to: s.Output}
	errs := &lines{stream: "stderr", to: s.Output}
	if s.PHP != nil && s.Output != nil {
		errs.to = func(stream, line string) { s.Output(stream, php.Line(line)) }
	}
	cmd.Stdout, cmd.Stderr = out, errs
	closeNetwork := func() {}
	if s.Egress {
		if cmd.Network, closeNetwork, err = p.network(dir, s, errs); err != nil {
			clean()
			return nil, err
		}
	}
	closeMail, err := p.mail(&cmd, s, dir)
	closeRedis := func() {}
	if err == nil {
		if closeRedis, err = p.redisServer(&cmd, s, dir); err != nil {
			closeMail()
		}
	}
	if err != nil {
		closeNetwork()
		clean()
		return nil, err
	}
	life, kill := context.WithCancel(context.Background()) // the program's own: the caller's ends with the start
	x.kill = kill
	unshare := p.share(x, s)
	cmd.Linked = func(l *sandbox.Link) {
		x.link = l
		x.tty.started()
		p.note(x, s.Site)
		close(x.linked)
	}
	failed := make(chan error, 1)
	panics.Go(func() {
		defer close(x.gone)
		defer func() {
			others := unshare()
			if p.ways != nil && s.shares() && (others || len(s.Argv) > 0 || s.Shell != "") {
				p.ways.Changed(s.Site)
			}
		}()
		defer p.forget(x)
		looked := p.noteWritten(s, x, cmd.Binds[0])
		res, err := p.c.Runner.Run(life, cmd)
		looked()
		closeNetwork()
		closeMail()
		closeRedis()
		x.tty.finish()
		out.flush()
		errs.flush()
		clean()
		x.exit = exitOf(res, err)
		if err != nil {
			failed <- err
		}
	})
	select {
	case <-x.linked:
		x.socket.started()
		return x, nil
	case <-x.gone:
		select {
		case err := <-failed:
			return nil, fmt.Errorf("start program: %w", err)
		default:
			return x, nil // it ran, and has ended already
		}
	case <-ctx.Done():
		kill()
		<-x.gone
		return nil, context.Cause(ctx)
	}
}

// DatabaseSocket and DatabasePort are where a program finds its site's databases: a socket, and a port of its
// loopback for drivers that know no sockets.
const (
	DatabaseSocket = "/run/mysqld/mysqld.sock"
	DatabasePort   = 33306 // 3306 may lead outside
)

// database opens the way to the databases of the program's site.
func (p *Processes) database(ctx context.Context, x *process, cmd *sandbox.Command, s Spec) error {
	if !s.Database {
		return nil
	}
	socket, done, err := p.ways.DatabaseSocket(ctx, s)
	if err != nil {
		return err
	}
	x.noDatabase = done
	cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: socket, Target: DatabaseSocket})
	cmd.Forwards = map[int]string{DatabasePort: DatabaseSocket}
	return nil
}

// A program runs until it is stopped, and what it prints is bounded by whoever keeps it.
const (
	forever = 100 * 365 * 24 * time.Hour
	endless = 1 << 50
)

func environment(s Spec, tools toolchain.Tools) []string {
	bins := []string{path.Join(AppDir, s.Dir, "node_modules/.bin")}
	if s.Dir != "" {
		bins = append(bins, path.Join(AppDir, "node_modules/.bin"))
	}
	bins = append(bins, tools.Path...)
	env := append([]string{"NODE_ENV=production"}, tools.Env...)
	if s.Terminal != nil {
		env = append(env, "TERM=xterm-256color", "COLORTERM=truecolor")
	}
	env = append(env, NodeEnv(s)...)
	return append(env, fmt.Sprintf("PORT=%d", Port), "HOST=127.0.0.1", "HOSTNAME=127.0.0.1",
		"PATH="+strings.Join(append(bins, "/usr/local/bin", "/usr/bin", "/bin"), ":"))
}

// NodeEnv returns the variables of a program with the bound of V8's heap: three quarters of the program's memory. By itself V8 takes
// the machine's for its own, and the program is killed before V8 collects. What the site sets goes before.
func NodeEnv(s Spec) []string {
	heap := fmt.Sprintf("--max-old-space-size=%d", s.Limits.Memory*3/4>>20)
	env := slices.Clone(s.Env)
	for i, kv := range env {
		if own, ok := strings.CutPrefix(kv, "NODE_OPTIONS="); ok {
			env[i] = "NODE_OPTIONS=" + heap + " " + own
			return env
		}
	}
	return append(env, "NODE_OPTIONS="+heap)
}

// network opens the program's only way out: our proxy, which reaches public addresses, and
// the program's own site.
func (p *Processes) network(dir string, s Spec, say *lines) (sandbox.Network, func(), error) {
	l, name, err := sandbox.Listen(dir, "egress.sock")
	if err != nil {
		return sandbox.Network{}, nil, err
	}
	network, ports, idle := sandbox.Network{Proxy: name}, []int{443, 80}, time.Duration(0)
	for _, port := range s.Ports {
		network.Ports, ports = append(network.Ports, uint16(port)), append(ports, port)
		idle = time.Hour // a pool of connections to a database is silent for long
	}
	own := p.own(s)
	for addr := range own {
		_, port, _ := net.SplitHostPort(addr)
		if n, _ := strconv.ParseUint(port, 10, 16); n > 0 && !slices.Contains(ports, int(n)) {
			network.Ports, ports = append(network.Ports, uint16(n)), append(ports, int(n))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	// uncaught: accepts; servers catch the panics of their handlers
	go func() {
		defer close(served)
		p.c.Egress.Proxy(egress.ProxyConfig{
			Conns:   512,
			Resolve: true,
			Ports:   ports,
			Idle:    idle,
			Direct:  own,
			Refused: say.refused(),
		}).Serve(
			ctx,
			l,
		)
	}()
	return network, func() { cancel(); <-served }, nil
}

// own returns where the addresses of the program's own site lead: to the edge of this
// machine, whatever its name resolves to outside.
func (p *Processes) own(s Spec) map[string]string {
	if p.c.Edge == "" || len(s.Own) == 0 {
		return nil
	}
	direct := map[string]string{}
	for _, addr := range s.Own {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		direct[addr] = p.c.Edge
		if strings.HasSuffix(host, ".localhost") { // as clients call it that don't ask
			direct[net.JoinHostPort("localhost", port)] = p.c.Edge
		}
	}
	return direct
}

const mailSocket = "/run/slipway/mail.sock"

// mail opens the program's way to a mail server, and returns what closes it.
func (p *Processes) mail(cmd *sandbox.Command, s Spec, dir string) (done func(), err error) {
	if !s.Mail || p.ways == nil {
		return func() {}, nil
	}
	return forward(cmd, dir, mailSocket, MailPort, func(ctx context.Context, l net.Listener) { p.ways.ServeMail(ctx, s.Site, l) })
}

// RedisServerSocket is where PHP finds the operator's Redis server.
const RedisServerSocket = "/run/slipway/redis.sock"

// redisServer opens the program's way to the operator's Redis server, and returns what closes it.
func (p *Processes) redisServer(cmd *sandbox.Command, s Spec, dir string) (done func(), err error) {
	if !s.RedisServer || p.ways == nil {
		return func() {}, nil
	}
	return forward(cmd, dir, RedisServerSocket, RedisPort, func(ctx context.Context, l net.Listener) { p.ways.ServeRedis(ctx, s, l) })
}

// forward gives a program a socket, and a port of its loopback for what knows no sockets, which serve answers until done is called.
func forward(cmd *sandbox.Command, dir, socket string, port int, serve func(context.Context, net.Listener)) (done func(), err error) {
	l, name, err := sandbox.Listen(dir, path.Base(socket))
	if err != nil {
		return nil, err
	}
	cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: name, Target: socket})
	if cmd.Forwards == nil {
		cmd.Forwards = map[int]string{}
	}
	cmd.Forwards[port] = socket
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	// uncaught: accepts; servers catch the panics of their handlers
	go func() {
		defer close(served)
		serve(ctx, l)
	}()
	return func() { cancel(); <-served }, nil
}

func exitOf(res sandbox.Result, err error) Exit {
	switch {
	case err != nil:
		return Exit{Code: 125, Reason: "the sandbox failed"}
	case res.OOM:
		return Exit{Code: res.ExitCode, Reason: "out of memory", OutOfMemory: true}
	case res.Killed == sandbox.Canceled:
		return Exit{Code: res.ExitCode, Reason: "stopped"}
	case res.Killed != sandbox.NotKilled:
		return Exit{Code: res.ExitCode, Reason: string(res.Killed)}
	}
	return Exit{Code: res.ExitCode, Reason: res.String()}
}

func (x *process) Dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-x.linked:
	case <-x.gone:
		return nil, errors.New("the program has ended")
	}
	if x.socket != nil {
		return x.socket.dial(ctx)
	}
	c, err := x.link.Dial(ctx, Port)
	if errors.Is(err, sandbox.ErrNobodyListens) {
		return nil, ErrNotListening
	}
	return c, err
}

func (x *process) Stop(grace time.Duration) {
	select {
	case <-x.linked:
		x.tty.hangUp() // a shell that somebody types into ignores SIGTERM
		_ = x.link.Signal(unix.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-x.gone:
			return
		case <-timer.C:
		}
	default:
	}
	x.kill()
	select {
	case <-x.gone:
	case <-time.After(stopPatience):
	}
}

func (x *process) Done() <-chan struct{} { return x.gone }

func (x *process) Exit() Exit {
	<-x.gone
	return x.exit
}

func (x *process) Usage() Usage {
	select {
	case <-x.linked:
		u := x.link.Usage()
		return Usage{Memory: u.Memory, CPU: u.CPU}
	default:
		return Usage{}
	}
}
