package connection

import (
	"context"
	"fmt"
	"net/http"

	"slipway/internal/platform/text"
)

// gitea implements api with version 1 of the REST API of Gitea and Forgejo, which have no deployment records.
type gitea struct{ wire }

func (g gitea) user(ctx context.Context) (string, error) {
	var u struct {
		Login string `json:"login"`
	}
	err := g.send(ctx, http.MethodGet, "/user", nil, &u)
	return text.Line(u.Login, 100), err
}

func (g gitea) repositories(ctx context.Context, _ string) (out []Repository, err error) {
	for page := 1; page <= 10; page++ {
		var list []struct {
			Name    string `json:"full_name"`
			Default string `json:"default_branch"`
			Private bool   `json:"private"`
		}
		if err := g.send(ctx, http.MethodGet, fmt.Sprintf("/user/repos?limit=50&page=%d", page), nil, &list); err != nil {
			return nil, err
		}
		for _, r := range list {
			out = append(out, Repository{r.Name, r.Default, r.Private})
		}
		if len(list) < 50 {
			break
		}
	}
	return out, nil
}

func (g gitea) status(ctx context.Context, f Facts, _ string) (string, error) {
	state := map[string]string{"success": "success", "failed": "failure", "canceled": "error"}[f.Status]
	if state == "" {
		state = "pending"
	}
	return "", g.send(ctx, http.MethodPost, "/repos/"+repo(f.path())+"/statuses/"+f.Commit,
		map[string]string{"state": state, "target_url": f.link(), "description": f.says(), "context": "slipway/" + f.Slug}, nil)
}

func (gitea) record(context.Context, Facts, string) (string, error) { return "", nil }

func (g gitea) comment(ctx context.Context, f Facts, id, text string) (string, error) {
	return issueComment(ctx, g.wire, f, id, text)
}
