package framework

import (
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// HashedFolder is a folder, relative to the output, whose file names contain a digest of the content, in a form of
// package release: base64, base32, hex, digest, or empty for all files.
type HashedFolder struct {
	Folder string `json:"folder"`
	Form   string `json:"form,omitempty"`
}

// hashedBy lists where each preset's tool writes hashed files by default. Package release itself knows the folders of
// frameworks (_next/static, _astro, _nuxt, _app/immutable).
var hashedBy = map[string][]HashedFolder{
	"vite":             {{"assets", "base64"}},
	"react-router-spa": {{"assets", "base64"}},
	"remix-spa":        {{"assets", "base64"}},
	"react-router":     {{"assets", "base64"}},
	"remix":            {{"assets", "base64"}},
	"qwik-static":      {{"build", "base64"}, {"assets", "base64"}},
	"vitepress":        {{"assets", "base64"}},
	"vuepress":         {{"assets", "base64"}, {"assets", "hex"}},
	"storybook":        {{"assets", "base64"}, {"", "hex"}},
	"solid-start":      {{"_build/assets", "base64"}, {"assets", "base64"}},
	"tanstack-start":   {{"assets", "base64"}},
	"slidev":           {{"assets", "base64"}},
	"angular":          {{"", "base32"}, {"media", "base32"}, {"", "hex"}},
	"create-react-app": {{"static", "hex"}},
	"vue-cli":          {{"js", "hex"}, {"css", "hex"}, {"img", "hex"}, {"fonts", "hex"}, {"media", "hex"}},
	"expo":             {{"_expo/static", "hex"}, {"assets", "hex"}},
	"parcel":           {{"", "hex"}},
	"webpack":          {{"", "hex"}},
	"rsbuild":          {{"static", "hex"}, {"", "hex"}},
	"rollup":           {{"", "base64"}, {"", "base32"}, {"", "hex"}},
	"gatsby":           {{"static", ""}, {"", "hex"}},
	"docusaurus":       {{"assets", "hex"}},
	"ember":            {{"assets", "hex"}},
	"laravel":          {{"build/assets", "base64"}},
	"symfony":          {{"build", "hex"}},
	"stencil":          {{"build", "hex"}},
	"preact-cli":       {{"", "hex"}},
	"mdbook":           {{"", "hex"}},
	"mkdocs":           {{"assets", "hex"}},
	"hugo":             {{"", "digest"}},
}

// namesFiles matches a configuration that changes the names of output files. Then only folders and [hash] patterns in
// it are known.
var namesFiles = lazyregexp.New(`(?:entryFileNames|chunkFileNames|assetFileNames)\b`)

// hashed adds the output's hashed folders to a plan.
func hashed(p *project, d *draft) {
	d.Hashed = hashedBy[d.Framework]
	vite, _ := p.config("vite.config")
	switch {
	case len(d.Hashed) > 0 && d.Hashed[0] == HashedFolder{"assets", "base64"}:
		if namesFiles.MatchString(vite) && !strings.Contains(vite, "[hash") {
			d.Hashed = nil // the configuration leaves the digest out
		} else if dir, ok := worktree.CleanDir(configfile.JSString(vite, "assetsDir")); ok && dir != "" &&
			configfile.JSString(vite, "assetsDir") != "" {
			d.Hashed = []HashedFolder{{dir, "base64"}}
		} else if namesFiles.MatchString(vite) {
			d.Hashed = []HashedFolder{{"", "base64"}, {"", "hex"}} // hashed names in unknown folders
		}
	case d.Framework == "custom" || d.Framework == "nx" || len(d.Hashed) == 0 && d.Runtime == Static:
		switch {
		case p.pkg.Dep("vite", "rolldown-vite") != "" && d.Framework != "sveltekit-static":
			d.Hashed = hashedBy["vite"]
		case p.pkg.Dep("webpack", "@rspack/core", "parcel") != "":
			d.Hashed = hashedBy["webpack"]
		case p.pkg.Dep("esbuild", "rollup") != "":
			d.Hashed = hashedBy["rollup"]
		}
	}
	if len(d.Build) == 0 {
		d.Hashed = nil // no tool of this preset wrote the files
	}
}

// routers lists packages of client-side routers.
var routers = []string{
	"react-router-dom", "react-router", "vue-router", "@tanstack/react-router", "@tanstack/solid-router",
	"@tanstack/router", "wouter", "preact-router", "preact-iso", "@solidjs/router", "svelte-routing",
	"svelte-spa-router", "@mateothegreat/svelte5-router", "@vaadin/router", "navigo", "page", "@reach/router",
	"universal-router", "aurelia-router", "@angular/router", "expo-router",
}

// singlePage reports whether the output is an application with a client-side router.
func singlePage(p *project, d *draft) bool {
	if d.Runtime != Static {
		return false
	}
	switch d.Framework {
	case "react-router-spa", "remix-spa", "ember":
		return true
	case "sveltekit-static":
		src, _ := p.config("svelte.config", "vite.config")
		return configfile.JSString(src, "fallback") == "index.html"
	case "vite", "angular", "create-react-app", "vue-cli", "expo", "parcel", "webpack", "rsbuild", "rollup", "preact-cli", "stencil":
		return p.pkg.Dep(routers...) != ""
	}
	return false
}
