package deploy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// folder creates a site for uploads.
func (w *world) folder() site.Site {
	w.t.Helper()
	s, err := w.sites.Create(w.t.Context(), anna, site.NewSite{Name: "My folder", Type: "static", Source: "upload"})
	ok(w.t, err)
	return s
}

// send uploads files to a site, and returns the upload and the number of missing contents.
func (w *world) send(s site.ID, n upload.NewUpload, files map[string]string) (upload.ID, int64) {
	w.t.Helper()
	var u upload.Upload
	w.write(func(tx *db.Tx) (err error) { u, err = w.uploads.CreateTx(w.t.Context(), tx, anna, s, n); return err })
	var manifest, batch bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, mode := files[name], ""
		if to, link := strings.CutPrefix(content, "-> "); link {
			content, mode = to, "l"
		}
		d := blob.Sum([]byte(content))
		ok(w.t, json.NewEncoder(&manifest).Encode(map[string]any{
			"path": name, "sha256": d.String(), "size": len(content), "mode": mode,
		}))
		batch.Write(d[:])
		batch.Write(binary.BigEndian.AppendUint64(nil, uint64(len(content))))
		batch.WriteString(content)
	}
	_, missing, err := w.uploads.PutManifest(w.t.Context(), account.Caller{Owner: anna}, u.ID, &manifest)
	ok(w.t, err)
	if len(missing) > 0 {
		got, err := w.uploads.Receive(w.t.Context(), anna, u.ID, &batch)
		ok(w.t, err)
		if got.Missing.Files != 0 {
			w.t.Fatalf("after all was sent %+v is missing", got.Missing)
		}
	}
	return u.ID, int64(len(missing))
}

func (w *world) deployUpload(id upload.ID) deployment.Deployment {
	w.t.Helper()
	whole, err := w.uploads.Complete(w.t.Context(), anna, id)
	ok(w.t, err)
	var x deployment.Deployment
	w.write(func(tx *db.Tx) (err error) {
		x, err = w.DeployUploadTx(w.t.Context(), tx, anna, whole, deployment.ByAPI)
		return err
	})
	return w.ended(x.ID)
}

// Uploaded output goes live unchanged. The next upload sends only changed files, even after a day and a garbage
// collection. Rollbacks work as for other deployments.
func TestUploadedOutputGoesLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	files := map[string]string{
		"index.html": "<h1>one</h1>", "logo.png": "\x89PNG no text", "big.css": strings.Repeat("a{}\n", 400), "package.json": "{}",
	}
	id, _ := w.send(s.ID, upload.NewUpload{Kind: upload.Output, CommitMessage: "from my desk", Dirty: true}, files)
	x := w.deployUpload(id)
	if x.Status != deployment.Success || x.Target != deployment.Production || x.CommitMessage != "from my desk" || !x.Source.Dirty || x.Branch != "" {
		t.Fatalf("%+v\n%v", x, w.log(x.ID))
	}
	if live := w.live(s.ID); live.LiveDeployment != x.ID || live.Status != site.Active {
		t.Errorf("live is %s, the site %s", live.LiveDeployment, live.Status)
	}
	if got := w.files(x.Release); !slices.Equal(got, []string{"big.css", "index.html", "logo.png", "package.json"}) {
		t.Errorf("published %v", got)
	}
	w.write(func(tx *db.Tx) error { // as if a day had passed
		_, err := tx.Exec(t.Context(), `UPDATE uploads SET touched_at = $1`, db.Now().Add(-25*time.Hour))
		return err
	})
	ok(t, w.uploads.Expire(t.Context()))
	w.sweep()
	files["index.html"] = "<h1>two</h1>"
	id, missing := w.send(s.ID, upload.NewUpload{Kind: upload.Output}, files)
	if missing != 1 {
		t.Errorf("%d contents are missing, want the one that changed", missing)
	}
	y := w.deployUpload(id)
	if y.Status != deployment.Success || !strings.Contains(strings.Join(w.log(y.ID), "\n"), "3 unchanged") {
		t.Errorf("%s: %v", y.Status, w.log(y.ID))
	}
	w.write(func(tx *db.Tx) error {
		back, err := w.RollbackTx(t.Context(), tx, anna, s.ID, "")
		if err == nil && back.Release != x.Release {
			t.Errorf("rolled back to %s, want %s", back.Release, x.Release)
		}
		return err
	})
	again := w.ended(w.trigger(s.ID, Trigger{}).ID)
	if again.Release != y.Release || again.Upload != id {
		t.Errorf("deployed again: %+v", again)
	}
	preview, _ := w.send(s.ID, upload.NewUpload{Kind: upload.Output, Branch: "draft"}, files)
	p := w.deployUpload(preview)
	if p.Target != deployment.Preview || p.PreviewURL == "" || p.Branch != "draft" {
		t.Errorf("a preview: %+v", p)
	}
}

