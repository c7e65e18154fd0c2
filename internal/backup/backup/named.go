package backup

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

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

// named is the name of an object of a kind.
func (k *keys) named(kind string, id ID) string {
	sum := sha256.Sum256([]byte(id))
	return k.prefix(kind) + hex.EncodeToString(sum[:16])
}

func (k *keys) prefix(kind string) string {
	h := hmac.New(sha256.New, k.name)
	h.Write([]byte(kind))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// putNamed stores an object under a name that is its own for ever.
func (r *Repository) putNamed(ctx context.Context, kind string, id ID, v any) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return err
	}
	name := k.named(kind, id)
	sealed := k.seal(name, plain)
	if err := r.at.Put(ctx, name, bytes.NewReader(sealed), int64(len(sealed))); err != nil {
		return storeError(err)
	}
	return nil
}

func (r *Repository) getNamed(ctx context.Context, name string, v any) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	sealed, err := r.read(ctx, name, 1<<20)
	if err != nil {
		return err
	}
	plain, err := k.unseal(name, sealed)
	if err != nil {
		r.at.Distrust(name)
		return err
	}
	return json.Unmarshal(plain, v)
}

// Copies lists the backups of the installation, the newest first. One whose entry can't be
// read is an error: what it held is not known.
func (r *Repository) Copies(ctx context.Context) ([]Copy, error) {
	k, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	var list []Copy
	verified := map[string]time.Time{}
	for e, err := range r.at.List(ctx) {
		if err != nil {
			return nil, err
		}
		switch {
		case strings.HasPrefix(e.Name, k.prefix(copyKind)):
			var c Copy
			if err := r.getNamed(ctx, e.Name, &c); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				return nil, fmt.Errorf("the entry of a backup: %w", err)
			}
			list = append(list, c)
		case strings.HasPrefix(e.Name, k.prefix(verifiedKind)):
			var at time.Time
			if err := r.getNamed(ctx, e.Name, &at); err == nil {
				verified[e.Name] = at
			}
		}
	}
	for i := range list {
		list[i].VerifiedAt = verified[k.named(verifiedKind, list[i].ID)]
	}
	slices.SortFunc(list, func(a, b Copy) int { return strings.Compare(string(b.ID), string(a.ID)) })
	return list, nil
}

// forget removes a copy from the list. What it held goes with the next sweep.
func (r *Repository) forget(ctx context.Context, id ID) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(r.at.Delete(ctx, k.named(copyKind, id)), r.at.Delete(ctx, k.named(verifiedKind, id)))
}

// kept adds what the copies of the installation need to keep.
func (r *Repository) kept(ctx context.Context, keep map[string]bool) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	list, err := r.Copies(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		keep[k.named(copyKind, c.ID)], keep[k.named(verifiedKind, c.ID)], keep[c.Manifest] = true, true, true
		m, err := r.load(ctx, c.Manifest)
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

func newCopyID() ID { return ID(db.NewID("bkp")) }
