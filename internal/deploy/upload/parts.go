package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// MinPart is the minimum size of a part in bytes, except for a file's last one. If a part is interrupted, whole
// multiples of MinPart are kept.
const MinPart = 1 << 20

// storeTime limits storing received bytes after the connection broke.
const storeTime = time.Minute

// Progress is how much of a file has been received.
type Progress struct {
	Offset  int64 // bytes received so far
	Size    int64
	Missing Missing // of the upload
}

// arriving tracks the parts that this process is receiving. A client that asks for its progress after a broken
// connection must wait until the interrupted part is stored.
type arriving struct {
	mu sync.Mutex // guards now
	// share: none, as many as there are places in receiving
	now map[arrival]chan struct{} // closed when the part is stored or dropped
}

type arrival struct {
	upload ID
	digest blob.Digest
}

// longestArrival is how long a request for progress waits. A part of another live connection may take longer.
const longestArrival = 3 * time.Second

// begin registers a part until end is called.
func (a *arriving) begin(id ID, d blob.Digest) (end func()) {
	k, done := arrival{id, d}, make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.now = map[arrival]chan struct{}{}
	}
	a.now[k] = done
	return func() {
		close(done)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.now[k] == done { // else it belongs to a later part
			delete(a.now, k)
		}
	}
}

// wait returns when the arriving part is stored or dropped.
func (a *arriving) wait(ctx context.Context, id ID, d blob.Digest) {
	a.mu.Lock()
	done := a.now[arrival{id, d}]
	a.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(longestArrival):
	}
}

// part is a received part of a file.
type part struct {
	upload      ID
	start, size int64
	blob        blob.Digest
}

// Progress returns how much of a file was received, or a NotFound fault if the upload doesn't need it.
func (u *Uploads) Progress(ctx context.Context, x Upload, d blob.Digest) (p Progress, err error) {
	if err := u.mustBeOpen(x); err != nil {
		return p, err
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return p, err
	}
	defer release()
	u.arriving.wait(ctx, x.ID, d)
	whole, p, err := u.wanted(ctx, x, d)
	if err != nil || whole {
		return p, err
	}
	list, err := u.parts(ctx, u.c.DB, x, d)
	p.Offset = end(list)
	return p, err
}

// wanted returns the size of a content that an upload needs, and whether it was sent already.
func (u *Uploads) wanted(ctx context.Context, x Upload, d blob.Digest) (whole bool, p Progress, err error) {
	need, missing, err := u.missing(ctx, x)
	if err != nil {
		return false, p, err
	}
	size, ok := need[d]
	if !ok {
		return false, p, fault.New(fault.NotFound, NotExpected, "The upload doesn't need this blob",
			"it is not one of the upload's missing files")
	}
	whole = true
	for _, c := range missing {
		whole = whole && c.Digest != d
	}
	p = Progress{Size: size, Missing: Sum(missing)}
	if whole {
		p.Offset = size
	}
	return whole, p, nil
}

func scanDigest(s db.Scanner) (d blob.Digest, err error) {
	var hex string
	if err := s.Scan(&hex); err != nil {
		return d, err
	}
	return blob.ParseDigest(hex)
}