// Redeploying production uses its last upload, not a preview's, and a preview uses its own. This works even after a
// day, when other uploads have expired.
func TestDeployingAgainKeepsToItsTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	send := func(target, branch, content string) deployment.Deployment {
		id, _ := w.send(s.ID, upload.NewUpload{Kind: upload.Output, Target: target, Branch: branch}, map[string]string{"index.html": content})
		return w.deployUpload(id)
	}
	live := send("production", "", "live")
	send("preview", "old", "old draft")
	draft := send("preview", "draft", "draft")
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE uploads SET touched_at = $1`, db.Now().Add(-25*time.Hour))
		return err
	})
	ok(t, w.uploads.Expire(t.Context()))
	w.sweep()
	for _, c := range []struct {
		t    Trigger
		want deployment.Deployment
	}{
		{Trigger{}, live},
		{Trigger{Target: deployment.Production}, live},
		{Trigger{Target: deployment.Preview, Branch: "draft"}, draft},
		{Trigger{Branch: "draft"}, draft},
	} {
		x := w.ended(w.trigger(s.ID, c.t).ID)
		if x.Status != deployment.Success || x.Release != c.want.Release || x.Target != c.want.Target || x.Branch != c.want.Branch {
			t.Errorf("%+v deployed %s of %q to %s, want %s of %q to %s", c.t, x.Release, x.Branch, x.Target, c.want.Release, c.want.Branch, c.want.Target)
		}
	}
	for _, branch := range []string{"old", ""} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.TriggerTx(t.Context(), tx, anna, s.ID, Trigger{Target: deployment.Preview, Branch: branch})
			return err
		})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("preview %q, whose upload is over: %v, want a conflict", branch, err)
		}
	}
}

// Contents that an upload received for an earlier manifest count towards the limit as long as they are kept, which is
// until the upload is deployed.
func TestReceivedContentsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	var u upload.Upload
	w.write(func(tx *db.Tx) (err error) {
		u, err = w.uploads.CreateTx(t.Context(), tx, anna, s.ID, upload.NewUpload{Kind: upload.Output})
		return err
	})
	put := func(content string) {
		t.Helper()
		d := blob.Sum([]byte(content))
		line := fmt.Sprintf(`{"path":"index.html","sha256":%q,"size":%d}`, d, len(content))
		_, _, err := w.uploads.PutManifest(t.Context(), account.Caller{Owner: anna}, u.ID, strings.NewReader(line))
		ok(t, err)
		_, err = w.uploads.ReceiveOne(t.Context(), anna, u.ID, d, int64(len(content)), strings.NewReader(content))
		ok(t, err)
	}
	counted := func() (n int64) {
		ok(t, w.db.QueryRow(t.Context(), `SELECT needed_bytes FROM uploads WHERE id = $1`, u.ID).Scan(&n))
		return n
	}
	put("one")
	put("second")
	if n := counted(); n != 9 {
		t.Errorf("3 and 6 bytes are kept, %d count", n)
	}
	stored := func(content string) bool {
		_, err := w.store.ReadAll(t.Context(), blob.Sum([]byte(content)), 100)
		return err == nil
	}
	w.sweep()
	if !stored("one") || !stored("second") {
		t.Error("an acknowledged content is not stored")
	}
	other := func() int64 {
		_, n := w.send(s.ID, upload.NewUpload{Kind: upload.Output}, map[string]string{"a": "one"})
		return n
	}
	if n := other(); n != 0 {
		t.Errorf("%d contents are to be sent again", n)
	}
	if x := w.deployUpload(u.ID); x.Status != deployment.Success {
		t.Fatalf("%+v", x)
	}
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE uploads SET touched_at = $1 WHERE id <> $2`, db.Now().Add(-25*time.Hour), u.ID)
		return err
	})
	ok(t, w.uploads.Expire(t.Context()))
	w.sweep()
	if stored("one") {
		t.Error("a content without a manifest was kept after the deployment")
	}
	if n := other(); n != 1 {
		t.Errorf("%d contents are to be sent, want 1", n)
	}
}

