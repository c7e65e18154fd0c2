package connection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/text"
)

// bitbucket implements api with version 2.0 of the Bitbucket Cloud REST API. It reports commit statuses only, since
// deployment records are reserved for Bitbucket Pipelines.
type bitbucket struct{ wire }

func (b bitbucket) user(ctx context.Context) (string, error) {
	var u struct {
		Username string `json:"username"`
		Nickname string `json:"nickname"`
	}
	err := b.send(ctx, http.MethodGet, "/user", nil, &u)
	if isStatus(err, http.StatusForbidden) || isStatus(err, http.StatusNotFound) { // workspace and repository tokens have no user
		var list struct {
			Values []struct {
				Name string `json:"full_name"`
			} `json:"values"`
		}
		if err := b.send(ctx, http.MethodGet, "/repositories?role=member&pagelen=1", nil, &list); err != nil {
			return "", err
		}
		if len(list.Values) == 0 {
			return "access token", nil
		}
		workspace, _, _ := strings.Cut(list.Values[0].Name, "/")
		return text.Line(workspace, 100), nil
	}
	if u.Username == "" {
		u.Username = u.Nickname
	}
	return text.Line(u.Username, 100), err
}

func (b bitbucket) repositories(ctx context.Context, search string) (out []Repository, err error) {
	var list struct {
		Values []struct {
			Name    string `json:"full_name"`
			Private bool   `json:"is_private"`
			Main    struct {
				Name string `json:"name"`
			} `json:"mainbranch"`
		} `json:"values"`
	}
	query := ""
	if search != "" {
		_, name, both := strings.Cut(search, "/")
		if !both {
			name = search
		}
		query = "&q=" + url.QueryEscape(`name ~ "`+strings.NewReplacer(`\`, "", `"`, "").Replace(name)+`"`)
	}
	err = b.send(ctx, http.MethodGet, "/repositories?role=member&pagelen=100&sort=-updated_on"+query, nil, &list)
	for _, r := range list.Values {
		out = append(out, Repository{r.Name, r.Main.Name, r.Private})
	}
	return out, err
}

func (b bitbucket) status(ctx context.Context, f Facts, _ string) (string, error) {
	state := map[string]string{"success": "SUCCESSFUL", "failed": "FAILED", "canceled": "STOPPED"}[f.Status]
	if state == "" {
		state = "INPROGRESS"
	}
	sum := sha256.Sum256([]byte(f.Site)) // keys are limited to 40 characters
	return "", b.send(ctx, http.MethodPost, "/repositories/"+repo(f.path())+"/commit/"+f.Commit+"/statuses/build",
		map[string]string{
			"key":         "slipway-" + hex.EncodeToString(sum[:12]),
			"state":       state,
			"name":        "Slipway: " + f.Slug,
			"url":         f.link(),
			"description": f.says(),
		}, nil)
}

func (bitbucket) record(context.Context, Facts, string) (string, error) { return "", nil }

func (b bitbucket) comment(ctx context.Context, f Facts, id, text string) (string, error) {
	path, method := fmt.Sprintf("/repositories/%s/pullrequests/%d/comments", repo(f.path()), f.Pull), http.MethodPost
	if id != "" {
		path, method = path+"/"+repo(id), http.MethodPut
	}
	var made struct {
		ID int64 `json:"id"`
	}
	if err := b.send(ctx, method, path, map[string]any{"content": map[string]string{"raw": text}}, &made); err != nil {
		return "", err
	}
	if id != "" {
		return id, nil
	}
	return strconv.FormatInt(made.ID, 10), nil
}
