package contract

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Wait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	busy := d.Write(t.Context(), func(*db.Tx) error { return d.Write(t.Context(), func(*db.Tx) error { return nil }) })
	a := &API{Config: Config{Log: slog.New(slog.DiscardHandler)}}
	long := strings.Repeat("é", 300)
	for name, tt := range map[string]struct {
		err      error
		status   int
		code     string
		received any
	}{
		"a writer that is busy": {fmt.Errorf("create: %w", busy), 503, "unavailable", nil},
		"a deadline":            {context.DeadlineExceeded, 503, "unavailable", nil},
		"an error of ours":      {errors.New("pq: relation secrets"), 500, "internal_error", nil},
		"a fault of ours":       {&fault.Error{Message: "secret"}, 500, "internal_error", nil},
		"a fault, wrapped":      {fmt.Errorf("x: %w", fault.Missing("deploy hook")), 404, "deploy_hook_not_found", nil},
		"a plan":                {&fault.Error{Kind: fault.Payment, Message: "x"}, 402, "payment_required", nil},
		"a long value": {
			&fault.Error{Kind: fault.Invalid, Message: "x", Received: long},
			400,
			"invalid_request",
			strings.Repeat("é", 200) + "…",
		},
		"a value that is no scalar": {
			&fault.Error{Kind: fault.Invalid, Message: "x", Received: map[string]string{"secret": "y"}},
			400,
			"invalid_request",
			nil,
		},
		"a value that is no UTF-8":   {&fault.Error{Kind: fault.Invalid, Message: "x", Received: "a\xff"}, 400, "invalid_request", "a�"},
		"an empty value":             {&fault.Error{Kind: fault.Invalid, Message: "x", Received: ""}, 400, "invalid_request", ""},
		"unavailable without a time": {&fault.Error{Kind: fault.Unavailable, Message: "x"}, 503, "unavailable", nil},
		"too many, in half a second": {
			&fault.Error{Kind: fault.Limited, Message: "x", RetryAfter: time.Second / 2},
			429,
			"rate_limited",
			nil,
		},
		"a kind that nobody knows yet": {&fault.Error{Kind: 99, Message: "secret"}, 500, "internal_error", nil},
	} {
		p := a.problem(t.Context(), tt.err)
		if p.status != tt.status || p.Code != tt.code || p.Received != tt.received {
			t.Errorf("%s: %d %s %v", name, p.status, p.Code, p.Received)
		}
		if p.status >= 500 && (strings.Contains(p.Message+p.Details, "secret") || p.Message == "") {
			t.Errorf("%s: %q reveals an internal message", name, p.Message)
		}
		if retry := p.GetHeaders().Get("Retry-After"); (p.status == 429 || p.status == 503) != (retry != "" && retry != "0") {
			t.Errorf("%s: Retry-After %q", name, retry)
		}
	}
}
