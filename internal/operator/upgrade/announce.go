package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
)

// Announcer mails the operators how upgrades end: whoever starts one at night reads it in the morning.
type Announcer struct {
	Store installation.Store
	DB    *db.DB
	To    Operators
	Log   *slog.Logger

	told string // the one that was told last, also where the disk is too full to note it
}

// Operators are told by mail. Accounts tell them.
type Operators interface {
	TellOperatorsTx(ctx context.Context, tx *db.Tx, subject, text, path string) error
}

// often is how soon the end of an upgrade is noticed: it comes after the program that it started.
const often = 10 * time.Second

// recent is how long ago an upgrade may have ended that is still news. It also keeps an installation that learns to tell from
// telling of the past.
const recent = 24 * time.Hour

// Run tells of each upgrade that ends, once, until ctx ends. One that is taken back is told by the program that came back.
func (a *Announcer) Run(ctx context.Context) error {
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		if err := a.once(ctx); err != nil && ctx.Err() == nil {
			a.Log.WarnContext(ctx, "upgrade not told", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *Announcer) once(ctx context.Context) error {
	x, err := Last(a.Store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if x.Step != Ended || time.Since(x.EndedAt) > recent {
		return nil
	}
	which := x.EndedAt.UTC().Format(time.RFC3339Nano)
	if a.told == which {
		return nil
	}
	told := filepath.Join(folder(a.Store), "told")
	if have, err := os.ReadFile(told); err == nil && strings.TrimSpace(string(have)) == which {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	subject := "Slipway was upgraded to " + x.To.Version
	switch {
	case x.Outcome != Upgraded && x.undoes():
		subject = "Going back to Slipway " + x.To.Version + " did not work"
	case x.Outcome != Upgraded:
		subject = "The upgrade of Slipway to " + x.To.Version + " did not work"
	case x.undoes():
		subject = "Slipway is back at " + x.To.Version
	}
	text := fmt.Sprintf("The last upgrade of this installation: %s.", x.Ending())
	if x.Outcome == Upgraded {
		text += " slipway upgrade --undo returns to " + x.From.Version + " within 7 days."
	}
	err = a.DB.Write(ctx, func(tx *db.Tx) error { return a.To.TellOperatorsTx(ctx, tx, subject, text, "/operator") })
	if err != nil {
		return fmt.Errorf("tell operators of the upgrade: %w", err)
	}
	a.told = which
	// Written afterwards: told twice after a crash at this moment is better than not at all.
	return disk.Write(told, []byte(which+"\n"), 0o600)
}
