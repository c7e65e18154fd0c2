package forge

// gitlab reads GitLab's payloads. GitLab's test calls look like real events.
func (e *Event) gitlab(body []byte) error {
	type project struct {
		HTTPURL       string `json:"git_http_url"`
		SSHURL        string `json:"git_ssh_url"`
		WebURL        string `json:"web_url"`
		DefaultBranch string `json:"default_branch"`
		Path          string `json:"path_with_namespace"`
	}
	var b struct {
		ObjectKind string `json:"object_kind"`
		Ref        string `json:"ref"`
		Before     string `json:"before"`
		After      string `json:"after"`
		Checkout   string `json:"checkout_sha"`
		User       struct {
			Username string `json:"username"`
		} `json:"user"`
		Total   int     `json:"total_commits_count"`
		Commits commits `json:"commits"`
		Project project `json:"project"`
		Merge   struct {
			IID     int     `json:"iid"`
			Title   string  `json:"title"`
			Action  string  `json:"action"`
			State   string  `json:"state"`
			OldRev  string  `json:"oldrev"`
			Branch  string  `json:"source_branch"`
			Source  project `json:"source"`
			Project int64   `json:"source_project_id"`
			Target  int64   `json:"target_project_id"`
			Last    struct {
				ID string `json:"id"`
			} `json:"last_commit"`
		} `json:"object_attributes"`
	}
	if err := decode(body, &b); err != nil {
		return err
	}
	e.Repository, e.DefaultBranch = addresses(b.Project.HTTPURL, b.Project.SSHURL, b.Project.WebURL), b.Project.DefaultBranch
	switch b.ObjectKind {
	case "push", "tag_push":
		e.Kind = Push
		c := Change{Commit: b.After, Deleted: unset(b.After)}
		c.ref(b.Ref)
		if c.Deleted {
			c.Commit = ""
		}
		if c.Tag != "" && !c.Deleted && b.Checkout != "" { // After is the id of the annotated tag, not of the commit
			c.Commit = b.Checkout
		}
		c.files(b.Commits.list)
		// GitLab lists at most the newest 20 commits and doesn't say whether the push was forced. So the list is
		// complete only if it has as many commits as the push.
		c.All = !unset(b.Before) && len(b.Commits.list) > 0 && b.Commits.all && b.Total == len(b.Commits.list)
		e.Changes = []Change{c}
	case "merge_request":
		e.Kind = PullRequest
		m := b.Merge
		e.Pull = &Pull{
			Number: m.IID, Title: m.Title, Branch: m.Branch, Commit: m.Last.ID, Open: m.State != "closed" && m.State != "merged",
			Moved: m.Action == "open" || m.Action == "reopen" || m.Action == "update" && m.OldRev != "", Fork: m.Project != m.Target,
			Opened: m.Action == "open" || m.Action == "reopen", Author: b.User.Username, Source: m.Source.Path,
		}
	}
	return nil
}
