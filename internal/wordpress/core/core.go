// Package core owns what WordPress itself is: the release that sites run from, fetched and checked
// or copied from the operator's, with the files that Slipway adds, stored once for all sites.
package core

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// ours are the files that every core gets: its configuration, the part that is always
// loaded, and the tasks.
//
//go:embed files
var ours embed.FS

// Where the parts of a core's bundle lie.
const (
	PublicDir  = "public"        // the document root
	slipwayDir = "slipway"       // beside it
	TasksDir   = "slipway/tasks" // what only this package asks for
	ContentDir = "public/wp-content"
)

// The most of a core's archive.
const (
	maxArchive = 200 << 20
	maxCore    = 600 << 20
	maxFiles   = 30_000
)

// The release that wordpress.org calls current, and what its digest is.
const (
	currentArchive = "https://wordpress.org/latest.tar.gz"
	currentSum     = "https://wordpress.org/latest.tar.gz.sha1"
	debianCore     = "/usr/share/wordpress"
)

// Config holds what cores are made with.
type Config struct {
	DB      *db.DB
	Bundles *bundle.Bundles
	Out     *http.Client // fetches archives
	Dir     string       // where a core is put together
	Source  string       // see CheckSource. Optional: empty means the current release, or Debian's package where it can't be fetched.
	Log     *slog.Logger // Optional.
}

// Cores makes cores. It is safe for concurrent use.
type Cores struct {
	c      Config
	making sync.Mutex // held while a core is put together
}

// New returns Cores. It fetches nothing yet.
func New(c Config) *Cores {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Cores{c: c}
}

// Core is one that is stored.
type Core struct {
	Version string
	Bundle  bundle.ID
}

// CheckSource says in words what is wrong with the operator's setting.
func CheckSource(source string) error {
	switch {
	case source == "", source == "debian", filepath.IsAbs(source):
		return nil
	case strings.HasPrefix(source, "https://"):
		if _, sum, ok := strings.Cut(source, "#sha256="); !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
			return errors.New("the address of an archive must end with its checksum, #sha256= and 64 hexadecimal digits")
		}
		return nil
	}
	return errors.New("give a directory, debian, or https://….tar.gz#sha256=…")
}

// Current returns the core that new sites run from, putting it together where it is not stored.
func (s *Cores) Current(ctx context.Context, say func(format string, args ...any)) (Core, error) {
	s.making.Lock()
	defer s.making.Unlock()
	source := s.c.Source
	if source == "debian" {
		source = debianCore
	}
	if source == "" {
		// What was fetched last is current for a day.
		var c Core
		err := s.c.DB.QueryRow(ctx, `SELECT version, bundle FROM wordpress_cores WHERE id LIKE 'current/%' AND id LIKE $1
			AND created_at > $2 ORDER BY created_at DESC LIMIT 1`,
			"%/"+oursDigest(), db.Now()-24*60*60*1000).
			Scan(&c.Version, &c.Bundle)
		if err == nil {
			return c, nil
		}
		sum, err := s.currentSum(ctx)
		if err == nil {
			return s.stored(ctx, "current/"+sum, func(dir string) error { return s.unpack(ctx, currentArchive, sha1.New(), sum, dir) }, say)
		}
		if _, e := os.Stat(filepath.Join(debianCore, "wp-includes/version.php")); e != nil {
			return Core{}, fault.New(fault.Unavailable, "wordpress_unavailable", "WordPress can't be downloaded",
				fmt.Sprintf(
					"wordpress.org does not answer (%s); the operator can install Debian's package (apt-get install wordpress) or name a "+
						"copy with --wordpress-source",
					err,
				))
		}
		s.c.Log.WarnContext(ctx, "wordpress.org is unreachable; using Debian's package", "err", err)
		source = debianCore
	}
	if address, sum, ok := strings.Cut(source, "#sha256="); ok {
		return s.stored(ctx, "archive/"+sum, func(dir string) error { return s.unpack(ctx, address, sha256.New(), sum, dir) }, say)
	}
	version, err := os.ReadFile(filepath.Join(source, "wp-includes/version.php"))
	if err != nil {
		return Core{}, fault.New(fault.Unavailable, "wordpress_unavailable", "WordPress is not available on this server",
			fmt.Sprintf("the operator's source %s contains none", source))
	}
	sum := sha256.Sum256(append([]byte(source+"\x00"), version...))
	return s.stored(ctx, "directory/"+hex.EncodeToString(sum[:]), func(dir string) error { return copyTree(ctx, source, dir) }, say)
}

