package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"

	"slipway/internal/client/folder"
	"slipway/internal/client/upload"
)

const (
	// deploymentTime limits the wait for a deployment.
	deploymentTime = time.Hour
	maxFiles       = 200_000
)

func deployment() kind {
	replaced := func(doc string) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Description: doc, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		}
	}
	return kind{
		name: "deployment",
		about: "A deployment of a site: of a folder, or of a commit of its repository. Changing a value triggers a new deployment. " +
			"Deleting the resource changes nothing on the server.",
		attributes: map[string]schema.Attribute{
			"id":           str(shown, "The deployment's id."),
			"site_id":      str(fixed, "The site."),
			"directory":    replaced("A folder to upload. Secrets and ignored files are left out."),
			"content_hash": replaced("A text that changes with the folder's content, such as a hash of its files. A new text deploys the folder again."),
			"prebuilt": schema.BoolAttribute{
				Optional: true, Description: "Whether the folder is published as it is, without a build.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
			},
			"branch": replaced("The branch to deploy. Default: the site's."),
			"commit": replaced("Full id of a commit of the branch. Default: the latest."),
			"target": replaced("production or preview. Default: production for the production branch."),
			"title":  replaced("Title of the deployment."),
			"wait": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				Description: "Whether to wait until it is live, or fails. Default: true.",
			},
			"status":      str(live, "pending, building, deploying, success, failed or canceled."),
			"url":         str(live, "The immutable address of this deployment."),
			"commit_hash": str(live, "The commit that is deployed."),
			"created_at":  str(shown, "When it was triggered."),
		},
		local: []string{"directory", "content_hash", "prebuilt", "wait", "site_id", "branch", "commit", "target", "title"},
		known: map[string][]string{"status": {"pending", "building", "deploying", "success", "failed", "canceled"}},
		check: func(config values, say *diag.Diagnostics) {
			switch dir := config["directory"]; {
			case dir != nil && config["commit"] != nil:
				say.AddAttributeError(path.Root("commit"), "Set either directory or commit", "An uploaded folder has no commit.")
			case dir != nil && config["content_hash"] == nil:
				say.AddAttributeError(path.Root("content_hash"), "Set content_hash", "Without it a plan can't see that the folder changed.")
			}
		},
		read: func(ctx context.Context, c *client, v values) (values, error) {
			got, err := c.get(ctx, byID("/deployments", "id")(v))
			if missing(err) { // the site is deleted, or the deployment so old that it was pruned; neither requires a new deployment
				return values{}, nil
			}
			return asked(got), err
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			got, err := c.get(ctx, "/deployments/"+escape(id))
			if missing(err) {
				return nil, nil
			}
			return asked(got), err
		},
		create:  deploy,
		destroy: func(context.Context, *client, values) error { return nil },
	}
}

// asked removes the fields that repeat the request, which the resource keeps as configured.
func asked(got values) values {
	if got == nil {
		return nil
	}
	got = cloned(got)
	for _, name := range []string{"branch", "target", "title"} {
		delete(got, name)
	}
	return got
}

// deploy triggers a deployment and waits for its end.
func deploy(ctx context.Context, c *client, plan, _ values) (values, error) {
	body := values{}
	for _, name := range []string{"branch", "commit", "target", "title"} {
		if v := toJSON(plan[name]); v != nil && v != "" {
			body[name] = v
		}
	}
	var got values
	var err error
	if dir := text(plan["directory"]); dir != "" {
		got, err = send(ctx, c, text(plan["site_id"]), dir, plan["prebuilt"] == true, body)
	} else {
		got, err = c.change(ctx, http.MethodPost, bySite("/deploy")(plan), body)
	}
	if err != nil {
		return nil, err
	}
	item := "/deployments/" + escape(text(got["deploymentId"]))
	ctx, cancel := context.WithTimeoutCause(ctx, deploymentTime, errors.New("the deployment is still running after an hour"))
	defer cancel()
	last := values{"id": got["deploymentId"], "status": got["status"]}
	for pause := time.Second; ; pause = min(pause+time.Second, 10*time.Second) {
		now, err := c.get(ctx, item)
		if err != nil {
			return last, err
		}
		last = asked(now)
		switch status := text(now["status"]); {
		case status == "failed" || status == "canceled":
			return last, fmt.Errorf("deployment %s %s: %s", text(now["id"]), strings.Replace(status, "canceled", "was canceled", 1), text(now["error"]))
		case status == "success" || plan["wait"] == false:
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// send uploads a folder and deploys it.
func send(ctx context.Context, c *client, site, dir string, prebuilt bool, in values) (values, error) {
	options := folder.Options{Prebuilt: prebuilt, MaxFiles: maxFiles}
	f, err := folder.Open(ctx, dir, options)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Hash(ctx, "", options); err != nil {
		return nil, err
	}
	if len(f.Files) == 0 {
		return nil, fmt.Errorf("there is nothing to upload in %s", dir)
	}
	in["kind"] = "source"
	if prebuilt {
		in["kind"] = "output"
	}
	got, err := c.change(ctx, http.MethodPost, "/sites/"+escape(site)+"/uploads", in)
	if err != nil {
		return nil, err
	}
	var up upload.Upload
	text, err := json.Marshal(got)
	if err == nil {
		err = json.Unmarshal(text, &up)
	}
	if err != nil || up.ID == "" {
		return nil, errors.New("the server's answer names no upload")
	}
	if err := up.Send(ctx, c.rest, f, &upload.Progress{}, func() func() { return func() {} }); err != nil {
		return nil, err
	}
	return c.change(ctx, http.MethodPost, "/uploads/"+escape(up.ID)+"/deploy", nil)
}
