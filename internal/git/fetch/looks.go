package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/fault"
)

// A user who waits for a look may repeat it immediately. To stop a repository from crashing the process again and
// again, each look writes a note before it begins. A note that exists at a start belongs to a look that crashed the
// process.

const (
	maxLookCrashes = 2
	lookMemory     = 24 * time.Hour // how long crashes caused by a repository are remembered
)

func lookName(r Repository) string {
	sum := sha256.Sum256([]byte(r.String()))
	return hex.EncodeToString(sum[:16])
}

// beginLook writes the note of a look, or refuses the look if the repository has crashed the process too often. end
// removes the note.
func (s *Fetcher) beginLook(r Repository) (end func(), err error) {
	crashes := 0
	for n := 1; n <= maxLookCrashes; n++ {
		info, err := os.Stat(s.path("looks", fmt.Sprintf("%s.crash%d", lookName(r), n)))
		if err == nil && time.Since(info.ModTime()) < lookMemory {
			crashes++
		}
	}
	if crashes >= maxLookCrashes {
		return nil, &fault.Error{
			Kind:       fault.Unavailable,
			Code:       "repository_refused",
			RetryAfter: time.Hour,
			Message:    "This repository can't be previewed: the service stopped unexpectedly while reading it",
			Details:    "create the site without a preview, or try again tomorrow",
		}
	}
	f, err := os.CreateTemp(s.path("looks"), lookName(r)+".now-")
	if err != nil {
		return nil, fmt.Errorf("note look: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("note look: %w", err)
	}
	return func() { os.Remove(f.Name()) }, nil
}

// settleLooks counts the looks during which an earlier process died, and removes their files. One crash counts once per
// repository, even if several looks were running.
func (s *Fetcher) settleLooks() error {
	dir := s.path("looks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make source directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read looks: %w", err)
	}
	counted := map[string]bool{}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > lookMemory {
			os.Remove(name)
			continue
		}
		if len(e.Name()) < 32 || !strings.HasPrefix(e.Name()[32:], ".now-") {
			continue
		}
		os.Remove(name)
		repository := e.Name()[:32]
		if counted[repository] {
			continue
		}
		counted[repository] = true
		for n := 1; n <= maxLookCrashes; n++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s.crash%d", repository, n)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err == nil {
				f.Close()
				break
			}
		}
	}
	for _, left := range []string{s.path("sites", "look_*"), s.path("hosts", "look_*")} {
		found, _ := filepath.Glob(left)
		for _, name := range found {
			os.RemoveAll(name)
		}
	}
	return nil
}
