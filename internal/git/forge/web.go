package forge

import (
	"net/url"
	"strings"
)

// WebAddress is the parsed URL of a repository's web page.
type WebAddress struct {
	Repository string // host/owner/repo
	Branch     string // empty if the URL has none
	Dir        string // relative to the repository's root; empty if the URL has none
}

// ParseWebAddress parses the URL of a folder, file or branch on a provider's website. It returns false for other URLs,
// such as the repository's own. A branch name with slashes can't be told from a folder: its first segment is taken as
// the branch.
func ParseWebAddress(s string) (WebAddress, bool) {
	if !strings.HasPrefix(s, "https://") || len(s) > 1000 {
		return WebAddress{}, false
	}
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Host == "" {
		return WebAddress{}, false
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	at := func(i int, path []string, file bool) (WebAddress, bool) {
		if len(path) == 0 || path[0] == "" {
			return WebAddress{}, false
		}
		dir := path[1:]
		if file && len(dir) > 0 {
			dir = dir[:len(dir)-1]
		}
		return WebAddress{u.Host + "/" + strings.Join(parts[:i], "/"), path[0], strings.Join(dir, "/")}, true
	}
	for i, p := range parts { // GitLab: group/…/project/-/tree/branch/dir
		if p == "-" && i >= 2 && len(parts) > i+2 && (parts[i+1] == "tree" || parts[i+1] == "blob") {
			return at(i, parts[i+2:], parts[i+1] == "blob")
		}
	}
	switch {
	case len(parts) < 4:
		return WebAddress{}, false
	case parts[2] == "tree", parts[2] == "blob": // GitHub
		return at(2, parts[3:], parts[2] == "blob")
	case parts[2] == "src" && parts[3] == "branch": // Gitea and Forgejo
		return at(2, parts[4:], false)
	case parts[2] == "src": // Bitbucket
		return at(2, parts[3:], false)
	}
	return WebAddress{}, false
}
