// Package forge owns understanding the webhooks of Git providers ("forges"): which provider sent a call, whether it is
// signed with the secret, and what happened to the repository.
//
// It reads bytes and headers, and knows neither sites nor SQL. Its results are bounded but untrusted: names of branches
// and files are not checked. ADR 0032 says which libraries were considered.
package forge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"slipway/internal/platform/fault"
)

// Provider identifies the software of a Git provider.
type Provider string

// The supported providers. Forgejo sends the same payloads as Gitea.
const (
	GitHub    Provider = "github"
	GitLab    Provider = "gitlab"
	Gitea     Provider = "gitea"
	Bitbucket Provider = "bitbucket"

	BitbucketServer Provider = "bitbucket_server" // also called Bitbucket Data Center
)

// Kind is the type of an event.
type Kind string

// The types of events.
const (
	Push        Kind = "push"         // branches or tags were created, moved or deleted
	PullRequest Kind = "pull_request" // see Event.Pull
	Ping        Kind = "ping"         // the hook was set up or tested
	Other       Kind = "other"        // anything else
)

// Event is one webhook call.
type Event struct {
	Provider      Provider
	Name          string // as the provider names it
	Kind          Kind
	Repository    []string // its URLs in several spellings
	FullName      string   // owner/repo for GitHub and Gitea; else empty
	Path          string   // for Bitbucket Server, the repository's path, since the host may be missing; else empty
	DefaultBranch string   // empty if the provider doesn't send it
	Changes       []Change // of a push
	Pull          *Pull    // of a pull request
}

// Change holds what a push did to one branch or tag.
type Change struct {
	Branch  string // empty for a tag
	Tag     string
	Commit  string // the new one; empty if Deleted
	Deleted bool
	Message string // of the new commit
	Author  string
	Files   []string // changed by the push
	All     bool     // whether Files is complete
}

// Pull is a pull request, or a merge request.
type Pull struct {
	Number int
	Title  string
	Branch string // the branch to be merged
	Commit string
	Author string
	Open   bool
	Opened bool   // it was just opened or reopened
	Moved  bool   // its commit may be new: it was opened, reopened or pushed to
	Fork   bool   // the branch is in another repository
	Source string // that repository, as the provider names it; empty if it was deleted
}

// Limits of a payload.
const (
	MaxBody    = 25 << 20 // bytes: GitHub's limit
	maxOthers  = 1 << 20  // bytes of Bitbucket's, which lists no files
	maxDepth   = 64       // levels of nesting
	maxChanges = 50       // branches and tags of one push
)

// Recognize returns the provider that sends these headers, and its name for the event. It checks Gitea's own headers
// before GitHub's, because Gitea sends both.
func Recognize(h http.Header) (p Provider, event string, ok bool) {
	if key := h.Get("X-Event-Key"); serverKey(key) {
		return BitbucketServer, key[:min(len(key), 100)], true
	}
	for _, x := range []struct {
		header string
		p      Provider
	}{
		{"X-Gitea-Event", Gitea},
		{"X-Forgejo-Event", Gitea},
		{"X-Gogs-Event", Gitea},
		{"X-Gitlab-Event", GitLab},
		{"X-Github-Event", GitHub},
		{"X-Event-Key", Bitbucket},
	} {
		if v := h.Get(x.header); v != "" {
			return x.p, v[:min(len(v), 100)], true
		}
	}
	return "", "", false
}

// Delivery returns the provider's id of this call, or "". A redelivery has the same id.
func Delivery(h http.Header) string {
	for _, name := range []string{
		"X-Gitea-Delivery", "X-Forgejo-Delivery", "X-Gogs-Delivery", "Webhook-Id", "X-Gitlab-Event-Uuid",
		"X-Github-Delivery", "X-Request-Uuid", "X-Request-Id",
	} {
		if v := h.Get(name); v != "" {
			return v[:min(len(v), 200)]
		}
	}
	return ""
}

// Read parses a webhook call. The body is JSON, or a form with the field payload (GitHub and Gitea offer both).
func Read(h http.Header, body []byte) (Event, error) {
	p, name, ok := Recognize(h)
	if !ok {
		return Event{}, fault.New(fault.Invalid, "unknown_forge", "The request is not an event of a known Git provider",
			"GitHub, GitLab, Gitea, Forgejo and Bitbucket name theirs in X-GitHub-Event, X-Gitlab-Event, X-Gitea-Event and X-Event-Key")
	}
	if len(body) > maxOthers && (p == Bitbucket || p == BitbucketServer) {
		return Event{}, TooLarge(maxOthers)
	}
	if rest, form := bytes.CutPrefix(bytes.TrimSpace(body), []byte("payload=")); form {
		raw, _, _ := strings.Cut(string(rest), "&")
		text, err := url.QueryUnescape(raw)
		if err != nil {
			return Event{}, malformed("the form can't be decoded")
		}
		body = []byte(text)
	}
	if err := checkDepth(body); err != nil {
		return Event{}, err
	}
	e := Event{Provider: p, Name: name, Kind: Other}
	var err error
	switch p {
	case GitLab:
		err = e.gitlab(body)
	case Bitbucket:
		err = e.bitbucket(body)
	case BitbucketServer:
		err = e.bitbucketServer(body)
	default:
		err = e.github(body)
	}
	if err == nil && len(e.Changes) > maxChanges {
		err = fault.New(fault.Invalid, "too_many_refs", "The push changes too many branches at once",
			fmt.Sprintf("at most %d are read; push fewer, or deploy by hand", maxChanges))
	}
	return e, err
}

// TooLarge returns the fault for a body over limit bytes.
func TooLarge(limit int) error {
	return fault.New(fault.TooLarge, "body_too_large", "The request body is too large",
		fmt.Sprintf("the limit is %d MiB", limit>>20))
}

func malformed(why string) error {
	return fault.New(fault.Invalid, "malformed_json", "Malformed payload", why)
}

// checkDepth refuses bodies that aren't a JSON object, or are nested too deeply.
func checkDepth(body []byte) error {
	depth, quoted, escaped := 0, false, false
	for _, c := range body {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
			if depth > maxDepth {
				return malformed(fmt.Sprintf("objects and arrays nest at most %d levels deep", maxDepth))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if b := bytes.TrimSpace(body); len(b) == 0 || b[0] != '{' || !json.Valid(b) {
		return malformed("the body is no JSON object")
	}
	return nil
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return malformed("a field has an unexpected type")
	}
	return nil
}

// ref sets Branch or Tag from a full ref name. Other refs set neither.
func (c *Change) ref(name string) {
	if b, ok := strings.CutPrefix(name, "refs/heads/"); ok {
		c.Branch = b
	} else if t, ok := strings.CutPrefix(name, "refs/tags/"); ok {
		c.Tag = t
	}
}

// unset reports whether a commit id is all zeros, which means "none". Ids have 40 or 64 digits.
func unset(commit string) bool { return strings.Trim(commit, "0") == "" }
