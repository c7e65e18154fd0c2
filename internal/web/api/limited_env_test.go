package api_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/account"
)

// A preview deployed by a member who can't read variables doesn't get variables that production uses too, because the
// preview's code could print them. Previews of members who can read variables get all, even with a narrower key.
func TestContributorsPreviewsLackVariables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	repository, folder := w.site(key, "shop"), w.folderSite(key, "folder")
	for _, id := range []string{repository, folder} {
		w.must(201, "POST", "/sites/"+id+"/env", key, []m{
			{"key": "BOTH", "value": "secret of production"}, {"key": "PREVIEW", "value": "p", "target": []string{"build", "runtime", "preview"}},
		})
	}
	for name, c := range map[string]struct {
		as     m
		scopes account.Scopes
		want   string
	}{
		"contributor":       {m{"role": "contributor"}, account.Scopes{account.DeploymentsRead, account.PreviewsWrite}, "PREVIEW"},
		"guest-contributor": {m{"sites": []m{{"siteId": repository, "role": "contributor"}, {"siteId": folder, "role": "contributor"}}}, account.Scopes{account.DeploymentsRead, account.PreviewsWrite}, "PREVIEW"},
		"guest-developer":   {m{"sites": []m{{"siteId": repository, "role": "developer"}, {"siteId": folder, "role": "developer"}}}, account.Scopes{account.DeploymentsRead, account.PreviewsWrite}, "BOTH PREVIEW"},
		"developer":         {m{"role": "developer"}, account.Scopes{account.DeploymentsRead, account.PreviewsWrite}, "BOTH PREVIEW"},
	} {
		u, personal := w.user(name + "@example.test")
		w.join(key, team, name+"@example.test", personal, c.as)
		_, member := w.grantAs(w.acting(u, team), c.scopes...)
		sees := func(how, id string) {
			t.Helper()
			x, err := w.c.Deployments.ByID(t.Context(), w.db, deployment.ID(id))
			if err != nil {
				t.Fatal(err)
			}
			for _, when := range []string{"build", "runtime"} {
				vars, err := w.c.Deployments.Variables(t.Context(), x, when)
				var names []string
				for _, v := range vars {
					names = append(names, v.Key)
				}
				slices.Sort(names)
				if got := strings.Join(names, " "); err != nil || got != c.want {
					t.Errorf("%s, %s: the %s sees %q, %v; want %q", name, how, when, got, err, c.want)
				}
			}
		}
		id := w.must(200, "POST", "/sites/"+repository+"/deploy", member, m{"branch": "feature"})["deploymentId"].(string)
		sees("deploy", id)
		w.must(200, "POST", "/deployments/"+id+"/cancel", member, nil)
		sees("retry", w.must(200, "POST", "/deployments/"+id+"/retry", member, nil)["deploymentId"].(string))
		up := w.must(201, "POST", "/sites/"+folder+"/uploads", member, m{"kind": "output", "target": "preview"})["id"].(string)
		w.must(200, "PUT", "/uploads/"+up+"/manifest", member, manifestOf("index.html", "hello of "+name))
		w.must(200, "POST", "/uploads/"+up+"/blobs", member, batchOf("hello of "+name))
		sees("upload", w.must(200, "POST", "/uploads/"+up+"/deploy", member, nil)["deploymentId"].(string))
		sees("archive", w.must(200, "POST", "/sites/"+folder+"/deploy/archive?target=preview", member, zipOf("index.html", "archive of "+name))["deploymentId"].(string))
	}
}
