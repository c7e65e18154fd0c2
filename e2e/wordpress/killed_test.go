package wordpress

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
)

// soon is until for a state that passes quickly. calmly is until for one that takes long.
func (h *installation) soon(what string, look func() bool) {
	h.t.Helper()
	h.every(world.Watch, 3*time.Millisecond, what, look)
}

func (h *installation) calmly(what string, look func() bool) {
	h.t.Helper()
	h.every(world.Until, time.Second, what, look)
}

func (h *installation) every(wait world.Wait, pause time.Duration, what string, look func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if err := wait(ctx, pause, func() (bool, error) { return look(), nil }); err != nil {
		h.t.Fatalf("it never came: %s", what)
	}
}

// answers returns a site's response, after retrying 502 to 504, which a busy machine may return right after a kill.
func (h *installation) answers(s siteBody, path string) (status int, text string) {
	h.t.Helper()
	h.calmly("an answer of "+s.URL+path, func() bool {
		status, _, text = h.visitor(s.URL).get(path)
		return status < http.StatusBadGateway || status > http.StatusGatewayTimeout
	})
	return status, text
}

func (op workBody) over() bool { return op.Status == "success" || op.Status == "failed" }

// killedWhileCopied kills the service at several points of pushes and imports. Afterwards the site has either all of
// the new content or all of the old, as the operation's result says.
func (h *installation) killedWhileCopied(from, to siteBody) {
	t := h.t
	round := func(n int) {
		t.Helper()
		h.plant(
			from,
			"mu-plugins/round.php",
			fmt.Sprintf(
				"<?php add_action('wp_footer', function () { echo '[files %d, database ' . (get_option('posts_per_page') - 10) . ']'; });",
				n,
			),
		)
		owner, _ := h.login(from)
		owner.rest("POST", "/settings", "application/json", strings.NewReader(fmt.Sprintf(`{"posts_per_page": %d}`, n+10)), &struct{}{})
	}
	marks := func(n int) string { return fmt.Sprintf("[files %d, database %d]", n, n) }
	round(1)
	archive := h.export(from)
	imports := func() (op workBody) {
		op, status := h.upload(to, archive)
		if status != 202 {
			t.Fatalf("the import: %d", status)
		}
		return op
	}
	pushes := func() (op workBody) {
		h.call("POST", "/sites/"+from.ID+"/push", map[string]any{"to": to.ID, "database": true, "files": true}, &op)
		return op
	}
	before := 0
	for i, x := range []struct {
		point string
		begin func() workBody
	}{
		{"Unpacking", imports},
		{"Backing up", pushes},
		{"Putting", imports},
		{"Copying", pushes},
		{"Rewriting", imports},
		{"Rewriting", pushes},
	} {
		after := 1
		if i%2 == 1 {
			after = i + 1
			round(after)
		}
		op := x.begin()
		h.soon(x.point, func() bool {
			_ = h.Call(t.Context(), h.key, "GET", "/operations/"+op.ID, nil, &op)
			return strings.HasPrefix(op.Message, x.point) || op.over()
		})
		h.Kill()
		ok(t, h.Start(t.Context()))
		h.until("the operation's end", func() bool {
			_ = h.Call(t.Context(), h.key, "GET", "/operations/"+op.ID, nil, &op)
			return op.over()
		})
		want := before
		switch {
		case op.Status == "success":
			want = after
		case op.Error == "":
			t.Errorf("killed at %q: it failed without a reason", x.point)
		}
		status, text := h.answers(to, fmt.Sprintf("/?killed=%d", i))
		if status != 200 || want > 0 && !strings.Contains(
			text,
			marks(want),
		) || want == 0 && strings.Contains(text, "[files") || strings.Contains(text, from.URL) {
			t.Errorf(
				"killed at %q, the operation ended %s (%s), want the state %d: %d %.2000s", x.point, op.Status,
				op.Error, want, status, text,
			)
		}
		before = want
	}
	left, err := filepath.Glob(filepath.Join(h.Storage(), to.ID, ".*"))
	ok(t, err)
	if len(left) > 0 {
		t.Errorf("the copy left behind %q", left)
	}
	if owner, _ := h.login(to); owner != nil {
		if status, _, _ := owner.get("/wp-admin/"); status != 200 {
			t.Errorf("wp-admin afterwards: %d", status)
		}
	}
}

// files returns the number of files below a directory.
func files(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

// installationKilled kills the service during backups of the installation. The command that waits for a backup must get
// it nevertheless.
func (h *installation) installationKilled(place string) {
	t := h.t
	t.Helper()
	for i, objects := range []int{1, 4} {
		to := place + strings.Repeat("-more", i)
		done := make(chan error, 1)
		go func() {
			_, err := h.CLI("", "backup", "create", "--to", to)
			done <- err
		}()
		h.soon("the backup has begun", func() bool { return files(to) >= objects || len(done) > 0 })
		h.Kill()
		ok(t, h.Start(t.Context()))
		select {
		case err := <-done:
			ok(t, err)
		case <-t.Context().Done():
			t.Fatal("the backup did not end")
		}
		out, err := h.CLI("", "backup", "list", "--from", to)
		ok(t, err)
		if n := strings.Count(out, "bkp_"); n != 1 && n != 2 {
			t.Errorf("killed with %d objects there, the backups are %s", objects, out)
		}
	}
}

// restoreKilled kills restores of the installation. The incomplete data isn't served, and the next restore starts
// again.
func (h *installation) restoreKilled(args ...string) {
	t := h.t
	t.Helper()
	for _, sign := range []string{"restore.incomplete", "storage", "mariadb"} {
		cmd := exec.Command(h.Binary, append(args, "--data-dir", h.Data)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		ok(t, cmd.Start())
		gone := make(chan error, 1)
		go func() { gone <- cmd.Wait() }()
		h.soon(sign, func() bool {
			_, err := os.Stat(filepath.Join(h.Data, sign))
			return err == nil || len(gone) > 0
		})
		if len(gone) > 0 {
			t.Fatalf("the restore ended before there was %s: %v", sign, <-gone)
		}
		ok(t, cmd.Process.Kill())
		<-gone
		if err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "was interrupted: run slipway backup restore again") {
			t.Fatalf("killed when there was %s, the service says %v", sign, err)
		}
	}
}
