package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/disk"
)

// Step is how far an upgrade has come. What a step says has been done, on the disk.
type Step string

// The steps, in their order. Until Swapped nothing of the installation is changed.
const (
	Prepared  Step = "prepared"  // the new program lies beside the old one
	Swapped   Step = "swapped"   // the new program has the old one's name
	Returning Step = "returning" // the new one did not work: the old one gets its name back
	Ended     Step = "ended"
)

// Outcome is how an upgrade ended.
type Outcome string

// The outcomes.
const (
	Upgraded  Outcome = "upgraded"
	Returned  Outcome = "returned"  // the old program serves again
	Abandoned Outcome = "abandoned" // it was interrupted before anything was changed
	Stuck     Outcome = "stuck"     // neither program serves
)

// State is an upgrade, as it is kept in upgrade/state.json of the data directory.
type State struct {
	Step      Step      `json:"step"`
	Outcome   Outcome   `json:"outcome,omitempty"`
	Why       string    `json:"why,omitempty"` // of what went wrong
	From      About     `json:"from"`
	To        About     `json:"to"`
	Program   string    `json:"program"`            // path of the program that is replaced
	Snapshot  string    `json:"snapshot,omitempty"` // of the database, from before
	Was       bool      `json:"wasReady,omitempty"` // the new program was ready once: writes may have been acknowledged
	Sites     []Canary  `json:"sites,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
}

// Canary is a site that is asked before and after, and what it answered before.
type Canary struct {
	Host   string `json:"host"`
	Status int    `json:"status"`
}

// previous is where the program that was replaced is kept: beside it, so that no copy can fail half way.
func (s State) previous() string { return s.Program + ".previous" }

// staged is where the new program waits.
func (s State) staged() string { return s.Program + ".new" }

// folder is where upgrades keep what they know.
func folder(s installation.Store) string { return s.Path("upgrade") }

func stateFile(s installation.Store) string { return filepath.Join(folder(s), "state.json") }

// Last returns the upgrade that is under way or was the last one, or fs.ErrNotExist.
func Last(s installation.Store) (State, error) {
	var x State
	b, err := os.ReadFile(stateFile(s))
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	return x, err
}

// undoes reports whether this was the undoing of an upgrade: only that goes to an older version.
func (x State) undoes() bool { return older(x.To.Version, x.From.Version) }

// Ending says how an upgrade that has ended went.
func (x State) Ending() string {
	on := x.EndedAt.Format("2 January 2006, 15:04")
	switch x.Outcome {
	case Upgraded:
		if x.undoes() {
			return fmt.Sprintf("back to %s, on %s", x.To.Version, on)
		}
		return fmt.Sprintf("to %s, on %s", x.To.Version, on)
	case Stuck:
		return fmt.Sprintf("that to %s, on %s, failed, and so did going back: %s", x.To.Version, on, x.Why)
	}
	return fmt.Sprintf("that to %s was taken back on %s: %s", x.To.Version, on, x.Why)
}

// save writes the state so that it is there whole after a power cut, or the one before.
func (x State) save(s installation.Store) error {
	b, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return err
	}
	return disk.Write(stateFile(s), append(b, '\n'), 0o600)
}

// lock makes this process the only one that upgrades.
func lock(s installation.Store) (release func(), err error) {
	if err := os.MkdirAll(folder(s), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(folder(s), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another upgrade is under way")
		}
		return nil, err
	}
	return func() {
		// A child that was forked just now, for something else, has the file open until it runs its program: closing it alone
		// would leave it locked that long.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}

// replace gives to's name to a copy of from, or to from itself where it may go: at each moment one whole program has that name.
func replace(from, to string, keep bool) error {
	if !keep {
		return disk.Rename(from, to)
	}
	tmp := to + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(from, tmp); err != nil {
		return err
	}
	return replace(tmp, to, false)
}