// parts returns the received parts of a content: those of this upload, or else those of another open upload of the
// site, whose client may have been interrupted.
func (u *Uploads) parts(ctx context.Context, r db.Reader, x Upload, d blob.Digest) ([]part, error) {
	rows, err := r.Query(ctx, `
		SELECT p.upload_id, p.start, p.size, p.blob FROM upload_parts p JOIN uploads u ON u.id = p.upload_id
		WHERE p.digest = $1 AND u.owner_id = $2 AND u.site_id = $3 AND u.status = 'open' ORDER BY p.upload_id, p.start`,
		d.String(), x.Owner, x.Site)
	all, err := db.Collect(rows, err, func(s db.Scanner) (p part, err error) {
		var hex string
		if err := s.Scan(&p.upload, &p.start, &p.size, &hex); err != nil {
			return p, err
		}
		p.blob, err = blob.ParseDigest(hex)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read parts of file: %w", err)
	}
	byUpload := map[ID][]part{}
	for _, p := range all {
		byUpload[p.upload] = append(byUpload[p.upload], p)
	}
	best := byUpload[x.ID]
	for id, list := range byUpload {
		if len(byUpload[x.ID]) == 0 && (end(list) > end(best) || end(list) == end(best) && id > best[0].upload) {
			best = list
		}
	}
	return best, nil
}

// end returns the offset of the next part.
func end(list []part) int64 {
	if len(list) == 0 {
		return 0
	}
	last := list[len(list)-1]
	return last.start + last.size
}

// ReceivePart stores a part of a file. Its offset must be the end of the previous part, else it is a Conflict fault
// with the right offset. Bytes up to the answer's Offset are durable. If the connection breaks, whole MiB are kept.
// After the last part, the file is joined and compared with its digest.
func (u *Uploads) ReceivePart(
	ctx context.Context, owner account.OwnerID, id ID, d blob.Digest, at int64, r io.Reader,
) (p Progress, err error) {
	x, err := u.Get(ctx, owner, id)
	if err == nil {
		err = u.mustBeOpen(x)
	}
	if err != nil {
		return p, err
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return p, err
	}
	defer release()
	whole, p, err := u.wanted(ctx, x, d)
	if err != nil {
		return p, err
	}
	var have []part
	if !whole {
		if have, err = u.parts(ctx, u.c.DB, x, d); err != nil {
			return p, err
		}
		p.Offset = end(have)
	}
	if at != p.Offset {
		return p, elsewhere(p.Offset)
	}
	if whole {
		return p, nil
	}
	defer u.arriving.begin(x.ID, d)()
	f, err := u.scratch()
	if err != nil {
		return p, err
	}
	defer f.Close()
	most := min(p.Size-at, MaxBatch)
	n, broken := io.Copy(f, disk.Sparing(filepath.Dir(f.Name()), io.LimitReader(r, most+1)))
	switch {
	case disk.Full(broken):
		return p, diskFull()
	case n > most && most == MaxBatch:
		return p, fault.New(fault.TooLarge, "part_too_large", "The part is too large", "a part has at most "+text.Size(MaxBatch))
	case n > most:
		return p, invalid(WrongSize, "The blob was not stored", "it is larger than the manifest says")
	case broken != nil && at+n < p.Size:
		n -= n % MinPart
		if n == 0 {
			return p, incomplete()
		}
	case at+n < p.Size && n < MinPart:
		return p, invalid("part_too_small", "The part is too small", "every part but the last has at least %s", text.Size(MinPart))
	}
	// The request may have been canceled. Received bytes are kept anyway.
	kept, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	b, _, err := u.c.Blobs.Put(kept, io.NewSectionReader(f, 0, n))
	if err != nil {
		return p, stored(fmt.Errorf("store part of file: %w", err))
	}
	now := part{x.ID, at, n, b}
	if err := u.addPart(kept, owner, x, d, now); err != nil {
		return p, err
	}
	p.Offset = at + n
	if p.Offset < p.Size {
		if broken != nil {
			return p, incomplete()
		}
		return p, nil
	}
	if err := u.join(context.WithoutCancel(ctx), owner, x, d, p.Size, append(have, now)); err != nil {
		return p, err
	}
	p.Missing.Files, p.Missing.Bytes = p.Missing.Files-1, p.Missing.Bytes-p.Size
	return p, nil
}

func elsewhere(offset int64) error {
	return fault.New(fault.Conflict, "offset_mismatch", "The part doesn't begin where the one before has ended",
		fmt.Sprintf("continue with Upload-Offset: %d", offset))
}

// addPart records a stored part. Parts of another upload that it continues are moved to this one.
func (u *Uploads) addPart(ctx context.Context, owner account.OwnerID, x Upload, d blob.Digest, p part) error {
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		now, err := u.lockTx(ctx, tx, owner, x.ID)
		if err == nil {
			err = u.mustBeOpen(now)
		}
		if err != nil {
			return err
		}
		have, err := u.parts(ctx, tx, x, d)
		if err != nil {
			return err
		}
		if end(have) != p.start {
			return elsewhere(end(have))
		}
		if len(have) > 0 && have[0].upload != x.ID {
			if _, err := tx.Exec(ctx, `UPDATE upload_parts SET upload_id = $1 WHERE upload_id = $2 AND digest = $3`,
				x.ID, have[0].upload, d.String()); err != nil {
				return fmt.Errorf("continue parts of another upload: %w", err)
			}
		}
		if _, err := tx.Exec(ctx, `INSERT INTO upload_parts (upload_id, digest, start, size, blob) VALUES ($1, $2, $3, $4, $5)`,
			x.ID, d.String(), p.start, p.size, p.blob.String()); err != nil {
			return fmt.Errorf("note part of file: %w", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE uploads SET touched_at = $2 WHERE id = $1`, x.ID, db.Now()); err != nil {
			return fmt.Errorf("note part of file: %w", err)
		}
		return nil
	})
}

// join joins the parts of a file. If the result has another digest, the parts are deleted.
func (u *Uploads) join(ctx context.Context, owner account.OwnerID, x Upload, d blob.Digest, size int64, list []part) error {
	batch := u.c.Blobs.Batch(ctx)
	n, err := batch.PutExpected(&joined{ctx: ctx, blobs: u.c.Blobs, rest: list}, d)
	if flushed := batch.Flush(); err == nil {
		err = flushed
	}
	wrong := errors.Is(err, blob.ErrMismatch) || err == nil && n != size
	if err != nil && !wrong {
		return stored(unstored(err))
	}
	err = u.c.DB.Write(ctx, func(tx *db.Tx) error {
		now, err := u.lockTx(ctx, tx, owner, x.ID)
		if err == nil {
			err = u.mustBeOpen(now)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM upload_parts WHERE upload_id = $1 AND digest = $2`, x.ID, d.String()); err != nil {
			return fmt.Errorf("forget parts of file: %w", err)
		}
		if wrong {
			return nil
		}
		return acknowledgeTx(ctx, tx, x.ID, []Content{{d, size}}, 0)
	})
	if err == nil && wrong {
		err = invalid(WrongContent, "The blob was not stored", "its bytes have another SHA-256; send it again from the beginning")
	}
	return err
}

// joined reads parts one after the other.
type joined struct {
	ctx   context.Context // of the join; doesn't outlive it
	blobs *blob.Store
	rest  []part
	now   io.ReadCloser
}

func (j *joined) Read(b []byte) (int, error) {
	for {
		if j.now == nil {
			if len(j.rest) == 0 {
				return 0, io.EOF
			}
			r, _, err := j.blobs.Open(j.ctx, j.rest[0].blob)
			if err != nil {
				return 0, fmt.Errorf("read part of file: %w", err)
			}
			j.now, j.rest = r, j.rest[1:]
		}
		n, err := j.now.Read(b)
		if err == io.EOF {
			err = j.now.Close()
			j.now = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
