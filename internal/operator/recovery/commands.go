package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/refill"
	"slipway/internal/backup/repository"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/operation"
)

// Place says where backups of an installation lie, and what opens them: the installation's
// key, that of its data directory where none is named, or an identity of age.
type Place struct {
	From     string
	Key      string // file
	Identity string // file
}

// Create has the service that runs on the data directory back the installation up, and
// waits for it.
func Create(ctx context.Context, s installation.Store, to string, out io.Writer) error {
	var c backup.Copy
	err := inService(ctx, s, "--to", to, out, &c, func(tx *db.Tx, ops *operation.Operations, to string) (operation.Operation, error) {
		return backup.BackUpInstallationTx(ctx, tx, ops, to, false)
	})
	if err != nil {
		return err
	}
	return taken(c, out)
}

// taken prints what a backup holds, and returns an error if something is missing in it.
func taken(c backup.Copy, out io.Writer) error {
	fmt.Fprintf(out, "%s: %s, of which %s are new, in %.1f s\n", c.ID, text.Size(c.Size), text.Size(c.Stored), c.Took)
	if c.Damage > 0 {
		fmt.Fprintf(out, "%d stored objects were missing or damaged. What they held and is still there was stored again\n", c.Damage)
	}
	for _, p := range c.Problems {
		fmt.Fprintln(out, "Problem:", p)
	}
	if len(c.Problems) > 0 {
		return fmt.Errorf("the backup was taken, but %d things are missing in it", len(c.Problems))
	}
	return nil
}

// Repair has the service that runs on the data directory read everything that backups need, store again what is missing or damaged, and
// waits for it.
func Repair(ctx context.Context, s installation.Store, to string, out io.Writer) error {
	var r backup.Repair
	err := inService(ctx, s, "--to", to, out, &r, func(tx *db.Tx, ops *operation.Operations, to string) (operation.Operation, error) {
		return backup.RepairInstallationTx(ctx, tx, ops, to)
	})
	if err != nil {
		return err
	}
	if r.Copy.Damage == 0 && r.Sites == 0 {
		fmt.Fprintln(out, "Every stored object is there and whole")
	}
	err = taken(r.Copy, out)
	if r.Sites > 0 {
		fmt.Fprintf(out, "%d backups of sites need an object that was missing or damaged. ", r.Sites)
		fmt.Fprintln(out, "They are verified again: their pages show the result")
	}
	if len(r.Damaged) > 0 {
		return errors.Join(err, fmt.Errorf("these backups can't be restored whole: %s", strings.Join(r.Damaged, ", ")))
	}
	return err
}

// RestoreStorage has the service that runs on the data directory put what sites store back from a backup of the installation at a place,
// or, where no place is named, from sites' own newest ones, and waits for it.
func RestoreStorage(ctx context.Context, s installation.Store, from string, id backup.ID, yes bool, out io.Writer) error {
	switch {
	case from == "" && id != "":
		return errors.New("--id: name the place of the installation's backups with --from")
	case !yes:
		return errors.New("what backups have takes the place of what sites store now, which is deleted: add --yes")
	}
	var r refill.Done
	err := inService(ctx, s, "--from", from, out, &r, func(tx *db.Tx, ops *operation.Operations, from string) (operation.Operation, error) {
		return refill.BeginTx(ctx, tx, ops, from, id)
	})
	if err != nil {
		return err
	}
	of := "that of their newest backups"
	if r.Copy != "" {
		of = "that of " + string(r.Copy)
	}
	fmt.Fprintf(out, "The storage of %d sites is %s\n", r.Sites, of)
	if r.Without > 0 {
		fmt.Fprintf(out, "%d sites have no backup with files: if they store something, it is as it was\n", r.Without)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(out, "Problem:", p)
	}
	if r.Failed > 0 {
		return fmt.Errorf("the storage of %d sites could not be restored", r.Failed)
	}
	return nil
}

