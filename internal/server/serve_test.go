package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/operator/config"
	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	fleet "slipway/internal/platform/node"
)

// started cancels its context when the service logs that it has started.
type started struct {
	slog.Handler
	stop func()
	seen *bool
}

func (s started) Enabled(context.Context, slog.Level) bool { return true }

func (s started) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s started) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "slipway is starting" {
		*s.seen = true
		s.stop()
	}
	return nil
}

// serve starts the service and stops it as soon as it has started.
func serve(t *testing.T, store installation.Store) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var seen bool
	err := Serve(ctx, config.Config{
		Store:  store,
		Log:    slog.New(started{slog.DiscardHandler, stop, &seen}),
		Roles:  []string{"api", "worker", "edge"},
		Listen: "127.0.0.1:0", EdgeHTTP: "127.0.0.1:0", EdgeHTTPS: "127.0.0.1:0",
		SiteDomain: "localhost", RateLimit: 100, GitHistory: 10, MaxFileSize: 1, MaxReleaseSize: 1,
		BuildMemory: 512, BuildDisk: 512, BuildTime: time.Minute, DatabaseSize: 64, MariaDBMemory: 256,
	}, nil)
	if err == nil && !seen {
		t.Error("it ended before it started")
	}
	return err
}

// A new installation starts and stops, which runs everything in wire. It starts again with its database.
func TestServe(t *testing.T) {
	t.Parallel()
	store := installation.Store{DataDir: t.TempDir()}
	if err := serve(t, store); err != nil {
		t.Fatal(err)
	}
	d, err := store.OpenDatabase(t.Context(), nil)
	if err == nil {
		err = errors.Join(fleet.Unmark(t.Context(), d), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(t, store); err != nil {
		t.Errorf("after the mark of its files was lost in the database: %v", err)
	}
}

// The service doesn't start with a directory for files that isn't the installation's, for example because it isn't
// mounted, and doctor reports why. An installation without a mark gets one if its files exist.
func TestServeKnowsItsFiles(t *testing.T) {
	t.Parallel()
	store := installation.Store{DataDir: t.TempDir(), Blobs: filepath.Join(t.TempDir(), "files")}
	d, err := store.OpenDatabase(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	blobs, err := store.OpenBlobs(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	digest, _, err := blobs.Put(t.Context(), strings.NewReader("a release"))
	if err != nil {
		t.Fatal(err)
	}
	blobs.Close()
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `
			INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
				needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
			VALUES ('site_1', 'ada', 'one', 'one', 'static', 'static', 'active', '', '', '', '', '{}', '', FALSE, 'dep_1', $1, 1, 0, 0, 0)`, digest.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	finds := func(want string) {
		t.Helper()
		var out strings.Builder
		_ = doctor.Print(t.Context(), store, config.SMTP{}, doctor.Certificates{}, &out)
		err := serve(t, store)
		if !strings.Contains(out.String(), cmp.Or(want, "stored in "+store.Blobs)) || want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the start gives %v, want %q; doctor says %s", err, want, out.String())
		}
	}
	right := store.Blobs
	store.Blobs = t.TempDir()
	finds("has none of the files of this installation's sites") // and isn't marked
	store.Blobs = right
	finds("") // after an upgrade
	store.Blobs = t.TempDir()
	finds("is it mounted?")
	store.Blobs = filepath.Join(t.TempDir(), "missing")
	finds("is it mounted?")
	store.Blobs = right
	finds("")
}
