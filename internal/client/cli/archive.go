package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
	"slipway/internal/client/upload"
)

// archive sends an archive with one request and deploys it.
func (d deployCommand) archive(ctx context.Context, e *Env, c *rest.Client, s site) error {
	info, err := os.Stat(d.Archive)
	if err != nil {
		return failure(err)
	}
	query := url.Values{}
	for name, v := range map[string]string{
		"kind": map[bool]string{true: "output"}[d.Prebuilt], "target": map[bool]string{true: "preview"}[d.Preview],
		"branch": d.Branch, "title": d.Message,
	} {
		if v != "" {
			query.Set(name, v)
		}
	}
	p := &progress{e: e}
	p.All = upload.Missing{Files: 1, Bytes: info.Size()}
	stop := p.show()
	answer, err := c.Upload(ctx, rest.Body{
		Method: http.MethodPost, Path: "/sites/" + s.ID + "/deploy/archive?" + query.Encode(), Type: "application/octet-stream",
		Size: info.Size(),
		Key:  rand.Text(),
	}, func() (io.ReadCloser, error) {
		f, err := os.Open(d.Archive)
		return p.Count(f, err)
	})
	stop()
	if err != nil {
		return failure(err)
	}
	var said struct {
		LeftOut []struct{ Path, Reason string }
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return err
	}
	var left []folder.Left
	for _, l := range said.LeftOut {
		left = append(left, folder.Left{Path: l.Path, Why: l.Reason})
	}
	d.leftOut(e, left)
	return follow(ctx, e, c, s, answer, waiting{d.NoWait, d.NoLogs, d.JSON})
}
