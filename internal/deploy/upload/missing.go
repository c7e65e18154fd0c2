package upload

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Missing counts the contents that weren't sent yet, and their bytes.
type Missing struct{ Files, Bytes int64 }

// Content is a file's content, by digest and size.
type Content struct {
	Digest blob.Digest
	Size   int64
}

// record is the stored size of a content: digest and length.
const record = len(blob.Digest{}) + 8

// maxStored caps the bytes of a stored manifest or list.
const maxStored = maxManifest + 200_000*128

// PutManifest sets the upload's list of files, replacing an earlier one, and returns what must be sent. Contents that
// the caller's other sites have needn't be sent. An invalid list is a fault, and exceeding the owner's storage is a
// Payment fault.
func (u *Uploads) PutManifest(ctx context.Context, by account.Caller, id ID, r io.Reader) (Upload, []Content, error) {
	x, err := u.Get(ctx, by.Owner, id)
	if err == nil {
		err = u.mustBeOpen(x)
	}
	if err != nil {
		return x, nil, err
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return x, nil, err
	}
	defer release()
	list, err := parse(r, x.Kind, u.Limits())
	if err != nil {
		return x, nil, err
	}
	if len(list) == 0 {
		return x, nil, invalid("empty_upload", "The manifest has no file", "send a line for each file")
	}
	return u.put(ctx, x, list, by.Sites)
}

// put is PutManifest for parsed files. The caller holds a place. Contents of the given sites needn't be sent; no sites
// means all of the owner's.
func (u *Uploads) put(ctx context.Context, x Upload, list []entry, sites []site.ID) (Upload, []Content, error) {
	manifest, _, err := u.c.Blobs.Put(ctx, bytes.NewReader(encode(list)))
	if err != nil {
		return x, nil, fmt.Errorf("store manifest: %w", err)
	}
	x.Manifest, x.Files, x.Bytes = manifest.String(), int64(len(list)), 0
	for _, e := range list {
		x.Bytes += e.size
	}
	// From here on garbage collection keeps what the manifest names. Only then is it looked up what is stored, so that
	// nothing counts as stored that is just being deleted. Until that is done nothing counts as missing, and deploying
	// waits.
	if err := u.note(ctx, x, func(now *Upload) { now.needed = pendingList }); err != nil {
		return x, nil, err
	}
	published, err := u.published(ctx, x.Site)
	if err != nil {
		return x, nil, err
	}
	sent, err := u.sent(ctx, x.Owner, sites)
	if err != nil {
		return x, nil, err
	}
	// Contents of an earlier manifest are kept and count until the upload is deployed or expires.
	counted, err := u.receivedOf(ctx, x.ID)
	if err != nil {
		return x, nil, err
	}
	var need []Content
	x.neededBytes = 0
	for _, size := range counted {
		x.neededBytes += size
	}
	seen := map[blob.Digest]bool{}
	for _, e := range list {
		size, have := published[e.digest]
		isPublished := have
		if !have {
			size, have = sent[e.digest]
		}
		if have && size != e.size {
			return x, nil, invalid("size_mismatch", "A file's size doesn't agree with its sha256", "%s has %d bytes", show(e.path), size)
		}
		if seen[e.digest] {
			continue
		}
		seen[e.digest] = true
		if !have {
			need = append(need, Content{e.digest, e.size})
		}
		// Contents that another upload received count here too, because that upload may be deleted first.
		if _, ok := counted[e.digest]; !ok && !isPublished {
			x.neededBytes += e.size
		}
	}
	x.needed = ""
	if len(need) > 0 {
		d, _, err := u.c.Blobs.Put(ctx, bytes.NewReader(pack(need)))
		if err != nil {
			return x, nil, fmt.Errorf("store list of missing files: %w", err)
		}
		x.needed = d.String()
	}
	err = u.note(ctx, x, func(now *Upload) { now.needed, now.neededBytes = x.needed, x.neededBytes })
	return x, need, err
}

