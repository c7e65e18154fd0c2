package upload

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Refused is a blob of a batch that was not stored.
type Refused struct {
	Digest blob.Digest
	Code   string
}

// Reasons for refusing a blob.
const (
	NotExpected  = "not_expected"    // the manifest doesn't name it, or it is stored already
	WrongSize    = "size_mismatch"   // the manifest has another size
	WrongContent = "digest_mismatch" // its SHA-256 differs
)

// Received is the result of a batch.
type Received struct {
	Stored  int
	Refused []Refused
	Missing Missing
}

// Receive stores a batch of blobs: for each its digest, its length as 8 bytes (big endian), and its bytes. The blobs in
// the answer's Stored are durable. A blob that doesn't match the manifest is refused alone.
func (u *Uploads) Receive(ctx context.Context, owner account.OwnerID, id ID, r io.Reader) (Received, error) {
	body := &io.LimitedReader{R: r, N: MaxBatch + MaxBatchFiles*int64(record) + 1}
	in := bufio.NewReaderSize(body, 64<<10)
	return u.receive(ctx, owner, id, func(put func(c Content, r io.Reader) error) error {
		var total int64
		for n := 0; ; n++ {
			var head [record]byte
			_, err := io.ReadFull(in, head[:])
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return truncated(n)
			}
			c := Content{blob.Digest(head[:len(blob.Digest{})]), 0}
			size := binary.BigEndian.Uint64(head[len(blob.Digest{}):])
			if n == MaxBatchFiles || size > MaxBatch || total+int64(size) > MaxBatch {
				f := fault.New(fault.TooLarge, "batch_too_large", "The batch is too large",
					fmt.Sprintf("a batch has at most %d files and %s; send a larger file by itself", MaxBatchFiles, text.Size(MaxBatch)))
				if size > 1<<40 {
					f.Kind, f.Message, f.Code = fault.Invalid, "The batch is malformed", "malformed_batch"
					f.Details = fmt.Sprintf("the length of blob %d can't be", n+1)
				}
				return f
			}
			c.Size = int64(size)
			total += c.Size
			frame := &io.LimitedReader{R: in, N: c.Size}
			if err := put(c, frame); err != nil {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					return truncated(n)
				}
				return err
			}
			if _, err := io.Copy(io.Discard, frame); err != nil || frame.N > 0 {
				return truncated(n)
			}
		}
	})
}

func truncated(n int) error {
	return invalid("malformed_batch", "The batch breaks off", "blob %d is not whole; what was not acknowledged has to be sent again", n+1)
}

// ReceiveOne stores the content of one file. size is the announced size; negative if unknown.
func (u *Uploads) ReceiveOne(ctx context.Context, owner account.OwnerID, id ID, d blob.Digest, size int64, r io.Reader) (Missing, error) {
	got, err := u.receive(ctx, owner, id, func(put func(c Content, r io.Reader) error) error {
		return put(Content{d, size}, r)
	})
	if err != nil {
		return Missing{}, err
	}
	if len(got.Refused) == 0 {
		return got.Missing, nil
	}
	f := &fault.Error{Kind: fault.Conflict, Message: "The blob was not stored", Code: got.Refused[0].Code}
	switch f.Code {
	case NotExpected:
		f.Details = "it is not one of the upload's missing files"
	case WrongSize:
		f.Kind, f.Details = fault.Invalid, "it doesn't have the size that the manifest says"
	case WrongContent:
		f.Kind, f.Details = fault.Invalid, "its bytes have another SHA-256"
	}
	return Missing{}, f
}

