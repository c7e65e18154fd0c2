// Package runtime owns running programs: it starts a program from a specification, connects to
// it, and stops it.
//
// An Engine knows artefacts, commands, environments, limits, ports and storage, but no
// path, uid or port of a host. Processes, the only engine so far, runs each program in a
// sandbox on this machine with its own network; another engine could run them in a cluster.
// The engine doesn't decide what should run, or when.
package runtime

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/bundle"
)

// Port is where every program listens, told by PORT. It is the program's own: no other
// program and nothing on the host has it.
const Port = 3000

// RedisPort is where a program with RedisServer finds it, on its own loopback: 6379 may be that of one it starts itself.
const RedisPort = 36379

// MailPort is where a program with Mail finds the mail server, on its own loopback.
const MailPort = 2525

// AppDir is where a program finds the bundle that it runs from.
const AppDir = "/app"

// Spec says what to run. It holds nothing of any host.
type Spec struct {
	ID     string    // unique among what runs; letters, digits, - and _
	Site   id.Site   // whose program it is: its identity, its storage
	Owner  id.Owner  // who owns the site
	Bundle bundle.ID // the files it runs from

	Argv  []string // the program; one of Argv and Shell is set, or none where PHP is
	Shell string   // the user's own text, for the shell inside
	Dir   string   // working folder in the bundle; "" is its root
	Env   []string // KEY=value
	Node  string   // version of Node.js, as toolchain.Want takes it; "" is whatever there is

	PHP     *PHP
	Trees   []Tree
	Files   []File
	Storage []Storage // folders that it may write to, and that stay when it ends

	// ReadOnly refuses writes to the bundle. Without it, an engine that can keeps them in a layer of the program's own, which
	// is deleted when the program ends. PHP's files are read-only in any case: what a visitor could write would be executed.
	ReadOnly bool
	// Losses hears where the program wrote outside of Storage. Optional.
	Losses Losses

	// Preview names a preview of the site: it has storage of its own beside the site's. Letters
	// and digits. Empty is none.
	Preview string
	// Isolated says that it has no storage that outlives it: no program sees anything of another.
	Isolated bool

	Limits Limits
	Egress bool  // whether it may connect to public addresses, on ports 80 and 443
	Ports  []int // and these, with Egress

	// Own are the addresses of its own site, host:port, at which it reaches the edge of this
	// installation. With Egress.
	Own []string

	Database bool // whether it reaches the databases of its site
	Mail     bool // whether it may hand mails to a server at MailPort of its loopback
	// RedisServer says whether it reaches the operator's Redis server, at RedisPort of its loopback.
	RedisServer bool
	// Redis says that PHP-FPM has a Redis for what it can work out again: with RedisServer the operator's, else a server of its own
	// beside it. It may be absent at any time. A command has none.
	Redis bool

	// Fresh says that Start fails with ErrHeld where it had to wait because the site was held:
	// its databases and their passwords may be others now, and Env with them.
	Fresh bool

	Output func(stream, line string) // hears every line that it prints, from one goroutine at a time

	// Terminal is its input and output instead, for somebody who types. Nil is none.
	Terminal *Terminal
}

// Terminal is the user's end of a program's pseudo-terminal.
type Terminal struct {
	Input  io.Reader   // what is typed; its end hangs up. Whoever made it ends it with the program.
	Output io.Writer   // hears what the program writes. While a Write blocks, so does the program.
	Size   Size        // at the start. Optional: zero is 80 columns and 24 rows.
	Sizes  <-chan Size // what it is changed to. Optional.
}

// Size is that of a terminal, in characters.
type Size struct{ Columns, Rows int }

// Tree is another bundle that a program sees, read-only.
type Tree struct {
	Path   string // where it appears, relative to the first bundle; what is there is covered
	Bundle bundle.ID
	From   string // the folder of it that is seen; "" is all of it
}

// File is a file that a program sees, read-only, and nobody else does.
type File struct {
	Path string // relative to the bundle
	Text []byte
}