// Contents that another upload received count too, because that upload may be deleted first.
func TestContentsOfOtherUploadsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	w.send(s.ID, upload.NewUpload{Kind: upload.Output}, map[string]string{"a": "same bytes"})
	id, missing := w.send(s.ID, upload.NewUpload{Kind: upload.Output}, map[string]string{"a": "same bytes"})
	var n int64
	ok(t, w.db.QueryRow(t.Context(), `SELECT needed_bytes FROM uploads WHERE id = $1`, id).Scan(&n))
	if missing != 0 || n != 10 {
		t.Errorf("%d contents are missing and %d bytes count, want 0 and 10", missing, n)
	}
}

// An uploaded source is detected like a commit. Links within it are followed, others are skipped.
func TestUploadedSourceIsDetected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	id, _ := w.send(s.ID, upload.NewUpload{Kind: upload.Source}, map[string]string{
		"public/index.html": "hello", "public/good.html": "-> index.html", "public/bad": "-> /etc/passwd", "slipway.toml": "[build]\noutput = \"public\"\n",
	})
	x := w.deployUpload(id)
	if x.Status != deployment.Success {
		t.Fatalf("%s: %v", x.Error, w.log(x.ID))
	}
	if got := w.files(x.Release); !slices.Equal(got, []string{"good.html", "index.html"}) {
		t.Errorf("published %v", got)
	}
	if x.Plan == nil || !strings.Contains(string(x.Plan), `"output":"public"`) {
		t.Errorf("the plan is %s", x.Plan)
	}
}

// A garbage collection keeps an open upload's contents, and deletes them a day after its last byte.
func TestSweepSparesOpenUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.folder()
	id, _ := w.send(s.ID, upload.NewUpload{Kind: upload.Output}, map[string]string{"index.html": "kept"})
	stored := func() bool {
		_, err := w.store.ReadAll(t.Context(), blob.Sum([]byte("kept")), 100)
		return err == nil
	}
	w.sweep()
	ok(t, w.uploads.Expire(t.Context()))
	w.sweep()
	if !stored() {
		t.Fatal("an acknowledged blob of an open upload was deleted")
	}
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE uploads SET touched_at = $1`, db.Now().Add(-25*time.Hour))
		return err
	})
	if _, err := w.uploads.Get(t.Context(), anna, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("an upload that is over: %v", err)
	}
	ok(t, w.uploads.Expire(t.Context()))
	w.sweep()
	if stored() {
		t.Error("the contents of an abandoned upload were kept")
	}
}

// A site with a repository accepts no uploads.
func TestGitSitesTakeNoUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.uploads.CreateTx(t.Context(), tx, anna, s.ID, upload.NewUpload{Kind: upload.Output})
		return err
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("%v, want a conflict", err)
	}
	if s.LiveRelease == "" {
		t.Error("the site serves nothing")
	}
}
