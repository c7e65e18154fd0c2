package forge

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// headBody is a commit without its files.
type headBody struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Author  author `json:"author"`
}

type commitBody struct {
	headBody
	Added    paths `json:"added"`
	Removed  paths `json:"removed"`
	Modified paths `json:"modified"`
}

// maxFiles caps the files that are read from a push. Beyond that, any file may have changed.
const maxFiles = 20_000

// paths keeps the first maxFiles file names: a payload of 25 MB can hold millions.
type paths []string

func (p *paths) UnmarshalJSON(text []byte) error {
	return eachOf(text, func(d *json.Decoder) (more bool, err error) {
		var name string
		err = d.Decode(&name)
		*p = append(*p, name)
		return len(*p) <= maxFiles, err
	})
}

// commits keeps the first commits of a push: a payload can hold very many.
type commits struct {
	list []commitBody
	all  bool // whether the list is complete, with all files
}

func (c *commits) UnmarshalJSON(text []byte) error {
	c.all = true
	files := 0
	return eachOf(text, func(d *json.Decoder) (more bool, err error) {
		var x commitBody
		err = d.Decode(&x)
		c.list = append(c.list, x)
		files += len(x.Added) + len(x.Removed) + len(x.Modified)
		c.all = len(c.list) < maxListed && files <= maxFiles
		return c.all, err
	})
}

// eachOf calls next for each element of a well-formed JSON array until next returns false.
func eachOf(text []byte, next func(d *json.Decoder) (more bool, err error)) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("no array")
	}
	for d.More() {
		if more, err := next(d); err != nil || !more {
			return err
		}
	}
	return nil
}

type author struct {
	Name string `json:"name"`
}

// files adds the files of commits, and the new commit's message, to a change.
func (c *Change) files(commits []commitBody) {
	for _, x := range commits {
		c.Files = append(append(append(c.Files, x.Added...), x.Removed...), x.Modified...)
		if x.ID == c.Commit {
			c.Message, c.Author = x.Message, x.Author.Name
		}
	}
}

type githubRepository struct {
	CloneURL      string `json:"clone_url"`
	SSHURL        string `json:"ssh_url"`
	HTMLURL       string `json:"html_url"`
	FullName      string `json:"full_name"`
	DefaultBranch string `json:"default_branch"`
}

// maxListed is how many commits GitHub lists at most.
const maxListed = 2048

// github reads the payloads of GitHub, which Gitea and Forgejo follow.
func (e *Event) github(body []byte) error {
	var b struct {
		Ref        string           `json:"ref"`
		RefType    string           `json:"ref_type"`
		Before     string           `json:"before"`
		After      string           `json:"after"`
		Forced     bool             `json:"forced"`
		Deleted    bool             `json:"deleted"`
		Commits    commits          `json:"commits"`
		Head       *headBody        `json:"head_commit"`
		Total      *int             `json:"total_commits"` // Gitea
		Repository githubRepository `json:"repository"`

		Action string `json:"action"`
		Number int    `json:"number"`
		Pull   *struct {
			Title string `json:"title"`
			State string `json:"state"`
			User  struct {
				Login string `json:"login"`
			} `json:"user"`
			Head struct {
				Ref  string            `json:"ref"`
				SHA  string            `json:"sha"`
				Repo *githubRepository `json:"repo"`
			} `json:"head"`
		} `json:"pull_request"`
	}
	if err := decode(body, &b); err != nil {
		return err
	}
	r := b.Repository
	e.Repository, e.FullName, e.DefaultBranch = addresses(r.CloneURL, r.SSHURL, r.HTMLURL), r.FullName, r.DefaultBranch
	switch e.Name {
	case "ping":
		e.Kind = Ping
	case "push":
		e.Kind = Push
		c := Change{Commit: b.After, Deleted: b.Deleted || unset(b.After)}
		c.ref(b.Ref)
		if c.Deleted {
			c.Commit = ""
		}
		c.files(b.Commits.list)
		if b.Head != nil && b.Head.ID == b.After {
			c.Message, c.Author = b.Head.Message, b.Head.Author.Name
		}
		if b.Head != nil && c.Tag != "" && !c.Deleted { // After is the id of the annotated tag, not of the commit
			c.Commit, c.Message, c.Author = b.Head.ID, b.Head.Message, b.Head.Author.Name
		}
		c.All = !b.Forced && !unset(b.Before) && len(b.Commits.list) > 0 && b.Commits.all
		if e.Provider == Gitea { // Gitea has no "forced" field, but lists the commits up to the new one
			c.All = c.All && b.Total != nil && *b.Total == len(b.Commits.list)
		}
		e.Changes = []Change{c}
	case "delete":
		e.Kind = Push
		c := Change{Deleted: true}
		if name := strings.TrimPrefix(strings.TrimPrefix(b.Ref, "refs/heads/"), "refs/tags/"); b.RefType == "branch" {
			c.Branch = name
		} else {
			c.Tag = name
		}
		e.Changes = []Change{c}
	case "pull_request", "pull_request_sync":
		if b.Pull == nil {
			return nil
		}
		e.Kind = PullRequest
		h := b.Pull.Head
		e.Pull = &Pull{
			Number: b.Number,
			Title:  b.Pull.Title,
			Branch: h.Ref,
			Commit: h.SHA,
			Open:   b.Pull.State != "closed" && b.Action != "closed",
			Fork:   h.Repo == nil || !strings.EqualFold(h.Repo.FullName, r.FullName),
			Author: b.Pull.User.Login,
		}
		if h.Repo != nil {
			e.Pull.Source = h.Repo.FullName
		}
		switch b.Action {
		case "opened", "reopened":
			e.Pull.Opened, e.Pull.Moved = true, true
		case "synchronize", "synchronized":
			e.Pull.Moved = true
		}
	}
	return nil
}

// addresses returns the non-empty strings.
func addresses(list ...string) (out []string) {
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
