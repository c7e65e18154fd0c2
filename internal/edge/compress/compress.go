// Package compress owns compressed copies of files that may change at any time: those beside the scripts of PHP and
// WordPress sites. The first request for a file makes its copy, in the encoding that the visitor prefers, and memory
// keeps it.
//
// A copy belongs to one state of a file: its device and inode, size and change time, which users can't set. A file that
// has just changed isn't compressed, so a file that changes with each request costs nothing. The package limits the
// memory of all copies and of one site's, the bytes compressed per site, and the concurrent compressors; beyond a
// limit, files are sent uncompressed.
package compress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/platform/cache"
	"slipway/internal/platform/fair"
)

// Sizes of files that are compressed, in bytes.
const (
	least = 1 << 10
	most  = 4 << 20
)

// settled is the minimum age of a file's last change: two changes within one tick of the kernel's clock can't be told
// apart.
const settled = 2 * time.Second

// slotTime is how long a visitor waits for a compressor.
const slotTime = 250 * time.Millisecond

// Config holds the limits of a [Copies].
type Config struct {
	Bytes int64 // memory for copies. Optional: 0 means 32 MiB.
	Share int64 // memory per site. Optional: 0 means an eighth of Bytes.
	// Burst is how many bytes of a site may be compressed at once, PerSecond how many more each second. Optional: 0
	// means 16 MiB and 256 KiB.
	Burst, PerSecond int64
	AtOnce           int // concurrent compressors. Optional: 0 means half of the processors.
	// Now replaces time.Now. Optional.
	Now func() time.Time
}

// Copies holds compressed copies. It is safe for concurrent use. A nil *Copies compresses nothing.
type Copies struct {
	c     Config
	slots *fair.Pool
	known *cache.Cache[state, []byte] // nil for a file that compression doesn't make smaller
	tags  *cache.Cache[state, string]

	mu sync.Mutex // guards spent
	// share: total 1,024 sites that had files compressed lately; owner its sites; edge those that owe nothing are forgotten
	spent map[string]spending
}

// New returns an empty Copies.
func New(c Config) *Copies {
	c.Bytes = cmp.Or(c.Bytes, 32<<20)
	c.Share = cmp.Or(c.Share, c.Bytes/8)
	c.Burst, c.PerSecond = cmp.Or(c.Burst, 16<<20), cmp.Or(c.PerSecond, 256<<10)
	c.AtOnce = cmp.Or(c.AtOnce, max(1, runtime.NumCPU()/2))
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Copies{
		c: c, spent: map[string]spending{},
		// share: total half of the processors compress; owner each site in turn; edge the file is sent as it is
		slots: fair.New(fair.Config{Places: c.AtOnce, Waiting: 1000, OwnerWaiting: 100}),
		// share: total 64 MiB of compressed files, Config.Bytes; owner Config.Share of a site; edge what was used longest ago is compressed again
		known: cache.NewShared[state, []byte](c.Bytes, c.Share, c.Share),
		// share: total 4 MiB of files' digests, about 16,000; owner an eighth of a site; edge what was used longest ago is read again
		tags: cache.NewShared[state, string](4<<20, 4<<20/8, 4<<20/8),
	}
}

// state identifies one state of a file in one encoding.
type state struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
	coding        string
}

// File is an open file to serve.
type File struct {
	*os.File
	Info os.FileInfo // result of Stat
	Kind string      // media type
	Site string      // site that owns the file
}

// can reports whether a file may be compressed.
func (c *Copies) can(f File) bool {
	return c != nil && f.Info.Size() >= least && f.Info.Size() <= most && f.Info.Mode().IsRegular() && release.Compressible(f.Kind)
}

var errNone = errors.New("not compressed now")

// get returns a file's copy in an encoding, or nil if there is none and the file must be sent as it is.
func (c *Copies) get(ctx context.Context, f File, coding string) []byte {
	key, ok := stateOf(f.Info, coding)
	if !ok {
		return nil
	}
	if b, ok := c.known.Get(key); ok {
		return b
	}
	if c.c.Now().Sub(time.Unix(key.changed.Unix())) < settled {
		return nil
	}
	b, err := c.known.LoadFor(ctx, f.Site, key, func(ctx context.Context) ([]byte, int64, error) {
		b, err := c.make(ctx, f, key)
		return b, int64(len(b)) + 512, err
	})
	if err != nil {
		return nil
	}
	return b
}

// largestTag is the largest file, in bytes, whose entity tag is a digest of its content.
const largestTag = 64 << 20

// Tag returns an entity tag made from a file's content, which doesn't depend on where and when the file was written. It
// returns "" if the file is too large or too many files are being read.
func (c *Copies) Tag(ctx context.Context, f File) string {
	key, ok := stateOf(f.Info, "tag")
	if c == nil || !ok || key.size > largestTag {
		return ""
	}
	if tag, ok := c.tags.Get(key); ok {
		return tag
	}
	read := func(ctx context.Context) (string, int64, error) {
		turn, cancel := context.WithTimeout(ctx, slotTime)
		defer cancel()
		done, err := c.slots.Take(turn, fair.Who{Owner: f.Site})
		if err != nil {
			return "", 0, errNone
		}
		defer done()
		h := sha256.New()
		if n, err := io.Copy(h, io.NewSectionReader(f.File, 0, key.size)); err != nil || n != key.size {
			return "", 0, errors.Join(errNone, err)
		}
		return `"` + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12]) + `"`, 256, nil
	}
	tag, err := "", error(nil)
	if c.c.Now().Sub(time.Unix(key.changed.Unix())) < settled {
		tag, _, err = read(ctx)
	} else {
		tag, err = c.tags.LoadFor(ctx, f.Site, key, read)
	}
	if err != nil {
		return ""
	}
	return tag
}

// make reads and compresses a file. It fails if the caller has closed the file meanwhile.
func (c *Copies) make(ctx context.Context, f File, key state) ([]byte, error) {
	turn, cancel := context.WithTimeout(ctx, slotTime)
	defer cancel()
	done, err := c.slots.Take(turn, fair.Who{Owner: f.Site})
	if err != nil {
		return nil, errNone
	}
	defer done()
	if !c.spend(f.Site, key.size, c.c.Now()) {
		return nil, errNone
	}
	text := make([]byte, key.size)
	if _, err := io.ReadFull(io.NewSectionReader(f.File, 0, key.size), text); err != nil {
		return nil, err
	}
	// If the state is unchanged, all that was read belongs to it.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if now, ok := stateOf(info, key.coding); !ok || now != key {
		return nil, errNone
	}
	return release.CompressAs(key.coding, text), nil
}

func stateOf(info os.FileInfo, coding string) (state, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return state{}, false
	}
	return state{uint64(s.Dev), s.Ino, s.Size, s.Ctim, coding}, true
}

// spending counts the bytes compressed for a site, minus the allowance since then.
type spending struct {
	bytes int64
	at    time.Time
}

// maxSpending caps how many sites' spending is kept before expired entries are dropped.
const maxSpending = 1024

// spend takes bytes from a site's allowance and reports whether it sufficed.
func (c *Copies) spend(site string, bytes int64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := func(s spending) int64 {
		return max(0, s.bytes-int64(now.Sub(s.at).Seconds()*float64(c.c.PerSecond)))
	}
	s := left(c.spent[site])
	if s+bytes > c.c.Burst {
		return false
	}
	if len(c.spent) >= maxSpending {
		for name, other := range c.spent {
			if left(other) == 0 {
				delete(c.spent, name)
			}
		}
	}
	c.spent[site] = spending{s + bytes, now}
	return true
}