// inService has the service that runs on the data directory do what begin begins, for a place of backups that a flag names, and reads
// its result.
func inService(
	ctx context.Context,
	s installation.Store,
	flag, place string,
	out io.Writer,
	result any,
	begin func(tx *db.Tx, ops *operation.Operations, place string) (operation.Operation, error),
) error {
	if strings.Contains(place, "access-key=") || strings.Contains(place, "secret-key=") {
		return errors.New(flag + ": the credentials of the object store go into the environment of slipway serve, not into the address")
	}
	if place != "" && !strings.Contains(place, "://") {
		abs, err := filepath.Abs(place)
		if err != nil {
			return err
		}
		place = abs
	}
	if err := s.Find(); err != nil {
		return err
	}
	if unlock, err := s.Lock(); err == nil {
		unlock()
		return fmt.Errorf("slipway serve does not run on %s: it does the work, so start it first", s.DataDir)
	}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	ops := operation.New(operation.Config{DB: d})
	var o operation.Operation
	if err := d.Write(ctx, func(tx *db.Tx) (err error) {
		o, err = begin(tx, ops, place)
		return err
	}); err != nil {
		return fault.Sentence(err)
	}
	text, err := follow(ctx, ops, o.ID, out)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return nil
}

// follow waits for the end of an operation of the installation, and tells how far it is.
func follow(ctx context.Context, ops *operation.Operations, id operation.ID, out io.Writer) (result []byte, err error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	said := ""
	for {
		o, err := ops.Get(ctx, backup.OfInstallation, id)
		if err != nil {
			return nil, fault.Sentence(err)
		}
		if o.CompletedAt == 0 {
			if o.Message != "" && o.Message != said {
				said = o.Message
				fmt.Fprintln(out, said)
			}
			select {
			case <-ctx.Done():
				return nil, errors.New("the service goes on without you; its log says how it ends")
			case <-tick.C:
			}
			continue
		}
		if o.Error != "" {
			return nil, errors.New(o.Error)
		}
		return o.Result, nil
	}
}

// open opens the repository of a place to read it, until done is called.
func (p Place) open(s installation.Store, log *slog.Logger) (repo *repository.Repository, done func(), err error) {
	if p.From == "" {
		return nil, nil, errors.New("--from: name the directory or s3://… where the backups are")
	}
	if !strings.Contains(p.From, "://") {
		if info, err := os.Stat(p.From); err != nil || !info.IsDir() {
			return nil, nil, fmt.Errorf("--from: there is no directory %s", p.From)
		}
	}
	c := repository.Config{ReadOnly: true}
	if p.Identity != "" {
		c.Identities, err = identities(p.Identity)
	} else {
		c.Seal, err = p.sealer(s)
	}
	if err != nil {
		return nil, nil, err
	}
	cache, err := os.MkdirTemp("", "slipway-backup-")
	if err != nil {
		return nil, nil, err
	}
	if c.Backend, _, err = blob.OpenBackend(p.From, blob.Options{Cache: cache, CacheSize: 64 << 20, Opaque: true, Log: log}); err != nil {
		os.RemoveAll(cache)
		return nil, nil, fmt.Errorf("--from: %w", err)
	}
	return repository.New(c), func() { c.Backend.Close(); os.RemoveAll(cache) }, nil
}

func identities(file string) ([]age.Identity, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--identity: %w", err)
	}
	defer f.Close()
	list, err := age.ParseIdentities(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, errors.New("--identity: the file holds no identity of age (AGE-SECRET-KEY-1…)")
	}
	return list, nil
}

// sealer reads the installation's key, and makes none.
func (p Place) sealer(s installation.Store) (*seal.Sealer, error) {
	file, flag := p.Key, "--key"
	if file == "" {
		file, flag = s.Path("secrets.key"), "--data-dir"
	}
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("%s: %w; name the installation's secrets.key with --key, or an identity of age with --identity", flag, err)
	}
	return seal.Load(file)
}

// List prints the backups of an installation that are at a place.
func List(ctx context.Context, s installation.Store, p Place, out io.Writer) error {
	repo, done, err := p.open(s, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer done()
	list, err := backup.Copies(ctx, repo)
	if err != nil {
		return fault.Sentence(err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tTAKEN\tSIZE\tNEW\tVERIFIED\tPROBLEMS")
	for _, c := range list {
		verified := "never"
		if !c.VerifiedAt.IsZero() {
			verified = c.VerifiedAt.UTC().Format(time.DateTime)
		}
		if c.Damaged {
			verified = "damaged"
		}
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\t%d\n",
			c.ID,
			c.At.UTC().Format(time.DateTime),
			text.Size(c.Size),
			text.Size(c.Stored),
			verified,
			len(c.Problems),
		)
	}
	return table.Flush()
}
