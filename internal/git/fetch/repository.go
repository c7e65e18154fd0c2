package fetch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// Repository is a repository's address in normal form. The zero value is invalid.
type Repository struct {
	host string // lower case, with ":port" only if it isn't the protocol's default
	path string // at least two segments, joined with "/"; no ".git" at the end
}

// String returns host/owner/repo, as the API shows it.
func (r Repository) String() string {
	if r.host == "" {
		return ""
	}
	return r.host + "/" + r.path
}

// Host returns the host's name, with the port if it isn't the default.
func (r Repository) Host() string { return r.host }

// Path returns the part after the host.
func (r Repository) Path() string { return r.path }

var (
	hostForm    = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	segmentForm = lazyregexp.New(`^[A-Za-z0-9._~][A-Za-z0-9._~+-]*$`)
	userForm    = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
)

// ParseRepository accepts the usual spellings: host/owner/repo, https://…, ssh://git@host/… and git@host:owner/repo,
// with or without ".git" and a slash at the end. It drops scheme and user, because the stored credential decides the
// protocol. Anything else is a fault of kind Invalid, which never repeats a password.
func ParseRepository(s string) (Repository, error) {
	if s == "" {
		return Repository{}, fault.New(fault.Invalid, "invalid_repository", "Repository is required", repositoryForms)
	}
	r, why := parseRepository(strings.TrimSpace(s))
	if why == "" {
		return r, nil
	}
	e := fault.New(fault.Invalid, "invalid_repository", "Invalid repository: "+why, repositoryForms)
	if len(s) <= 512 && !strings.Contains(s, "@") { // the text before an @ may be a password
		e.Received = s
	}
	return Repository{}, e
}

const repositoryForms = "use host/owner/repo, https://host/owner/repo or git@host:owner/repo"

func parseRepository(s string) (r Repository, why string) {
	if len(s) > 512 {
		return r, "longer than 512 characters"
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return r, "only plain ASCII without spaces is allowed"
		}
	}
	ownPort := ""
	switch scheme, rest, found := strings.Cut(s, "://"); {
	case found && strings.EqualFold(scheme, "https"):
		s, ownPort = rest, "443"
	case found && strings.EqualFold(scheme, "ssh"):
		s, ownPort = rest, "22"
	case found:
		return r, "only https and ssh are supported"
	}
	host, path, _ := strings.Cut(s, "/")
	if user, rest, found := strings.Cut(host, "@"); found {
		if strings.Contains(user, ":") {
			return r, "don't put a password or token into the address; store it as the site's credential"
		}
		if !userForm.MatchString(user) {
			return r, "the user name is malformed"
		}
		host = rest
		if h, first, scp := strings.Cut(host, ":"); scp && ownPort == "" && !decimal(first) { // git@host:owner/repo
			host, ownPort = h, "22"
			path = first + "/" + path
			if strings.HasPrefix(path, "/") {
				return r, "the path after the colon is absolute"
			}
		}
	}
	host, port, withPort := strings.Cut(strings.ToLower(host), ":")
	if len(host) > 253 || !hostForm.MatchString(host) {
		return r, "the host name is malformed"
	}
	if withPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || !decimal(port) || port[0] == '0' {
			return r, "the port is malformed"
		}
		if port != ownPort && !(ownPort == "" && port == "443") {
			host += ":" + port
		}
	}
	path = strings.TrimSuffix(strings.TrimRight(path, "/"), ".git")
	segments := strings.Split(path, "/")
	if len(segments) < 2 || len(segments) > 20 {
		return r, "owner and name of the repository must follow the host"
	}
	if page := pageOf(host, segments); page != "" {
		return r, page
	}
	for _, seg := range segments {
		if !segmentForm.MatchString(seg) || strings.Contains(seg, "..") || seg == "." || seg == "~" || strings.EqualFold(seg, ".git") {
			return r, "a part of the path is empty or has characters that aren't allowed"
		}
	}
	return Repository{host, path}, ""
}

// pageOf returns the repository for the address of one of its web pages; empty if it is no such page.
func pageOf(host string, segments []string) string {
	n := 2 // number of segments that name the repository
	switch {
	case host == "github.com" || host == "bitbucket.org":
	case slices.Contains(segments, "-"): // GitLab's pages: no group can have that name
		n = slices.Index(segments, "-")
	case len(segments) > 3 && segments[2] == "src" && (segments[3] == "branch" || segments[3] == "commit" || segments[3] == "tag"): // Gitea's
	default:
		return ""
	}
	if len(segments) <= n || n < 2 {
		return ""
	}
	why := "this is a page of the repository " + host + "/" + strings.Join(segments[:n], "/")
	if slices.Contains(segments[n:], "tree") || segments[n] == "src" {
		why += "; use that and set the branch"
	}
	return why
}

func decimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// CheckCommit refuses anything but a full commit id: 40 hexadecimal digits, or 64 in repositories that use SHA-256.
func CheckCommit(s string) error {
	if (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == "" {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_commit", "Invalid commit",
		"commit is the full id: 40 lower-case hexadecimal digits").Got(s[:min(len(s), 100)])
}

// maxBranch caps the bytes of a branch's name, as GitHub does: git stores it in a file name.
const maxBranch = 244

// CheckBranch refuses names that git check-ref-format refuses, and also those that begin with a dash (commands could
// read an option), aren't UTF-8, are longer than 244 bytes, or contain characters that change how a line is displayed.
func CheckBranch(s string) error {
	bad := func(details string) error {
		e := fault.New(fault.Invalid, "invalid_branch", "Invalid branch name", details)
		if len(s) <= 200 {
			e.Received = s
		}
		return e
	}
	if s == "" {
		return bad("a branch name is needed")
	}
	if len(s) > maxBranch || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Bidi_Control, r) ||
			strings.ContainsRune(` ~^:?*[\`, r)
	}) {
		return bad("1 to 244 bytes of UTF-8 without blanks, control characters and ~ ^ : ? * [ \\")
	}
	for _, not := range []string{"..", "@{"} {
		if strings.Contains(s, not) {
			return bad(fmt.Sprintf("must not contain %q", not))
		}
	}
	if s == "@" || s[0] == '-' || strings.HasSuffix(s, ".") {
		return bad("must not be @, begin with a dash or end with a dot")
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return bad("a part between slashes must not be empty, begin with a dot or end with .lock")
		}
	}
	return nil
}
