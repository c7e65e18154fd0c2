package repository

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// Contents lists the files of a backup and where their bytes lie.
type Contents struct {
	Packs  []string `json:"packs,omitempty"`
	Pieces []Piece  `json:"pieces,omitempty"`
	Files  []File   `json:"files,omitempty"`

	at map[string]int // index into Files; made by Index
}

// Version is the version of the format that is written.
const Version = 2

// File is a file, or a link, in a backup.
type File struct {
	Path   string            `json:"p"`
	Size   int64             `json:"s"`
	Mode   uint32            `json:"m,omitempty"` // permission bits
	Link   string            `json:"l,omitempty"` // where a link leads
	Stamp  string            `json:"t,omitempty"` // changes when the file does, as far as the file system tells
	Sum    [sha256.Size]byte `json:"-"`
	Pieces []int             `json:"d"`
}

// fileWire is a file of the first version, but for its digest.
type fileWire File

// UnmarshalJSON reads a file of a manifest of the first version.
func (f *File) UnmarshalJSON(b []byte) error {
	var w struct {
		fileWire
		Sum []byte `json:"h"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*f = File(w.fileWire)
	if len(w.Sum) != sha256.Size {
		return fmt.Errorf("the digest of %s has %d bytes", f.Path, len(w.Sum))
	}
	f.Sum = [sha256.Size]byte(w.Sum)
	return nil
}

// UnmarshalJSON reads [pack, offset, length, digest], as the first version has it.
func (p *Piece) UnmarshalJSON(b []byte) error {
	var sum []byte
	parts := []any{&p.Pack, &p.Offset, &p.Length, &sum}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) != 4 || len(sum) != sha256.Size {
		return fmt.Errorf("a piece has %d parts", len(parts))
	}
	p.Sum = [sha256.Size]byte(sum)
	return nil
}

// Index makes File know what Files has.
func (c *Contents) Index() {
	c.at = make(map[string]int, len(c.Files))
	for i, f := range c.Files {
		c.at[f.Path] = i
	}
}

// Above adds the files of base that c lacks. The pieces of both are one writer's.
func (c *Contents) Above(base *Contents) {
	c.Index()
	for path, i := range base.at {
		if _, ok := c.at[path]; !ok {
			c.at[path] = len(c.Files)
			c.Files = append(c.Files, base.Files[i])
		}
	}
}

// compact leaves out the pieces and packs that no file uses.
func (c *Contents) compact() {
	pieces, packs := make([]int, len(c.Pieces)), make([]int, len(c.Packs))
	for _, f := range c.Files {
		for _, i := range f.Pieces {
			pieces[i] = 1
			packs[c.Pieces[i].Pack] = 1
		}
	}
	names := c.Packs[:0:0]
	for i, used := range packs {
		if used == 1 {
			packs[i] = len(names)
			names = append(names, c.Packs[i])
		}
	}
	list := c.Pieces[:0:0]
	for i, used := range pieces {
		if used == 1 {
			p := c.Pieces[i]
			p.Pack = packs[p.Pack]
			pieces[i] = len(list)
			list = append(list, p)
		}
	}
	parts := 0
	for i := range c.Files {
		parts += len(c.Files[i].Pieces)
	}
	slab := make([]int, 0, parts)
	for fi := range c.Files {
		from := len(slab)
		for _, i := range c.Files[fi].Pieces {
			slab = append(slab, pieces[i])
		}
		c.Files[fi].Pieces = slab[from:len(slab):len(slab)]
	}
	c.Packs, c.Pieces = names, list
}

// Size is how many bytes the files have together.
func (c *Contents) Size() (n int64) {
	for _, f := range c.Files {
		n += f.Size
	}
	return n
}

// File returns the file at a path.
func (c *Contents) File(path string) (File, bool) {
	i, ok := c.at[path]
	if !ok {
		return File{}, false
	}
	return c.Files[i], true
}

// Load reads a manifest; what it says beside its contents is decoded into head, where that isn't nil. Only this installation
// writes them, and the repository proves it; what it says is checked as far as a mistake would read beyond something.
func (r *Repository) Load(ctx context.Context, name string, head any) (*Contents, error) {
	plain, err := r.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	c, err := Decode(plain, head)
	if err != nil {
		return nil, err
	}
	for _, p := range c.Pieces {
		if p.Pack < 0 || p.Pack >= len(c.Packs) || p.Offset < 0 || p.Length < 0 {
			return nil, fmt.Errorf("read manifest: a piece lies nowhere")
		}
	}
	for _, f := range c.Files {
		for _, at := range f.Pieces {
			if at < 0 || at >= len(c.Pieces) {
				return nil, fmt.Errorf("read manifest: %s has no content", f.Path)
			}
		}
	}
	c.Index()
	return c, nil
}

// OnDisk is how many bytes a file takes at least where it is restored: pieces of zeros are holes.
func (c *Contents) OnDisk(f File) (n int64) {
	n = f.Size
	for _, i := range f.Pieces {
		if c.Pieces[i].Sum == zerosSum() {
			n -= int64(c.Pieces[i].Length)
		}
	}
	return n
}
