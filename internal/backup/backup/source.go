package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"slipway/internal/backup/repository"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
	"slipway/internal/tenant/account"
)

// emptySum is the digest of no bytes.
var emptySum = sha256.Sum256(nil)

// held is a backup's blobs as a store that can only be read: releases and programs are
// looked at in it as if they had been restored.
type held struct {
	r *reader
}

var errReadOnly = errors.New("a backup can't be written to")

func (h *held) Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error) {
	f, ok := h.r.m.File(inBlobs + name)
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	if f.Size <= repository.Whole {
		var out bytes.Buffer
		if err := h.r.Copy(ctx, &out, f); err != nil {
			return nil, 0, err
		}
		return nopCloser{bytes.NewReader(out.Bytes())}, f.Size, nil
	}
	tmp, err := os.CreateTemp("", "slipway-backup-")
	if err != nil {
		return nil, 0, err
	}
	os.Remove(tmp.Name())
	if err := h.r.Copy(ctx, tmp, f); err != nil {
		tmp.Close()
		return nil, 0, err
	}
	_, err = tmp.Seek(0, io.SeekStart)
	return tmp, f.Size, err
}

func (h *held) Stat(_ context.Context, name string) (blob.Entry, error) {
	f, ok := h.r.m.File(inBlobs + name)
	if !ok {
		return blob.Entry{}, fs.ErrNotExist
	}
	return blob.Entry{Name: name, Size: f.Size}, nil
}

func (h *held) Put(context.Context, string, io.Reader, int64) error { return errReadOnly }
func (h *held) Begin() blob.Bulk                                    { return noBulk{} }
func (h *held) Delete(context.Context, string) error                { return errReadOnly }
func (h *held) Distrust(string)                                     {}
func (h *held) Close()                                              {}
func (h *held) List(context.Context) iter.Seq2[blob.Entry, error] {
	return func(yield func(blob.Entry, error) bool) { yield(blob.Entry{}, errReadOnly) }
}

type noBulk struct{}

func (noBulk) Put(context.Context, string, io.Reader, int64) error { return errReadOnly }
func (noBulk) Flush() error                                        { return errReadOnly }
func (noBulk) Drop()                                               {}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// reader reads a backup's content. It is for one goroutine.
type reader struct {
	*repository.Reader
	owner account.OwnerID // of what is loaded from it; empty: the installation
	repo  *repository.Repository
	m     *Manifest
}

func newReader(r *repository.Repository, owner account.OwnerID, m *Manifest) *reader {
	return &reader{repository.NewReader(r, &m.Contents), owner, r, m}
}

// stored returns the store of what a backup holds. It is for one goroutine.
func (r *reader) stored() *blob.Store { return blob.New(blob.Config{Backend: &held{r}}) }

// scratchBundles returns bundles over a store, whose own directory is removed by done.
func (s *Backups) scratchBundles(store *blob.Store) (b *bundle.Bundles, done func(), err error) {
	dir, err := os.MkdirTemp(s.c.Scratch, "bundles-")
	if err != nil {
		return nil, nil, fmt.Errorf("make scratch directory: %w", err)
	}
	if b, err = s.bundles(store, dir); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return b, func() { os.RemoveAll(dir) }, nil
}

// reader opens a completed backup.
func (s *Backups) reader(ctx context.Context, b Backup) (*reader, error) {
	if b.Status != Completed {
		return nil, notCompleted(b)
	}
	if err := s.possible(); err != nil {
		return nil, err
	}
	m, err := load(ctx, s.c.Repository, b.manifest)
	if err != nil {
		return nil, fmt.Errorf("open backup %s: %w", b.ID, err)
	}
	return newReader(s.c.Repository, b.Owner, m), nil
}
