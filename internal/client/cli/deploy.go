package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"slipway/internal/client/rest"
)

// deployment is a deployment in API responses, as far as commands need it.
type deployment struct {
	ID            string
	Status        string
	Target        string
	Branch        string
	CommitHash    string
	CommitMessage string
	URL           string
	Error         string
	IsCurrent     bool
	CreatedAt     string
	Duration      *int64
}

// ended reports whether the deployment is finished.
func (d deployment) ended() bool {
	return d.Status == "success" || d.Status == "failed" || d.Status == "canceled"
}

// triggered is the response of a request that starts a deployment.
type triggered struct{ DeploymentID string }

type deployCommand struct {
	ofSite
	Dir        string   `arg:"" optional:"" type:"existingdir" help:"Folder to upload, for sites without a repository. Default: the linked folder."`
	Prebuilt   bool     `env:"-" help:"The folder is ready to be published: don't build it, and don't read .gitignore."`
	Archive    string   `env:"-" type:"existingfile" help:"Upload a .zip, .tar, .tar.gz or .tar.zst instead of a folder." placeholder:"FILE"`
	Include    []string `env:"-" sep:"none" help:"Upload what would be left out as a secret or dependency: a pattern as in .gitignore. Can be repeated." placeholder:"PATTERN"`
	DryRun     bool     `name:"dry-run" env:"-" help:"Print the files that would be uploaded."`
	Branch     string   `env:"-" help:"Branch to deploy; of an upload, the branch whose preview it is. Default: the production branch." placeholder:"NAME"`
	Commit     string   `env:"-" help:"Full id of a commit of the branch. Default: the newest." placeholder:"HASH"`
	Preview    bool     `env:"-" help:"Make a preview instead of replacing the live deployment."`
	Message    string   `env:"-" short:"m" help:"Title shown beside the deployment." placeholder:"TEXT"`
	ClearCache bool     `name:"clear-cache" env:"-" help:"Build without the cache."`
	NoWait     bool     `name:"no-wait" env:"-" help:"Don't wait until it has ended."`
	NoLogs     bool     `name:"no-logs" env:"-" help:"Don't print the log."`
}

// Run deploys. On standard output it prints only the address.
func (d deployCommand) Run(ctx context.Context, e *Env) error {
	c, s, err := d.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	if s.Source == "upload" {
		return d.upload(ctx, e, c, s)
	}
	if d.Dir != "" || d.Archive != "" || d.Prebuilt || d.DryRun || len(d.Include) > 0 {
		return failure(fmt.Errorf("%s is deployed from its repository, so no folder can be uploaded to it: create a site for this "+
			"folder with slipway init", printable(s.Name)))
	}
	in := map[string]any{}
	for name, v := range map[string]string{"branch": d.Branch, "commit": d.Commit, "title": d.Message} {
		if v != "" {
			in[name] = v
		}
	}
	if d.Preview {
		in["target"] = "preview"
	}
	if d.ClearCache {
		in["clearCache"] = true
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/deploy", in)
	if err != nil {
		return failure(err)
	}
	return follow(ctx, e, c, s, answer, waiting{d.NoWait, d.NoLogs, d.JSON})
}

// waiting holds the flags for waiting for a deployment.
type waiting struct{ noWait, noLogs, json bool }

// follow waits for the deployment in answer, prints its log and then its address.
func follow(ctx context.Context, e *Env, c *rest.Client, s site, answer json.RawMessage, w waiting) error {
	var t triggered
	if err := json.Unmarshal(answer, &t); err != nil || t.DeploymentID == "" {
		return errors.New("the server's answer names no deployment")
	}
	if w.noWait {
		if w.json {
			return e.json(answer)
		}
		fmt.Fprintln(e.Out, printable(t.DeploymentID))
		return nil
	}
	started := time.Now()
	e.say("Deploying %s (%s)", printable(s.Name), printable(t.DeploymentID))
	path := "/deployments/" + url.PathEscape(t.DeploymentID)
	err := c.Stream(ctx, path+"/logs", func(ev rest.Event) error {
		if ev.Name == "end" || w.noLogs {
			return nil
		}
		var line logLine
		if err := json.Unmarshal(ev.Data, &line); err != nil {
			return errors.New("the log has a line that is no JSON")
		}
		e.say("%s", line.text(e))
		return nil
	})
	if ctx.Err() != nil {
		e.say("The deployment goes on. Cancel it with slipway deployments cancel %s", printable(t.DeploymentID))
	}
	if err != nil {
		return failure(err)
	}
	for {
		raw, err := c.Do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return failure(err)
		}
		var got deployment
		if err := json.Unmarshal(raw, &got); err != nil {
			return err
		}
		if !got.ended() { // the log ends shortly before the deployment
			select {
			case <-ctx.Done():
				return failure(context.Cause(ctx))
			case <-time.After(250 * time.Millisecond):
			}
			continue
		}
		return report(e, s, got, raw, w.json, time.Since(started))
	}
}

