// Package recovery owns the backups of the whole installation as the operator meets them:
// where they lie, who opens them, and the commands that take, list, verify and restore one.
//
// What is in a backup is for package backup to know. The service that runs takes it; all
// other commands need no service, and a restore refuses a directory that is not empty.
package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"filippo.io/age"

	"slipway/internal/backup/repository"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/seal"
)

// Settings say where backups are stored.
type Settings struct {
	To         string        // s3://… or a directory; empty: in DataDir. It may hold credentials: never print it.
	Recipients []string      // age public keys that can open them besides the installation's key
	Every      time.Duration // how often the whole installation is backed up. Optional: 0 means never by itself.
	Alarm      time.Duration // how long a site with a schedule may be without a verified backup. Optional: 0 means three of its intervals.
}

// Open opens the place of backups, without talking to it. Where there is none it says why.
func Open(s installation.Store, b Settings, sealer *seal.Sealer, log *slog.Logger) (r *repository.Repository, why string, err error) {
	to := b.To
	if to == "" {
		if s.Remote() {
			return nil, "this server's files are in an object store: the operator sets --backup-to to say where backups go", nil
		}
		to = s.Path("backups")
	}
	recipients, err := parseRecipients(b.Recipients)
	if err != nil {
		return nil, "", err
	}
	at, _, err := blob.OpenBackend(to, blob.Options{Cache: s.Path("backup-cache"), CacheSize: 64 << 20, Opaque: true, Log: log})
	if err != nil {
		return nil, "", fmt.Errorf("--backup-to: %w", err)
	}
	return repository.New(repository.Config{Backend: at, Seal: sealer, Recipients: recipients}), "", nil
}

// Check reports what is wrong with the settings. It talks to nobody.
func Check(b Settings) error {
	if strings.HasPrefix(b.To, "s3://") {
		if _, err := blob.ParseS3(b.To, os.Getenv); err != nil {
			return fmt.Errorf("--backup-to: %w", err)
		}
	} else if strings.Contains(b.To, "://") && !strings.HasPrefix(b.To, "file:///") {
		return errors.New("--backup-to: the address must be a directory, or begin with s3://")
	}
	if b.Every < 0 || b.Every > 0 && b.Every < time.Minute {
		return errors.New("--backup-every: at least 1m, or 0")
	}
	if b.Every > 0 && b.To == "" {
		return errors.New("--backup-every: the setting --backup-to must say where the backups go")
	}
	if b.Alarm < 0 || b.Alarm > 0 && b.Alarm < time.Hour {
		return errors.New("--backup-alarm: at least 1h, or 0")
	}
	_, err := parseRecipients(b.Recipients)
	return err
}

func parseRecipients(list []string) (out []age.Recipient, err error) {
	for _, text := range list {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("--backup-recipient: a recipient is a public key of age, such as age1…")
		}
		out = append(out, r)
	}
	return out, nil
}
