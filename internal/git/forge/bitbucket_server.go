package forge

import (
	"slices"
	"strings"
)

// serverKey reports whether an event's name is Bitbucket Server's rather than Bitbucket Cloud's. Their pings are the
// same, which doesn't matter.
func serverKey(key string) bool {
	return strings.HasPrefix(key, "repo:refs_") || strings.HasPrefix(key, "pr:")
}

// bitbucketServer reads the payloads of Bitbucket Server and Data Center. They list no files. Older versions send no
// host; then only the path is compared.
func (e *Event) bitbucketServer(body []byte) error {
	type link struct {
		Href string `json:"href"`
	}
	type repository struct {
		Slug    string `json:"slug"`
		Project struct {
			Key string `json:"key"`
		} `json:"project"`
		Links struct {
			Clone []link `json:"clone"`
			Self  []link `json:"self"`
		} `json:"links"`
	}
	type side struct {
		ID         string     `json:"id"`
		DisplayID  string     `json:"displayId"`
		Commit     string     `json:"latestCommit"`
		Repository repository `json:"repository"`
	}
	var b struct {
		Repository repository `json:"repository"`
		Changes    []struct {
			RefID  string `json:"refId"`
			ToHash string `json:"toHash"`
			Type   string `json:"type"`
		} `json:"changes"`
		To *struct {
			ID      string `json:"id"`
			Message string `json:"message"`
			Author  author `json:"author"`
		} `json:"toCommit"`
		Actor struct {
			Name string `json:"displayName"`
		} `json:"actor"`
		Pull *struct {
			ID    int    `json:"id"`
			Title string `json:"title"`
			State string `json:"state"`
			From  side   `json:"fromRef"`
			Into  side   `json:"toRef"`
		} `json:"pullRequest"`
	}
	if err := decode(body, &b); err != nil {
		return err
	}
	name := func(r repository) string { return r.Project.Key + "/" + r.Slug }
	r := b.Repository
	if b.Pull != nil {
		r = b.Pull.Into.Repository
	}
	for _, l := range slices.Concat(r.Links.Clone, r.Links.Self) {
		e.Repository = append(e.Repository, addresses(l.Href)...)
	}
	if r.Slug != "" {
		e.Path = "scm/" + name(r)
	}
	switch {
	case e.Name == "repo:refs_changed":
		e.Kind = Push
		for _, x := range b.Changes {
			c := Change{Commit: x.ToHash, Deleted: x.Type == "DELETE"}
			c.ref(x.RefID)
			if c.Deleted {
				c.Commit = ""
			} else if b.To != nil && b.To.ID == x.ToHash {
				c.Message, c.Author = b.To.Message, b.To.Author.Name
			}
			e.Changes = append(e.Changes, c)
		}
	case b.Pull != nil:
		e.Kind = PullRequest
		p := b.Pull
		e.Pull = &Pull{
			Number: p.ID,
			Title:  p.Title,
			Branch: strings.TrimPrefix(p.From.ID, "refs/heads/"),
			Commit: p.From.Commit,
			Author: b.Actor.Name,
			Open:   p.State == "OPEN" && e.Name != "pr:deleted",
			Opened: e.Name == "pr:opened",
			Moved:  e.Name == "pr:opened" || e.Name == "pr:from_ref_updated",
			Fork:   !strings.EqualFold(name(p.From.Repository), name(p.Into.Repository)),
			Source: name(p.From.Repository),
		}
	}
	return nil
}