// report prints how a deployment ended.
func report(e *Env, s site, d deployment, raw json.RawMessage, asJSON bool, took time.Duration) error {
	if asJSON {
		if err := e.json(raw); err != nil {
			return err
		}
	}
	if d.Status != "success" {
		why := d.Error
		if why == "" {
			why = "see the log"
		}
		return &Failure{exitDeployment, fmt.Errorf("the deployment %s: %s", map[string]string{
			"failed": "failed", "canceled": "was canceled",
		}[d.Status], printable(why))}
	}
	address := d.URL
	if d.Target == "production" {
		address = s.URL
	}
	e.say("%s in %s", e.color("32", "Deployed"), took.Round(100*time.Millisecond))
	if !asJSON {
		fmt.Fprintln(e.Out, printable(address))
	}
	return nil
}

type deploymentsCommand struct {
	List     listDeployments   `cmd:"" help:"List the site's deployments."`
	Get      getDeployment     `cmd:"" help:"Show a deployment."`
	Cancel   cancelDeployment  `cmd:"" help:"Cancel a deployment that has not ended."`
	Retry    retryDeployment   `cmd:"" help:"Deploy the commit of a deployment again."`
	Promote  promoteDeployment `cmd:"" help:"Make a preview live."`
	Rollback rollbackSite      `cmd:"" help:"Go back to an earlier deployment."`
}

type listDeployments struct {
	ofSite
	Limit int `env:"-" default:"20" help:"At most so many, 1 to 100."`
}

// Run lists deployments, newest first.
func (l listDeployments) Run(ctx context.Context, e *Env) error {
	c, s, err := l.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	var got struct{ Data []json.RawMessage }
	if err := c.Get(ctx, fmt.Sprintf("/sites/%s/deployments?limit=%d", s.ID, l.Limit), &got); err != nil {
		return failure(err)
	}
	return show(e, l.JSON, got.Data, []string{"id", "status", "target", "branch", "commit", "created"}, func(d deployment) []string {
		status := d.Status
		if d.IsCurrent {
			status += " (live)"
		}
		return []string{d.ID, status, d.Target, d.Branch, short(d.CommitHash), e.ago(d.CreatedAt)}
	})
}

// short abbreviates a commit hash.
func short(hash string) string { return hash[:min(7, len(hash))] }

// byID holds the flags of commands about one deployment.
type byID struct {
	target
	ID string `arg:"" help:"Id of the deployment, dep_…"`
}

func (b byID) call(ctx context.Context, e *Env, method, suffix string) (*rest.Client, json.RawMessage, error) {
	c, err := b.client(e)
	if err != nil {
		return nil, nil, failure(err)
	}
	answer, err := c.Do(ctx, method, "/deployments/"+url.PathEscape(b.ID)+suffix, nil)
	return c, answer, failure(err)
}

type getDeployment struct{ byID }

// Run shows a deployment.
func (g getDeployment) Run(ctx context.Context, e *Env) error {
	_, answer, err := g.call(ctx, e, http.MethodGet, "")
	if err != nil {
		return err
	}
	return showDeployment(e, answer, g.JSON)
}

func showDeployment(e *Env, answer json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.json(answer)
	}
	var d deployment
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	e.table([]string{"field", "value"}, [][]string{
		{"id", d.ID},
		{"status", d.Status},
		{"target", d.Target},
		{"branch", d.Branch},
		{"commit", short(d.CommitHash) + " " + d.CommitMessage},
		{"url", d.URL},
		{"created", e.ago(d.CreatedAt)},
		{"error", d.Error},
	})
	return nil
}

type cancelDeployment struct{ byID }

// Run cancels a deployment.
func (x cancelDeployment) Run(ctx context.Context, e *Env) error {
	_, answer, err := x.call(ctx, e, http.MethodPost, "/cancel")
	if err != nil {
		return err
	}
	return showDeployment(e, answer, x.JSON)
}

// again holds the flags of commands that redeploy.
type again struct {
	byID
	NoWait bool `name:"no-wait" env:"-" help:"Don't wait until it has ended."`
	NoLogs bool `name:"no-logs" env:"-" help:"Don't print the log."`
}

func (a again) run(ctx context.Context, e *Env, suffix string) error {
	c, err := a.client(e)
	if err != nil {
		return failure(err)
	}
	var d struct{ SiteID string }
	if err := c.Get(ctx, "/deployments/"+url.PathEscape(a.ID), &d); err != nil {
		return failure(err)
	}
	s, err := siteNamed(ctx, c, d.SiteID)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/deployments/"+url.PathEscape(a.ID)+suffix, nil)
	if err != nil {
		return failure(err)
	}
	return follow(ctx, e, c, s, answer, waiting{a.NoWait, a.NoLogs, a.JSON})
}

type (
	retryDeployment   struct{ again }
	promoteDeployment struct{ again }
)

// Run deploys again.
func (r retryDeployment) Run(ctx context.Context, e *Env) error { return r.run(ctx, e, "/retry") }

// Run makes a preview live.
func (p promoteDeployment) Run(ctx context.Context, e *Env) error { return p.run(ctx, e, "/promote") }

type rollbackSite struct {
	ofSite
	ID     string `arg:"" optional:"" help:"Deployment to go back to. Default: the one before the live one."`
	NoWait bool   `name:"no-wait" env:"-" help:"Don't wait until it has ended."`
}

// Run rolls a site back.
func (r rollbackSite) Run(ctx context.Context, e *Env) error {
	c, s, err := r.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	in := map[string]string{}
	if r.ID != "" {
		in["deploymentId"] = r.ID
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/rollback", in)
	if err != nil {
		return failure(err)
	}
	return follow(ctx, e, c, s, answer, waiting{r.NoWait, false, r.JSON})
}
