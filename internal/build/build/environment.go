package build

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/sandbox"
)

// gitOverHTTPS are Git's rules that write an address anew: what it is to begin with, and
// with what it begins.
var gitOverHTTPS = [][2]string{
	{"https://", "ssh://git@"},
	{"https://", "git+ssh://git@"},
	{"https://", "git://"},
	{"https://github.com/", "git@github.com:"},
	{"https://gitlab.com/", "git@gitlab.com:"},
	{"https://bitbucket.org/", "git@bitbucket.org:"},
	{"https://codeberg.org/", "git@codeberg.org:"},
}

// environment makes what every command of the build sees, and the log that hides the
// secret part of it. texts is what it hands to shells. The caller's variables win over the plan's, and those over ours.
func (b *build) environment(texts []string) {
	env := map[string]string{
		"CI":                  "true",
		"npm_config_fund":     "false",
		"npm_config_audit":    "false",
		"npm_config_progress": "false",
		// An unreachable registry is told within seconds, not after more than a minute.
		"npm_config_fetch_retries":          "3",
		"npm_config_fetch_retry_factor":     "2",
		"npm_config_fetch_retry_mintimeout": "1000",
		"npm_config_fetch_retry_maxtimeout": "5000",
		"TMPDIR":                            path.Join(sandbox.Root, tempDir),
		"npm_config_prefix":                 path.Join(sandbox.Root, globalDir),
		"NO_UPDATE_NOTIFIER":                "1",
		"NEXT_TELEMETRY_DISABLED":           "1",
		"ASTRO_TELEMETRY_DISABLED":          "1",
		"FORCE_COLOR":                       "1",
		"NODE_OPTIONS":                      fmt.Sprintf("--max-old-space-size=%d", b.c.Limits.Memory*3/4>>20),
	}
	if slices.ContainsFunc(texts, bashism.MatchString) && hasBash() {
		env["npm_config_script_shell"] = "/bin/bash"
	}
	// Dependencies from Git are fetched over https: nothing else leaves a build, and a
	// lock file often spells the same repository as ssh.
	for i, rule := range gitOverHTTPS {
		env[fmt.Sprintf("GIT_CONFIG_KEY_%d", i)], env[fmt.Sprintf("GIT_CONFIG_VALUE_%d", i)] = "url."+rule[0]+".insteadOf", rule[1]
	}
	env["GIT_CONFIG_COUNT"] = strconv.Itoa(len(gitOverHTTPS))
	env["GIT_TERMINAL_PROMPT"] = "0"
	maps.Copy(env, b.Plan.Env)
	maps.Copy(env, b.Env)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		b.env = append(b.env, k+"="+env[k])
	}
	var secrets []string
	for _, s := range b.Secrets {
		secrets = append(secrets, s.Value)
		if s.Name != "" && s.Value != "" && !buildlog.Hides(s.Value) {
			b.printf("warn", "The value of %s is too short to be redacted: it is visible in this log wherever the build prints it", s.Name)
		}
	}
	b.log = buildlog.New(buildlog.Config{Secrets: secrets, Line: func(l buildlog.Line) { b.report.Line(l.Level, l.Message, l.Raw) }})
}

func (b *build) commandEnv(c framework.Command, extra map[string]string) []string {
	var bins []string
	for _, dir := range []string{c.Dir, b.Plan.Root, ""} {
		bins = append(bins, path.Join(sandbox.Root, RepoDir, dir, "node_modules/.bin"))
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

// limits fills in the sandbox's defaults, which messages and the environment name.
func limits(l sandbox.Limits) sandbox.Limits {
	def := sandbox.Defaults
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
