package docs

import "testing"

// The form of a changing request says that it changes something, an irreversible one needs typed confirmation, and
// hooks and files can't be tried.
func TestTry(t *testing.T) {
	t.Parallel()
	body := []field{{Name: "name"}}
	for _, tt := range []struct {
		o                described
		tried, changes   bool
		confirm, content string
	}{
		{described{Operation: Operation{ID: "getSite", Method: "GET"}}, true, false, "", ""},
		{described{Operation: Operation{ID: "createSite", Method: "POST"}, Body: body, call: call{body: `{"name": "x"}`}}, true, true, "", `{"name": "x"}`},
		{described{Operation: Operation{ID: "createTeam", Method: "POST"}, Body: body}, true, true, "", "{}"},
		{described{Operation: Operation{ID: "verifyDomain", Method: "POST"}}, true, true, "", ""},
		{described{Operation: Operation{ID: "forgetSomething", Method: "DELETE"}}, true, true, "forgetSomething", ""},
		{described{Operation: Operation{ID: "restoreBackup", Method: "POST"}}, true, true, "restoreBackup", ""},
		{described{Operation: Operation{ID: "pushSite", Method: "POST"}}, true, true, "pushSite", ""},
		{described{Operation: Operation{ID: "callHook", Method: "POST", Hook: true}}, false, false, "", ""},
		{described{Operation: Operation{ID: "getOpenAPI", Method: "GET", Open: true}}, false, false, "", ""},
		{described{Operation: Operation{ID: "importArchive", Method: "POST"}, call: call{upload: "site.tar.gz"}}, false, false, "", ""},
	} {
		got := tt.o.Try()
		if (got != nil) != tt.tried || got != nil && (got.Changes != tt.changes || got.Confirm != tt.confirm || got.Body != tt.content) {
			t.Errorf("%s: %+v", tt.o.ID, got)
		}
	}
}
