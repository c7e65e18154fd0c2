package connection

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"slipway/internal/platform/text"
)

// github implements api with version 2022-11-28 of GitHub's REST API.
type github struct{ wire }

func (g github) user(ctx context.Context) (string, error) {
	var u struct {
		Login string `json:"login"`
	}
	err := g.send(ctx, http.MethodGet, "/user", nil, &u)
	return text.Line(u.Login, 100), err
}

func (g github) repositories(ctx context.Context, _ string) (out []Repository, err error) {
	for page := 1; page <= 5; page++ { // the API can't search the account's readable repositories
		var list []struct {
			Name    string `json:"full_name"`
			Default string `json:"default_branch"`
			Private bool   `json:"private"`
		}
		if err := g.send(ctx, http.MethodGet, fmt.Sprintf("/user/repos?per_page=100&sort=pushed&page=%d", page), nil, &list); err != nil {
			return nil, err
		}
		for _, r := range list {
			out = append(out, Repository{r.Name, r.Default, r.Private})
		}
		if len(list) < 100 {
			break
		}
	}
	return out, nil
}

func (g github) status(ctx context.Context, f Facts, _ string) (string, error) {
	state := map[string]string{"success": "success", "failed": "failure", "canceled": "error"}[f.Status]
	if state == "" {
		state = "pending"
	}
	return "", g.send(ctx, http.MethodPost, "/repos/"+repo(f.path())+"/statuses/"+f.Commit,
		map[string]string{"state": state, "target_url": f.link(), "description": f.says(), "context": "slipway/" + f.Slug}, nil)
}

func (g github) record(ctx context.Context, f Facts, id string) (string, error) {
	base := "/repos/" + repo(f.path()) + "/deployments"
	if id == "" {
		var made struct {
			ID int64 `json:"id"`
		}
		err := g.send(ctx, http.MethodPost, base, map[string]any{
			"ref":                    f.Commit,
			"auto_merge":             false,
			"required_contexts":      []string{},
			"environment":            f.environment(),
			"transient_environment":  !f.Production,
			"production_environment": f.Production,
			"description":            "Deployed by Slipway",
		}, &made)
		if err != nil {
			return "", err
		}
		id = strconv.FormatInt(made.ID, 10)
	}
	state := map[string]string{"pending": "queued", "success": "success", "failed": "failure", "canceled": "inactive"}[f.Status]
	if state == "" {
		state = "in_progress"
	}
	body := map[string]any{"state": state, "log_url": f.LogURL, "description": f.says(), "auto_inactive": true}
	if f.Status == "success" {
		body["environment_url"] = f.URL
	}
	return id, g.send(ctx, http.MethodPost, base+"/"+repo(id)+"/statuses", body, nil)
}

func (g github) comment(ctx context.Context, f Facts, id, text string) (string, error) {
	return issueComment(ctx, g.wire, f, id, text)
}

// issueComment creates or updates a comment with the API that GitHub and Gitea share.
func issueComment(ctx context.Context, w wire, f Facts, id, text string) (string, error) {
	base, method, path := "/repos/"+repo(f.path())+"/issues/", http.MethodPatch, "comments/"+repo(id)
	if id == "" {
		method, path = http.MethodPost, fmt.Sprintf("%d/comments", f.Pull)
	}
	var made struct {
		ID int64 `json:"id"`
	}
	if err := w.send(ctx, method, base+path, map[string]string{"body": text}, &made); err != nil {
		return "", err
	}
	if id != "" {
		return id, nil
	}
	return strconv.FormatInt(made.ID, 10), nil
}
