package upload

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/client/folder"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/platform/unzip"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Left is a skipped file of an archive, and why.
type Left = folder.Left

// Limits of an archive beyond those of an upload.
const (
	maxArchiveList = 64 << 20 // bytes of a zip archive's directory
	chunkBytes     = 64 << 20 // bytes stored before they are recorded
	chunkFiles     = 5000
	maxLeft        = 1000 // skipped files that are listed
)

// ReceiveArchive reads an archive of a folder into an open upload and makes its manifest: zip, or tar, optionally
// compressed with gzip or zstd. If a single folder contains everything, it is removed from the paths. Secrets,
// dependencies and version control are skipped. An invalid or too large archive is a fault, and exceeding the owner's
// storage is a Payment fault; what was stored by then is deleted with the upload.
func (u *Uploads) ReceiveArchive(ctx context.Context, owner account.OwnerID, id ID, r io.Reader) (Upload, []Left, error) {
	x, err := u.Get(ctx, owner, id)
	if err == nil {
		err = u.mustBeOpen(x)
	}
	if err != nil {
		return x, nil, err
	}
	release, err := u.unpacking.Take(ctx, fair.Who{Owner: string(x.Owner), Site: string(x.Site)})
	if errors.Is(err, fair.ErrFull) {
		err = &fault.Error{
			Kind: fault.Limited, Message: "Too many archives at once", Details: "wait until one of them is deployed", Code: "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	if err != nil {
		return x, nil, err
	}
	defer release()
	known, err := u.published(ctx, x.Site)
	if err != nil {
		return x, nil, err
	}
	a := &archived{u: u, ctx: ctx, owner: owner, x: x, known: known, most: u.Limits(), noted: map[blob.Digest]bool{}, linked: map[string]int{}}
	err = a.read(r)
	if err == nil {
		err = a.flush()
	} else if a.batch != nil {
		_ = a.batch.Flush() // ends the batch
	}
	if err != nil {
		return x, nil, err
	}
	if len(a.list) == 0 {
		return x, nil, invalid("empty_upload", "The archive has no file to deploy", "version control, dependencies and secrets are left out")
	}
	a.strip()
	list, err := a.whole()
	if err != nil {
		return x, nil, err
	}
	x, need, err := u.put(ctx, x, list, []site.ID{x.Site})
	if err == nil && len(need) > 0 { // a release was deleted while its files were compared
		err = unstored(blob.ErrSwept)
	}
	return x, a.left, err
}

// archived is an archive being read.
type archived struct {
	u     *Uploads
	ctx   context.Context
	owner account.OwnerID
	x     Upload
	most  Limits
	known map[blob.Digest]int64 // contents of the site's releases, which don't count again

	list    []entry
	targets []string       // targets of symbolic links, parallel to list
	linked  map[string]int // index in list by path, for hard links
	left    []Left
	total   int64
	entries int // all entries of the archive

	batch  *blob.Batch
	chunk  []Content // in the batch, but not recorded
	size   int64     // bytes of chunk
	before int       // files stored before the batch began
	noted  map[blob.Digest]bool
}

// incoming is a request's body. It keeps read errors apart from errors in the content.
type incoming struct {
	io.Reader
	err error
}

func (i *incoming) Read(b []byte) (int, error) {
	n, err := i.Reader.Read(b)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

func (a *archived) read(r io.Reader) (err error) {
	body := &incoming{Reader: r}
	in := bufio.NewReaderSize(body, 64<<10)
	head, _ := in.Peek(262)
	var z io.Reader
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		err = a.zip(in)
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		if z, err = gzip.NewReader(in); err == nil {
			err = a.tar(z)
		}
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		if err == nil {
			err = a.tar(d)
			d.Close()
		}
	case len(head) == 262 && string(head[257:262]) == "ustar":
		err = a.tar(in)
	case body.err == nil:
		return fault.New(fault.Media, "unsupported_media_type", "The body is not an archive",
			"send a .zip, .tar, .tar.gz or .tar.zst, for example with curl --data-binary @site.zip")
	}
	if body.err != nil {
		return incomplete()
	}
	return err
}

func damaged() error {
	return invalid("invalid_archive", "The archive can't be read", "it is damaged, cut off, or packed in an unknown way")
}

func (a *archived) tooLarge() error {
	return fault.New(fault.TooLarge, "upload_bytes", "The files are too large in total", "the limit is "+text.Size(a.most.Bytes))
}

// tar reads the entries as they arrive.
func (a *archived) tar(in io.Reader) error {
	// Skipped files must be decompressed, too, to reach those after them.
	all := &io.LimitedReader{R: in, N: a.most.Bytes + int64(a.most.Files)*2*1024}
	t := tar.NewReader(all)
	for {
		h, err := t.Next()
		switch {
		case all.N <= 0:
			return a.tooLarge()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return damaged()
		}
		if err := a.entry(); err != nil {
			return err
		}
		name := trimmed(h.Name)
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
			err = a.file(name, h.FileInfo().Mode(), h.Size, t)
		case tar.TypeSymlink:
			err = a.link(name, h.Linkname)
		case tar.TypeLink:
			i, ok := a.linked[trimmed(h.Linkname)]
			if !ok {
				a.leave(name, "a hard link to no file of the archive")
				continue
			}
			e := a.list[i]
			e.path = name
			err = a.add(e, a.targets[i])
		default:
			a.leave(name, "not a file")
		}
		if all.N <= 0 {
			return a.tooLarge()
		}
		if err != nil {
			return err
		}
	}
}

