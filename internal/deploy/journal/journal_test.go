package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// If the result of a commit is unknown, because the connection or the context ended, its lines may or may not be
// stored. After the next write, the log has each of them exactly once.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	for _, committed := range []int{0, 2} {
		t.Run(fmt.Sprint(committed), func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			const deployment = "dep_1"
			j, err := Open(t.Context(), Config{
				DB: d, Log: slog.New(slog.DiscardHandler), Deployment: deployment,
				Save: func(context.Context, *db.Tx, State) error { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			j.Line("info", "zero", "")
			if err := j.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			j.Line("info", "one", "")
			j.Line("info", "two", "")
			lost := errors.New("the connection is lost")
			if err := j.Commit(t.Context(), func(*db.Tx) error { return lost }); !errors.Is(err, lost) {
				t.Fatalf("the commit: %v", err)
			}
			arrived := []Line{{At: db.Now(), Level: "info", Message: "one"}, {At: db.Now(), Level: "info", Message: "two"}}[:committed]
			err = d.Write(t.Context(), func(tx *db.Tx) error { return AppendTx(t.Context(), tx, deployment, 1, arrived) })
			if err != nil {
				t.Fatal(err)
			}
			j.Line("info", "three", "")
			for range 2 {
				if err := j.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				j.Line("info", "four", "")
			}
			lines, err := Read(t.Context(), d, deployment, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, l := range lines {
				if got = append(got, l.Message); l.N != int64(i+1) {
					t.Errorf("line %d has the number %d", i+1, l.N)
				}
			}
			if want := []string{"zero", "one", "two", "three", "four"}; !slices.Equal(got, want) {
				t.Errorf("the log is %q, want %q", got, want)
			}
		})
	}
}

// If the log was deleted meanwhile, as with its site, the next write doesn't fail.
func TestForgottenAfterUnknownCommit(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	const deployment = "dep_1"
	j, err := Open(t.Context(), Config{
		DB: d, Log: slog.New(slog.DiscardHandler), Deployment: deployment,
		Save: func(context.Context, *db.Tx, State) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Line("info", "one", "")
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.Line("info", "two", "")
	if err := j.Commit(t.Context(), func(*db.Tx) error { return errors.New("the connection is lost") }); err == nil {
		t.Fatal("it was committed")
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return ForgetTx(t.Context(), tx, []string{deployment}) }); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, err := Read(t.Context(), d, deployment, 0, 100)
	if err != nil || len(lines) != 1 || lines[0].Message != "two" || lines[0].N != 2 {
		t.Errorf("%+v, %v", lines, err)
	}
}
