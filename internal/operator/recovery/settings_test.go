package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"slipway/internal/operator/installation"
)

// Settings that would fail later are refused with the name of the flag.
func TestCheck(t *testing.T) {
	t.Parallel()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	recipient := id.Recipient().String()
	for name, tt := range map[string]struct {
		s    Settings
		want string // "": valid
	}{
		"nothing": {Settings{}, ""},
		"a directory": {
			Settings{To: "/backups", Every: time.Hour, Alarm: 48 * time.Hour, Recipients: []string{recipient, " " + recipient + "\n"}},
			"",
		},
		"a directory's URL":    {Settings{To: "file:///backups"}, ""},
		"another kind":         {Settings{To: "ftp://host/backups"}, "--backup-to"},
		"a host's directory":   {Settings{To: "file://host/backups"}, "--backup-to"},
		"no bucket":            {Settings{To: "s3://"}, "--backup-to"},
		"too often":            {Settings{To: "/backups", Every: time.Second}, "--backup-every"},
		"negative":             {Settings{To: "/backups", Every: -time.Hour}, "--backup-every"},
		"nowhere to":           {Settings{Every: time.Hour}, "--backup-every"},
		"an impatient alarm":   {Settings{Alarm: time.Minute}, "--backup-alarm"},
		"a negative alarm":     {Settings{Alarm: -time.Hour}, "--backup-alarm"},
		"no recipient":         {Settings{Recipients: []string{"ssh-ed25519 AAAA"}}, "--backup-recipient"},
		"a recipient's secret": {Settings{Recipients: []string{id.String()}}, "--backup-recipient"},
	} {
		err := Check(tt.s)
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want+":") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: the error shows a secret key", name)
		}
	}
}

// The error for a backup place that can't be opened names the wrong flag, and nothing is created there.
func TestPlacesThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, file := filepath.Join(dir, "empty"), filepath.Join(dir, "file")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("no identity"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		p    Place
		want string
	}{
		"no place":        {Place{}, "--from"},
		"a missing one":   {Place{From: filepath.Join(dir, "missing")}, "--from"},
		"a file":          {Place{From: file}, "--from"},
		"no key":          {Place{From: empty}, "--data-dir"},
		"a missing key":   {Place{From: empty, Key: filepath.Join(dir, "missing")}, "--key"},
		"no identity":     {Place{From: empty, Identity: file}, "--identity"},
		"a missing one's": {Place{From: empty, Identity: filepath.Join(dir, "missing")}, "--identity"},
	} {
		var out strings.Builder
		err := List(t.Context(), installation.Store{DataDir: filepath.Join(dir, "data")}, tt.p, &out)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want+":") || out.Len() != 0 {
			t.Errorf("%s: %v %q, want %s", name, err, &out, tt.want)
		}
	}
	for _, made := range []string{"missing", "data"} {
		if _, err := os.Stat(filepath.Join(dir, made)); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", made, err)
		}
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) != 0 {
		t.Errorf("in the empty place: %v %v", left, err)
	}
}