// Newest returns the version of the core that was made last; empty: there is none yet.
func Newest(ctx context.Context, r db.Reader) (version string, err error) {
	err = r.QueryRow(ctx, `SELECT version FROM wordpress_cores ORDER BY created_at DESC LIMIT 1`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return version, err
}

// Offers is nil when new sites get this version. It makes no core: a transaction waits.
func Offers(ctx context.Context, r db.Reader, version string) error {
	have, err := Newest(ctx, r)
	if err != nil {
		return fmt.Errorf("find WordPress: %w", err)
	}
	if have != version {
		details := "new sites get " + have
		if have == "" {
			details = "no WordPress was made here yet: leave the version out"
		}
		return fault.New(fault.Invalid, "invalid_version", "This version of WordPress is not available", details).Got(version)
	}
	return nil
}

// currentSum asks which archive is current.
func (s *Cores) currentSum(ctx context.Context) (string, error) {
	body, err := s.fetch(ctx, currentSum)
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, 100))
	sum := strings.TrimSpace(string(b))
	if err == nil && (len(sum) != 40 || strings.Trim(sum, "0123456789abcdef") != "") {
		err = errors.New("its answer is no checksum")
	}
	return sum, err
}

func (s *Cores) fetch(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.c.Out.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return resp.Body, nil
}

// unpack fetches an archive, sees that it is the right one, and only then unpacks it.
func (s *Cores) unpack(ctx context.Context, address string, digest hash.Hash, sum, dir string) error {
	body, err := s.fetch(ctx, address)
	if err != nil {
		return fault.New(fault.Unavailable, "wordpress_unavailable", "WordPress can't be downloaded", err.Error())
	}
	defer body.Close()
	f, err := os.CreateTemp(s.c.Dir, "archive-")
	if err != nil {
		return fmt.Errorf("store archive: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	n, err := io.Copy(io.MultiWriter(f, digest), io.LimitReader(body, maxArchive+1))
	switch {
	case err != nil:
		return fmt.Errorf("fetch WordPress: %w", err)
	case n > maxArchive:
		return errors.New("the archive of WordPress is too large")
	case hex.EncodeToString(digest.Sum(nil)) != sum:
		return fault.New(fault.Unavailable, "wordpress_unavailable", "The checksum of the downloaded WordPress is wrong",
			"the download was discarded")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return untar(f, dir)
}

// untar unpacks an archive whose files lie in one folder.
func untar(r io.Reader, dir string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("unpack WordPress: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t, files, left := tar.NewReader(z), 0, int64(maxCore)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack WordPress: %w", err)
		}
		_, name, _ := strings.Cut(path.Clean("/" + h.Name)[1:], "/")
		if h.Typeflag != tar.TypeReg || name == "" || unwanted(name) {
			continue
		}
		if files++; files > maxFiles || h.Size > left {
			return errors.New("unpack WordPress: the archive holds too much")
		}
		left -= h.Size
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("unpack WordPress: %w", err)
		}
		if err := write(root, name, t); err != nil {
			return fmt.Errorf("unpack WordPress: %w", err)
		}
	}
}

