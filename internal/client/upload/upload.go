// Package upload owns sending a folder's files to a server: only those it lacks, small ones in batches, large ones in
// resumable parts.
package upload

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
)

// Upload is an open upload in API responses.
type Upload struct {
	ID     string
	Limits struct {
		Files      int
		FileBytes  int64
		BatchBytes int64
		BatchFiles int
	}
}

// Missing counts what the server lacks.
type Missing struct{ Files, Bytes int64 }

// Progress counts what was sent. It may be read concurrently.
type Progress struct {
	All          Missing
	files, bytes atomic.Int64
}

// Files returns how many files have arrived.
func (p *Progress) Files() int64 { return p.files.Load() }

// Bytes returns how many bytes were sent, including repeated ones.
func (p *Progress) Bytes() int64 { return p.bytes.Load() }

// Count counts the bytes read from r.
func (p *Progress) Count(r io.ReadCloser, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return &counted{r, p}, nil
}

// rounds caps how often changed files are read again.
const rounds = 3

// errChanged says that a file changed after it was hashed.
var errChanged = errors.New("files changed while they were sent")

// Send sends what the server lacks and counts it in p. It calls show to start displaying progress, and the returned
// function to stop.
func (u Upload) Send(ctx context.Context, c *rest.Client, f *folder.Folder, p *Progress, show func() (stop func())) error {
	for round := 1; ; round++ {
		err := u.round(ctx, c, f, p, show)
		if !errors.Is(err, errChanged) || round == rounds {
			return err
		}
	}
}

// round sends the file list and the missing files once.
func (u Upload) round(ctx context.Context, c *rest.Client, f *folder.Folder, p *Progress, show func() (stop func())) error {
	packed, err := gzipped(f.Manifest())
	if err != nil {
		return err
	}
	path := "/uploads/" + url.PathEscape(u.ID)
	answer, err := c.Upload(ctx, rest.Body{
		Method: http.MethodPut, Path: path + "/manifest", Type: "application/x-ndjson", Encoding: "gzip", Size: int64(len(packed)),
	}, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil })
	if err != nil {
		return err
	}
	var said struct {
		Missing Missing
		Needed  []content
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return err
	}
	p.All = said.Missing
	p.files.Store(0)
	p.bytes.Store(0)
	if said.Missing.Files == 0 {
		return nil
	}
	if int64(len(said.Needed)) < said.Missing.Files {
		if said.Needed, err = listMissing(ctx, c, path); err != nil {
			return err
		}
	}
	list, err := batches(said.Needed, u, f)
	if err != nil {
		return err
	}
	defer show()()
	group, ctx := errgroup.WithContext(ctx)
	// share: none, this process is one user's
	group.SetLimit(4) // the server's limit per site
	for _, b := range list {
		group.Go(func() error { return b.send(ctx, c, path, f, p) })
	}
	return group.Wait()
}

// content is a file that the server lacks.
type content struct {
	SHA256 string
	Size   int64
}

