package wparchive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// cpanel is a full account backup: the home folder and a dump of each database.
type cpanel struct {
	file     string
	root     string // WordPress folder below the home folder
	database string
	left     []string
}

// databaseName matches the database's name in a wp-config.php, which is never run.
var databaseName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`define\s*\(\s*['"]DB_NAME['"]\s*,\s*['"]([A-Za-z0-9_.$-]{1,64})['"]\s*\)`)
})

// maxRoots caps the WordPress installations in a backup.
const maxRoots = 100

// findCPanel opens a backup and selects the WordPress at root, or the only one. It returns nil if the file isn't such a
// backup.
func findCPanel(file, root string) (*cpanel, error) {
	if is, err := begins(file, "\x1f\x8b"); !is || err != nil {
		return nil, err
	}
	roots, is := map[string]string{}, false
	c := &cpanel{file: file}
	seen := map[string]bool{}
	err := c.each(func(name string, h *tar.Header, in io.Reader) error {
		home, inHome := strings.CutPrefix(name, "homedir/")
		if top, _, _ := strings.Cut(name, "/"); top == "mysql" || top == "homedir" {
			is = true
		} else if text, ok := cpanelLeft[top]; ok && !seen[text] && h.Typeflag == tar.TypeReg && h.Size > 0 {
			seen[text] = true
			c.left = append(c.left, text)
		}
		if !inHome || path.Base(home) != "wp-config.php" || h.Typeflag != tar.TypeReg || len(roots) >= maxRoots {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(in, maxText))
		if err != nil {
			return errDamaged
		}
		if m := databaseName().FindSubmatch(text); m != nil {
			roots[path.Dir(home)] = string(m[1])
		}
		return nil
	})
	if err != nil || !is {
		return nil, err
	}
	all := slices.Sorted(maps.Keys(roots))
	switch {
	case len(all) == 0:
		return nil, bad("it holds no wp-config.php in its home folder")
	case root == "" && len(all) > 1:
		return nil, fmt.Errorf("the backup holds %d WordPress: choose one with --path: %s", len(all), strings.Join(all, ", "))
	case root == "":
		root = all[0]
	case roots[root] == "":
		return nil, fmt.Errorf("the backup holds no WordPress in %s: --path can be %s", root, strings.Join(all, ", "))
	}
	c.root, c.database = root, roots[root]
	return c, nil
}

// cpanelLeft lists the parts of a backup that aren't imported.
var cpanelLeft = map[string]string{
	"cron":     "cron jobs",
	"dnszones": "DNS zones",
	"mm":       "mailing lists",
	"va":       "mail forwarders: keep the MX records until mail has moved",
	"psql":     "PostgreSQL databases",
}

// each calls f for every entry, with its name below the backup's folder.
func (c *cpanel) each(f func(name string, h *tar.Header, in io.Reader) error) error {
	file, err := os.Open(c.file)
	if err != nil {
		return err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return errDamaged
	}
	whole := &io.LimitedReader{R: z, N: maxBytes}
	t := tar.NewReader(whole)
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && whole.N > 0:
			return nil
		case whole.N <= 0:
			return bad("it is larger than %d GiB unpacked", maxBytes>>30)
		case err != nil:
			return errDamaged
		case n >= 4*maxEntries:
			return bad("it holds more than %d files", 4*maxEntries)
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(h.Name, "./"), "/")
		if err := f(name, h, t); err != nil {
			return err
		}
	}
}

func (c *cpanel) walk(ctx context.Context, take taker) (left []string, err error) {
	content := path.Join("homedir", c.root) + "/wp-content/"
	dump := "mysql/" + c.database + ".sql"
	err = c.each(func(name string, h *tar.Header, in io.Reader) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if h.Typeflag != tar.TypeReg {
			return nil // skip links and devices
		}
		if name == dump || name == dump+".gz" {
			return take.take(item{gzip: strings.HasSuffix(name, ".gz"), in: in})
		}
		if rel, ok := strings.CutPrefix(name, content); ok {
			return take.take(item{path: rel, size: h.Size, in: in})
		}
		return nil
	})
	return c.left, err
}