// pendingList replaces an upload's list of missing files until it is computed.
const pendingList = "pending"

// note stores an upload's manifest and the changes that set makes, if the owner's storage limit allows it.
func (u *Uploads) note(ctx context.Context, x Upload, set func(now *Upload)) error {
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		now, err := u.lockTx(ctx, tx, x.Owner, x.ID)
		if err == nil {
			err = u.mustBeOpen(now)
		}
		if err != nil {
			return err
		}
		before := now.neededBytes
		set(&now)
		if now.neededBytes > before {
			if err := u.c.Limits.RequireTx(ctx, tx, x.Owner, limits.Storage, now.neededBytes-before); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `
			UPDATE uploads SET manifest = $2, files = $3, bytes = $4, needed = $5, needed_bytes = $6, touched_at = $7 WHERE id = $1`,
			x.ID, x.Manifest, x.Files, x.Bytes, now.needed, now.neededBytes, db.Now())
		if err != nil {
			return fmt.Errorf("note manifest: %w", err)
		}
		return nil
	})
}

// published returns the contents of a site's releases, with their sizes.
func (u *Uploads) published(ctx context.Context, id site.ID) (map[blob.Digest]int64, error) {
	known := map[blob.Digest]int64{}
	rows, err := u.c.DB.Query(ctx, `SELECT release FROM site_releases WHERE site_id = $1`, id)
	releases, err := db.Collect(rows, err, func(s db.Scanner) (r release.ID, err error) { return r, s.Scan(&r) })
	if err != nil {
		return nil, fmt.Errorf("list releases: %w", err)
	}
	for _, r := range releases {
		tree, err := u.c.Releases.Load(ctx, r)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for f := range tree.Files() {
			known[f.Body.Digest] = f.Body.Size
		}
	}
	return known, nil
}

// sent returns the contents that were uploaded to the given sites of an owner, or to all: by open uploads, and by those
// deployed last. A caller who names a known content can publish it, so it must be from the caller's own sites.
func (u *Uploads) sent(ctx context.Context, owner account.OwnerID, sites []site.ID) (map[blob.Digest]int64, error) {
	find := func(query, order string, args ...any) (*sql.Rows, error) {
		list := db.Args(args)
		if len(sites) > 0 {
			query += ` AND u.site_id IN (` + db.AddList(&list, sites) + `)`
		}
		return u.c.DB.Query(ctx, query+order, list...)
	}
	rows, err := find(`SELECT u.manifest FROM uploads u WHERE u.owner_id = $1 AND u.status = 'deployed'`,
		` ORDER BY u.deployment_id DESC LIMIT `+strconv.Itoa(maxRecent), owner)
	manifests, err := db.Collect(rows, err, func(s db.Scanner) (m string, err error) { return m, s.Scan(&m) })
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	sent := map[blob.Digest]int64{}
	slices.Sort(manifests)
	for _, m := range slices.Compact(manifests) {
		list, err := u.files(ctx, Upload{Manifest: m})
		if errors.Is(err, fs.ErrNotExist) { // it expired and was deleted since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			sent[e.digest] = e.size
		}
	}
	rows, err = find(`SELECT b.blobs FROM upload_batches b JOIN uploads u ON u.id = b.upload_id WHERE u.owner_id = $1 AND u.touched_at >= $2`,
		"", owner, db.Now().Add(-Patience))
	return sent, received(rows, err, sent)
}

// maxRecent caps the deployed uploads of an owner whose contents needn't be sent again.
const maxRecent = 20

// receivedOf returns the contents that an upload received.
func (u *Uploads) receivedOf(ctx context.Context, id ID) (map[blob.Digest]int64, error) {
	have := map[blob.Digest]int64{}
	rows, err := u.c.DB.Query(ctx, `SELECT blobs FROM upload_batches WHERE upload_id = $1`, id)
	return have, received(rows, err, have)
}

