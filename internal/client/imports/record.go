package imports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Record is which of a platform's sites were imported to an installation, as which: a second run goes on where the first one ended.
type Record struct{ path, prefix string }

// OpenRecord returns the record beside the file in which accounts are kept. It reads nothing yet.
func OpenRecord(accounts, server, platform string) *Record {
	return &Record{filepath.Join(filepath.Dir(accounts), "imports.json"), server + " " + platform + " "}
}

func (r *Record) read() (map[string]string, error) {
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	out := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was imported before: %s: %w", r.path, err)
	}
	return out, nil
}

// Site returns what a site was imported as; empty: not yet.
func (r *Record) Site(id string) (string, error) {
	all, err := r.read()
	return all[r.prefix+id], err
}

// Note keeps what a site was imported as. It is on disk when it returns.
func (r *Record) Note(id, as string) error {
	all, err := r.read()
	if err != nil {
		return err
	}
	all[r.prefix+id] = as
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return fmt.Errorf("note what was imported: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), ".imports-*")
	if err != nil {
		return fmt.Errorf("note what was imported: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return fmt.Errorf("note what was imported: %w", err)
	}
	return nil
}
