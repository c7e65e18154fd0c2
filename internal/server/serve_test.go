package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"slipway/internal/operator/config"
	"slipway/internal/operator/installation"
)

// started cancels its context when the service says that it starts.
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

// A new installation starts and ends: everything that wire connects exists by then.
func TestServe(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var seen bool
	err := Serve(ctx, config.Config{
		Store:  installation.Store{DataDir: t.TempDir()},
		Log:    slog.New(started{slog.DiscardHandler, stop, &seen}),
		Roles:  []string{"api", "worker", "edge"},
		Listen: "127.0.0.1:0", EdgeHTTP: "127.0.0.1:0", EdgeHTTPS: "127.0.0.1:0",
		SiteDomain: "localhost", RateLimit: 100, GitHistory: 10, MaxFileSize: 1, MaxReleaseSize: 1,
		BuildMemory: 512, BuildDisk: 512, BuildTime: time.Minute, DatabaseSize: 64, MariaDBMemory: 256,
	}, nil)
	if err != nil || !seen {
		t.Fatalf("started: %v; %v", seen, err)
	}
}
