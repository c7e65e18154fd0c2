package try

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"slipway/internal/client/rest"
)

// site is a site as the API shows it.
type site struct {
	ID  string `json:"id"`
	URL string `json:"url"`
}

// firstSite returns the first site, made and deployed through the REST API if it isn't there yet. It is empty if its owner deleted it.
func (t *try) firstSite(ctx context.Context) (s site, err error) {
	done := t.step("started on %s", t.Store.DataDir)
	if err := t.ready(ctx); err != nil {
		return site{}, err
	}
	done()
	c, err := t.client()
	if err != nil {
		return site{}, err
	}
	if t.memory.Site == "" {
		answer, err := c.SendOnce(ctx, http.MethodPost, "/sites", t.memory.Request, []byte(`{"name": "Hello", "type": "static", "source": "upload"}`))
		if err != nil {
			return site{}, fmt.Errorf("create the first site: %w", err)
		}
		var made struct{ Data site }
		if err := json.Unmarshal(answer, &made); err != nil {
			return site{}, err
		}
		t.memory.Site = made.Data.ID
		if err := t.remember(); err != nil {
			return site{}, err
		}
	}
	err = c.Get(ctx, "/sites/"+t.memory.Site, &s)
	if no := (*rest.Error)(nil); errors.As(err, &no) && no.Status == http.StatusNotFound {
		return site{}, nil
	}
	var past struct{ Data []json.RawMessage }
	if err == nil {
		err = c.Get(ctx, "/sites/"+s.ID+"/deployments", &past)
	}
	if err != nil || len(past.Data) > 0 {
		return s, err
	}
	return s, t.deploy(ctx, c, s)
}

// deploy sends the folder, and shows the deployment's log as it is written until the site is live.
func (t *try) deploy(ctx context.Context, c *rest.Client, s site) error {
	done := t.step("deployed %s to %s", t.path("hello"), s.URL)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(os.DirFS(t.path("hello"))), w.Close()); err != nil {
		return err
	}
	answer, err := c.Send(ctx, http.MethodPost, "/sites/"+s.ID+"/deploy/archive", archive.Bytes())
	if err != nil {
		return fmt.Errorf("deploy the first site: %w", err)
	}
	var made struct {
		ID string `json:"deploymentId"`
	}
	if err := json.Unmarshal(answer, &made); err != nil {
		return err
	}
	err = c.Stream(ctx, "/deployments/"+made.ID+"/logs", func(e rest.Event) error {
		var entry struct{ Message string }
		if json.Unmarshal(e.Data, &entry) == nil && entry.Message != "" {
			fmt.Fprintf(t.Out, "    %s\n", t.paint("2", entry.Message))
		}
		return nil
	})
	if err != nil {
		return err
	}
	var d struct{ Status, Error string }
	if err := c.Get(ctx, "/deployments/"+made.ID, &d); err != nil {
		return err
	}
	if d.Status != "success" {
		return fmt.Errorf("the first deployment is %s: %s", d.Status, d.Error)
	}
	done()
	return nil
}