// listMissing returns all pages of the missing files.
func listMissing(ctx context.Context, c *rest.Client, path string) (all []content, err error) {
	after := ""
	for {
		var page struct {
			Data []content
			Next string
		}
		if err := c.Get(ctx, path+"/missing?after="+after, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.Next == "" {
			return all, nil
		}
		after = page.Next
	}
}

// batch holds files sent in one request.
type batch struct {
	files []folder.File
	bytes int64
	alone bool // may exceed the size of a batch
}

// fullBatch is the size of a batch, which a broken connection loses.
const fullBatch = 16 << 20

// batches divides the missing files into batches.
func batches(list []content, up Upload, f *folder.Folder) (all []batch, err error) {
	files := f.ByDigest()
	var now batch
	flush := func() {
		if len(now.files) > 0 {
			all = append(all, now)
		}
		now = batch{}
	}
	full := min(int64(fullBatch), up.Limits.BatchBytes)
	for _, x := range list {
		file, ok := files[x.SHA256]
		switch {
		case !ok || file.Size != x.Size:
			return nil, errors.New("the server asks for a file that isn't in the folder")
		case x.Size > full:
			all = append(all, batch{[]folder.File{file}, x.Size, true})
			continue
		case now.bytes+x.Size > full || len(now.files) >= up.Limits.BatchFiles:
			flush()
		}
		now.files, now.bytes = append(now.files, file), now.bytes+x.Size
	}
	flush()
	return all, nil
}

// send sends a batch. If files have changed, it hashes them again and returns errChanged.
func (b batch) send(ctx context.Context, c *rest.Client, path string, f *folder.Folder, p *Progress) error {
	var answer json.RawMessage
	var err error
	if b.alone {
		x := b.files[0]
		err = inParts(ctx, c, path+"/blobs/"+x.Digest, f, x, p)
		var no *rest.Error
		if errors.Is(err, errChanged) || errors.As(err, &no) && (no.Code == "digest_mismatch" || no.Code == "size_mismatch") {
			return b.changed(f, map[string]bool{x.Digest: true})
		}
		if err == nil {
			p.files.Add(1)
		}
		return err
	}
	answer, err = c.Upload(ctx, rest.Body{
		Method: http.MethodPost, Path: path + "/blobs", Type: "application/vnd.slipway.blobs", Size: b.bytes + int64(len(b.files))*40,
	}, func() (io.ReadCloser, error) { return p.Count(&frames{f: f, rest: b.files}, nil) })
	if errors.Is(err, errChanged) {
		all := map[string]bool{}
		for _, x := range b.files {
			all[x.Digest] = true
		}
		return b.changed(f, all)
	}
	if err != nil {
		return err
	}
	var got struct {
		Stored  int64
		Refused []struct{ SHA256, Code string }
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	p.files.Add(got.Stored)
	again := map[string]bool{}
	for _, r := range got.Refused {
		if r.Code == "not_expected" {
			return fmt.Errorf("the server refuses a file that it asked for (%s)", r.SHA256)
		}
		again[r.SHA256] = true
	}
	if len(again) > 0 {
		return b.changed(f, again)
	}
	return nil
}

// changing serializes rehashing, since batches are sent concurrently.
var changing sync.Mutex

func (b batch) changed(f *folder.Folder, digests map[string]bool) error {
	changing.Lock()
	defer changing.Unlock()
	if err := f.Again(digests); err != nil {
		return err
	}
	return errChanged
}

// frames encodes a batch for the server: each file's digest, length and bytes.
type frames struct {
	f    *folder.Folder
	rest []folder.File
	now  io.Reader
	file io.Closer
}

func (r *frames) Read(b []byte) (int, error) {
	for {
		if r.now != nil {
			n, err := r.now.Read(b)
			if err != io.EOF {
				return n, err
			}
			if err := r.Close(); n > 0 || err != nil {
				return n, err
			}
		}
		if len(r.rest) == 0 {
			return 0, io.EOF
		}
		x := r.rest[0]
		r.rest = r.rest[1:]
		head, err := hex.DecodeString(x.Digest)
		if err != nil {
			return 0, err
		}
		head = binary.BigEndian.AppendUint64(head, uint64(x.Size))
		in, err := exactly(r.f.Content(x))(x.Size)
		if err != nil {
			return 0, err
		}
		r.now, r.file = io.MultiReader(bytes.NewReader(head), in), in
	}
}

// Close closes the file that is being read.
func (r *frames) Close() error {
	file := r.file
	r.now, r.file = nil, nil
	if file == nil {
		return nil
	}
	return file.Close()
}

// exactly reads a file's expected number of bytes, or fails with errChanged.
func exactly(in io.ReadCloser, err error) func(n int64) (io.ReadCloser, error) {
	return func(n int64) (io.ReadCloser, error) {
		if err != nil {
			return nil, err
		}
		return &whole{in, n}, nil
	}
}

type whole struct {
	io.ReadCloser
	left int64
}

func (w *whole) Read(b []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	n, err := w.ReadCloser.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	if err == io.EOF && w.left > 0 {
		return n, errChanged
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

type counted struct {
	io.ReadCloser
	p *Progress
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.p.bytes.Add(int64(n))
	return n, err
}

func gzipped(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
