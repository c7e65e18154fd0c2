package cli

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
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
)

// opened is what the server says of an upload.
type opened struct {
	ID     string
	Limits struct {
		Files      int
		FileBytes  int64
		BatchBytes int64
		BatchFiles int
	}
}

// missing is what the server has to be sent.
type missing struct{ Files, Bytes int64 }

// rounds is how often files that change meanwhile are read again.
const rounds = 3

// errChanged says that a file changed between its digest and its sending.
var errChanged = errors.New("files changed while they were sent")

// upload sends a folder to a site and deploys it.
func (d deployCommand) upload(ctx context.Context, e *Env, c *rest.Client, s site) error {
	if d.Commit != "" {
		return failure(errors.New("the site has no repository: --commit can't be deployed"))
	}
	if d.Archive != "" {
		return d.archive(ctx, e, c, s)
	}
	dir, at, err := d.folder(e)
	if err != nil {
		return failure(err)
	}
	options := folder.Options{Prebuilt: d.Prebuilt, Include: d.Include, MaxFiles: maxFiles}
	f, err := folder.Open(ctx, dir, options)
	if err != nil {
		return failure(err)
	}
	defer f.Close()
	cache := ""
	if at != "" {
		cache = filepath.Join(at, ".slipway", "cache")
	}
	if err := f.Hash(ctx, cache, options); err != nil {
		return failure(err)
	}
	d.leftOut(e, f.Left)
	if len(f.Files) == 0 {
		return failure(fmt.Errorf("there is nothing to upload in %s", dir))
	}
	if d.DryRun {
		for _, x := range f.Files {
			fmt.Fprintln(e.Out, printable(x.Path))
		}
		return nil
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/uploads", d.request(ctx, dir))
	if err != nil {
		return failure(err)
	}
	var up opened
	if err := json.Unmarshal(answer, &up); err != nil || up.ID == "" {
		return errors.New("the server's answer names no upload")
	}
	for round := 1; ; round++ {
		err := send(ctx, e, c, up, f)
		if !errors.Is(err, errChanged) || round == rounds {
			if err != nil {
				return failure(err)
			}
			break
		}
	}
	if answer, err = c.Do(ctx, http.MethodPost, "/uploads/"+up.ID+"/deploy", nil); err != nil {
		return failure(err)
	}
	return follow(ctx, e, c, s, answer, waiting{d.NoWait, d.NoLogs, d.JSON})
}

// maxFiles is how many files a folder may have before the server is asked.
const maxFiles = 200_000

// folder returns the folder to upload, and the linked one; empty: there is none.
func (d deployCommand) folder(e *Env) (dir, at string, err error) {
	if _, at, err = findLink(e.Dir); err != nil {
		return "", "", err
	}
	switch {
	case d.Dir != "":
		return d.Dir, at, nil
	case at != "" && d.Site == "":
		return at, at, nil
	}
	return e.Dir, at, nil
}

// request says what is uploaded, and of which commit it is.
func (d deployCommand) request(ctx context.Context, dir string) map[string]any {
	in := map[string]any{"kind": "source"}
	if d.Prebuilt {
		in["kind"] = "output"
	}
	if d.Message != "" {
		in["title"] = d.Message
	}
	if d.Branch != "" {
		in["branch"] = d.Branch
	}
	if d.Preview {
		in["target"] = "preview"
	}
	if commit := git(ctx, dir, "rev-parse", "HEAD"); commit != "" {
		in["git"] = map[string]any{
			"commit": commit, "message": git(ctx, dir, "log", "-1", "--format=%B"), "author": git(ctx, dir, "log", "-1", "--format=%an"),
			"dirty": git(ctx, dir, "status", "--porcelain") != "",
		}
		if branch := git(ctx, dir, "branch", "--show-current"); d.Preview && d.Branch == "" && branch != "" {
			in["branch"] = branch
		}
	}
	return in
}

// leftOut names what isn't uploaded, in one line.
func (d deployCommand) leftOut(e *Env, list []folder.Left) {
	if len(list) == 0 {
		return
	}
	var names []string
	for _, l := range list[:min(5, len(list))] {
		names = append(names, fmt.Sprintf("%s (%s)", printable(l.Path), l.Why))
	}
	more := ""
	if n := len(list) - 5; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	hint := ". Use --include to upload them"
	if d.Archive != "" {
		hint = ""
	}
	e.say("Left out: %s%s%s", strings.Join(names, ", "), more, hint)
}

// send sends the list of a folder's files and those that are missing.
func send(ctx context.Context, e *Env, c *rest.Client, up opened, f *folder.Folder) error {
	packed, err := gzipped(f.Manifest())
	if err != nil {
		return err
	}
	path := "/uploads/" + url.PathEscape(up.ID)
	answer, err := c.Upload(ctx, rest.Body{
		Method: http.MethodPut, Path: path + "/manifest", Type: "application/x-ndjson", Encoding: "gzip", Size: int64(len(packed)),
	}, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil })
	if err != nil {
		return err
	}
	var said struct {
		Missing missing
		Needed  []content
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return err
	}
	if said.Missing.Files == 0 {
		e.say("Nothing to upload: all %d files are unchanged", len(f.Files))
		return nil
	}
	if int64(len(said.Needed)) < said.Missing.Files {
		if said.Needed, err = listMissing(ctx, c, path); err != nil {
			return err
		}
	}
	list, err := batches(said.Needed, up, f)
	if err != nil {
		return err
	}
	p := &progress{e: e, all: said.Missing}
	stop := p.show()
	group, ctx := errgroup.WithContext(ctx)
	// share: none, this process is one user's
	group.SetLimit(4) // as many as the server takes for one site
	for _, b := range list {
		group.Go(func() error { return b.send(ctx, c, path, f, p) })
	}
	err = group.Wait()
	stop()
	if err == nil {
		e.say("Uploaded %d of %d files, %s", said.Missing.Files, len(f.Files), size(said.Missing.Bytes))
	}
	return err
}

