package build

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// maxManifest caps the bytes of a package.json that is read for its scripts.
const maxManifest = 256 << 10

// texts returns the shell code that a build runs: the commands, and the scripts of package.json that they or other
// scripts name. It may return scripts that don't run, but misses none that do.
func (b *build) texts(ctx context.Context) []string {
	var out []string
	scripts := map[string]string{}
	read := map[string]bool{}
	for _, c := range slices.Concat(b.Plan.Install, b.Plan.Scripts, b.Plan.Build) {
		out = append(out, c.Shell, strings.Join(c.Argv, " "))
		for _, dir := range []string{c.Dir, b.Plan.Root} {
			if name := path.Join(dir, "package.json"); !read[name] {
				read[name] = true
				b.readScripts(ctx, name, scripts)
			}
		}
	}
	for _, hook := range []string{"preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare"} {
		out = append(out, scripts[hook])
		delete(scripts, hook)
	}
	for i := 0; i < len(out); i++ { // out grows: a script may call others
		words := strings.FieldsFunc(out[i], func(r rune) bool { return strings.ContainsRune(" \t\n;&|()'\"", r) })
		for _, w := range words {
			for _, name := range []string{"pre" + w, w, "post" + w} {
				if body, ok := scripts[name]; ok {
					out = append(out, body)
					delete(scripts, name)
				}
			}
		}
	}
	return out
}

func (b *build) readScripts(ctx context.Context, name string, into map[string]string) {
	text, err := b.Tree.ReadFile(ctx, name, maxManifest)
	if err != nil {
		return // missing or invalid; the package manager reports that
	}
	var manifest struct {
		Scripts map[string]string `json:"scripts"`
	}
	if json.Unmarshal(text, &manifest) != nil {
		return
	}
	for name, body := range manifest.Scripts {
		into[name] = body
	}
}

// bashism matches syntax that bash supports and a plain sh doesn't.
var bashism = lazyregexp.New(
	`\[\[ |(^|[;&|({]\s*)(source|shopt|declare|typeset|pushd|popd|mapfile)\s|pipefail|<\(|<<<|&>|\$'|\$\{\w+(//?|\^|,)|` +
		`\$\{\w+:\d|(^|[;&|]\s*)\w+=\(|\bfunction\s+\w+|\{\d+\.\.\d+\}|\*\*/`,
)

// shell returns the shell for a text: bash if the text needs it and the host has it, else sh.
func shell(text string) string {
	if bashism.MatchString(text) && hasBash() {
		return "/bin/bash"
	}
	return "/bin/sh"
}

func hasBash() bool {
	info, err := os.Stat("/bin/bash")
	return err == nil && info.Mode().IsRegular()
}

var called = lazyregexp.New(
	`(?:^|[;&|(]\s*|\b(?:exec|time|env|npx|cross-env|dotenv|--)\s+(?:\w+=\S*\s+)*)(yarn|pnpm|bun|npm)(?:\s|$)|` +
		`(?:^|[;&|(]\s*)(?:\w+=\S*\s+)+(yarn|pnpm|bun|npm)(?:\s|$)`,
)

// managers returns the package managers that texts call.
func managers(texts []string) []string {
	var out []string
	for _, text := range texts {
		for _, m := range called.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1]+m[2])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
