package forge

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func header(name, value string) http.Header {
	h := http.Header{}
	h.Set(name, value)
	return h
}

// A webhook body of 25 MB can hold millions of commits and names. Only as many as matter are read, and unread ones
// count as a change of any file.
func TestReadBounds(t *testing.T) {
	t.Parallel()
	const a, b = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for name, commits := range map[string]string{
		"many commits":             strings.Repeat(`{},`, 1_000_000) + "{}",
		"many files":               `{"added":[` + strings.Repeat(`"",`, 1_000_000) + `""]}`,
		"many files of many":       strings.Repeat(`{"added":["","","","","","","","","","","","","","","","","","","",""]},`, 2000) + "{}",
		"the most commits":         strings.Repeat(`{"added":["x"]},`, maxListed-1) + "{}",
		"fewer commits than these": strings.Repeat(`{"added":["x"]},`, maxListed-2) + "{}",
	} {
		body := `{"ref":"refs/heads/main","before":"` + b + `","after":"` + a + `","head_commit":{"id":"` + a + `","message":"m"},` +
			`"commits":[` + commits + `]}`
		e, err := Read(header("X-GitHub-Event", "push"), []byte(body))
		if err != nil || len(e.Changes) != 1 {
			t.Fatalf("%s: %+v, %v", name, e, err)
		}
		c := e.Changes[0]
		if want := name == "fewer commits than these"; c.All != want || len(c.Files) > 2*maxFiles || c.Message != "m" || c.Branch != "main" {
			t.Errorf("%s: %d files, all of them: %v", name, len(c.Files), c.All)
		}
	}
	for _, bad := range []string{`{"added":"x"}`, `{"added":[1]}`, `5`, `{"id":5}`} {
		if _, err := Read(header("X-GitHub-Event", "push"), []byte(`{"commits":[`+bad+`]}`)); err == nil {
			t.Errorf("a commit is %s: read", bad)
		}
	}
	for _, bad := range []string{`5`, `{}`, `"x"`} {
		if _, err := Read(header("X-GitHub-Event", "push"), []byte(`{"commits":`+bad+`}`)); err == nil {
			t.Errorf("commits are %s: read", bad)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	const a, b, zero = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "0000000000000000000000000000000000000000"
	type check func(Event) bool
	push := func(f func(Change) bool) check {
		return func(e Event) bool { return e.Kind == Push && len(e.Changes) == 1 && f(e.Changes[0]) }
	}
	for name, tt := range map[string]struct {
		h    http.Header
		body string
		ok   check
	}{
		"github, all files": {
			header("X-GitHub-Event", "push"),
			`{"ref":"refs/heads/a/b","before":"` + b + `","after":"` + a + `","commits":[{"id":"` + a + `","message":"m","added":["x"],"removed":["y"],"modified":["z"]}]}`,
			push(func(c Change) bool {
				return c.Branch == "a/b" && c.Commit == a && c.All && len(c.Files) == 3 && c.Message == "m"
			}),
		},
		"github, a new branch": {
			header("X-GitHub-Event", "push"),
			`{"ref":"refs/heads/n","before":"` + zero + `","after":"` + a + `","commits":[{"id":"` + a + `"}]}`,
			push(func(c Change) bool { return !c.All }),
		},
		"github, forced": {
			header("X-GitHub-Event", "push"),
			`{"ref":"refs/heads/n","before":"` + b + `","after":"` + a + `","forced":true,"commits":[{"id":"` + a + `"}]}`,
			push(func(c Change) bool { return !c.All }),
		},
		"github, deleted": {
			header("X-GitHub-Event", "push"),
			`{"ref":"refs/heads/n","after":"` + zero + `"}`,
			push(func(c Change) bool { return c.Deleted && c.Commit == "" && c.Branch == "n" }),
		},
		"github's delete": {
			header("X-GitHub-Event", "delete"),
			`{"ref":"a/b","ref_type":"branch"}`,
			push(func(c Change) bool { return c.Deleted && c.Branch == "a/b" }),
		},
		"a deleted tag": {
			header("X-Gitea-Event", "delete"),
			`{"ref":"v1","ref_type":"tag"}`,
			push(func(c Change) bool { return c.Deleted && c.Tag == "v1" && c.Branch == "" }),
		},
		"gitea, cut short": {
			header("X-Gitea-Event", "push"),
			`{"ref":"refs/heads/n","before":"` + b + `","after":"` + a + `","total_commits":9,"commits":[{"id":"` + a + `"}]}`,
			push(func(c Change) bool { return !c.All }),
		},
		"gitlab's tag": {
			header("X-Gitlab-Event", "Tag Push Hook"),
			`{"object_kind":"tag_push","ref":"refs/tags/v1","after":"` + a + `"}`,
			push(func(c Change) bool { return c.Tag == "v1" }),
		},
		"gitlab, cut short": {
			header("X-Gitlab-Event", "Push Hook"),
			`{"object_kind":"push","ref":"refs/heads/n","before":"` + b + `","after":"` + a + `","total_commits_count":21,"commits":[{"id":"` + a + `"}]}`,
			push(func(c Change) bool { return !c.All }),
		},
		"gitlab's fork": {
			header("X-Gitlab-Event", "Merge Request Hook"),
			`{"object_kind":"merge_request","object_attributes":{"iid":3,"action":"open","state":"opened","source_branch":"n","source_project_id":1,"target_project_id":2,"last_commit":{"id":"` + a + `"}}}`,
			func(e Event) bool { return e.Pull.Fork && e.Pull.Open && e.Pull.Moved && e.Pull.Commit == a },
		},
		"gitlab, a label changed": {
			header("X-Gitlab-Event", "Merge Request Hook"),
			`{"object_kind":"merge_request","object_attributes":{"action":"update","state":"opened"}}`,
			func(e Event) bool { return !e.Pull.Moved },
		},
		"github's deleted fork": {
			header("X-GitHub-Event", "pull_request"),
			`{"action":"opened","repository":{"full_name":"a/b"},"pull_request":{"head":{"repo":null}}}`,
			func(e Event) bool { return e.Pull.Fork },
		},
		"bitbucket, deleted": {
			header("X-Event-Key", "repo:push"),
			`{"push":{"changes":[{"new":null,"old":{"type":"branch","name":"n"}}]}}`,
			push(func(c Change) bool { return c.Deleted && c.Branch == "n" }),
		},
		"bitbucket, nothing": {
			header("X-Event-Key", "repo:push"),
			`{"push":{"changes":[{"new":null,"old":null}]}}`,
			func(e Event) bool { return len(e.Changes) == 0 },
		},
		"neither branch nor tag": {
			header("X-GitHub-Event", "push"),
			`{"ref":"refs/pull/1/head","after":"` + a + `"}`,
			push(func(c Change) bool { return c.Branch == "" && c.Tag == "" }),
		},
	} {
		e, err := Read(tt.h, []byte(tt.body))
		if err != nil || !tt.ok(e) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := Read(
		header("X-Event-Key", "repo:push"),
		[]byte(`{"push":{"changes":[`+strings.TrimSuffix(strings.Repeat(`{"new":{"type":"branch","name":"x"}},`, maxChanges+1), ",")+`]}}`),
	); err == nil {
		t.Error("a push of very many branches is read")
	}
}

// For any webhook body, Read never panics and never returns more changes than the limit.
func FuzzRead(f *testing.F) {
	f.Add("push", []byte(`{"ref":"refs/heads/main","commits":[{"added":["x"]}]}`))
	f.Add("repo:push", []byte(`{"push":{"changes":[{"new":{"type":"branch"}}]}}`))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		for _, name := range []string{"X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event", "X-Event-Key"} {
			h := header(name, event)
			if e, err := Read(h, body); err == nil && len(e.Changes) > maxChanges {
				t.Errorf("%d changes", len(e.Changes))
			}
			if Verify(h, body, "", time.Unix(1, 0)) == nil {
				t.Error("an empty secret verifies")
			}
		}
	})
}
