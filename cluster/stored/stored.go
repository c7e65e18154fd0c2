// Package stored owns the transfer of a site's storage between its volume and a copy on the control plane's disk. A
// keeper with the volume lists it, sends files that the copy lacks, and takes back a changed copy, completely or not at
// all.
//
// Names and links are the site's and may be arbitrary, so both sides stay within their directory.
package stored

import (
	"bufio"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits of storage that can be copied. They equal those of a backup.
const (
	maxEntries = 1_000_000
	maxNames   = 32 << 20 // bytes of all paths and links
	maxPath    = 4096     // bytes per path
	maxDepth   = 200
	maxBytes   = 256 << 30 // of all files, including holes
	maxBlock   = 64 << 10  // bytes of a file sent at once
	maxPart    = 4 * maxBlock
)

// The kinds of parts.
const (
	folder  byte = 'd'
	file    byte = 'f' // its data follows, then fileEnd
	link    byte = 'l'
	same    byte = '=' // a file that the volume already has at this path
	data    byte = '+'
	fileEnd byte = ';'
	end     byte = '.' // end of a list, of files, or of a tree
	failed  byte = '!'

	list  byte = 'L' // requests the list
	read  byte = 'R' // requests the files whose names follow
	write byte = 'W' // begins the tree that replaces the content
)

// Entry is a directory entry.
type Entry struct {
	Name    string // below the volume; the first element is a storage folder's directory
	Kind    byte   // folder, file or link
	Mode    uint32 // permissions
	Size    int64
	Changed int64 // nanoseconds since 1970
	Fresh   bool  // changed so recently that a later change may have the same time
	Inode   uint64
	Link    string
}

// as reports whether a file is unchanged.
func (e Entry) as(was Entry) bool {
	e.Fresh, was.Fresh = false, false
	return e == was
}

// part is a message.
type part struct {
	Entry
	Data  []byte
	Zeros int64 // number of zeros instead of data
	Full  bool  // with failed: the volume is full
	Much  bool  // with failed: the limits are exceeded
	Why   string
}

// settled is how long a file must be unchanged before its time proves that, since all changes within a kernel tick have
// the same time.
const settled = 20 * time.Millisecond

func entryOf(name string, info os.FileInfo) Entry {
	e := Entry{Name: name, Mode: uint32(info.Mode().Perm()), Size: info.Size()}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		e.Inode = st.Ino
		e.Changed = st.Ctim.Nano()
		e.Fresh = time.Since(time.Unix(0, e.Changed)) < settled
	}
	switch {
	case info.IsDir():
		e.Kind, e.Size = folder, 0
	case info.Mode().IsRegular():
		e.Kind = file
	case info.Mode().Type() == os.ModeSymlink:
		e.Kind, e.Size = link, 0
	}
	return e
}

// isFolder reports whether a volume's entry is a storage folder.
func isFolder(name string) bool { return !strings.HasPrefix(name, ".") && name != "lost+found" }

// good reports whether a name received from the other side is a valid path in a storage folder.
func good(name string) bool {
	return len(name) <= maxPath && filepath.IsLocal(name) && path.Clean(name) == name && isFolder(name) && !strings.ContainsRune(name, 0)
}

// ErrMuch means that the storage exceeds the limits.
var ErrMuch = errors.New("the site has stored more than can be copied")

var errGarbled = errors.New("the other side violates the protocol")

// ErrFull means that the volume has too little space. Nothing was changed.
var ErrFull = errors.New("the site's volume is full; nothing was changed")

// amount sums up the listed entries.
type amount struct{ entries, names, bytes int64 }

func (a *amount) add(e Entry) error {
	a.entries++
	a.names += int64(len(e.Name) + len(e.Link))
	a.bytes += e.Size
	if a.entries > maxEntries || a.names > maxNames || a.bytes > maxBytes || e.Size < 0 {
		return ErrMuch
	}
	return nil
}

