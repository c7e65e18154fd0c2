package wordpress

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"slipway/e2e/world"
)

// soon is until for a moment that is over quickly, calmly for one that takes a while.
func (h *installation) soon(what string, look func() bool) {
	h.t.Helper()
	h.every(3*time.Millisecond, what, look)
}

func (h *installation) calmly(what string, look func() bool) {
	h.t.Helper()
	h.every(time.Second, what, look)
}

func (h *installation) every(pause time.Duration, what string, look func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*time.Minute)
	defer cancel()
	if err := world.Until(ctx, pause, func() (bool, error) { return look(), nil }); err != nil {
		h.t.Fatalf("it never came: %s", what)
	}
}

func (op workBody) over() bool { return op.Status == "success" || op.Status == "failed" }

// killedWhileCopied kills everything at several points of pushes and of imports: afterwards
// the site has all of what came or all of what was there, and the operation says which.
func (h *installation) killedWhileCopied(from, to siteBody) {
	t := h.t
	round := func(n int) {
		t.Helper()
		h.plant(from, "mu-plugins/round.php", fmt.Sprintf("<?php add_action('wp_footer', function () { echo '[files %d, database ' . (get_option('posts_per_page') - 10) . ']'; });", n))
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
	}{{"Unpacking", imports}, {"Backing up", pushes}, {"Putting", imports}, {"Copying", pushes}, {"Rewriting", imports}, {"Rewriting", pushes}} {
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
		status, _, text := h.visitor(to.URL).get(fmt.Sprintf("/?killed=%d", i))
		if status != 200 || want > 0 && !strings.Contains(text, marks(want)) || want == 0 && strings.Contains(text, "[files") || strings.Contains(text, from.URL) {
			t.Errorf("killed at %q, the operation ended %s (%s), want the state %d: %d %.2000s", x.point, op.Status, op.Error, want, status, text)
		}
		before = want
	}
	left, err := filepath.Glob(filepath.Join(h.Data, "storage", to.ID, ".*"))
	ok(t, err)
	if len(left) > 0 {
		t.Errorf("what is left of it: %q", left)
	}
	if owner, _ := h.login(to); owner != nil {
		if status, _, _ := owner.get("/wp-admin/"); status != 200 {
			t.Errorf("wp-admin afterwards: %d", status)
		}
	}
}
