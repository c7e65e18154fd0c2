// Package runtime owns running programs: it starts what a specification says, connects to
// it, and stops it.
//
// An Engine knows artefacts, commands, environments, limits, ports and storage, and no
// path, uid or port of a host: Processes, the one there is, runs each program in a sandbox
// on this machine, in a network of its own, and another may place them in a cluster. What
// should run, and when, is not the engine's business.
package runtime

import (
	"context"
	"errors"
	"net"
	"time"

	"slipway/internal/bundle"
)

// Port is where every program listens, told by PORT. It is the program's own: no other
// program and nothing on the host has it.
const Port = 3000

// Spec says what to run. It holds nothing of any host.
type Spec struct {
	ID     string    // unique among what runs; letters, digits, - and _
	Site   string    // whose program it is: its identity, its storage
	Bundle bundle.ID // the files it runs from, read-only

	Argv  []string // the program; exactly one of Argv and Shell is set
	Shell string   // the user's own text, for the shell inside
	Dir   string   // working folder in the bundle; "" is its root
	Env   []string // KEY=value
	Node  string   // version of Node.js, as toolchain.Want takes it; "" is whatever there is

	Limits Limits
	Egress bool // whether it may connect to public addresses, on ports 80 and 443

	Database bool // whether it reaches the databases of its site

	Output func(stream, line string) // hears every line that it prints, from one goroutine at a time
}

// Limits bound a program.
type Limits struct {
	Memory int64   // bytes
	CPUs   float64 // 0 means no quota
	Pids   int64
	Disk   int64 // bytes that it may write
}

// Exit says how a program ended.
type Exit struct {
	Code        int    // as a shell would say it
	Reason      string // in words: "exit code 1", "out of memory", "signal SIGKILL"
	OutOfMemory bool
}

// Usage holds the resources that a program uses.
type Usage struct {
	Memory int64 // bytes
	CPU    time.Duration
}

// Program is one that was started.
type Program interface {
	// Dial connects to the program's port. ErrNotListening while it does not listen.
	Dial(ctx context.Context) (net.Conn, error)
	// Stop asks the program to end, and ends it after the grace. It returns when all of it
	// is gone.
	Stop(grace time.Duration)
	// Done is closed when all of the program is gone; Exit then says how it ended.
	Done() <-chan struct{}
	Exit() Exit
	Usage() Usage
}

// ErrNotListening is the error of Dial while the program does not listen on its port.
var ErrNotListening = errors.New("the program does not listen on its port")

// Engine starts programs. Start returns as soon as the program runs and long before it is
// ready to answer; ctx bounds the start alone. A program ends with the process that
// started it.
type Engine interface {
	Start(ctx context.Context, s Spec) (Program, error)
}
