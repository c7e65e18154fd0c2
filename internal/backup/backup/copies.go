package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/db"
)

// Copy is a backup of a whole installation as the repository itself lists it, so that it is
// found where nothing else is left.
type Copy struct {
	ID         ID        `json:"id"`
	At         time.Time `json:"at"`
	Manifest   string    `json:"manifest"`
	Size       int64     `json:"size"`    // bytes that it holds
	Stored     int64     `json:"stored"`  // bytes that it added
	Took       float64   `json:"took"`    // seconds
	Version    string    `json:"version"` // of the program that took it
	Scheduled  bool      `json:"scheduled,omitempty"`
	Problems   []string  `json:"problems,omitempty"` // what of it is not as it should be
	VerifiedAt time.Time `json:"-"`
}

// Kinds of objects whose name is chosen, not computed from what they hold: the first half of
// the name tells us, and nobody else, the kind.
const (
	copyKind     = "copy of an installation"
	verifiedKind = "verification of a copy"
)

// Copies lists the backups of the installation, the newest first. One whose entry can't be
// read is an error: what it held is not known.
func Copies(ctx context.Context, r *repository.Repository) ([]Copy, error) {
	names, err := r.Named(ctx, copyKind, verifiedKind)
	if err != nil {
		return nil, err
	}
	var list []Copy
	for _, name := range names[0] {
		var c Copy
		if err := r.GetNamed(ctx, name, &c); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, fmt.Errorf("the entry of a backup: %w", err)
		}
		list = append(list, c)
	}
	verified := map[string]time.Time{}
	for _, name := range names[1] {
		var at time.Time
		if err := r.GetNamed(ctx, name, &at); err == nil {
			verified[name] = at
		}
	}
	for i := range list {
		name, err := r.NameOf(ctx, verifiedKind, string(list[i].ID))
		if err != nil {
			return nil, err
		}
		list[i].VerifiedAt = verified[name]
	}
	slices.SortFunc(list, func(a, b Copy) int { return strings.Compare(string(b.ID), string(a.ID)) })
	return list, nil
}

// forget removes a copy from the list. What it held goes with the next sweep.
func forget(ctx context.Context, r *repository.Repository, id ID) error {
	return errors.Join(r.DeleteNamed(ctx, copyKind, string(id)), r.DeleteNamed(ctx, verifiedKind, string(id)))
}

// kept adds what the copies of the installation need to keep.
func kept(ctx context.Context, r *repository.Repository, keep map[string]bool) error {
	list, err := Copies(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range list {
		keep[c.Manifest] = true
		for _, kind := range []string{copyKind, verifiedKind} {
			name, err := r.NameOf(ctx, kind, string(c.ID))
			if err != nil {
				return err
			}
			keep[name] = true
		}
		m, err := r.Load(ctx, c.Manifest, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it can't be restored, and verifying it says so
		}
		if err != nil {
			return err
		}
		for _, p := range m.Packs {
			keep[p] = true
		}
	}
	return nil
}

func newCopyID() ID { return db.ID[ID]("bkp") }