// PHP says that a program needs PHP. Without a command of its own it is PHP-FPM, and what
// it listens on speaks FastCGI; with one, the command finds php in its PATH.
type PHP struct {
	Version    string   // constraint as composer.json has it; "" is the newest there is
	Extensions []string // that it should have, as composer.json names them without ext-
	// WordPress is the folder of the WordPress that it runs, relative to the bundle: commands have wp-cli for it. "" is none.
	WordPress string
}

// Storage is a folder of a site that its programs may write to. It belongs to the site: each
// of its programs on this engine sees the same files, and it stays until Forget.
type Storage struct {
	Path string // where it appears, relative to the bundle
	Name string // which of the site's folders it is; "" is the one that Path names
	// Temporary is a folder that is deleted when the program ends; each start copies it from the bundle.
	Temporary bool
}

// Written is a place in the bundle that a program wrote to, and that is lost when the program ends.
type Written struct {
	Path   string // relative to the bundle
	Folder bool   // else a file at the top of the bundle or of the working folder, which can't be storage
}

// Losses hears what programs lose when they end.
type Losses interface {
	// Wrote is called with places that a program wrote to, each once, until it is gone.
	Wrote([]Written)
}

// Limits bound a program.
type Limits struct {
	Memory int64   // bytes
	CPUs   float64 // 0 means no quota
	Pids   int64
	Disk   int64 // bytes that it may write
	// Storage is how many bytes its site's storage may have. A program that passes it is
	// ended; one that starts with more may not write to it at all.
	Storage int64
}

// Exit says how a program ended.
type Exit struct {
	Code        int    // as a shell would say it
	Reason      string // in words: "exit code 1", "out of memory", "signal SIGKILL"
	OutOfMemory bool
	Displaced   bool // the machine that it ran on ended it, or has ended: it did nothing wrong
}

// Usage holds the resources that a program uses.
type Usage struct {
	Memory int64 // bytes
	CPU    time.Duration
}

// Run runs a program to its end, such as a script that is needed once, and returns how it
// ended. The end of ctx stops it.
func Run(ctx context.Context, e Engine, s Spec) (Exit, error) {
	p, err := e.Start(ctx, s)
	if err != nil {
		return Exit{}, err
	}
	select {
	case <-p.Done():
		return p.Exit(), nil
	case <-ctx.Done():
		p.Stop(0)
		return Exit{}, context.Cause(ctx)
	}
}

// Program is one that was started.
type Program interface {
	// Dial connects to the program's port. ErrNotListening while it does not listen.
	Dial(ctx context.Context) (net.Conn, error)
	// Open opens a file or a folder by its path relative to the bundle, as the program
	// itself sees it, and never another. stored says that it lies in storage.
	Open(name string) (f *os.File, stored bool, err error)
	// Stop asks the program to end, and ends it after the grace. It returns when all of it
	// is gone.
	Stop(grace time.Duration)
	// Done is closed when all of the program is gone; Exit then says how it ended.
	Done() <-chan struct{}
	Exit() Exit
	Usage() Usage
}

// Leaver is a Program that whoever owns its machine may ask to go: it should be replaced, and then stopped. It goes on meanwhile.
type Leaver interface {
	// Leaves is closed when it is asked to.
	Leaves() <-chan struct{}
}

// ErrNotListening is the error of Dial while the program does not listen on its port.
var ErrNotListening = errors.New("the program does not listen on its port")

// ErrNoRoom is the error of a Start for which no machine has room at the moment.
var ErrNoRoom = errors.New("no room on the cluster")

// ErrHeld is the error of a Start of what is Fresh after its site was held.
var ErrHeld = errors.New("the site was changed while the program waited for its start")

// Engine starts programs. Start returns as soon as the program runs and long before it is
// ready to answer; ctx bounds the start alone. A program ends with the process that
// started it.
type Engine interface {
	Start(ctx context.Context, s Spec) (Program, error)
}
