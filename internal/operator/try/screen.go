package try

import (
	"fmt"
	"strings"
)

// screen says where everything is. Each line can be pasted.
func (t *try) screen(s site) {
	root := t.Store.Path("root.pem")
	lines := [][3]string{
		{"Live site", s.URL, "the browser asks once: the certificate is from your local certificate authority"},
		{"Dashboard", t.base + "/", "sign in as " + email + " with " + t.memory.Password},
		{"REST", t.base + "/api/v1", "described in /api/v1/openapi.json"},
		{"Reference", t.base + "/docs", "every endpoint, documented"},
		{"Root", root, "trust this certificate to avoid the browser's warning"},
		{"Key", t.memory.Key, ""},
	}
	if s.URL == "" {
		lines = lines[1:]
	}
	width := 0
	for _, l := range lines[:len(lines)-1] { // the key is longer than all others, and last
		width = max(width, len(l[1]))
	}
	fmt.Fprintln(t.Out)
	for _, l := range lines {
		fmt.Fprintf(t.Out, "  %-10s %s", l[0], t.paint("36", l[1]))
		if l[2] != "" {
			fmt.Fprintf(t.Out, "%*s  %s", max(0, width-len(l[1])), "", t.paint("2", l[2]))
		}
		fmt.Fprintln(t.Out)
	}
	command := func(what string, text ...string) {
		fmt.Fprintf(t.Out, "\n  %s\n  %s\n", t.paint("2", what), strings.Join(text, "\n  "))
	}
	curl := "curl -H 'Authorization: Bearer " + t.memory.Key + "' "
	sites := t.base + "/api/v1/sites"
	command("See your sites", curl+sites)
	if s.URL != "" {
		command("See the page", "curl --cacert "+root+" "+s.URL)
		command("Change "+t.path("hello")+" and deploy it",
			"tar -c -C "+t.path("hello")+" . | "+curl+"--data-binary @- "+sites+"/"+s.ID+"/deploy/archive")
	}
	command("Deploy a repository of yours on this machine: clone it to where the server finds it, and create a site of it",
		"git clone --bare PATH "+t.path("you/my-site"),
		curl+sites+` --json '{"name": "My site", "type": "static", "repository": "local/you/my-site"}'`)
	fmt.Fprintf(t.Out, "\n  All of it stays in %s. Ctrl-C ends it; the same command starts it again.\n\n", t.Store.DataDir)
}
