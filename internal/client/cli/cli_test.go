package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"slipway/internal/client/folder"
	"slipway/internal/client/login"
	"slipway/internal/client/rest"
)

func TestRepositoryKey(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"github.com/acme/site", "https://github.com/acme/site.git", "git@github.com:acme/site.git",
		"ssh://git@github.com/acme/site", "https://user:token@github.com/Acme/Site/",
	} {
		if got := folder.Repository(in); got != "github.com/acme/site" {
			t.Errorf("%s is %s", in, got)
		}
	}
}

func TestSinceTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"10m": "2026-11-25T09:50:00Z", "2h": "2026-11-25T08:00:00Z", "2026-11-25T11:00:00+02:00": "2026-11-25T09:00:00Z",
		"yesterday": "", "-5m": "",
	} {
		if got, err := sinceTime(in, now); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %s, %v", in, got, err)
		}
	}
}

// The exit status tells programs what went wrong.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		5:   fmt.Errorf("%w at x", login.ErrSignedOut),
		6:   &rest.Error{Status: 404},
		7:   &rest.Error{Status: 402},
		8:   fmt.Errorf("%w: refused", rest.ErrUnreachable),
		130: context.Canceled,
		4:   needed("which site?"),
	} {
		var f *Failure
		if got := failure(err); !errors.As(got, &f) || f.ExitCode() != want {
			t.Errorf("%v ends with %v, want %d", err, got, want)
		}
	}
	if err := failure(&rest.Error{Status: 409, Message: "no"}); errors.As(err, new(*Failure)) {
		t.Error("a conflict has a status of its own")
	}
}

// On a terminal a table has a header and columns. In a pipe it has tabs.
func TestTable(t *testing.T) {
	t.Parallel()
	for tty, want := range map[bool]string{
		true:  "SITE    STATUS\nharbor  active\nx       stopped\n",
		false: "harbor\tactive\nx\tstopped\n",
	} {
		var out bytes.Buffer
		e := &Env{Out: &out, TTY: tty}
		e.table([]string{"site", "status"}, [][]string{{"harbor", "active"}, {"x", "stopped"}})
		if out.String() != want {
			t.Errorf("tty %v: %q", tty, out.String())
		}
	}
}
