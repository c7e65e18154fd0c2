package forge

import (
	"fmt"
	"net/url"
	"strings"
)

// ProviderOf returns the kind of forge of a repository, host/owner/repo: by its host where
// that is known, else what its hook told.
func ProviderOf(repository string, told Provider) Provider {
	host, _, _ := strings.Cut(repository, "/")
	switch host {
	case "github.com":
		return GitHub
	case "gitlab.com":
		return GitLab
	case "bitbucket.org":
		return Bitbucket
	case "codeberg.org", "gitea.com":
		return Gitea
	}
	return told
}

// web is the address of a repository's pages.
func (p Provider) web(repository string) string {
	host, path, ok := strings.Cut(repository, "/")
	if !ok {
		return ""
	}
	if p == BitbucketServer { // cloned as host/scm/project/repository
		project, repo, ok := strings.Cut(strings.TrimPrefix(path, "scm/"), "/")
		if !ok {
			return ""
		}
		path = "projects/" + project + "/repos/" + repo
		if user, personal := strings.CutPrefix(project, "~"); personal {
			path = "users/" + user + "/repos/" + repo
		}
	}
	return "https://" + host + "/" + path
}

// CommitURL is the page of a commit of a repository, host/owner/repo; empty where it can't
// be known.
func (p Provider) CommitURL(repository, commit string) string {
	form := map[Provider]string{
		GitHub:          "/commit/",
		GitLab:          "/-/commit/",
		Gitea:           "/commit/",
		Bitbucket:       "/commits/",
		BitbucketServer: "/commits/",
	}[p]
	return p.link(repository, form, commit)
}

// BranchURL is CommitURL for a branch.
func (p Provider) BranchURL(repository, branch string) string {
	form := map[Provider]string{
		GitHub:          "/tree/",
		GitLab:          "/-/tree/",
		Gitea:           "/src/branch/",
		Bitbucket:       "/branch/",
		BitbucketServer: "/browse?at=",
	}[p]
	if p == BitbucketServer && branch != "" {
		return p.link(repository, form, url.QueryEscape("refs/heads/"+branch))
	}
	return p.link(repository, form, escapePath(branch))
}

// PullURL is CommitURL for a pull request; empty where the number is 0.
func (p Provider) PullURL(repository string, number int) string {
	if number == 0 {
		return ""
	}
	form := map[Provider]string{
		GitHub:          "/pull/",
		GitLab:          "/-/merge_requests/",
		Gitea:           "/pulls/",
		Bitbucket:       "/pull-requests/",
		BitbucketServer: "/pull-requests/",
	}[p]
	return p.link(repository, form, fmt.Sprint(number))
}

func (p Provider) link(repository, form, rest string) string {
	web := p.web(repository)
	if web == "" || form == "" || rest == "" {
		return ""
	}
	return web + form + rest
}

// escapePath makes a branch's name fit for a path; its slashes stay.
func escapePath(s string) string {
	parts := strings.Split(s, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// Name is how people call the forge; empty where it is not known.
func (p Provider) Name() string {
	return map[Provider]string{
		GitHub:          "GitHub",
		GitLab:          "GitLab",
		Gitea:           "Gitea",
		Bitbucket:       "Bitbucket",
		BitbucketServer: "Bitbucket Server",
	}[p]
}