// zip stores the whole archive first, because its directory is at the end.
func (a *archived) zip(in io.Reader) error {
	f, err := a.u.scratch()
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, disk.Sparing(filepath.Dir(f.Name()), io.LimitReader(in, a.most.Bytes+1)))
	switch {
	case disk.Full(err):
		return diskFull()
	case err != nil:
		return incomplete()
	case n > a.most.Bytes:
		return a.tooLarge()
	}
	z, err := unzip.Open(f, n, unzip.Limits{Entries: 2 * a.most.Files, Bytes: maxArchiveList})
	switch {
	case errors.Is(err, unzip.ErrDamaged):
		return damaged()
	case err != nil:
		return a.tooMany()
	}
	for _, h := range z.File {
		if err := a.entry(); err != nil {
			return err
		}
		if err := a.zipped(h); err != nil {
			return err
		}
	}
	return nil
}

func (a *archived) zipped(h *zip.File) error {
	name := trimmed(strings.ReplaceAll(h.Name, "\\", "/")) // some Windows programs write backslashes
	if h.Mode().IsDir() || strings.HasSuffix(name, "/") {
		return nil
	}
	in, err := h.Open()
	if err != nil {
		return damaged()
	}
	defer in.Close()
	switch mode := h.Mode(); {
	case mode&fs.ModeSymlink != 0:
		to, err := io.ReadAll(io.LimitReader(in, maxLink+1))
		if err != nil {
			return damaged()
		}
		return a.link(name, string(to))
	case mode.IsRegular():
		return a.file(name, mode, int64(min(h.UncompressedSize64, 1<<62)), in)
	}
	a.leave(name, "not a file")
	return nil
}

