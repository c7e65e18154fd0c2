package blob

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/panics"
)

// cache keeps copies of remote blobs in a directory: the most recently read, up to a limit of bytes. A copy appears by
// rename, complete and verified. Readers that read to the end detect later damage.
type cache struct {
	root   *os.Root
	limit  int64
	opaque bool // names aren't digests, so nothing is verified
	log    *slog.Logger
	loads  chan struct{} // limits concurrent downloads

	mu   sync.Mutex // guards the fields below
	size int64
	// share: total --blob-cache (2 GiB) of files; owner what others leave; edge those used longest ago are downloaded again
	items map[string]*list.Element
	order list.List // elements of copied, most recently read first
	// share: total the files that are downloaded at the time; owner what others leave; edge none: who asks waits for its own
	loading map[string]*load
}

type copied struct {
	name string
	size int64
}

// load is a download in progress, shared by everyone who wants the blob.
type load struct {
	done chan struct{}
	err  error
}

// loadTime is the time limit of a download. A stalled one ends sooner.
const loadTime = 30 * time.Minute

func newCache(dir string, limit int64, opaque bool, log *slog.Logger) (*cache, error) {
	if dir == "" {
		return nil, errors.New("no directory is named")
	}
	if err := os.MkdirAll(filepath.Join(dir, tmp), 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	c := &cache{
		root:   root,
		limit:  limit,
		opaque: opaque,
		log:    log,
		// share: total 16 downloads from S3 into the cache at once; owner what others leave: each takes a bounded time; edge waits in turn
		loads:   make(chan struct{}, workers),
		items:   map[string]*list.Element{},
		loading: map[string]*load{},
	}
	return c, c.scan()
}

// scan registers the copies of an earlier process, oldest first, and removes incomplete ones.
func (c *cache) scan() error {
	halves, err := fs.ReadDir(c.root.FS(), tmp)
	if err != nil {
		return err
	}
	for _, e := range halves {
		c.root.Remove(filepath.Join(tmp, e.Name()))
	}
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return err
	}
	var found []Entry
	for _, e := range entries {
		info, err := e.Info()
		if _, bad := ParseDigest(e.Name()); err == nil && bad == nil && info.Mode().IsRegular() {
			found = append(found, Entry{e.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	for _, e := range found {
		c.add(e.Name, e.Size)
	}
	return nil
}

// open returns a copy of the blob. If there is none, fetch writes it.
func (c *cache) open(ctx context.Context, name string, fetch func(context.Context, io.Writer) error) (io.ReadSeekCloser, int64, error) {
	for range 5 { // a copy may be evicted before it is opened
		if f, size, err := c.have(name); !errors.Is(err, fs.ErrNotExist) {
			return f, size, err
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		l := c.load(ctx, name, fetch)
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		if l.err != nil {
			return nil, 0, l.err
		}
	}
	return nil, 0, errors.New("cached copies are evicted at once: the cache is too small")
}

func (c *cache) have(name string) (*os.File, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[name]
	if e == nil {
		return nil, 0, fs.ErrNotExist
	}
	f, err := c.root.Open(name)
	if err != nil {
		c.drop(e)
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != e.Value.(copied).size {
		err = fs.ErrNotExist // damaged; fetch it again
	}
	if err != nil {
		f.Close()
		c.drop(e)
		return nil, 0, err
	}
	c.order.MoveToFront(e)
	return f, info.Size(), nil
}

// load joins or begins the download of a blob. The download doesn't end with its first caller's context, because others
// may wait for it.
func (c *cache) load(ctx context.Context, name string, fetch func(context.Context, io.Writer) error) *load {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loading[name]; l != nil {
		return l
	}
	l := &load{done: make(chan struct{})}
	c.loading[name] = l
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime)
		defer cancel()
		c.loads <- struct{}{}
		var size int64
		err := panics.Call(func() (err error) { size, err = c.fetch(ctx, name, fetch); return err })
		<-c.loads
		c.mu.Lock()
		defer c.mu.Unlock()
		l.err = err
		if err == nil {
			c.add(name, size)
		}
		delete(c.loading, name)
		close(l.done)
	}()
	return l
}

// fetch downloads a blob. It retries a few times if the bytes are incomplete or wrong.
func (c *cache) fetch(ctx context.Context, name string, fetch func(context.Context, io.Writer) error) (size int64, err error) {
	for try := 1; ; try++ {
		size, err = c.fetchOnce(ctx, name, fetch)
		if err == nil || errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil || try == 3 ||
			!errors.Is(err, ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return size, err
		}
		c.log.WarnContext(ctx, "blob downloaded again", "blob", name, "err", err)
	}
}

func (c *cache) fetchOnce(ctx context.Context, name string, fetch func(context.Context, io.Writer) error) (int64, error) {
	half := filepath.Join(tmp, rand.Text())
	f, err := c.root.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write copy: %w", err)
	}
	h := sha256.New()
	err = fetch(ctx, io.MultiWriter(f, h))
	var size int64
	if info, statErr := f.Stat(); statErr == nil {
		size = info.Size()
	} else {
		err = cmp.Or(err, statErr)
	}
	err = cmp.Or(err, f.Close())
	if err == nil && !c.opaque && Digest(h.Sum(nil)).String() != name {
		err = fmt.Errorf("download %s: %w", name, ErrCorrupt)
	}
	if err == nil {
		err = c.root.Rename(half, name)
	}
	if err != nil {
		c.root.Remove(half)
	}
	return size, err
}

// add registers a copy and evicts the least recently read ones. The caller holds mu, or no one else has the cache yet.
func (c *cache) add(name string, size int64) {
	if e := c.items[name]; e != nil {
		c.size -= e.Value.(copied).size
		c.order.Remove(e)
	}
	c.items[name] = c.order.PushFront(copied{name, size})
	c.size += size
	for c.size > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back())
	}
}

// drop removes a copy; open readers can continue. The caller holds mu.
func (c *cache) drop(e *list.Element) {
	x := e.Value.(copied)
	c.root.Remove(x.name)
	c.order.Remove(e)
	delete(c.items, x.name)
	c.size -= x.size
}

func (c *cache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[name]; e != nil {
		c.drop(e)
	}
}
