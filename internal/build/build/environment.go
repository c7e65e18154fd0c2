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

// gitOverHTTPS lists Git's insteadOf rules: the new prefix of a URL, and the prefix that it replaces.
var gitOverHTTPS = [][2]string{
	{"https://", "ssh://git@"},
	{"https://", "git+ssh://git@"},
	{"https://", "git://"},
	{"https://github.com/", "git@github.com:"},
	{"https://gitlab.com/", "git@gitlab.com:"},
	{"https://bitbucket.org/", "git@bitbucket.org:"},
	{"https://codeberg.org/", "git@codeberg.org:"},
}

// environment sets the environment of all commands of the build, and the log that hides its secrets. texts are the
// scripts that shells will run. The caller's variables override the plan's, which override ours.
func (b *build) environment(texts []string) {
	env := map[string]string{
		"CI":                  "true",
		"npm_config_fund":     "false",
		"npm_config_audit":    "false",
		"npm_config_progress": "false",
		// Report an unreachable registry within seconds rather than minutes.
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
	// Fetch dependencies from Git over https: builds have no other network access, and lock files often name the same
	// repository with ssh.
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
	bins = append(slices.Compact(bins), path.Join(sandbox.Root, globalDir, "bin")) // programs that the build itself installs come first
	bins = append(bins, b.tools.Path...)
	env := slices.Clone(b.tools.Env)
	for k, v := range extra {
		env = append(env, k+"="+v)
	}
	env = append(env, b.env...)
	return append(env, "PATH="+strings.Join(append(bins, "/usr/local/bin", "/usr/bin", "/bin"), ":"))
}

// limits fills in the sandbox's defaults, for messages and the environment.
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
