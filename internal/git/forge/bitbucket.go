package forge

import "strings"

// bitbucket reads the payloads of Bitbucket Cloud. They list no files.
func (e *Event) bitbucket(body []byte) error {
	type repository struct {
		FullName string `json:"full_name"`
		Links    struct {
			HTML struct {
				Href string `json:"href"`
			} `json:"html"`
		} `json:"links"`
		Main struct {
			Name string `json:"name"`
		} `json:"mainbranch"`
	}
	type ref struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Target struct {
			Hash    string `json:"hash"`
			Message string `json:"message"`
			Author  struct {
				Raw string `json:"raw"`
			} `json:"author"`
		} `json:"target"`
	}
	var b struct {
		Repository repository `json:"repository"`
		Push       struct {
			Changes []struct {
				New *ref `json:"new"`
				Old *ref `json:"old"`
			} `json:"changes"`
		} `json:"push"`
		Pull *struct {
			ID     int    `json:"id"`
			Title  string `json:"title"`
			State  string `json:"state"`
			Author struct {
				Name string `json:"display_name"`
			} `json:"author"`
			Source struct {
				Branch struct {
					Name string `json:"name"`
				} `json:"branch"`
				Commit struct {
					Hash string `json:"hash"`
				} `json:"commit"`
				Repository *repository `json:"repository"`
			} `json:"source"`
		} `json:"pullrequest"`
	}
	if err := decode(body, &b); err != nil {
		return err
	}
	e.Repository, e.DefaultBranch = addresses(b.Repository.Links.HTML.Href), b.Repository.Main.Name
	if len(e.Repository) == 0 && b.Repository.FullName != "" {
		e.Repository = []string{"https://bitbucket.org/" + b.Repository.FullName}
	}
	switch {
	case e.Name == "diagnostics:ping":
		e.Kind = Ping
	case e.Name == "repo:push":
		e.Kind = Push
		for _, x := range b.Push.Changes {
			var c Change
			r := x.New
			if r == nil {
				r, c.Deleted = x.Old, true
			}
			if r == nil {
				continue
			}
			if r.Type == "branch" {
				c.Branch = r.Name
			} else {
				c.Tag = r.Name
			}
			if !c.Deleted {
				c.Commit, c.Message = r.Target.Hash, r.Target.Message
				name, _, _ := strings.Cut(r.Target.Author.Raw, " <")
				c.Author = name
			}
			e.Changes = append(e.Changes, c)
		}
	case strings.HasPrefix(e.Name, "pullrequest:") && b.Pull != nil:
		e.Kind = PullRequest
		s := b.Pull.Source
		e.Pull = &Pull{
			Number: b.Pull.ID, Title: b.Pull.Title, Branch: s.Branch.Name, Commit: s.Commit.Hash, Open: b.Pull.State == "OPEN",
			Moved:  e.Name == "pullrequest:created" || e.Name == "pullrequest:updated",
			Fork:   s.Repository == nil || !strings.EqualFold(s.Repository.FullName, b.Repository.FullName),
			Opened: e.Name == "pullrequest:created", Author: b.Pull.Author.Name,
		}
		if s.Repository != nil {
			e.Pull.Source = s.Repository.FullName
		}
	}
	return nil
}
