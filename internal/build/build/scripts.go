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

// maxManifest bounds a package.json that is read for its scripts.
const maxManifest = 256 << 10

// texts returns what of the user's own a build hands to a shell: the commands, and of
// package.json the scripts that they, or each other, name. It may return more scripts
// than really run, but none that cannot.
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
	for i := 0; i < len(out); i++ { // out grows: a script may name further ones
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
		return // there is none, or its own manager will say what is wrong with it
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

// bashism matches what bash understands and a plain sh does not.
var bashism = lazyregexp.New(
	`\[\[ |(^|[;&|({]\s*)(source|shopt|declare|typeset|pushd|popd|mapfile)\s|pipefail|<\(|<<<|&>|\$'|\$\{\w+(//?|\^|,)|` +
		`\$\{\w+:\d|(^|[;&|]\s*)\w+=\(|\bfunction\s+\w+|\{\d+\.\.\d+\}|\*\*/`,
)

// shell returns the shell for a text: bash for what only it understands, where the host
// has it, and sh otherwise, which such commands are written for.
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

// managers names the package managers that texts call.
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
