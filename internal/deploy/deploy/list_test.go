package deploy

import (
	"fmt"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// sitesOf creates sites without provisioning them: these tests run no worker.
func (w *world) sitesOf(owner account.OwnerID, n int) (ids []site.ID) {
	w.t.Helper()
	for i := range n {
		s, err := w.sites.Create(w.t.Context(), owner, site.NewSite{
			Name:       fmt.Sprint("site ", i),
			Type:       "static",
			Repository: "git.test/acme/site",
		})
		ok(w.t, err)
		ids = append(ids, s.ID)
	}
	return ids
}

func (w *world) ask(owner account.OwnerID, id site.ID, title string) deployment.Deployment {
	w.t.Helper()
	var x deployment.Deployment
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		x, err = w.TriggerTx(w.t.Context(), tx, owner, id, Trigger{Cause: deployment.ByAPI, Title: title})
		return err
	}))
	return x
}

func TestLatest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	ctx := t.Context()
	ids := w.sitesOf(anna, 3)
	for i := range 4 {
		w.ask(anna, ids[0], fmt.Sprint("a", i))
	}
	b := w.ask(anna, ids[1], "b")
	got, err := w.Latest(ctx, w.db, append(ids, "site_unknown"))
	ok(t, err)
	if len(got) != 2 || got[ids[0]].Title != "a3" || got[ids[1]].ID != b.ID || got[ids[1]].URL != b.URL ||
		len(got[ids[0]].Stages) != len(b.Stages) {
		t.Errorf("got %+v", got)
	}
	// Only the requested sites are returned, and no sites for an empty request.
	if got, err := w.Latest(ctx, w.db, ids[1:2]); err != nil || len(got) != 1 {
		t.Errorf("Latest of one site: %v, %v", got, err)
	}
	if got, err := w.Latest(ctx, w.db, nil); err != nil || len(got) != 0 {
		t.Errorf("none: %v, %v", got, err)
	}
	ok(t, w.db.Write(ctx, func(tx *db.Tx) error {
		x, err := w.TriggerTx(ctx, tx, anna, ids[2], Trigger{Cause: deployment.ByAPI})
		if err != nil {
			return err
		}
		got, err := w.Latest(ctx, tx, ids)
		if err == nil && (len(got) != 3 || got[ids[2]].ID != x.ID) {
			t.Errorf("in a transaction: %v", got)
		}
		return err
	}))
}

// A list shows each waiting deployment's reason, like the deployment's own page.
func TestListPagesAndQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	ctx := t.Context()
	ids := w.sitesOf(anna, 1)
	theirs := w.sitesOf("usr_ben", 1)
	w.ask("usr_ben", theirs[0], "theirs")
	var titles []string
	for i := range 5 {
		titles = append([]string{fmt.Sprint("n", i)}, titles...)
		w.ask(anna, ids[0], titles[0])
	}
	for _, tt := range []struct {
		page, limit int
		want        string
	}{
		{1, 2, "n4 n3"},
		{2, 2, "n2 n1"},
		{3, 2, "n0"},
		{4, 2, ""},
		{1, 5, "n4 n3 n2 n1 n0"},
		{2, 5, ""},
		{1, 100, "n4 n3 n2 n1 n0"},
		{1 << 30, 100, ""},
	} {
		list, total, err := w.List(ctx, anna, ids[0], deployment.Filter{Page: tt.page, Limit: tt.limit})
		ok(t, err)
		var got []string
		for _, x := range list {
			got = append(got, x.Title)
			one, err := w.Get(ctx, anna, x.ID)
			ok(t, err)
			if x.Queue == nil || one.Queue == nil || *x.Queue != *one.Queue {
				t.Errorf("%s: the list says %+v, its page %+v", x.Title, x.Queue, one.Queue)
			}
		}
		if strings.Join(got, " ") != tt.want || total != 5 {
			t.Errorf("page %d of %d: %v of %d, want %s", tt.page, tt.limit, got, total, tt.want)
		}
	}
	list, _, err := w.List(ctx, anna, ids[0], deployment.Filter{Page: 1, Limit: 5})
	ok(t, err)
	for i, want := range []deployment.Queue{
		{Position: 6, Reason: "site_busy"},
		{Position: 5, Reason: "site_busy"},
		{Position: 4, Reason: "site_busy"},
		{Position: 3, Reason: "site_busy"},
		{Position: 2, Reason: "workers_busy"},
	} {
		if *list[i].Queue != want {
			t.Errorf("%s waits at %+v, want %+v", list[i].Title, *list[i].Queue, want)
		}
	}
}
