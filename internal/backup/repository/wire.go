package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Encode returns a manifest as it is stored: a line of JSON with all but its lists, then the
// lists in binary. Each backup of a site reads the lists of earlier ones, and a site may have
// a million files.
func Encode(head any, c *Contents) ([]byte, error) {
	b, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	b = slices.Grow(append(b, '\n'), 64+packName*len(c.Packs)+(sha256.Size+12)*len(c.Pieces)+(sha256.Size+96)*len(c.Files))
	number := func(n int) { b = binary.AppendUvarint(b, uint64(n)) }
	text := func(s string) { number(len(s)); b = append(b, s...) }
	number(len(c.Packs))
	for _, name := range c.Packs {
		if b, err = appendHex(b, name); err != nil {
			return nil, err
		}
	}
	number(len(c.Pieces))
	for _, p := range c.Pieces {
		number(p.Pack)
		number(p.Offset)
		number(p.Length)
		b = append(b, p.Sum[:]...)
	}
	number(len(c.Files))
	parts := 0
	for _, f := range c.Files {
		parts += len(f.Pieces)
	}
	number(parts)
	for _, f := range c.Files {
		text(f.Path)
		text(f.Link)
		text(f.Stamp)
		number(int(f.Size))
		number(int(f.Mode))
		b = append(b, f.Sum[:]...)
		number(len(f.Pieces))
		for _, i := range f.Pieces {
			number(i)
		}
	}
	return b, nil
}

const packName = 32 // bytes

func appendHex(b []byte, name string) ([]byte, error) {
	b, err := hex.AppendDecode(b, []byte(name))
	if err != nil || len(name) != 2*packName {
		return nil, fmt.Errorf("a pack is called %q", name)
	}
	return b, nil
}

// Decode is the inverse of encode. The first version was JSON throughout.
func Decode(plain []byte, about any) (*Contents, error) {
	head, lists, binary := bytes.Cut(plain, []byte("\n"))
	var m struct {
		Version int `json:"version"`
		Contents
	}
	if err := json.Unmarshal(head, &m); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	switch {
	case m.Version > Version:
		return nil, fmt.Errorf("read manifest: version %d was written by a newer Slipway", m.Version)
	case binary != (m.Version == Version):
		return nil, errors.New("read manifest: its lists are not of its version")
	}
	if about != nil {
		if err := json.Unmarshal(head, about); err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
	}
	if binary {
		if w := (&wire{rest: string(lists)}); !w.lists(&m.Contents) {
			return nil, errors.New("read manifest: its lists are cut off")
		}
	}
	return &m.Contents, nil
}

// wire is read from its beginning to its end; what it can't hold makes it bad.
type wire struct {
	rest string
	bad  bool
}

func (w *wire) lists(c *Contents) bool {
	c.Packs = make([]string, w.count(packName))
	for i := range c.Packs {
		c.Packs[i] = hex.EncodeToString([]byte(w.take(packName)))
	}
	c.Pieces = make([]Piece, w.count(3+len(Piece{}.Sum)))
	for i := range c.Pieces {
		p := &c.Pieces[i]
		p.Pack, p.Offset, p.Length = w.number(), w.number(), w.number()
		copy(p.Sum[:], w.take(len(p.Sum)))
	}
	c.Files = make([]File, w.count(6+len(File{}.Sum)))
	parts := make([]int, w.count(1))
	for i := range c.Files {
		f := &c.Files[i]
		f.Path, f.Link, f.Stamp = w.take(w.number()), w.take(w.number()), w.take(w.number())
		f.Size, f.Mode = int64(w.number()), uint32(w.number())
		copy(f.Sum[:], w.take(len(f.Sum)))
		n := w.number()
		if n > len(parts) {
			return false
		}
		f.Pieces, parts = parts[:n:n], parts[n:]
		for k := range f.Pieces {
			f.Pieces[k] = w.number()
		}
	}
	return !w.bad && w.rest == "" && len(parts) == 0
}

func (w *wire) fail() { w.bad, w.rest = true, "" }

// number reads an unsigned varint.
func (w *wire) number() int {
	var n uint64
	for i := range min(len(w.rest), 9) { // 63 bits
		c := w.rest[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			w.rest = w.rest[i+1:]
			return int(n)
		}
	}
	w.fail()
	return 0
}

// count reads how many of something follow, of which each takes so many bytes at least.
func (w *wire) count(least int) int {
	n := w.number()
	if n > len(w.rest)/least {
		w.fail()
		return 0
	}
	return n
}

func (w *wire) take(n int) string {
	if n > len(w.rest) {
		w.fail()
		return ""
	}
	s := w.rest[:n]
	w.rest = w.rest[n:]
	return s
}
