package deploy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway/internal/buildlog"
	"slipway/internal/framework"
	"slipway/internal/sandbox"
)

// environment makes what every command of the build sees, and the log that hides the
// secret part of it.
func (b *build) environment(ctx context.Context) error {
	vars, err := b.d.c.Sites.Variables(ctx, b.s.ID, "build")
	if err != nil {
		return err
	}
	env := map[string]string{
		"CI":                       "true",
		"SLIPWAY":                  "1",
		"SLIPWAY_SITE_ID":          string(b.s.ID),
		"SLIPWAY_SITE_NAME":        b.s.Name,
		"SLIPWAY_DEPLOYMENT":       string(b.x.ID),
		"SLIPWAY_BRANCH":           b.x.Branch,
		"SLIPWAY_COMMIT":           b.x.CommitHash,
		"SLIPWAY_URL":              b.d.c.Sites.URL(b.s.Slug),
		"SLIPWAY_DEPLOY_URL":       b.x.URL,
		"npm_config_fund":          "false",
		"npm_config_audit":         "false",
		"npm_config_progress":      "false",
		"npm_config_prefix":        path.Join(sandbox.Root, globalDir),
		"NO_UPDATE_NOTIFIER":       "1",
		"NEXT_TELEMETRY_DISABLED":  "1",
		"ASTRO_TELEMETRY_DISABLED": "1",
		"FORCE_COLOR":              "1",
		"NODE_OPTIONS":             fmt.Sprintf("--max-old-space-size=%d", b.limits().Memory*3/4>>20),
	}
	maps.Copy(env, b.plan.Env)
	var secrets []string
	for _, v := range vars {
		env[v.Key] = v.Value
		if v.Secret {
			secrets = append(secrets, v.Value)
		}
	}
	if cred, err := b.d.c.Sites.CredentialOf(ctx, b.s.ID); err != nil {
		return err
	} else if cred != nil {
		secrets = append(secrets, cred.Token, cred.DeployKey)
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		b.env = append(b.env, k+"="+env[k])
	}
	b.log = buildlog.New(buildlog.Config{Secrets: secrets, Line: func(l buildlog.Line) { b.p.line(l.Level, l.Message, l.Raw) }})
	return nil
}

func (b *build) commandEnv(c framework.Command, extra map[string]string) []string {
	var bins []string
	for _, dir := range []string{c.Dir, b.plan.Root, ""} {
		bins = append(bins, path.Join(sandbox.Root, repoDir, dir, "node_modules/.bin"))
	}
	bins = append(slices.Compact(bins), path.Join(sandbox.Root, globalDir, "bin")) // what a build brings itself it means to use
	bins = append(bins, b.tools.Path...)
	env := slices.Clone(b.tools.Env)
	for k, v := range extra {
		env = append(env, k+"="+v)
	}
	env = append(env, b.env...)
	return append(env, "PATH="+strings.Join(append(bins, "/usr/local/bin", "/usr/bin", "/bin"), ":"))
}

func (b *build) limits() sandbox.Limits {
	l, def := b.d.c.Builds.Limits, sandbox.Defaults
	l.Memory = cmp.Or(l.Memory, def.Memory)
	l.Pids = cmp.Or(l.Pids, def.Pids)
	l.Disk = cmp.Or(l.Disk, def.Disk)
	l.Files = cmp.Or(l.Files, def.Files)
	l.Wall = cmp.Or(l.Wall, def.Wall)
	l.Output = cmp.Or(l.Output, def.Output)
	l.NoFile = cmp.Or(l.NoFile, def.NoFile)
	l.TmpSize = cmp.Or(l.TmpSize, def.TmpSize)
	return l
}
