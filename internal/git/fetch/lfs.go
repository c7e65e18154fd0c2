package fetch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/text"
)

// Git LFS stores large files outside the repository; the commit holds a pointer of three lines. The package fetches the
// files itself with the batch API (git-lfs, docs/api/batch.md), because git-lfs has written through links outside the
// tree (CVE-2025-26625). Sizes are known before the download, and each file must have the SHA-256 in its pointer.

// Limits of LFS.
const (
	maxPointer    = 1024   // bytes of a pointer, as in git-lfs
	maxLFS        = 10_000 // files
	lfsBatch      = 100    // files per batch request
	maxLFSAnswer  = 4 << 20
	lfsIdle       = 24 * time.Hour // how long an unused file stays in the cache
	maxAttributes = 100            // .gitattributes files read per commit
)

const (
	lfsPrefix = "version https://git-lfs.github.com/spec/v1\n"
	lfsType   = "application/vnd.git-lfs+json"
)

// lfs replaces pointers by the files that they point to. Files that can't be fetched keep their pointer and are listed
// in t.Unfetched: a site without some pictures is better than no site.
func (s *Fetcher) lfs(ctx context.Context, r Request, t *Tree) error {
	uses, err := t.usesLFS(ctx)
	if err != nil {
		return err
	}
	var pointers []pointer
	if uses {
		if pointers, err = t.pointers(ctx); err != nil {
			return err
		}
	}
	if len(pointers) == 0 {
		return t.stray(ctx)
	}
	var total int64
	for _, f := range t.files {
		total += f.Size
	}
	for _, p := range pointers {
		if p.size > s.c.MaxSize-total { // a pointer can claim any size, so a sum could overflow
			return tooLarge(r, "with its Git LFS files it is over the limit of "+text.Size(s.c.MaxSize))
		}
		total += p.size
	}
	if len(pointers) > maxLFS {
		return tooLarge(r, fmt.Sprintf("it has more than %d files in Git LFS", maxLFS))
	}
	dir := filepath.Join(t.g.dir, "lfs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make LFS cache: %w", err)
	}
	var absent []pointer
	for _, p := range pointers {
		if info, err := os.Stat(filepath.Join(dir, p.oid)); err != nil || info.Size() != p.size {
			absent = append(absent, p)
		}
	}
	why := s.download(ctx, r, dir, absent)
	if ctx.Err() != nil {
		return fmt.Errorf("fetch LFS files: %w", context.Cause(ctx))
	}
	now := time.Now()
	for _, p := range pointers {
		name := filepath.Join(dir, p.oid)
		if info, err := os.Stat(name); err != nil || info.Size() != p.size {
			t.Unfetched = append(t.Unfetched, strings.ToValidUTF8(t.files[p.file].Path, "?"))
			continue
		}
		os.Chtimes(name, now, now)
		f := &t.files[p.file]
		f.OID, f.Size, f.lfs = p.oid, p.size, name
	}
	if why != nil {
		s.c.Log.InfoContext(ctx, "LFS files not fetched", "site", r.Site, "files", len(t.Unfetched), "err", why)
	}
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > lfsIdle {
				os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
	return nil
}

// usesLFS reports whether an attribute file of the tree itself assigns files to LFS.
func (t *Tree) usesLFS(ctx context.Context) (bool, error) {
	var attributes []File
	for _, f := range t.files {
		if path.Base(f.Path) == ".gitattributes" && f.Mode.IsRegular() && f.Size <= 64<<10 && f.in == nil &&
			len(attributes) < maxAttributes {
			attributes = append(attributes, f)
		}
	}
	uses := false
	err := t.Read(ctx, attributes, func(_ File, r io.Reader) error {
		b, err := io.ReadAll(r)
		uses = uses || bytes.Contains(b, []byte("filter=lfs"))
		return err
	})
	return uses, err
}

// pointer is a file of the tree that is stored in LFS.
type pointer struct {
	file int // index in Tree.files
	oid  string
	size int64
}

func (t *Tree) pointers(ctx context.Context) ([]pointer, error) {
	var small []File
	var at []int
	for i, f := range t.files {
		if f.Mode.IsRegular() && f.in == nil && f.Size > int64(len(lfsPrefix)) && f.Size <= maxPointer {
			small, at = append(small, f), append(at, i)
		}
	}
	var found []pointer
	n := 0
	err := t.Read(ctx, small, func(_ File, r io.Reader) error {
		b, err := io.ReadAll(r)
		if p, ok := parsePointer(string(b)); ok {
			p.file = at[n]
			found = append(found, p)
		}
		n++
		return err
	})
	return found, err
}

// large lists the extensions that are commonly stored in LFS.
var large = strings.Fields(
	".avi .avif .bin .gif .glb .gz .ico .jpeg .jpg .mov .mp3 .mp4 .ogg .otf .pdf .png .psd .tif .tiff .ttf .wav .wasm .webm " +
		".webp .woff .woff2 .zip",
)

// stray finds pointers that no attribute file assigns to LFS, such as after .gitattributes was lost. Git takes them for
// the files themselves, but a picture never consists of three lines of text.
func (t *Tree) stray(ctx context.Context) error {
	var few []File
	for _, f := range t.files {
		if f.Mode.IsRegular() && f.in == nil && f.lfs == "" && f.Size > 100 && f.Size <= maxPointer && len(few) < maxLFS &&
			slices.Contains(large, strings.ToLower(path.Ext(f.Path))) {
			few = append(few, f)
		}
	}
	if len(few) == 0 {
		return nil
	}
	return t.Read(ctx, few, func(f File, r io.Reader) error {
		b, err := io.ReadAll(r)
		if bytes.HasPrefix(b, []byte(strings.TrimSuffix(lfsPrefix, "\n"))) {
			t.Unfetched = append(t.Unfetched, strings.ToValidUTF8(f.Path, "?"))
		}
		return err
	})
}