// trimmed returns an archive's path as a manifest has it: ./a becomes a.
func trimmed(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

// entry counts an entry of the archive.
func (a *archived) entry() error {
	a.entries++
	if a.entries > 2*a.most.Files {
		return a.tooMany()
	}
	if a.entries%1000 == 0 && a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	return nil
}

func (a *archived) tooMany() error {
	return fault.New(fault.TooLarge, "upload_files", "Too many files", fmt.Sprintf("the limit is %d files", a.most.Files))
}

func (a *archived) leave(name, why string) {
	if len(a.left) < maxLeft {
		a.left = append(a.left, Left{Path: text.Clip(strings.ToValidUTF8(name, "\ufffd"), maxPath), Why: why})
	}
}

// skipped reports whether a file is left out of the upload.
func (a *archived) skipped(name string) bool {
	if strings.HasPrefix(name, "__MACOSX/") || strings.HasPrefix(path.Base(name), "._") {
		return true // macOS metadata of a file
	}
	why := folder.Sensitive(name)
	if why != "" {
		a.leave(name, why)
	}
	return why != ""
}

// link adds a symbolic link. Only source uploads may have links.
func (a *archived) link(name, to string) error {
	if a.skipped(name) {
		return nil
	}
	if a.x.Kind != Source {
		a.leave(name, "a symbolic link")
		return nil
	}
	if len(to) > maxLink || strings.ContainsRune(to, 0) {
		return invalid("invalid_link", "A symbolic link can't be uploaded", "%s: its target is too long", show(name))
	}
	d, err := a.put(strings.NewReader(to))
	if err != nil {
		return err
	}
	return a.add(entry{path: name, mode: 'l', digest: d, size: int64(len(to))}, to)
}

// file adds a file. size is the archive's claim and may be wrong.
func (a *archived) file(name string, mode fs.FileMode, size int64, in io.Reader) error {
	if a.skipped(name) {
		return nil
	}
	e := entry{path: name, mode: 'f', size: size}
	if err := a.may(e); err != nil {
		return err
	}
	head := make([]byte, 64)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged()
	}
	head = head[:n]
	if folder.PrivateKey(head) {
		a.leave(name, "a private key")
		return nil
	}
	body := &incoming{Reader: io.LimitReader(io.MultiReader(bytes.NewReader(head), in), a.most.FileBytes+1)}
	counted := &counter{Reader: body}
	e.digest, err = a.put(counted)
	switch {
	case body.err != nil:
		return damaged()
	case err != nil:
		return err
	}
	e.size = counted.n
	if mode&0o100 != 0 && a.x.Kind == Source {
		e.mode = 'x'
	}
	return a.add(e, "")
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// put stores a content and adds it to the batch.
func (a *archived) put(r io.Reader) (blob.Digest, error) {
	if a.batch == nil {
		a.batch = a.u.c.Blobs.Batch(a.ctx)
	}
	d, n, err := a.batch.Put(r)
	if err != nil {
		return d, stored(err)
	}
	a.before++
	if _, ok := a.known[d]; !ok && !a.noted[d] {
		a.noted[d] = true
		a.chunk = append(a.chunk, Content{d, n})
		a.size += n
	}
	if a.size >= chunkBytes || a.before >= chunkFiles {
		err = a.flush()
	}
	return d, err
}

// flush makes stored contents durable and records them, if the owner's storage limit allows it.
func (a *archived) flush() error {
	if a.batch == nil {
		return nil
	}
	err := a.batch.Flush()
	a.batch = nil
	if err != nil {
		return stored(unstored(err))
	}
	if len(a.chunk) > 0 {
		err = a.u.acknowledge(a.ctx, a.owner, a.x.ID, a.chunk, a.size)
	}
	a.chunk, a.size, a.before = nil, 0, 0
	return err
}

// stored returns a fault if the disk is full, and other errors unchanged.
func stored(err error) error {
	if disk.Full(err) {
		return diskFull()
	}
	return err
}

func diskFull() error {
	return fault.New(fault.Unavailable, "disk_full", "The server's disk is full", "nothing was changed")
}

func (a *archived) may(e entry) error {
	if err := allowPath(e.path); err != nil {
		return err
	}
	return a.most.allow(e, len(a.list), a.total)
}

// add adds an entry whose content is stored.
func (a *archived) add(e entry, target string) error {
	if a.skipped(e.path) { // for hard links
		return nil
	}
	if err := a.may(e); err != nil {
		return err
	}
	a.linked[e.path] = len(a.list)
	a.list, a.targets, a.total = append(a.list, e), append(a.targets, target), a.total+e.size
	return nil
}

// strip removes the one folder that contains everything, if there is one: archives often contain the folder itself.
func (a *archived) strip() {
	top, _, nested := strings.Cut(a.list[0].path, "/")
	if !nested {
		return
	}
	for _, e := range a.list {
		if !strings.HasPrefix(e.path, top+"/") {
			return
		}
	}
	for i := range a.list {
		a.list[i].path = a.list[i].path[len(top)+1:]
	}
}

// whole returns the entries for a manifest, or a fault if they aren't a valid tree.
func (a *archived) whole() ([]entry, error) {
	for i, e := range a.list {
		to := a.targets[i]
		if e.mode == 'l' && (path.IsAbs(to) || !fs.ValidPath(path.Join(path.Dir(e.path), to))) {
			return nil, invalid("invalid_link", "A symbolic link points outside of the archive", "%s leads to %s", show(e.path), show(to))
		}
	}
	return a.list, consistent(a.list)
}

// scratch returns a temporary file that is deleted when it is closed.
func (u *Uploads) scratch() (*os.File, error) {
	f, err := os.CreateTemp(u.c.Scratch, "upload-")
	if err != nil {
		return nil, fmt.Errorf("store upload: %w", err)
	}
	_ = os.Remove(f.Name()) // a crash leaves no file behind
	return f, nil
}
