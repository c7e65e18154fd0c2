package imports

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"slipway/internal/platform/disk"
)

// Record stores which sites of a platform were imported to an installation, so that a second run continues. Each site
// has its own file, so that concurrent imports don't overwrite each other.
type Record struct{ dir, old, prefix string }

// entry is the content of a file.
type entry struct {
	From string `json:"from"` // installation, platform and the site's id there
	As   string `json:"as"`   // id of the site here
}

// OpenRecord returns the record next to the accounts file. It reads nothing yet.
func OpenRecord(accounts, server, platform string) *Record {
	dir := filepath.Dir(accounts)
	return &Record{filepath.Join(dir, "imports"), filepath.Join(dir, "imports.json"), server + " " + platform + " "}
}

func (r *Record) path(id string) string {
	sum := sha256.Sum256([]byte(r.prefix + id))
	return filepath.Join(r.dir, hex.EncodeToString(sum[:16])+".json")
}

// Site returns the id of the imported site, or "".
func (r *Record) Site(id string) (string, error) {
	var e entry
	err := readJSON(r.path(id), &e)
	if err == nil && e.From == r.prefix+id {
		return e.As, nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // earlier versions stored all in one file
		all := map[string]string{}
		if err = readJSON(r.old, &all); err == nil || errors.Is(err, fs.ErrNotExist) {
			return all[r.prefix+id], nil
		}
	}
	return "", fmt.Errorf("read what was imported before: %w", err)
}

func readJSON(path string, out any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// Note stores what a site was imported as. The record is on disk when it returns.
func (r *Record) Note(id, as string) error {
	if err := r.note(id, as); err != nil {
		return fmt.Errorf("note what was imported: %w", err)
	}
	return nil
}

func (r *Record) note(id, as string) error {
	text, err := json.Marshal(entry{r.prefix + id, as})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	return disk.Write(r.path(id), append(text, '\n'), 0o600)
}