func parsePointer(text string) (p pointer, ok bool) {
	if !strings.HasPrefix(text, lfsPrefix) {
		return p, false
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "oid":
			p.oid, _ = strings.CutPrefix(value, "sha256:")
		case "size":
			p.size, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return p, len(p.oid) == 64 && strings.Trim(p.oid, "0123456789abcdef") == "" && p.size > 0
}

// download downloads files into dir and returns the first reason why one is missing.
func (s *Fetcher) download(ctx context.Context, r Request, dir string, want []pointer) (why error) {
	if len(want) == 0 {
		return nil
	}
	b := s.base[r.Repository.host]
	if b.root != "" {
		return errors.New("a directory has no LFS server")
	}
	if b.url == "" {
		b.url = "https://" + r.Repository.host
	}
	client := s.c.Egress.Client(0)
	if b.addr != "" {
		client = s.c.Egress.ClientTo(0, b.addr)
	}
	defer client.CloseIdleConnections()
	server, err := s.lfsServer(ctx, r, b.url)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(want, lfsBatch) {
		objects, err := s.lfsBatch(ctx, client, server, batch)
		if err != nil {
			return first(why, err)
		}
		for _, p := range batch {
			if err := s.lfsObject(ctx, client, r, b.url, dir, p, objects[p.oid]); err != nil {
				why = first(why, err)
			}
			if ctx.Err() != nil {
				return why
			}
		}
	}
	return why
}

type lfsAction struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// lfsServer returns the repository's LFS server: at its HTTP address, or as the SSH host says.
func (s *Fetcher) lfsServer(ctx context.Context, r Request, base string) (lfsServer, error) {
	c := r.Credential
	if c != nil && c.DeployKey != "" {
		return s.lfsOverSSH(ctx, r)
	}
	at := lfsServer{url: base + "/" + r.Repository.path + ".git/info/lfs"}
	if c != nil && c.Token != "" {
		at.header = map[string]string{
			"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(cmp.Or(c.User, tokenUser(r.Repository.host))+":"+c.Token)),
		}
	}
	return at, nil
}

// setHeader adds the headers that the server asked for.
func setHeader(to http.Header, from map[string]string) {
	for k, v := range from {
		if len(to) < 20 && !strings.EqualFold(k, "host") {
			to.Set(k, v)
		}
	}
}

// lfsBatch requests the download addresses of files.
func (s *Fetcher) lfsBatch(ctx context.Context, client *http.Client, at lfsServer, want []pointer) (map[string]lfsAction, error) {
	type object struct {
		OID     string `json:"oid"`
		Size    int64  `json:"size"`
		Actions struct {
			Download lfsAction `json:"download"`
		} `json:"actions,omitzero"`
	}
	ask := map[string]any{"operation": "download", "transfers": []string{"basic"}, "hash_algo": "sha256"}
	var objects []object
	for _, p := range want {
		objects = append(objects, object{OID: p.oid, Size: p.size})
	}
	ask["objects"] = objects
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.url+"/objects/batch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", lfsType)
	req.Header.Set("Content-Type", lfsType)
	setHeader(req.Header, at.header)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the LFS server answered %d", res.StatusCode)
	}
	var answer struct {
		Objects []object `json:"objects"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxLFSAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read the LFS server's answer: %w", err)
	}
	out := map[string]lfsAction{}
	for _, o := range answer.Objects {
		out[o.OID] = o.Actions.Download
	}
	return out, nil
}

// lfsObject downloads one file. It sends only the headers that the LFS server asked for: the site's credential is sent
// only to the repository's own host.
func (s *Fetcher) lfsObject(ctx context.Context, client *http.Client, r Request, base, dir string, p pointer, a lfsAction) error {
	u, err := url.Parse(a.Href)
	if err != nil || a.Href == "" || u.User != nil || u.Scheme != "https" && !strings.HasPrefix(a.Href, base+"/") {
		return errors.New("the LFS server names no address for a file")
	}
	if u.Host == r.Repository.host && !strings.HasPrefix(a.Href, base+"/") { // use the operator's address for this host (--git-host)
		b, err := url.Parse(base)
		if err != nil {
			return err
		}
		u.Scheme, u.Host = b.Scheme, b.Host
	}
	ctx, done := context.WithTimeout(ctx, 5*time.Minute)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	setHeader(req.Header, a.Header)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the LFS server answered %d for a file", res.StatusCode)
	}
	f, err := os.CreateTemp(s.path("tmp"), "lfs-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), disk.Sparing(s.c.Dir, io.LimitReader(res.Body, p.size+1)))
	if err != nil {
		return err
	}
	if n != p.size || hex.EncodeToString(sum.Sum(nil)) != p.oid {
		return errors.New("an LFS file is not the one that its pointer names")
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, p.oid))
}

func readLFS(f File, fn func(File, io.Reader) error) error {
	r, err := os.Open(f.lfs)
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Path, err)
	}
	defer r.Close()
	return fn(f, io.LimitReader(r, f.Size))
}

// checkoutLFS replaces the pointers in a working tree by their files.
func (t *Tree) checkoutLFS(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	defer root.Close()
	for _, f := range t.files {
		if f.lfs == "" || f.in != nil {
			continue
		}
		if err := t.placeLFS(root, f); err != nil {
			return fmt.Errorf("check out %q: %w", f.Path, err)
		}
	}
	return nil
}

func (t *Tree) placeLFS(root *os.Root, f File) error {
	from, err := os.Open(f.lfs)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := root.Remove(f.Path); err != nil {
		return err
	}
	to, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode.Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
