package release

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
)

// Sealed describes a release that is stored durably.
type Sealed struct {
	ID     ID
	Files  int
	Bytes  int64 // uncompressed
	Reused int   // files taken over from the previous release without reading them
	Added  int64 // bytes of files that the previous release lacks

	Problems []rules.Problem // skipped rules and where they are
	Skipped  []string        // sentences about files skipped for their names
}

// Writer makes one release. It is not safe for concurrent use. It ends with Seal or Abort; Abort after Seal does
// nothing.
type Writer struct {
	r        *Releases
	ctx      context.Context // of the Writer, from Begin to Seal or Abort
	stop     context.CancelFunc
	batch    *blob.Batch
	squeeze  errgroup.Group // running compressions
	old      *Tree
	byKey    map[string]int
	byDigest map[blob.Digest]int

	entries  map[string]*entry
	skipped  map[string]map[string]bool // skipped names by reason
	fallback string
	hashed   []HashedFolder
	verbatim func(path string) bool
	leave    func(path string) bool
	rules    rules.Sources
	spa      bool
	bytes    int64
	added    int64        // bytes that the previous release lacks
	room     int64        // limit of added
	full     func() error // error if it is exceeded
	text     int64        // bytes of text so far, which decide the effort of compression
	reused   int
	err      error // error in Reuse, returned later
	done     bool
}

type entry struct {
	File
	key string
}

// Begin starts a release that may take over files of previous ("" for none). The caller must keep previous from garbage
// collection until the new release is referred to. If previous can't be read, its files aren't reused. ctx bounds the
// Writer's life.
func (r *Releases) Begin(ctx context.Context, previous ID) (*Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &Writer{r: r, room: math.MaxInt64, entries: map[string]*entry{}, byKey: map[string]int{}, byDigest: map[blob.Digest]int{}}
	if previous != "" {
		if err := w.remember(ctx, previous); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			r.Log.WarnContext(ctx, "previous release is not reused", "release", previous, "err", err)
		}
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	w.batch = r.Blobs.Batch(w.ctx)
	// share: none, one deployment's: as many files as there are processors
	w.squeeze.SetLimit(runtime.GOMAXPROCS(0))
	return w, nil
}

func (w *Writer) remember(ctx context.Context, id ID) error {
	t, keys, err := w.r.load(ctx, id)
	if err != nil {
		return err
	}
	w.old = t
	s := scanner{rest: keys}
	for i := range t.at {
		if key := s.string(maxKey); key != "" {
			w.byKey[key] = i
		}
		w.byDigest[t.file(i).Body.Digest] = i
	}
	return nil
}

// Reuse reports whether the file at path needs no Add: the previous release has the content identified by key (such as
// a Git object id), under any path, and it was added at path, or the path isn't published at all.
func (w *Writer) Reuse(path, key string) bool {
	if checkPath(path) != "" {
		return false // Add returns the error
	}
	if Hidden(path) || PHPSource(path) {
		return true
	}
	if rules.IsFile(path) {
		return false // rule files must be read
	}
	i, ok := w.byKey[key]
	if !ok || key == "" {
		return false
	}
	f := w.old.file(i)
	kind := MediaType(path)
	if kind == "" {
		if MediaType(f.Path) != "" {
			return false // the type depends on the content
		}
		kind = f.Type
	}
	if textual(kind) != textual(f.Type) {
		return false // the stored variants don't match the type
	}
	f.Path, f.Type = path, kind
	if err := w.admit(path, f.Body.Size); err != nil {
		w.err = cmp.Or(w.err, err)
		return true
	}
	w.entries[path] = &entry{f, key}
	w.reused++
	return true
}

// Add reads r to its end and stores it as the file at path. key is stored for the next release's Reuse; "" for none.
// Hidden paths and PHP source are neither read nor stored. It returns a fault of kind Invalid for a path that can't be
// published, and for a file or release over its limit.
func (w *Writer) Add(ctx context.Context, path, key string, r io.Reader) error {
	if err := cmp.Or(ctx.Err(), w.ctx.Err()); err != nil {
		return err
	}
	if why := checkPath(path); why != "" {
		return badPath(path, why)
	}
	if Hidden(path) || PHPSource(path) {
		return nil
	}
	if rules.IsFile(path) {
		return w.rules.Read(path, r)
	}
	if len(key) > maxKey {
		return fmt.Errorf("add %s: key of %d bytes, at most %d", show(path), len(key), maxKey)
	}
	if err := w.admit(path, 0); err != nil {
		return err
	}
	e := &entry{File{Path: path, Type: MediaType(path)}, key}
	err := w.store(e, &limited{r, w, path, 0})
	if err != nil {
		if fault.As(err) != nil {
			return err
		}
		return fmt.Errorf("add %s: %w", show(path), err)
	}
	w.bytes += e.Body.Size
	w.entries[path] = e
	if _, had := w.byDigest[e.Body.Digest]; had {
		return nil
	}
	w.added += e.Body.Size
	if w.added > w.room {
		return w.full()
	}
	return nil
}