// content is one that the server has to be sent.
type content struct {
	SHA256 string
	Size   int64
}

// listMissing asks for all pages of what is missing.
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
		if all = append(all, page.Data...); page.Next == "" {
			return all, nil
		}
		after = page.Next
	}
}

// batch is files that are sent with one request.
type batch struct {
	files []folder.File
	bytes int64
	alone bool // one that is larger than a batch may be
}

// fullBatch is how large batches are made: a broken connection costs so much.
const fullBatch = 16 << 20

// batches divides what is missing.
func batches(list []content, up opened, f *folder.Folder) (all []batch, err error) {
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

// send sends a batch. Files that are not what they were are read anew, and errChanged is returned.
func (b batch) send(ctx context.Context, c *rest.Client, path string, f *folder.Folder, p *progress) error {
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
	}, func() (io.ReadCloser, error) { return p.count(&frames{f: f, rest: b.files}, nil) })
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

// changing is held while files are read anew: batches are sent side by side.
var changing sync.Mutex

func (b batch) changed(f *folder.Folder, digests map[string]bool) error {
	changing.Lock()
	defer changing.Unlock()
	if err := f.Again(digests); err != nil {
		return err
	}
	return errChanged
}

// frames is a batch as the server takes it: for each file its digest, its length and its bytes.
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

// exactly reads as many bytes of a file as it had, or ends with errChanged.
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
	if w.left -= int64(n); err == io.EOF && w.left > 0 {
		return n, errChanged
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// progress is the line that says how far an upload is.
type progress struct {
	e            *Env
	all          missing
	files, bytes atomic.Int64
}

// count counts what is read.
func (p *progress) count(r io.ReadCloser, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return &counted{r, p}, nil
}

type counted struct {
	io.ReadCloser
	p *progress
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.p.bytes.Add(int64(n))
	return n, err
}

// show draws the line until it is stopped: on a terminal ten times a second at most, elsewhere every 10 seconds.
func (p *progress) show() (stop func()) {
	every := 10 * time.Second
	if p.e.Ask {
		every = 100 * time.Millisecond
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if p.e.Ask {
					fmt.Fprint(p.e.Err, "\r\x1b[K")
				}
				return
			case <-tick.C:
				line := fmt.Sprintf("Uploading %d of %d files, %s of %s", p.files.Load(), p.all.Files, size(min(p.bytes.Load(), p.all.Bytes)), size(p.all.Bytes))
				if p.e.Ask {
					fmt.Fprint(p.e.Err, "\r\x1b[K"+line)
				} else {
					p.e.say("%s", line)
				}
			}
		}
	}()
	return func() { close(done); <-gone }
}

// size is a number of bytes as people say it.
func size(n int64) string {
	f, unit := float64(n), "bytes"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + " " + unit
}

func gzipped(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
