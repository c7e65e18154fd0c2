// Package unzip owns opening untrusted zip archives: it limits the number of entries and the size of the directory
// before memory is allocated for them.
//
// It limits only the directory. The reader of the entries must limit their content.
package unzip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Limits caps an archive's directory. Both are required.
type Limits struct {
	Entries int   // files, folders and links
	Bytes   int64 // bytes of the directory
}

var (
	ErrEntries = errors.New("the archive says that it has too many entries")
	ErrList    = errors.New("the archive lists too many entries, or their names are too long")
	ErrDamaged = errors.New("the archive is damaged or cut off")
)

// Open reads the directory of an archive of size bytes.
func Open(f io.ReaderAt, size int64, most Limits) (*zip.Reader, error) {
	if announced(f, size) > uint64(most.Entries) {
		return nil, ErrEntries
	}
	list := &listing{ReaderAt: f, most: most}
	z, err := zip.NewReader(list, size)
	if list.over {
		return nil, ErrList
	}
	if err != nil {
		return nil, ErrDamaged
	}
	list.read = true
	return z, nil
}

// announced returns how many entries an archive claims to have, for which [zip.NewReader] allocates memory: the highest
// number in any of its end records (APPNOTE.TXT 4.3.14 to 4.3.16).
func announced(f io.ReaderAt, size int64) (most uint64) {
	tail := make([]byte, min(size, 66<<10))
	n, _ := f.ReadAt(tail, size-int64(len(tail)))
	tail = tail[:n]
	for i := 0; i+22 <= len(tail); i++ {
		if !bytes.HasPrefix(tail[i:], []byte("PK\x05\x06")) {
			continue
		}
		most = max(most, uint64(binary.LittleEndian.Uint16(tail[i+10:])))
		if i < 20 || !bytes.HasPrefix(tail[i-20:], []byte("PK\x06\x07")) {
			continue
		}
		large := make([]byte, 56)
		if _, err := f.ReadAt(large, int64(binary.LittleEndian.Uint64(tail[i-12:])&(1<<62-1))); err == nil {
			most = max(most, binary.LittleEndian.Uint64(large[32:]))
		}
	}
	return most
}

// listing is a zip archive whose directory is being read; it fails once the directory exceeds the limits.
type listing struct {
	io.ReaderAt
	most           Limits
	read, over     bool // the directory is in memory; it exceeds the limits
	bytes, entries int64
	tail           []byte // end of the last chunk, where an entry may begin
}

// entryMark begins each entry of the directory (APPNOTE.TXT 4.3.12).
var entryMark = []byte("PK\x01\x02")

func (l *listing) ReadAt(b []byte, at int64) (int, error) {
	n, err := l.ReaderAt.ReadAt(b, at)
	if l.read {
		return n, err
	}
	l.tail = append(l.tail, b[:n]...)
	l.entries += int64(bytes.Count(l.tail, entryMark))
	l.tail = bytes.Clone(l.tail[max(0, len(l.tail)-len(entryMark)+1):])
	l.bytes += int64(n)
	if l.bytes > l.most.Bytes || l.entries > int64(l.most.Entries) {
		l.over = true
		return 0, ErrList
	}
	return n, err
}
