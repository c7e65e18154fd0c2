package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
)

// Pipe hands a file's content to use while it is read.
func (r *Reader) Pipe(ctx context.Context, f repository.File, use func(in io.Reader) error) error {
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := panics.Call(func() error { return r.Copy(ctx, out, f) })
		out.CloseWithError(err) // nil is the end
		done <- err
	}()
	err := use(in)
	in.CloseWithError(errors.New("no longer read"))
	if read := <-done; err == nil {
		err = read
	}
	return err
}

// EmptySum is the digest of no bytes.
var EmptySum = sha256.Sum256(nil)

// held is a backup's blobs as a store that can only be read: releases and programs are
// looked at in it as if they had been restored.
type held struct {
	r *Reader
}

var errReadOnly = errors.New("a backup can't be written to")

func (h *held) Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error) {
	f, ok := h.r.Manifest.File(InBlobs + name)
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
	f, ok := h.r.Manifest.File(InBlobs + name)
	if !ok {
		return blob.Entry{}, fs.ErrNotExist
	}
	return blob.Entry{Name: name, Size: f.Size}, nil
}

func (h *held) Put(context.Context, string, io.Reader, int64) error { return errReadOnly }

func (h *held) Begin() blob.Bulk { return noBulk{} }

func (h *held) Delete(context.Context, string) error { return errReadOnly }

func (h *held) Distrust(string) {}

func (h *held) Close() {}

func (h *held) List(context.Context) iter.Seq2[blob.Entry, error] {
	return func(yield func(blob.Entry, error) bool) { yield(blob.Entry{}, errReadOnly) }
}

type noBulk struct{}

func (noBulk) Put(context.Context, string, io.Reader, int64) error { return errReadOnly }

func (noBulk) Flush() error { return errReadOnly }

func (noBulk) Drop() {}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// Reader reads a backup's content. It is for one goroutine.
type Reader struct {
	*repository.Reader
	Owner      account.OwnerID // of what is loaded from it; empty: the installation
	Repository *repository.Repository
	Manifest   *Manifest
}

func NewReader(r *repository.Repository, owner account.OwnerID, m *Manifest) *Reader {
	return &Reader{repository.NewReader(r, &m.Contents), owner, r, m}
}

// Stored returns the store of what a backup holds. It is for one goroutine.
func (r *Reader) Stored() *blob.Store { return blob.New(blob.Config{Backend: &held{r}}) }