func write(root *os.Root, name string, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// unwanted are files of a core that no site has: another's configuration, and what only
// tells strangers the version.
func unwanted(name string) bool {
	switch name {
	case "wp-config.php", "wp-config-sample.php", ".htaccess", "readme.html", "license.txt", "liesmich.html":
		return true
	}
	return false
}

// copyTree copies an operator's WordPress. Links are followed to files of the operator's
// own: Debian's package is full of them.
func copyTree(ctx context.Context, from, to string) error {
	files := 0
	var walk func(from, to string, depth int) error
	walk = func(from, to string, depth int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if depth > 32 {
			return errors.New("copy WordPress: folders are nested too deep")
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return fmt.Errorf("copy WordPress: %w", err)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("copy WordPress: %w", err)
		}
		for _, e := range entries {
			src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
			if depth == 0 && unwanted(e.Name()) {
				continue
			}
			info, err := os.Stat(src)
			if err != nil {
				continue // a link that leads nowhere
			}
			if info.IsDir() {
				if err := walk(src, dst, depth+1); err != nil {
					return err
				}
				continue
			}
			if !info.Mode().IsRegular() {
				continue
			}
			if files++; files > maxFiles {
				return errors.New("copy WordPress: too many files")
			}
			if err := copyFile(src, dst); err != nil {
				return fmt.Errorf("copy WordPress: %w", err)
			}
		}
		return nil
	}
	return walk(from, to, 0)
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// oursDigest names the files that we add, and how they are stored.
func oursDigest() string {
	sum := sha256.New()
	sum.Write([]byte("common "))
	_ = fs.WalkDir(ours, "files", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			b, _ := ours.ReadFile(name)
			fmt.Fprintf(sum, "core%s %d\n%s", strings.TrimPrefix(name, "files"), len(b), b)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

var versionForm = lazyregexp.New(`(?m)^\$wp_version\s*=\s*'([0-9A-Za-z.+-]{1,30})';`)

// stored returns the core of that name, making it where there is none.
func (s *Cores) stored(
	ctx context.Context,
	name string,
	fill func(dir string) error,
	say func(format string, args ...any),
) (c Core, err error) {
	id := name + "/" + oursDigest()
	err = s.c.DB.QueryRow(ctx, `SELECT version, bundle FROM wordpress_cores WHERE id = $1`, id).Scan(&c.Version, &c.Bundle)
	if err == nil {
		return c, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("find WordPress: %w", err)
	}
	say("Preparing WordPress; this is done once for all sites")
	if err := os.MkdirAll(s.c.Dir, 0o700); err != nil {
		return c, fmt.Errorf("make WordPress: %w", err)
	}
	dir, err := os.MkdirTemp(s.c.Dir, "core-")
	if err != nil {
		return c, fmt.Errorf("make WordPress: %w", err)
	}
	defer os.RemoveAll(dir)
	public := filepath.Join(dir, PublicDir)
	if err := os.Mkdir(public, 0o755); err != nil {
		return c, fmt.Errorf("make WordPress: %w", err)
	}
	if err := fill(public); err != nil {
		return c, err
	}
	text, err := os.ReadFile(filepath.Join(public, "wp-includes/version.php"))
	if err != nil {
		return c, fmt.Errorf("make WordPress: the source contains none: %w", err)
	}
	m := versionForm.FindSubmatch(text)
	if m == nil {
		return c, errors.New("make WordPress: the source names no version")
	}
	c.Version = string(m[1])
	if err := addOurs(dir); err != nil {
		return c, fmt.Errorf("make WordPress: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return c, err
	}
	defer root.Close()
	stored, err := s.c.Bundles.StoreCommon(ctx, root)
	if err != nil {
		return c, err
	}
	c.Bundle = stored.ID
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO wordpress_cores (id, version, bundle, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET version = excluded.version, bundle = excluded.bundle, created_at = excluded.created_at`,
			id, c.Version, c.Bundle, db.Now())
		return err
	})
	if err != nil {
		return c, fmt.Errorf("note WordPress: %w", err)
	}
	return c, nil
}

// addOurs puts our files into a core.
func addOurs(dir string) error {
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, ContentDir, "uploads"), 0o755),
		os.MkdirAll(filepath.Join(dir, slipwayDir), 0o755),
	); err != nil {
		return err
	}
	// Languages are many: a site gets those that it uses.
	err := os.Rename(filepath.Join(dir, ContentDir, "languages"), filepath.Join(dir, slipwayDir, "languages"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fs.WalkDir(ours, "files", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel := strings.TrimPrefix(name, "files/")
		to := filepath.Join(dir, slipwayDir, rel)
		if rel == "wp-config.php" {
			to = filepath.Join(dir, PublicDir, rel)
		}
		b, err := ours.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		// unsynced: scratch: it is stored as blobs
		return os.WriteFile(to, b, 0o644)
	})
}

// Roots marks the files of every core, so that they are not collected.
func (s *Cores) Roots(ctx context.Context, mark func(blob.Digest)) error {
	rows, err := s.c.DB.Query(ctx, `SELECT DISTINCT bundle FROM wordpress_cores`)
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id bundle.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("list WordPress cores: %w", err)
	}
	for _, id := range ids {
		for digest, err := range s.c.Bundles.Blobs(ctx, id) {
			if errors.Is(err, fs.ErrNotExist) {
				break // damaged: it is made again
			}
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return nil
}
