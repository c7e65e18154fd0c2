// Package volume owns the directory that holds the storage of all sites: whether it is the one that the installation has, and
// whether it answers.
//
// The directory is this node's own, or one that all nodes mount, which a mark tells from an empty one where nothing is mounted
// (package node). A mount that is gone, or hangs, makes its sites unavailable and nothing else: whoever is about to use the directory
// asks Check first, which never waits for it.
package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/node"
)

// Unavailable is the code of the fault while the directory doesn't answer, or is not the one that it should be.
const Unavailable = "storage_unavailable"

// How often a shared directory is looked at, and how long it may take to answer.
const (
	lookEvery = 2 * time.Second
	patience  = 8 * time.Second
)

// Config says what the directory is.
type Config struct {
	Dir  string       // absolute
	Mark string       // of a directory that all nodes mount. Optional: empty is this node's own.
	Log  *slog.Logger // Optional.

	Place *node.Place // has the mark, instead of Mark, once this node has joined. Optional.

	Every, Patience time.Duration // Optional: 0 means 2 s, and 8 s.
}

// Volume is the directory. It is safe for concurrent use.
type Volume struct {
	c     Config
	wrong atomic.Pointer[string] // why it can't be used; nil: it can
}

// New returns a volume. It starts nothing: Run looks at the directory.
func New(c Config) *Volume {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Every, c.Patience = cmp.Or(c.Every, lookEvery), cmp.Or(c.Patience, patience)
	return &Volume{c: c}
}

// Open returns the volume of a node that runs programs: shared, a directory that all nodes mount, or where that is empty own. It is an
// error where the installation's storage is elsewhere, or own has storage of sites that nothing would use beside shared.
func Open(ctx context.Context, d *db.DB, shared, own string, log *slog.Logger) (*Volume, error) {
	place, err := node.Storage(ctx, d, shared)
	if err != nil {
		return nil, err
	}
	if place.Mark() == "" {
		return New(Config{Dir: own, Place: place, Log: log}), nil
	}
	left, err := os.ReadDir(own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--storage: %w", err)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("--storage: %s still has the storage of sites (%d folders): move what is in it to %s first, with its owners and "+
			"permissions", own, len(left), shared)
	}
	return New(Config{Dir: shared, Place: place, Log: log}), nil
}

// Mark returns the mark of a directory that all nodes mount; empty: it is this node's own.
func (v *Volume) Mark() string { return cmp.Or(v.c.Place.Mark(), v.c.Mark) }

// Place is the directory's place among those of the installation; nil: this node runs no programs.
func (v *Volume) Place() *node.Place { return v.c.Place }

// Dir returns the directory.
func (v *Volume) Dir() string { return v.c.Dir }

// Shared reports whether all nodes mount it.
func (v *Volume) Shared() bool { return v != nil && v.Mark() != "" }

// Check returns a fault while the directory can't be used, as far as is known.
func (v *Volume) Check() error {
	if v == nil {
		return nil
	}
	why := v.wrong.Load()
	if why == nil {
		return nil
	}
	return &fault.Error{
		Kind: fault.Unavailable, Message: "The storage of sites is not available on this server", Details: *why, Code: Unavailable,
		RetryAfter: 5 * time.Second,
	}
}

// Verify looks at a shared directory now, before something is made in it.
func (v *Volume) Verify() error {
	if err := v.Check(); err != nil || !v.Shared() {
		return err
	}
	v.note(v.look())
	return v.Check()
}

// look returns what is wrong with the directory; empty: nothing.
func (v *Volume) look() string {
	mark, err := node.ReadMark(v.c.Dir)
	switch {
	case err != nil:
		return err.Error()
	case mark == "":
		return fmt.Sprintf("%s has no %s: is it mounted?", v.c.Dir, node.MarkFile)
	case mark != v.Mark():
		return v.c.Dir + " is another installation's storage"
	}
	return ""
}

// Within looks once, and returns what is wrong with the directory, or that it doesn't answer in time; empty: nothing.
func (v *Volume) Within(ctx context.Context, most time.Duration) string {
	looked := make(chan string, 1)
	// uncaught: reads a mark
	go func() { looked <- v.look() }()
	ctx, done := context.WithTimeout(ctx, most)
	defer done()
	select {
	case why := <-looked:
		return why
	case <-ctx.Done():
		return v.c.Dir + " doesn't answer"
	}
}

func (v *Volume) note(why string) {
	was := v.wrong.Load()
	if why == "" {
		v.wrong.Store(nil)
		if was != nil {
			v.c.Log.Info("storage of sites is available again", "dir", v.c.Dir)
		}
		return
	}
	v.wrong.Store(&why)
	if was == nil || *was != why {
		v.c.Log.Error("storage of sites is not available: its sites are answered with 503", "dir", v.c.Dir, "why", why)
	}
}

// Run looks at a shared directory now and then until ctx ends. A look that doesn't return stays the only one.
func (v *Volume) Run(ctx context.Context) error {
	if !v.Shared() {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(v.c.Every)
	defer tick.Stop()
	looked := make(chan string, 1)
	for {
		// uncaught: reads a mark
		go func() { looked <- v.look() }()
		late := time.NewTimer(v.c.Patience)
		var why string
		select {
		case why = <-looked:
		case <-late.C:
			v.note(fmt.Sprintf("%s has not answered for %s", v.c.Dir, v.c.Patience))
			select {
			case why = <-looked:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			late.Stop()
			return nil
		}
		late.Stop()
		v.note(why)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