// receive stores the blobs that each passes to put. A negative size means unknown.
func (u *Uploads) receive(
	ctx context.Context,
	owner account.OwnerID,
	id ID,
	each func(put func(c Content, r io.Reader) error) error,
) (out Received, err error) {
	x, err := u.Get(ctx, owner, id)
	if err == nil {
		err = u.mustBeOpen(x)
	}
	if err != nil {
		return out, err
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return out, err
	}
	defer release()
	need, _, err := u.missing(ctx, x)
	if err != nil {
		return out, err
	}
	batch := u.c.Blobs.Batch(ctx)
	var stored []Content
	err = each(func(c Content, r io.Reader) error {
		size, ok := need[c.Digest]
		switch {
		case !ok:
			out.Refused = append(out.Refused, Refused{c.Digest, NotExpected})
			return nil
		case c.Size >= 0 && c.Size != size:
			out.Refused = append(out.Refused, Refused{c.Digest, WrongSize})
			return nil
		}
		n, err := batch.PutExpected(io.LimitReader(r, size+1), c.Digest)
		switch {
		case errors.Is(err, blob.ErrMismatch) && c.Size >= 0 && n < size: // the sender stopped early
			return io.ErrUnexpectedEOF
		case errors.Is(err, blob.ErrMismatch):
			code := WrongContent
			if n != size {
				code = WrongSize
			}
			out.Refused = append(out.Refused, Refused{c.Digest, code})
			return nil
		case err != nil:
			return err
		}
		stored = append(stored, Content{c.Digest, size})
		return nil
	})
	// Flush even after an error: it ends the batch.
	if flushed := batch.Flush(); err == nil {
		err = flushed
	}
	err = unstored(err)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = incomplete()
	}
	if err == nil && len(stored) > 0 {
		err = u.acknowledge(ctx, owner, x.ID, stored, 0)
	}
	if err != nil {
		return Received{}, err
	}
	out.Stored = len(stored)
	_, missing, err := u.missing(ctx, x)
	out.Missing = Sum(missing)
	return out, err
}

// unstored returns a fault if garbage collection interfered and the batch must be sent again, and other errors
// unchanged.
func unstored(err error) error {
	if !errors.Is(err, blob.ErrSwept) {
		return err
	}
	return &fault.Error{
		Kind: fault.Unavailable, Message: "The files could not be stored at the moment", Details: "send them again", RetryAfter: time.Second,
	}
}

func incomplete() error {
	return invalid("body_incomplete", "Incomplete request body", "the connection broke off; send it again")
}

// take waits for a place among the requests that send files or read lists; release frees it.
func (u *Uploads) take(ctx context.Context, x Upload) (release func(), err error) {
	release, err = u.receiving.Take(ctx, fair.Who{Owner: string(x.Owner), Site: string(x.Site)})
	if errors.Is(err, fair.ErrFull) {
		err = &fault.Error{
			Kind: fault.Limited, Message: "Too many uploads at once", Details: "send at most 4 requests about files of one site at once",
			Code: "too_many_streams", RetryAfter: 5 * time.Second,
		}
	}
	return release, err
}

// acknowledge records durable contents. more is how many of their bytes the manifest doesn't count yet.
func (u *Uploads) acknowledge(ctx context.Context, owner account.OwnerID, id ID, list []Content, more int64) error {
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		x, err := u.lockTx(ctx, tx, owner, id)
		if err == nil {
			err = u.mustBeOpen(x)
		}
		if err != nil {
			return err
		}
		if more > 0 {
			if err := u.c.Limits.RequireTx(ctx, tx, owner, limits.Storage, more); err != nil {
				return err
			}
		}
		return acknowledgeTx(ctx, tx, id, list, more)
	})
}

func acknowledgeTx(ctx context.Context, tx *db.Tx, id ID, list []Content, more int64) error {
	if _, err := tx.Exec(ctx, `INSERT INTO upload_batches (id, upload_id, blobs) VALUES ($1, $2, $3)`,
		db.NewID("upb"), id, base64.StdEncoding.EncodeToString(pack(list))); err != nil {
		return fmt.Errorf("note received files: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		UPDATE uploads SET touched_at = $2, needed_bytes = needed_bytes + $3 WHERE id = $1`, id, db.Now(), more); err != nil {
		return fmt.Errorf("note received files: %w", err)
	}
	return nil
}