// walk lists the storage folders below root, parents before children.
func walk(root *os.Root, each func(Entry) error) error {
	top, err := entries(root, ".")
	if err != nil {
		return err
	}
	for _, e := range top {
		if e.IsDir() && isFolder(e.Name()) {
			if err := walkBelow(root, e.Name(), 1, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func walkBelow(root *os.Root, name string, depth int, each func(Entry) error) error {
	info, err := root.Lstat(name)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e := entryOf(name, info)
	switch {
	case e.Kind == 0: // a socket or pipe
		return nil
	case e.Kind == link:
		if e.Link, err = root.Readlink(name); gone(err) {
			return nil
		} else if err != nil {
			return err
		}
	case depth > maxDepth || len(name) > maxPath:
		return ErrMuch
	}
	if err := each(e); err != nil || e.Kind != folder {
		return err
	}
	below, err := entries(root, name)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range below {
		if err := walkBelow(root, name+"/"+b.Name(), depth+1, each); err != nil {
			return err
		}
	}
	return nil
}

func entries(root *os.Root, name string) ([]os.DirEntry, error) {
	dir, err := open(root, name, syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.ReadDir(maxEntries)
	if err == io.EOF {
		err = nil
	}
	if len(list) == maxEntries {
		err = ErrMuch
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// open opens a file for reading even if its mode denies its owner access.
func open(root *os.Root, name string, flags int) (*os.File, error) {
	flags |= os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := root.OpenFile(name, flags, 0)
	if !errors.Is(err, os.ErrPermission) {
		return f, err
	}
	info, failed := root.Lstat(name)
	if failed != nil || info.Mode().Type() == os.ModeSymlink {
		return nil, err
	}
	need := os.FileMode(0o400)
	if info.IsDir() {
		need = 0o500
	}
	if err := root.Chmod(name, info.Mode().Perm()|need); err != nil {
		return nil, err
	}
	f, err = root.OpenFile(name, flags, 0)
	if !info.IsDir() { // a folder's children must be reachable
		err = errors.Join(err, root.Chmod(name, info.Mode().Perm()))
	}
	return f, err
}

// gone reports whether an error means that a file was deleted or replaced meanwhile.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// stream sends and receives parts.
type stream struct {
	w   *bufio.Writer
	enc *gob.Encoder
	r   *bounded
	dec *gob.Decoder
}

func newStream(c io.ReadWriter) *stream {
	s := &stream{w: bufio.NewWriterSize(c, 2*maxBlock), r: &bounded{in: bufio.NewReaderSize(c, 2*maxBlock)}}
	s.enc, s.dec = gob.NewEncoder(s.w), gob.NewDecoder(s.r)
	return s
}

func (s *stream) send(p part) error { return s.enc.Encode(p) }

// last sends a part and flushes.
func (s *stream) last(p part) error { return errors.Join(s.enc.Encode(p), s.w.Flush()) }

// next receives a part. The other side's failure is an error.
func (s *stream) next() (p part, err error) {
	s.r.left = maxPart
	if err := s.dec.Decode(&p); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return p, err
	}
	switch {
	case p.Kind != failed:
		return p, nil
	case p.Full:
		return p, ErrFull
	case p.Much:
		return p, ErrMuch
	}
	return p, errors.New(p.Why)
}

// bounded limits the length of a part.
type bounded struct {
	in   *bufio.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errGarbled
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// ReadByte keeps the decoder from reading ahead.
func (b *bounded) ReadByte() (byte, error) {
	if b.left <= 0 {
		return 0, errGarbled
	}
	b.left--
	return b.in.ReadByte()
}

// sendFile sends a file's content.
func (s *stream) sendFile(root *os.Root, name string, block []byte) error {
	f, err := open(root, name, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if err := s.send(part{Entry: entryOf(name, info)}); err != nil {
		return err
	}
	from := io.LimitReader(f, info.Size()) // ignore data appended meanwhile
	for {
		n, err := io.ReadFull(from, block)
		p := part{Entry: Entry{Kind: data}, Data: block[:n]}
		if zero(block[:n]) {
			p.Data, p.Zeros = nil, int64(n)
		}
		if n > 0 {
			if err := s.send(p); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return s.send(part{Entry: Entry{Kind: fileEnd}})
		case err != nil:
			return err
		}
	}
}

func zero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// receiveFile writes a file's content, with holes for zeros.
func (s *stream) receiveFile(root *os.Root, name string, mode os.FileMode) (info os.FileInfo, err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode|0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size := int64(0)
	for {
		p, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case p.Kind == fileEnd:
			err := errors.Join(f.Truncate(size), f.Chmod(mode))
			if err == nil {
				info, err = f.Stat()
			}
			return info, err
		case p.Kind != data || p.Zeros < 0 || p.Zeros > maxBlock || size > maxBytes:
			return nil, errGarbled
		case p.Zeros > 0:
			_, err = f.Seek(p.Zeros, io.SeekCurrent)
			size += p.Zeros
		default:
			_, err = f.Write(p.Data)
			size += int64(len(p.Data))
		}
		if err != nil {
			return nil, err
		}
	}
}
