package framework

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// language is a language whose servers can't run here.
type language struct {
	name      string
	manifests []string           // dependency files, by name or extension
	starts    []string           // usual main files of a server
	requires  *lazyregexp.Regexp // server package, in a manifest or a main file
	// commands lists first words of start commands. Those before | are on many hosts, so they count only beside a
	// manifest of the language.
	commands string
}

var languages = []language{
	{
		"Python",
		[]string{"requirements.txt", "pyproject.toml", "Pipfile", "environment.yml"},
		[]string{"manage.py", "wsgi.py", "asgi.py", "app.py", "main.py", "server.py", "run.py", "application.py"},
		lazyregexp.New(`(?i)\b(django|flask|fastapi|starlette|sanic|tornado|aiohttp|bottle|falcon|quart|litestar|gunicorn|uvicorn|` +
			`hypercorn|daphne|streamlit|gradio|uvloop|waitress|cherrypy)\b`),
		"python python3 | gunicorn uvicorn flask daphne hypercorn celery streamlit waitress-serve uwsgi poetry pipenv uv django-admin fastapi",
	},
	{
		"Ruby",
		[]string{"Gemfile"},
		[]string{"config.ru", "app.rb", "server.rb"},
		lazyregexp.New(`(?i)["'](rails|sinatra|puma|hanami|roda|thin|unicorn|rack|grape)["']`),
		"ruby | bundle rails rackup puma unicorn thin rake bin/rails",
	},
	{
		"Go",
		[]string{"go.mod"},
		[]string{"main.go", "server.go"},
		lazyregexp.New(
			`"net/http"|gin-gonic/gin|labstack/echo|gofiber/fiber|go-chi/chi|gorilla/mux|valyala/fasthttp|google.golang.org/grpc`,
		), "| go",
	},
	{
		"Java",
		[]string{"pom.xml", "build.gradle", "build.gradle.kts", "build.sbt"},
		nil,
		lazyregexp.New(`(?i)spring-boot|springframework|quarkus|micronaut|ktor|jetty|tomcat|javalin|dropwizard|vertx|play-`),
		"| java mvn ./mvnw gradle ./gradlew sbt",
	},
	{
		"Rust",
		[]string{"Cargo.toml"},
		[]string{"src/main.rs"},
		lazyregexp.New(`(?m)^\s*"?(actix-web|axum|rocket|warp|hyper|tide|poem|salvo)"?\s*=`), "| cargo",
	},
	{".NET", []string{".csproj", ".fsproj", ".sln"}, nil, lazyregexp.New(`Microsoft\.NET\.Sdk\.Web|Microsoft\.AspNetCore`), "| dotnet"},
	{"Elixir", []string{"mix.exs"}, nil, lazyregexp.New(`:(phoenix|plug_cowboy|bandit)\b`), "| mix elixir iex"},
	{"Deno", []string{"deno.json", "deno.jsonc", "deno.lock"}, nil, lazyregexp.New(`deno\s+(run|serve)|"(jsr:@)?@?fresh|\$fresh`), "| deno"},
}

// files returns the project's manifests and main files of a language.
func (l language) files(p *project) (manifests, starts []string) {
	for _, f := range p.t.List {
		if worktree.Parent(f) == p.root && slices.ContainsFunc(l.manifests, func(name string) bool {
			return path.Base(f) == name || strings.HasPrefix(name, ".") && path.Ext(f) == name
		}) {
			manifests = append(manifests, path.Base(f))
		}
	}
	for _, name := range l.starts {
		if p.has(name) {
			starts = append(starts, name)
		}
	}
	return manifests, starts
}

// otherServer returns the error of a project that is a server in another language: one of its files names a server
// package, or its Procfile a program. Otherwise it returns nil.
func (p *project) otherServer() error {
	web := ""
	if w := p.s.commands.web; w.source == "Procfile" {
		if words := strings.Fields(w.text); len(words) > 0 {
			web = words[0]
		}
	}
	for _, l := range languages {
		manifests, starts := l.files(p)
		onHosts, others, _ := strings.Cut(l.commands, "|")
		switch {
		case web != "" && (slices.Contains(strings.Fields(others), web) ||
			len(manifests) > 0 && slices.Contains(strings.Fields(onHosts), web)):
			return l.refused("server", append(slices.Concat(manifests, starts), "Procfile"))
		case web != "" || len(manifests) == 0:
			continue
		}
		for _, name := range slices.Concat(manifests, starts) {
			if l.requires.MatchString(p.read(name)) && (len(starts) > 0 || l.starts == nil) {
				return l.refused("server", slices.Concat(manifests, starts))
			}
		}
	}
	return nil
}

// otherLanguage returns the error for a project of a language that doesn't run here, or nil.
func (p *project) otherLanguage() error {
	for _, l := range languages {
		if manifests, starts := l.files(p); len(manifests) > 0 || l.name == "Python" && len(starts) > 0 {
			return l.refused("project", slices.Concat(manifests, starts))
		}
	}
	return nil
}

func (l language) refused(what string, files []string) error {
	article := "a"
	if strings.ContainsAny(l.name[:1], "AEIO") {
		article = "an"
	}
	return invalid(
		fmt.Sprintf("This is %s %s %s (%s)", article, l.name, what, strings.Join(files[:min(len(files), 4)], ", ")),
		"Slipway runs Node.js and PHP; to publish pages that are in the repository, set the root directory or the output folder", nil,
	)
}
