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
	Damage     int       `json:"damage,omitempty"`   // stored objects that were found missing or damaged, and whose content was stored again
	VerifiedAt time.Time `json:"-"`
	Damaged    bool      `json:"-"` // an object that it needs is missing or damaged

	// The content of earlier backups is read in rounds: a part of it by each new backup.
	Reached string    `json:"reached,omitempty"` // the pack that was read last in the round that is under way
	Round   time.Time `json:"round,omitzero"`    // when it began
	Whole   time.Time `json:"whole,omitzero"`    // when the last round began that read all that this backup builds on
}

// Proven returns when all that the backup holds was last known to be readable.
func (c Copy) Proven() time.Time {
	if c.VerifiedAt.After(c.Whole) {
		return c.VerifiedAt
	}
	return c.Whole
}

// Kinds of objects whose name is chosen, not computed from what they hold: the first half of
// the name tells us, and nobody else, the kind.
const (
	copyKind     = "copy of an installation"
	verifiedKind = "verification of a copy"
	damagedKind  = "damage of a copy"
)

var copyKinds = []string{copyKind, verifiedKind, damagedKind}

// Copies lists the backups of the installation, the newest first. One whose entry can't be
// read is an error: what it held is not known.
func Copies(ctx context.Context, r *repository.Repository) ([]Copy, error) {
	list, broken, err := copies(ctx, r)
	if err == nil && len(broken) > 0 {
		err = fmt.Errorf("the entry of a backup, object %.12s…: %w; slipway backup repair deletes it", broken[0], repository.ErrDamaged)
	}
	return list, err
}

// copies is Copies that returns the names of entries that are damaged.
func copies(ctx context.Context, r *repository.Repository) (list []Copy, broken []string, err error) {
	names, err := r.Named(ctx, copyKinds...)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names[0] {
		var c Copy
		switch err := r.GetNamed(ctx, name, &c); {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, repository.ErrDamaged):
			broken = append(broken, name)
		case err != nil:
			return nil, nil, fmt.Errorf("the entry of a backup: %w", err)
		default:
			list = append(list, c)
		}
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
			return nil, nil, err
		}
		list[i].VerifiedAt = verified[name]
		if name, err = r.NameOf(ctx, damagedKind, string(list[i].ID)); err != nil {
			return nil, nil, err
		}
		list[i].Damaged = slices.Contains(names[2], name)
	}
	slices.SortFunc(list, func(a, b Copy) int { return strings.Compare(string(b.ID), string(a.ID)) })
	return list, broken, nil
}

// forget removes a copy from the list. What it held goes with the next sweep.
func forget(ctx context.Context, r *repository.Repository, id ID) error {
	var errs []error
	for _, kind := range copyKinds {
		errs = append(errs, r.DeleteNamed(ctx, kind, string(id)))
	}
	return errors.Join(errs...)
}

// kept adds what the copies of the installation need to keep.
func kept(ctx context.Context, r *repository.Repository, keep map[string]bool) error {
	list, err := Copies(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range list {
		keep[c.Manifest] = true
		for _, kind := range copyKinds {
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
