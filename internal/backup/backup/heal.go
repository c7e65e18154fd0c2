package backup

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"slices"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
)

// readAtLeast is how many bytes of what a backup of the installation builds on it reads again at least. Of a larger one it reads a
// roundth.
const (
	readAtLeast = 1 << 30
	roundth     = 7
	packSize    = 8 << 20
	allOfIt     = math.MaxInt64
)

// isBad reports whether an object is missing or damaged.
func isBad(err error) bool {
	return errors.Is(err, repository.ErrDamaged) || errors.Is(err, fs.ErrNotExist)
}

// examine looks for the objects that the new copy builds on, or for all that copies need, and reads a part of them. What is missing or
// damaged is stored again by w. It returns the packs of each copy that needs a bad one or is on record as damaged.
func (s *Source) examine(
	ctx context.Context, r *repository.Repository, w *repository.Writer, base *snapshot.Manifest, earlier []Copy, c *Copy,
) (affected map[ID][]string, err error) {
	affected = map[ID][]string{}
	var packs []string
	c.Whole = c.At
	if base != nil {
		packs = base.Packs
	}
	from, budget := "", int64(allOfIt)
	if s.All {
		packs, err = packsOf(ctx, r, earlier)
	} else if base != nil {
		from, budget = earlier[0].Reached, max(readAtLeast, int64(len(packs))*packSize/roundth)
		c.Whole, c.Round = earlier[0].Whole, earlier[0].Round
	}
	if err != nil {
		return nil, err
	}
	if from == "" || c.Round.IsZero() {
		from, c.Round = "", c.At
	}
	bad, reached, err := r.Examine(ctx, packs, from, budget)
	if err != nil {
		return nil, err
	}
	if c.Reached = reached; reached == "" {
		c.Whole, c.Round = c.Round, time.Time{}
	}
	c.Damage += len(bad)
	lists := len(earlier) > 0 && (base == nil || base.ID != earlier[0].ID) // one of them can't be read
	var all []*repository.Contents
	for _, e := range earlier {
		if len(bad) == 0 && !lists && !s.All {
			break
		}
		m, err := r.Load(ctx, e.Manifest, nil)
		if isBad(err) {
			affected[e.ID] = []string{e.Manifest}
			bad[e.Manifest] = true // nothing can make it again
			c.Damage++
			continue
		}
		if err != nil {
			return nil, err
		}
		if needs(m.Packs, bad) || e.Damaged {
			affected[e.ID] = m.Packs
			all = append(all, &repository.Contents{Packs: m.Packs, Pieces: m.Pieces})
		}
	}
	if len(bad) > 0 {
		s.Log.WarnContext(ctx, "stored objects are missing or damaged: their content is stored again", "objects", len(bad),
			"backups", len(affected))
		w.Heal(bad, s.Scratch, all)
	}
	return affected, nil
}

// packsOf returns the packs of all copies, as far as their lists can be read.
func packsOf(ctx context.Context, r *repository.Repository, list []Copy) (packs []string, err error) {
	for _, c := range list {
		m, err := r.Load(ctx, c.Manifest, nil)
		if isBad(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		packs = append(packs, m.Packs...)
	}
	return packs, nil
}

func needs(packs []string, bad map[string]bool) bool {
	for _, p := range packs {
		if bad[p] {
			return true
		}
	}
	return false
}

// noteDamage writes into the repository which copies need an object that is bad, and which don't any more.
func noteDamage(ctx context.Context, r *repository.Repository, affected map[ID][]string, bad map[string]bool) error {
	for id, packs := range affected {
		var err error
		if needs(packs, bad) {
			err = r.PutNamed(ctx, damagedKind, string(id), time.Now().UTC())
		} else {
			err = r.DeleteNamed(ctx, damagedKind, string(id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// healSite checks that the objects exist that a site's new backup builds on. It also reads those that only unverified earlier backups
// use. What is missing or damaged is stored again. It returns the packs of each earlier backup that needs a bad
// object; its list counts as one.
func (s *Backups) healSite(
	ctx context.Context, b Backup, list []*snapshot.Manifest, w *repository.Writer,
) (affected map[ID][]string, err error) {
	rows, err := s.c.DB.Query(ctx, `SELECT `+columns+` FROM backups WHERE site_id = $1 AND status = 'completed' ORDER BY id`, b.Site)
	earlier, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, err
	}
	lost, whole, known := false, map[ID]bool{}, map[string]bool{}
	for _, x := range earlier {
		whole[x.ID] = x.VerifiedAt > 0
	}
	for _, m := range list {
		if lost = lost || m == nil; m != nil && whole[m.ID] {
			for _, p := range m.Packs {
				known[p] = true
			}
		}
	}
	var packs, doubtful []string
	for _, m := range list {
		if m == nil {
			continue
		}
		packs = append(packs, m.Packs...)
		if !whole[m.ID] {
			doubtful = append(doubtful, slices.DeleteFunc(slices.Clone(m.Packs), func(p string) bool { return known[p] })...)
		}
	}
	bad, _, err := s.c.Repository.Examine(ctx, packs, "", 0)
	if err != nil {
		return nil, err
	}
	read, _, err := s.c.Repository.Examine(ctx, doubtful, "", allOfIt)
	if err != nil {
		return nil, err
	}
	maps.Copy(bad, read)
	if len(bad) == 0 && !lost {
		return nil, nil
	}
	affected = map[ID][]string{}
	var all []*repository.Contents
	for _, x := range earlier {
		m, err := s.c.Repository.Load(ctx, x.manifest, nil)
		if isBad(err) {
			affected[x.ID] = []string{x.manifest}
			bad[x.manifest] = true // nothing can make it again
			continue
		}
		if err != nil {
			return nil, err
		}
		if needs(m.Packs, bad) {
			affected[x.ID] = m.Packs
		}
		all = append(all, &repository.Contents{Packs: m.Packs, Pieces: m.Pieces})
	}
	s.c.Log.WarnContext(ctx, "stored objects are missing or damaged: their content is stored again", "site", b.Site, "objects", len(bad))
	w.Heal(bad, s.c.Scratch, all)
	return affected, nil
}

// verifyAgainTx has a completed backup verified, although nobody waits for it.
func (s *Backups) verifyAgainTx(ctx context.Context, tx *db.Tx, b Backup) error {
	_, err := job.Enqueue(ctx, tx, Verify{Backup: b.ID}, job.Options{
		Queue: VerifyQueue, Unique: "verify/" + string(b.ID), Share: string(b.Owner),
	})
	return err
}

// verifyEarlierTx has the earlier backups of a site verified that needed something bad. Those that need it still, and aren't known to
// be whole, are left out: a verification would read all of them each time and find the same.
func (s *Backups) verifyEarlierTx(ctx context.Context, tx *db.Tx, b Backup, affected map[ID][]string, bad map[string]bool) error {
	rows, err := tx.Query(ctx, `SELECT `+columns+` FROM backups WHERE site_id = $1 AND status = 'completed' AND id < $2`, b.Site, b.ID)
	list, err := db.Collect(rows, err, scan)
	for _, x := range list {
		packs, ok := affected[x.ID]
		if err == nil && ok && (x.VerifiedAt > 0 || !needs(packs, bad)) {
			err = s.verifyAgainTx(ctx, tx, x)
		}
	}
	return err
}
