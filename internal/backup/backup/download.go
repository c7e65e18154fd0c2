package backup

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/git/fetch"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Archive is a backup as a plain archive, which opens without Slipway: site.json,
// env.json, files/ (what the site serves), app/ (its program), storage/, database/ and
// manifest.json with the SHA-256 of each.
type Archive struct {
	Name string // for the file, without its ending
	s    *Backups
	r    *snapshot.Reader

	values Values
}

// Values says which values of variables an archive holds.
type Values int

// What an archive holds of them. The caller checks who may read it: NoValues is for everybody else.
const (
	NoValues   Values = iota
	OpenValues        // of variables that are not secret
	AllValues         // also of secret ones, the repository's credential and the visitors' password
)

// Open prepares the archive of the owner's backup.
func (s *Backups) Open(ctx context.Context, owner account.OwnerID, id ID, values Values) (*Archive, error) {
	b, err := s.owned(ctx, s.c.DB, owner, id)
	if err != nil {
		return nil, err
	}
	r, err := s.reader(ctx, b)
	if err != nil {
		return nil, err
	}
	return &Archive{
		Name:   fmt.Sprintf("%s-%s", site.Slug(b.SiteName), b.CreatedAt.Time().Format("2006-01-02-150405")),
		s:      s,
		r:      r,
		values: values,
	}, nil
}

// entry is a file of the archive.
type entry struct {
	name string
	mode int64
	size int64
	link string
	sum  string
	copy func(w io.Writer) error
}

// WriteTar writes the archive as .tar.zst. An error after the first byte leaves an archive
// that does not end, which tar and zstd report.
func (a *Archive) WriteTar(ctx context.Context, w io.Writer) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = a.each(ctx, func(e entry) error {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: e.size, ModTime: a.r.Manifest.At, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if e.link != "" {
			return nil
		}
		return e.copy(t)
	})
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// WriteZip writes the archive as .zip.
func (a *Archive) WriteZip(ctx context.Context, w io.Writer) error {
	z := zip.NewWriter(w)
	err := a.each(ctx, func(e entry) error {
		if e.link != "" {
			return nil // most programs unpack them as files, or refuse
		}
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: a.r.Manifest.At}
		out, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		return e.copy(out)
	})
	if err != nil {
		return err
	}
	return z.Close()
}

// each calls write with all that the archive holds, the list last.
func (a *Archive) each(ctx context.Context, write func(entry) error) error {
	sums := map[string]string{}
	add := func(e entry) error {
		if e.link == "" {
			sums[e.name] = e.sum
		}
		return write(e)
	}
	text := func(name string, v any) error {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		return add(entry{name: name, mode: 0o600, size: int64(len(b)), sum: checksum(b), copy: func(w io.Writer) error {
			_, err := io.Copy(w, bytes.NewReader(b))
			return err
		}})
	}
	m := a.r.Manifest
	if m.Config != nil {
		config, env := *m.Config, m.Config.Env
		config.Env = nil
		if a.values < AllValues {
			config.Credential = (*fetch.Credential)(nil)
			config.Serving.Hash = ""
		}
		if err := text("site.json", map[string]any{"id": m.Site, "backup": m.ID, "at": m.At, "site": config, "live": m.Live}); err != nil {
			return err
		}
		if err := text("env.json", a.env(env)); err != nil {
			return err
		}
	}
	file := func(name string, f repository.File, mode int64) error {
		return add(entry{
			name: name,
			mode: mode,
			size: f.Size,
			link: f.Link,
			sum:  hex.EncodeToString(f.Sum[:]),
			copy: func(w io.Writer) error { return a.r.Copy(ctx, w, f) },
		})
	}
	if err := a.live(ctx, file, add); err != nil {
		return err
	}
	for _, f := range m.Files {
		if strings.HasPrefix(f.Path, snapshot.InBlobs) {
			continue
		}
		if err := file(f.Path, f, int64(f.Mode)&0o777); err != nil {
			return err
		}
	}
	return text("manifest.json", map[string]any{"backup": m.ID, "at": m.At, "includes": m.Includes, "sha256": sums})
}

// live adds the files of the release and of the program under their own names.
func (a *Archive) live(ctx context.Context, file func(name string, f repository.File, mode int64) error, add func(entry) error) error {
	l := a.r.Manifest.Live
	if l == nil {
		return nil
	}
	store := a.r.Stored()
	if l.Release != "" {
		tree, err := a.s.releases(store).Load(ctx, l.Release)
		if err != nil {
			return err
		}
		for f := range tree.Files() {
			held, ok := a.r.Manifest.File(snapshot.InBlobs + f.Body.Digest.String())
			if !ok {
				return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
			}
			if err := file(path.Join("files", f.Path), held, 0o644); err != nil {
				return err
			}
		}
	}
	if l.Bundle == "" {
		return nil
	}
	bundles, done, err := a.s.scratchBundles(store)
	if err != nil {
		return err
	}
	defer done()
	for f, err := range bundles.Files(ctx, l.Bundle) {
		if err != nil {
			return err
		}
		if f.Link != "" {
			if err := add(entry{name: path.Join("app", f.Path), mode: 0o777, link: f.Link}); err != nil {
				return err
			}
			continue
		}
		held, ok := a.r.Manifest.File(snapshot.InBlobs + f.Digest.String())
		if !ok {
			return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
		}
		mode := int64(0o644)
		if f.Exec {
			mode = 0o755
		}
		if err := file(path.Join("app", f.Path), held, mode); err != nil {
			return err
		}
	}
	return nil
}

type envEntry struct {
	Key    string   `json:"key"`
	Value  *string  `json:"value"` // null where the archive doesn't hold it
	Secret bool     `json:"secret"`
	Target []string `json:"target"`
	Branch string   `json:"branch,omitempty"` // pattern of the branches whose previews it is for
}

func (a *Archive) env(vars []site.NewVar) []envEntry {
	list := []envEntry{}
	for _, v := range vars {
		e := envEntry{Key: v.Key, Secret: v.Secret, Target: v.Target, Branch: v.Branch}
		if a.values == AllValues || a.values == OpenValues && !v.Secret {
			e.Value = &v.Value
		}
		list = append(list, e)
	}
	return list
}
