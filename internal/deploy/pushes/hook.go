package pushes

import (
	"net/http"

	"slipway/internal/git/forge"
	"slipway/internal/platform/text"
)

// FromForge reports whether a call has the headers of a Git provider's webhook.
func FromForge(h http.Header) bool {
	_, _, ok := forge.Recognize(h)
	return ok
}

// SkipsHook returns why a provider's call of a deploy hook for the branch deploys nothing. It returns "" if it deploys,
// and if the payload can't be read: the deploy hook's URL is sufficient, as for any other caller. An empty branch means
// the repository's default.
func SkipsHook(h http.Header, body []byte, branch string) string {
	e, err := forge.Read(h, body)
	if err != nil {
		return ""
	}
	if branch == "" {
		branch = e.DefaultBranch
	}
	switch {
	case e.Kind == forge.Ping:
		return "A ping doesn't trigger a deployment"
	case e.Kind != forge.Push:
		return "Events of this kind don't trigger deployments"
	}
	why := "The push changed no branch"
	for _, c := range e.Changes {
		switch {
		case c.Tag != "":
			why = "Tags don't trigger deployments"
		case c.Deleted:
			why = "The branch was deleted"
		case c.Branch == "":
		case branch == "" || c.Branch == branch:
			return ""
		default:
			why = text.Line("The push is to "+c.Branch+", and this hook deploys "+branch, 300)
		}
	}
	return why
}
