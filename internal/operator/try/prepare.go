package try

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"slipway/internal/operator/admin"
)

const email = "you@example.test"

// memory holds what a second start must know of the first. It holds the key, so only its owner may read its file.
type memory struct {
	Password string `json:"password"`
	Key      string `json:"key"`
	Request  string `json:"request"` // Idempotency-Key of the site's creation
	Site     string `json:"site"`
}

func (t *try) remember() error {
	text, err := json.MarshalIndent(t.memory, "", "  ")
	if err != nil {
		return err
	}
	next := t.path("memory.json.next")
	// unsynced: what a power cut takes is made again, or a new folder is
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, t.path("memory.json"))
}

func (t *try) recall() error {
	text, err := os.ReadFile(t.path("memory.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t.memory)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", t.path("memory.json"), err)
	}
	return nil
}

// prepare makes the user, the key and the first site's folder, each only if it isn't there yet.
func (t *try) prepare(ctx context.Context) error {
	if err := t.recall(); err != nil {
		return err
	}
	if t.memory.Key == "" {
		if err := t.user(ctx); err != nil {
			return err
		}
	}
	return t.folder()
}

// user makes the user and the key, unless others made the installation.
func (t *try) user(ctx context.Context) error {
	done := t.step("created a first user and key")
	users, err := admin.HasUsers(ctx, t.Store)
	if err != nil {
		return err
	}
	if users && t.memory.Password == "" {
		return fmt.Errorf("%s holds an installation that slipway try didn't make: "+
			"start it with slipway serve, or choose another folder with --data-dir", t.Store.DataDir)
	}
	if err := os.MkdirAll(t.path(""), 0o700); err != nil {
		return err
	}
	if t.memory.Password == "" {
		t.memory.Password, t.memory.Request = rand.Text(), "try-"+rand.Text()
		if err := t.remember(); err != nil { // first: nobody could sign in as a user whose password is lost
			return err
		}
	}
	if !users {
		n := admin.NewUser{Email: email, Password: t.memory.Password, Admin: true}
		if err := admin.CreateUser(ctx, t.Store, n, io.Discard); err != nil {
			return err
		}
	}
	var key bytes.Buffer
	if err := admin.CreateKey(ctx, t.Store, admin.NewKey{User: email, Name: "slipway try", Scopes: []string{"*"}}, &key); err != nil {
		return err
	}
	t.memory.Key = strings.TrimSpace(key.String())
	if err := t.remember(); err != nil {
		return err
	}
	done()
	return nil
}

// folder copies the example; afterwards it is the user's own.
func (t *try) folder() error {
	dir := t.path("hello")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	done := t.step("copied an example to %s", dir)
	making := dir + ".making"
	if err := errors.Join(os.RemoveAll(making), os.CopyFS(making, t.Example)); err != nil {
		return err
	}
	if err := os.Rename(making, dir); err != nil {
		return err
	}
	done()
	return nil
}
