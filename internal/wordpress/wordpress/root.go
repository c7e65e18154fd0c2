package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// RootFile is a text at the root of a site: a file that visitors get, or _redirects or _headers, whose rules apply.
type RootFile struct{ Path, Content string }

// The most root files of a site, the bytes of one of them, and of all.
const (
	maxRootFiles = 50
	maxRootFile  = 64 << 10
	maxRootBytes = 256 << 10
)

// rootFiles are texts by their paths.
type rootFiles map[string]string

func readRootFiles(text string) (f rootFiles) {
	if text != "" {
		_ = json.Unmarshal([]byte(text), &f) // what was written here
	}
	return f
}

func (w *WordPress) rootFiles(ctx context.Context, r db.Reader, id site.ID) (rootFiles, error) {
	var text string
	if err := r.QueryRow(ctx, `SELECT root_files FROM wordpress_sites WHERE site_id = $1`, id).Scan(&text); err != nil {
		return nil, fmt.Errorf("read root files: %w", err)
	}
	return readRootFiles(text), nil
}

// rules returns the redirects and headers of root files; nil: none. Problems name lines that aren't obeyed.
func (f rootFiles) rules() (*release.Tree, []rules.Problem) {
	sources := map[string]string{}
	for name, text := range f {
		if rules.IsFile(name) {
			sources[name] = text
		}
	}
	if len(sources) == 0 {
		return nil, nil
	}
	return (&release.Tree{}).WithRules(sources)
}

// RootFiles lists the root files of the owner's site by path, beside those of its repository.
func (w *WordPress) RootFiles(ctx context.Context, owner account.OwnerID, id site.ID) (list []RootFile, err error) {
	if _, err := w.c.Sites.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	if _, err := w.get(ctx, w.c.DB, id); err != nil {
		return nil, err
	}
	have, err := w.rootFiles(ctx, w.c.DB, id)
	for _, path := range slices.Sorted(maps.Keys(have)) {
		list = append(list, RootFile{path, have[path]})
	}
	return list, err
}

// SetRootFilesTx replaces the root files of the owner's site, and reports whether one is another now. Visitors get them at once.
func (w *WordPress) SetRootFilesTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, files []RootFile,
) (changed bool, err error) {
	if _, err := w.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return false, err
	}
	if _, err := w.get(ctx, tx, id); err != nil {
		return false, err
	}
	set, err := checkRootFiles(files)
	if err != nil {
		return false, err
	}
	have, err := w.rootFiles(ctx, tx, id)
	if err != nil || maps.Equal(have, set) {
		return false, err
	}
	encoded := ""
	if len(set) > 0 {
		b, err := json.Marshal(set)
		if err != nil {
			return false, err
		}
		encoded = string(b)
	}
	if _, err := tx.Exec(ctx, `UPDATE wordpress_sites SET root_files = $2 WHERE site_id = $1`, id, encoded); err != nil {
		return false, fmt.Errorf("change root files: %w", err)
	}
	tx.Notify("live")
	return true, w.settingsChangedTx(ctx, tx, id)
}

// SetRootFileTx sets one root file of the owner's site, or deletes it with nil, as SetRootFilesTx does with all.
func (w *WordPress) SetRootFileTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, path string, content *string,
) (changed bool, err error) {
	if _, err := w.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return false, err
	}
	if _, err := w.get(ctx, tx, id); err != nil {
		return false, err
	}
	have, err := w.rootFiles(ctx, tx, id)
	if err != nil {
		return false, err
	}
	var files []RootFile
	for name, text := range have {
		if name != path {
			files = append(files, RootFile{name, text})
		}
	}
	if content != nil {
		files = append(files, RootFile{path, *content})
	}
	return w.SetRootFilesTx(ctx, tx, owner, id, files)
}

func checkRootFiles(files []RootFile) (rootFiles, error) {
	invalid := func(details, received string) error {
		return fault.New(fault.Invalid, "invalid_root_file", "Invalid root file", details).Got(text.Clip(received, 100))
	}
	if len(files) > maxRootFiles {
		return nil, invalid(fmt.Sprintf("a site has at most %d", maxRootFiles), "")
	}
	set, bytes := rootFiles{}, 0
	for _, f := range files {
		_, twice := set[f.Path]
		bytes += len(f.Content)
		switch {
		case twice:
			return nil, invalid("it is there twice", f.Path)
		case !rules.IsFile(f.Path) && !publish.ForRoot(f.Path):
			return nil, invalid("path is a name such as ads.txt, _redirects, _headers or .well-known/security.txt; files are text, HTML, XML, "+
				"JSON or SVG, and WordPress keeps its own names", f.Path)
		case !utf8.ValidString(f.Content):
			return nil, invalid("it is no text", f.Path)
		case len(f.Content) > maxRootFile || bytes > maxRootBytes:
			return nil, invalid(fmt.Sprintf("a file has at most %d KiB, and all together %d KiB", maxRootFile>>10, maxRootBytes>>10), f.Path)
		}
		set[f.Path] = f.Content
	}
	if _, problems := set.rules(); len(problems) > 0 {
		return nil, fault.New(fault.Invalid, "invalid_rules", "The rules can't be applied", problems[0].String()).Got(problems[0].File)
	}
	return set, nil
}
