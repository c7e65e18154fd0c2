package bundle

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/disk"
)

// A pack is a bundle as one stream, for a machine without access to blobs: the length of the manifest in four bytes,
// the manifest as it is stored, and the contents of the files in order, each distinct content once. The bundle's name
// authenticates all of it: it is the digest of the manifest, which has the digest of every file.

// WritePack writes the pack of a bundle.
func (b *Bundles) WritePack(ctx context.Context, id ID, to io.Writer) error {
	d, err := blob.ParseDigest(string(id))
	if err != nil {
		return fmt.Errorf("pack bundle: %w", err)
	}
	text, err := b.c.Blobs.ReadAll(ctx, d, maxManifest)
	if err != nil {
		return fmt.Errorf("pack bundle %.12s: %w", id, err)
	}
	m, err := decode(text)
	if err != nil {
		return fmt.Errorf("pack bundle %.12s: %w", id, err)
	}
	size := len(text)
	if _, err := to.Write([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}); err != nil {
		return err
	}
	if _, err := to.Write(text); err != nil {
		return err
	}
	sent := map[string]bool{}
	for _, e := range m.Entries {
		if e.Link != "" || sent[e.Digest] {
			continue
		}
		sent[e.Digest] = true
		if err := b.send(ctx, e, to); err != nil {
			return fmt.Errorf("pack bundle %.12s: %w", id, err)
		}
	}
	return nil
}

func (b *Bundles) send(ctx context.Context, e entry, to io.Writer) error {
	r, err := b.open(ctx, e)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(to, r)
	return err
}

// ErrPack means that a pack doesn't match its bundle's name.
var ErrPack = errors.New("the files are incomplete or not those that were asked for")

// Unpack writes the tree of a bundle below root from its pack, read-only, with at most maxBytes bytes. The pack is
// untrusted. After an error, the caller must delete what was written.
func Unpack(from io.Reader, id ID, root *os.Root, maxBytes int64) error {
	r := bufio.NewReaderSize(from, 256<<10)
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return broken(err)
	}
	size := int64(head[0])<<24 | int64(head[1])<<16 | int64(head[2])<<8 | int64(head[3])
	if size > maxManifest {
		return ErrPack
	}
	var text bytes.Buffer // grows with the received data, not with the announced length
	if n, err := io.CopyN(&text, r, size); err != nil || n < size {
		return broken(err)
	}
	if blob.Sum(text.Bytes()).String() != string(id) {
		return ErrPack
	}
	m, err := decode(text.Bytes())
	if err != nil {
		return err
	}
	var whole int64
	for _, e := range m.Entries {
		whole += e.Size
		if e.Size < 0 || whole > maxBytes {
			return fmt.Errorf("the files have more than %d MiB", maxBytes>>20)
		}
	}
	made := map[string]bool{".": true}
	first := map[string]string{} // by digest: the first file with this content
	for _, e := range m.Entries {
		if dir := filepath.Dir(e.Path); !made[dir] {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			made[dir] = true
		}
		if e.Link == "" {
			if err := receive(r, e, root, first); err != nil {
				return err
			}
		}
	}
	for _, e := range m.Entries { // last, so that no file is written through a link
		if e.Link != "" {
			if err := root.Symlink(e.Link, e.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive writes a file from the stream, or as a copy of one with the same content.
func receive(r io.Reader, e entry, root *os.Root, first map[string]string) error {
	mode := os.FileMode(0o444)
	if e.Exec {
		mode = 0o555
	}
	if earlier, there := first[e.Digest]; there {
		old, err := root.Open(earlier)
		if err != nil {
			return err
		}
		defer old.Close()
		r = old
	}
	first[e.Digest] = e.Path
	f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), disk.Sparing(root.Name(), r), e.Size); err != nil {
		return broken(err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.Digest {
		return ErrPack
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// broken turns an early end of the stream into ErrPack.
func broken(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrPack
	}
	return err
}
