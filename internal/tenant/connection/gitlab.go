package connection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/text"
)

// gitlab implements api with version 4 of GitLab's REST API.
type gitlab struct{ wire }

func (g gitlab) user(ctx context.Context) (string, error) {
	var u struct {
		Username string `json:"username"`
	}
	err := g.send(ctx, http.MethodGet, "/user", nil, &u)
	return text.Line(u.Username, 100), err
}

func (g gitlab) repositories(ctx context.Context, search string) (out []Repository, err error) {
	var list []struct {
		Name       string `json:"path_with_namespace"`
		Default    string `json:"default_branch"`
		Visibility string `json:"visibility"`
	}
	err = g.send(ctx, http.MethodGet,
		"/projects?membership=true&per_page=100&order_by=last_activity_at&search_namespaces=true&search="+url.QueryEscape(search),
		nil, &list)
	for _, r := range list {
		out = append(out, Repository{r.Name, r.Default, r.Visibility != "public"})
	}
	return out, err
}

// project returns the API path of a project, whose full path is one escaped segment.
func (f Facts) project() string { return "/projects/" + url.QueryEscape(f.path()) }

func (f Facts) gitlabState() string {
	state := map[string]string{"pending": "pending", "success": "success", "failed": "failed", "canceled": "canceled"}[f.Status]
	if state == "" {
		return "running"
	}
	return state
}

func (g gitlab) status(ctx context.Context, f Facts, _ string) (string, error) {
	err := g.send(ctx, http.MethodPost, f.project()+"/statuses/"+f.Commit,
		map[string]string{
			"state":       f.gitlabState(),
			"ref":         f.Branch,
			"name":        "slipway/" + f.Slug,
			"target_url":  f.link(),
			"description": f.says(),
		}, nil)
	var no *refusal
	if errors.As(err, &no) && no.status == http.StatusBadRequest && strings.Contains(no.text, "Cannot transition status") {
		return "", nil // it already has that state
	}
	return "", err
}

func (g gitlab) record(ctx context.Context, f Facts, id string) (string, error) {
	state := f.gitlabState()
	if state == "pending" {
		state = "created"
	}
	if id != "" {
		if state == "created" {
			return id, nil
		}
		err := g.send(ctx, http.MethodPut, f.project()+"/deployments/"+repo(id), map[string]string{"status": state}, nil)
		var no *refusal
		if errors.As(err, &no) && no.status == http.StatusBadRequest && strings.Contains(no.text, "Cannot transition status") {
			return id, nil
		}
		return id, err
	}
	var made struct {
		ID int64 `json:"id"`
	}
	err := g.send(ctx, http.MethodPost, f.project()+"/deployments", map[string]any{
		"environment": f.environment(),
		"sha":         f.Commit,
		"ref":         f.Branch,
		"tag":         false,
		"status":      state,
	}, &made)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(made.ID, 10), nil
}

func (g gitlab) comment(ctx context.Context, f Facts, id, text string) (string, error) {
	path, method := fmt.Sprintf("%s/merge_requests/%d/notes", f.project(), f.Pull), http.MethodPost
	if id != "" {
		path, method = path+"/"+repo(id), http.MethodPut
	}
	var made struct {
		ID int64 `json:"id"`
	}
	if err := g.send(ctx, method, path, map[string]string{"body": text}, &made); err != nil {
		return "", err
	}
	if id != "" {
		return id, nil
	}
	return strconv.FormatInt(made.ID, 10), nil
}
