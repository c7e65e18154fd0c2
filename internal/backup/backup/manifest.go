package backup

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/site"
)

// Manifest lists what a backup holds and where it lies. It has secrets.
type Manifest struct {
	Version  int              `json:"version"`
	ID       ID               `json:"id"`
	Site     site.ID          `json:"site"`
	At       time.Time        `json:"at"`
	Includes []string         `json:"includes"`
	Config   *site.Export     `json:"config,omitempty"`
	Extra    json.RawMessage  `json:"extra,omitempty"` // see WordPress.Export
	Live     *deployment.Live `json:"live,omitempty"`
	Places   map[string]int64 `json:"databases,omitempty"` // of databases, by name
	Folders  []string         `json:"folders,omitempty"`   // of storage
	Packs    []string         `json:"packs,omitempty"`
	Pieces   []piece          `json:"pieces,omitempty"`
	Files    []File           `json:"files,omitempty"`

	at map[string]int // index into Files; made by load
}

const manifestVersion = 2

// The folders of a manifest's paths: blobs of the release and of the bundle by digest,
// files of storage folders, and dumps of databases.
const (
	inBlobs    = "blobs/"
	inStorage  = "storage/"
	inDatabase = "database/"
)

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
func (p *piece) UnmarshalJSON(b []byte) error {
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

// compact leaves out the pieces and packs that no file uses.
func (m *Manifest) compact() {
	pieces, packs := make([]int, len(m.Pieces)), make([]int, len(m.Packs))
	for _, f := range m.Files {
		for _, i := range f.Pieces {
			pieces[i] = 1
			packs[m.Pieces[i].Pack] = 1
		}
	}
	names := m.Packs[:0:0]
	for i, used := range packs {
		if used == 1 {
			packs[i] = len(names)
			names = append(names, m.Packs[i])
		}
	}
	list := m.Pieces[:0:0]
	for i, used := range pieces {
		if used == 1 {
			p := m.Pieces[i]
			p.Pack = packs[p.Pack]
			pieces[i] = len(list)
			list = append(list, p)
		}
	}
	parts := 0
	for i := range m.Files {
		parts += len(m.Files[i].Pieces)
	}
	slab := make([]int, 0, parts)
	for fi := range m.Files {
		from := len(slab)
		for _, i := range m.Files[fi].Pieces {
			slab = append(slab, pieces[i])
		}
		m.Files[fi].Pieces = slab[from:len(slab):len(slab)]
	}
	m.Packs, m.Pieces = names, list
}

// size is how many bytes the files have together.
func (m *Manifest) size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

func (m *Manifest) file(path string) (File, bool) {
	i, ok := m.at[path]
	if !ok {
		return File{}, false
	}
	return m.Files[i], true
}

// under yields the files below one of the folders, with their paths there.
func (m *Manifest) under(folder string) (list []File) {
	for _, f := range m.Files {
		if rest, ok := strings.CutPrefix(f.Path, folder); ok {
			f.Path = rest
			list = append(list, f)
		}
	}
	return list
}

// folderOf returns the storage folder that a path below inStorage belongs to; empty: it is
// not known.
func (m *Manifest) folderOf(p string) (name string) {
	for _, f := range m.Folders {
		if strings.HasPrefix(p, f+"/") && len(f) > len(name) {
			name = f
		}
	}
	return name
}

// load reads a manifest. Only this installation writes them, and the repository proves it;
// what it says is checked as far as a mistake would read beyond something.
func (r *Repository) load(ctx context.Context, name string) (*Manifest, error) {
	plain, err := r.get(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := decode(plain)
	if err != nil {
		return nil, err
	}
	for _, p := range m.Pieces {
		if p.Pack < 0 || p.Pack >= len(m.Packs) || p.Offset < 0 || p.Length < 0 {
			return nil, fmt.Errorf("read manifest: a piece lies nowhere")
		}
	}
	m.at = make(map[string]int, len(m.Files))
	for i, f := range m.Files {
		for _, at := range f.Pieces {
			if at < 0 || at >= len(m.Pieces) {
				return nil, fmt.Errorf("read manifest: %s has no content", f.Path)
			}
		}
		m.at[f.Path] = i
	}
	return m, nil
}