// Allow limits the bytes of files that the previous release lacks. The Add that exceeds room returns full's error.
func (w *Writer) Allow(room int64, full func() error) { w.room, w.full = max(0, room), full }

func (w *Writer) store(e *entry, r io.Reader) (err error) {
	var head []byte
	if e.Type == "" {
		head = make([]byte, 512)
		n, err := io.ReadFull(r, head)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		head = head[:n]
		e.Type = sniff(head)
		r = io.MultiReader(bytes.NewReader(head), r)
	}
	if !textual(e.Type) {
		e.Body.Digest, e.Body.Size, err = w.batch.Put(r)
		return err
	}
	var text bytes.Buffer
	if _, err := io.Copy(&text, io.LimitReader(r, compressMax+1)); err != nil {
		return err
	}
	if text.Len() > compressMax {
		e.Body.Digest, e.Body.Size, err = w.batch.Put(io.MultiReader(&text, r))
		return err
	}
	b := text.Bytes()
	e.Body.Size = int64(len(b))
	if e.Body.Digest, err = w.batch.PutBytes(b); err != nil {
		return err
	}
	if i, ok := w.byDigest[e.Body.Digest]; ok && w.old != nil && textual(w.old.file(i).Type) {
		f := w.old.file(i)
		e.Brotli, e.Gzip, e.Zstd = f.Brotli, f.Gzip, f.Zstd
		return nil
	}
	if len(b) < compressMin {
		return nil
	}
	w.text += e.Body.Size
	levels := effortFor(w.text)
	w.squeeze.Go(panics.Safe(func() error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		br, gz, zs := compress(b, levels)
		return errors.Join(w.variant(&e.Brotli, br), w.variant(&e.Gzip, gz), w.variant(&e.Zstd, zs))
	}))
	return nil
}

func (w *Writer) variant(c *Content, b []byte) (err error) {
	if b == nil {
		return nil
	}
	c.Size = int64(len(b))
	c.Digest, err = w.batch.PutBytes(b)
	return err
}

// Fallback sets the file that answers, with status 200, for missing paths whose last segment has no dot, as a
// single-page application needs. The file must exist when the release is sealed.
func (w *Writer) Fallback(path string) { w.fallback = path }

// Seal makes the release durable and returns it. Equal files have equal ids.
func (w *Writer) Seal(ctx context.Context) (Sealed, error) {
	if w.done {
		return Sealed{}, errors.New("seal release: the writer is closed")
	}
	defer w.Abort()
	defer context.AfterFunc(ctx, w.stop)()
	err := cmp.Or(w.err, w.squeeze.Wait())
	w.decideFallback()
	if err == nil && w.fallback != "" && w.entries[w.fallback] == nil {
		err = fmt.Errorf("fallback %s: %w", show(w.fallback), fs.ErrNotExist)
	}
	if err != nil {
		if fault.As(err) != nil {
			return Sealed{}, err
		}
		return Sealed{}, fmt.Errorf("seal release: %w", err)
	}
	paths := make([]string, 0, len(w.entries))
	for path := range w.entries {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	files, keys := make([]File, len(paths)), make([]string, len(paths))
	for i, path := range paths {
		files[i], keys[i] = w.entries[path].File, w.entries[path].key
		files[i].Immutable = w.immutable(files[i])
	}
	compiled, problems := w.rules.Compile()
	if err := refusal(problems); err != nil {
		return Sealed{}, err
	}
	// Contents are written before the manifest, so that a manifest never names missing contents.
	if err := w.batch.Flush(); err != nil {
		return Sealed{}, fmt.Errorf("seal release: %w", err)
	}
	d, _, err := w.r.Blobs.Put(ctx, bytes.NewReader(encode(w.fallback, compiled, files, keys)))
	if err != nil {
		return Sealed{}, fmt.Errorf("seal release: %w", err)
	}
	return Sealed{
		ID: ID(d.String()), Files: len(files), Bytes: w.bytes, Reused: w.reused, Added: w.added, Problems: problems, Skipped: w.leftOut(),
	}, nil
}

// Abort ends the Writer. Garbage collection deletes what it stored.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.stop()
	w.squeeze.Wait()
	w.batch.Flush()
}
