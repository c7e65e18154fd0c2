package forge

import (
	"fmt"
	"net/url"
	"strings"
)

// ProviderOf returns the provider of a repository (host/owner/repo): by its host if that is known, else the one its
// webhook calls came from.
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

// web returns the URL of a repository's pages.
func (p Provider) web(repository string) string {
	host, path, ok := strings.Cut(repository, "/")
	if !ok {
		return ""
	}
	if p == BitbucketServer { // its clone URL is host/scm/project/repository
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

// CommitURL returns the URL of a commit's page; empty if it isn't known. repository is host/owner/repo.
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

// BranchURL returns the URL of a branch's page; empty if it isn't known.
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

// PullURL returns the URL of a pull request's page; empty if it isn't known or the number is 0.
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

// escapePath escapes a branch's name for a path, but keeps slashes.
func escapePath(s string) string {
	parts := strings.Split(s, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// Name returns the provider's product name; empty if it isn't known.
func (p Provider) Name() string {
	return map[Provider]string{
		GitHub:          "GitHub",
		GitLab:          "GitLab",
		Gitea:           "Gitea",
		Bitbucket:       "Bitbucket",
		BitbucketServer: "Bitbucket Server",
	}[p]
}
