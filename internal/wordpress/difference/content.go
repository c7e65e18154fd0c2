// Package difference owns comparing two WordPress sites: how much content each has, when it changed last,
// and how the files of one wp-content differ from those of another.
package difference

import (
	"cmp"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
)

// Content is how much content a WordPress has, and when it changed last. Plugins run while it is counted, so it is
// as true as they are.
type Content struct {
	Posts    []Amount // by type, the most first; nil: they couldn't be counted
	Comments *Amount  // nil where it couldn't be counted, as the others
	Users    *Amount
	Files    *Amount // of wp-content, without caches
	Options  Digests `json:",omitempty"` // only where they are compared
}

// Amount is how much of one kind of content there is.
type Amount struct {
	Type, Name string // of posts: such as page, "Pages"
	Count      int64
	Changed    Seconds // when one of them changed last, or was added; 0: unknown
	Newer      int64   // of them changed since the time that was asked for
	Bytes      int64   // of files
}

// Seconds are a moment as PHP tells it.
type Seconds int64

// At returns the moment. Before 1970 and past the year 9999 nothing happens.
func (s Seconds) At() db.Time {
	if s < 0 || s > 253402300799 {
		return 0
	}
	return db.Time(s) * 1000
}

// Digests are those of options by name.
type Digests map[string]string

// Bounds of what a WordPress says of its content.
const (
	maxPostTypes = 50
	maxOptions   = 5000
)

// Bound cuts what a WordPress says.
func (c *Content) Bound() {
	c.Posts = c.Posts[:min(len(c.Posts), maxPostTypes)]
	for i := range c.Posts {
		p := &c.Posts[i]
		p.Bound()
		p.Type = text.Clip(p.Type, 20)
		p.Name = cmp.Or(text.Clip(p.Name, 60), p.Type)
	}
	for _, a := range []*Amount{c.Comments, c.Users} {
		if a != nil {
			a.Bound()
		}
	}
	if len(c.Options) > maxOptions {
		c.Options = nil
	}
	c.Files = nil // ours
}

func (a *Amount) Bound() {
	a.Count, a.Newer = max(a.Count, 0), max(a.Newer, 0)
	if a.Changed.At() == 0 {
		a.Changed = 0
	}
}

// WithoutComparison returns the content as it is stored.
func (c Content) WithoutComparison() Content {
	plain := func(a *Amount) *Amount {
		if a == nil {
			return nil
		}
		b := *a
		b.Newer = 0
		return &b
	}
	c.Posts = slices.Clone(c.Posts)
	for i := range c.Posts {
		c.Posts[i].Newer = 0
	}
	c.Comments, c.Users, c.Files, c.Options = plain(c.Comments), plain(c.Users), plain(c.Files), nil
	return c
}

// Differing returns the names of options that one of two sites doesn't have, or has with another value.
func (d Digests) Differing(other Digests) (names []string) {
	for name, digest := range d {
		if other[name] != digest {
			names = append(names, name)
		}
	}
	for name := range other {
		if _, ok := d[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
