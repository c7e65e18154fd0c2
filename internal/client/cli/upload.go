package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
	"slipway/internal/client/upload"
)

// upload uploads a folder to a site and deploys it.
func (d deployCommand) upload(ctx context.Context, e *Env, c *rest.Client, s site) error {
	if d.Commit != "" {
		return failure(errors.New("the site has no repository: --commit can't be deployed"))
	}
	if d.Archive != "" {
		return d.archive(ctx, e, c, s)
	}
	dir := d.folder(e)
	options := folder.Options{Prebuilt: d.Prebuilt, Include: d.Include, MaxFiles: maxFiles}
	f, err := folder.Open(ctx, dir, options)
	if err != nil {
		return failure(err)
	}
	defer f.Close()
	if err := f.Hash(ctx, digests(dir), options); err != nil {
		return failure(err)
	}
	d.leftOut(e, f.Left)
	if len(f.Files) == 0 {
		return failure(fmt.Errorf("there is nothing to upload in %s", dir))
	}
	if d.DryRun {
		for _, x := range f.Files {
			fmt.Fprintln(e.Out, printable(x.Path))
		}
		return nil
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/uploads", d.request(ctx, dir))
	if err != nil {
		return failure(err)
	}
	var up upload.Upload
	if err := json.Unmarshal(answer, &up); err != nil || up.ID == "" {
		return errors.New("the server's answer names no upload")
	}
	p := &progress{e: e}
	if err := up.Send(ctx, c, f, &p.Progress, p.show); err != nil {
		return failure(err)
	}
	if p.All.Files == 0 {
		e.say("Nothing to upload: all %d files are unchanged", len(f.Files))
	} else {
		e.say("Uploaded %d of %d files, %s", p.All.Files, len(f.Files), size(p.All.Bytes))
	}
	if answer, err = c.Do(ctx, http.MethodPost, "/uploads/"+up.ID+"/deploy", nil); err != nil {
		return failure(err)
	}
	return follow(ctx, e, c, s, answer, waiting{d.NoWait, d.NoLogs, d.JSON})
}

// maxFiles caps the files of a folder before the server's limit is known.
const maxFiles = 200_000

// folder returns the folder to upload.
func (d deployCommand) folder(e *Env) string {
	if d.Dir != "" {
		return d.Dir
	}
	if l, _ := e.findLink(); d.Site == "" && l.at != "" {
		return l.at
	}
	return e.Dir
}

// digests returns the path of the cache of a folder's digests, or "". It isn't in the folder, which others may write
// to.
func digests(dir string) string {
	caches, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(caches, "slipway", "digests", hex.EncodeToString(sum[:16]))
}

// request returns the body that starts an upload, with its commit.
func (d deployCommand) request(ctx context.Context, dir string) map[string]any {
	in := map[string]any{"kind": "source"}
	if d.Prebuilt {
		in["kind"] = "output"
	}
	if d.Message != "" {
		in["title"] = d.Message
	}
	if d.Branch != "" {
		in["branch"] = d.Branch
	}
	if d.Preview {
		in["target"] = "preview"
	}
	if commit := folder.Git(ctx, dir, "rev-parse", "HEAD"); commit != "" {
		in["git"] = map[string]any{
			"commit": commit, "message": folder.Git(ctx, dir, "log", "-1", "--format=%B"),
			"author": folder.Git(ctx, dir, "log", "-1", "--format=%an"),
			"dirty":  folder.Dirty(ctx, dir),
		}
		if branch := folder.Git(ctx, dir, "branch", "--show-current"); d.Preview && d.Branch == "" && branch != "" {
			in["branch"] = branch
		}
	}
	return in
}

// leftOut prints which files aren't uploaded.
func (d deployCommand) leftOut(e *Env, list []folder.Left) {
	if len(list) == 0 {
		return
	}
	var names []string
	for _, l := range list[:min(5, len(list))] {
		names = append(names, fmt.Sprintf("%s (%s)", printable(l.Path), printable(l.Why)))
	}
	more := ""
	if n := len(list) - 5; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	hint := ". Use --include to upload them"
	if d.Archive != "" {
		hint = ""
	}
	e.say("Left out: %s%s%s", strings.Join(names, ", "), more, hint)
}

// progress is the progress line of an upload.
type progress struct {
	upload.Progress
	e *Env
}

// show draws the line until stop is called.
func (p *progress) show() (stop func()) {
	return p.e.progress(func() string {
		return fmt.Sprintf("Uploading %d of %d files, %s of %s", p.Files(), p.All.Files, size(min(p.Bytes(), p.All.Bytes)), size(p.All.Bytes))
	})
}

// progress draws a line until stop is called: up to ten times a second on a terminal, else every 10 seconds.
func (e *Env) progress(line func() string) (stop func()) {
	every := 10 * time.Second
	if e.Ask {
		every = 100 * time.Millisecond
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if e.Ask {
					fmt.Fprint(raw(e.Err), "\r\x1b[K")
				}
				return
			case <-tick.C:
				if e.Ask {
					fmt.Fprint(raw(e.Err), "\r\x1b[K"+printable(line()))
				} else {
					e.say("%s", line())
				}
			}
		}
	}()
	return func() { close(done); <-gone }
}

// size formats a number of bytes.
func size(n int64) string {
	f, unit := float64(n), "bytes"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + " " + unit
}

// sizeOf is size for a number that may be unknown.
func sizeOf(n *int64) string {
	if n == nil {
		return ""
	}
	return size(*n)
}