// missing returns the contents that an upload needs, and those not yet sent, in the manifest's order.
func (u *Uploads) missing(ctx context.Context, x Upload) (need map[blob.Digest]int64, missing []Content, err error) {
	switch x.needed {
	case "":
		if x.Manifest == "" {
			return nil, nil, fault.New(fault.Conflict, "manifest_required", "The upload has no manifest yet",
				"send the list of its files first")
		}
		return nil, nil, nil
	case pendingList:
		return nil, nil, fault.New(fault.Conflict, "manifest_required", "The manifest is being read",
			"wait for the response of the request that sends it, or send it again")
	}
	b, err := u.read(ctx, x.needed)
	if err != nil {
		return nil, nil, err
	}
	all, err := unpack(b)
	if err != nil {
		return nil, nil, err
	}
	have, err := u.receivedOf(ctx, x.ID)
	if err != nil {
		return nil, nil, err
	}
	need = make(map[blob.Digest]int64, len(all))
	for _, c := range all {
		need[c.Digest] = c.Size
		if _, ok := have[c.Digest]; !ok {
			missing = append(missing, c)
		}
	}
	return need, missing, nil
}

// MissingOf returns how much of an upload wasn't sent yet.
func (u *Uploads) MissingOf(ctx context.Context, x Upload) (Missing, error) {
	if x.Manifest == "" || x.needed == pendingList || x.Status != Open {
		return Missing{}, nil
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return Missing{}, err
	}
	defer release()
	_, list, err := u.missing(ctx, x)
	return Sum(list), err
}

// Sum returns the number and bytes of contents.
func Sum(list []Content) (m Missing) {
	for _, c := range list {
		m.Files++
		m.Bytes += c.Size
	}
	return m
}

// ListMissing returns at most limit missing contents after a digest; more reports whether there are others.
func (u *Uploads) ListMissing(ctx context.Context, x Upload, after blob.Digest, limit int) (page []Content, more bool, err error) {
	if err := u.mustBeOpen(x); err != nil {
		return nil, false, err
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return nil, false, err
	}
	defer release()
	_, list, err := u.missing(ctx, x)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(list, func(a, b Content) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	if after != (blob.Digest{}) {
		at, found := slices.BinarySearchFunc(list, after, func(c Content, d blob.Digest) int { return bytes.Compare(c.Digest[:], d[:]) })
		if found {
			at++
		}
		list = list[at:]
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

func (u *Uploads) read(ctx context.Context, digest string) ([]byte, error) {
	d, err := blob.ParseDigest(digest)
	if err != nil {
		return nil, err
	}
	return u.c.Blobs.ReadAll(ctx, d, maxStored)
}

// files reads an upload's manifest.
func (u *Uploads) files(ctx context.Context, x Upload) ([]entry, error) {
	b, err := u.read(ctx, x.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", x.ID, err)
	}
	return decode(b)
}

// pack encodes contents for the database; unpack decodes them.
func pack(list []Content) []byte {
	b := make([]byte, 0, len(list)*record)
	for _, c := range list {
		b = append(b, c.Digest[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(c.Size))
	}
	return b
}

func unpack(b []byte) ([]Content, error) {
	if len(b)%record != 0 {
		return nil, errors.New("decode list of files: it has another form")
	}
	list := make([]Content, 0, len(b)/record)
	for r := range slices.Chunk(b, record) {
		list = append(list, Content{blob.Digest(r[:len(blob.Digest{})]), int64(binary.BigEndian.Uint64(r[len(blob.Digest{}):]))})
	}
	return list, nil
}

// received adds the contents in rows of batches to the map.
func received(rows *sql.Rows, err error, into map[blob.Digest]int64) error {
	_, err = db.Collect(rows, err, func(s db.Scanner) (struct{}, error) {
		var text string
		if err := s.Scan(&text); err != nil {
			return struct{}{}, err
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return struct{}{}, err
		}
		list, err := unpack(b)
		for _, c := range list {
			into[c.Digest] = c.Size
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read received files: %w", err)
	}
	return nil
}
