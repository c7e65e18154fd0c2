package folder

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/inside"
)

// remembered is a cached digest.
type remembered struct {
	size, time int64
	inode      uint64
	digest     string
}

// fresh is the minimum age of a file whose digest is cached: two writes within the file system's time resolution look
// the same.
const fresh = 2 * time.Second

// Hash computes the digests of all files. cache is the path of the digest cache, or "". It drops private keys unless
// they are included.
func (f *Folder) Hash(ctx context.Context, cache string, o Options) error {
	include, err := parseIgnore("", []byte(strings.Join(o.Include, "\n")))
	if err != nil {
		return err
	}
	known := load(cache)
	secret := make([]bool, len(f.Files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(2, min(4, runtime.NumCPU()))) // share: none, this process is one user's
	for i := range f.Files {
		x := &f.Files[i]
		if x.Mode == "l" {
			sum := sha256.Sum256([]byte(x.link))
			x.Digest = hex.EncodeToString(sum[:])
			continue
		}
		if k, ok := known[x.name]; ok && k.size == x.Size && k.time == x.info.ModTime().UnixNano() && k.inode == inode(x.info) {
			x.Digest = k.digest
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			var err error
			secret[i], err = f.hash(x)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	kept := f.Files[:0]
	for i, x := range f.Files {
		if included, _ := include.match(x.name, false); secret[i] && !included {
			f.Left = append(f.Left, Left{x.name, "a private key"})
			continue
		}
		kept = append(kept, x)
	}
	f.Files = kept
	store(cache, f.Files)
	return nil
}

// Again hashes the files with the given digests again, because they have changed.
func (f *Folder) Again(digests map[string]bool) error {
	for i := range f.Files {
		x := &f.Files[i]
		if x.Mode == "l" || !digests[x.Digest] {
			continue
		}
		if _, err := f.hash(x); err != nil {
			return err
		}
	}
	return nil
}

// hash hashes a file and reports whether it is a private key.
func (f *Folder) hash(x *File) (key bool, err error) {
	in, info, err := f.open(x)
	if err != nil {
		return false, err
	}
	defer in.Close()
	sum := sha256.New()
	head := make([]byte, 64)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	head = head[:n]
	sum.Write(head)
	rest, err := io.Copy(sum, in)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", x.name, err)
	}
	x.Size, x.Digest, x.info = int64(n)+rest, hex.EncodeToString(sum.Sum(nil)), info
	return PrivateKey(head), nil
}

// PrivateKey reports whether the first 64 bytes of a file belong to a private key.
func PrivateKey(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.HasPrefix(line, []byte("-----BEGIN ")) && bytes.Contains(line, []byte("PRIVATE KEY-----")) ||
		bytes.HasPrefix(line, []byte("PuTTY-User-Key-File-"))
}

// open opens a file, which must be within the folder.
func (f *Folder) open(x *File) (*os.File, fs.FileInfo, error) {
	in, err := f.root.Open(filepath.FromSlash(x.name))
	if err != nil {
		return nil, nil, err
	}
	info, err := in.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file any more", x.name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, info, nil
}

// Content opens the content of a file.
func (f *Folder) Content(x File) (io.ReadCloser, error) {
	if x.Mode == "l" {
		return io.NopCloser(strings.NewReader(x.link)), nil
	}
	in, _, err := f.open(&x)
	return in, err
}

// head is the cache's first line; it changes with the format.
const head = "slipway cache 1"

func load(name string) map[string]remembered {
	text, err := os.ReadFile(name)
	if name == "" || err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	if !lines.Scan() || lines.Text() != head {
		return nil
	}
	known := map[string]remembered{}
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 5)
		if len(f) != 5 || len(f[0]) != 2*sha256.Size {
			return nil
		}
		path, err := strconv.Unquote(f[4])
		size, err1 := strconv.ParseInt(f[1], 10, 64)
		at, err2 := strconv.ParseInt(f[2], 10, 64)
		node, err3 := strconv.ParseUint(f[3], 10, 64)
		if errors.Join(err, err1, err2, err3) != nil {
			return nil
		}
		known[path] = remembered{size, at, node, f[0]}
	}
	return known
}

// store replaces the cache. Without it, the next upload only takes longer.
func store(name string, files []File) {
	if name == "" || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	b := []byte(head + "\n")
	old := time.Now().Add(-fresh)
	for _, x := range files {
		if x.Mode == "l" || x.info.ModTime().After(old) {
			continue
		}
		b = fmt.Appendf(b, "%s %d %d %d %q\n", x.Digest, x.Size, x.info.ModTime().UnixNano(), inode(x.info), x.name)
	}
	_ = inside.Write(filepath.Dir(name), filepath.Base(name), b, 0o600)
}

// Manifest returns the file list in the server's format.
func (f *Folder) Manifest() []byte {
	var b []byte
	for _, x := range f.Files {
		b = fmt.Appendf(b, `{"path":%s,"sha256":"%s","size":%d`, quote(x.Path), x.Digest, x.Size)
		if x.Mode != "" {
			b = fmt.Appendf(b, `,"mode":"%s"`, x.Mode)
		}
		b = append(b, "}\n"...)
	}
	return b
}

// ByDigest returns one file per digest.
func (f *Folder) ByDigest() map[string]File {
	out := make(map[string]File, len(f.Files))
	for _, x := range slices.Backward(f.Files) {
		out[x.Digest] = x
	}
	return out
}

// quote writes a string as JSON.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return b
}
