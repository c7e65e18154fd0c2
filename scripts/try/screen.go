package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// screen says where everything is, each line good to be copied.
func (t *try) screen(s site) {
	root := filepath.Join(t.data, "root.pem")
	base := "http://" + t.listen
	lines := [][3]string{
		{"Live site", s.URL, "the browser asks once: the certificate is from your local certificate authority"},
		{"Dashboard", base + "/", "sign in as " + t.memory.Email + " with " + t.memory.Password},
		{"REST", base + "/api/v1", "described in /api/v1/openapi.json"},
		{"Reference", base + "/docs", "every endpoint, documented"},
		{"Root", root, "trust this certificate to avoid the browser's warning"},
		{"Key", t.memory.Key, ""},
	}
	if s.URL == "" { // its owner deleted it
		lines = lines[1:]
	}
	width := 0
	for _, l := range lines[:len(lines)-1] { // the key is longer than all others, and last
		width = max(width, len(l[1]))
	}
	fmt.Println()
	for _, l := range lines {
		fmt.Printf("  %-10s %s", l[0], t.paint("36", l[1]))
		if l[2] != "" {
			fmt.Printf("%*s  %s", max(0, width-len(l[1])), "", t.paint("2", l[2]))
		}
		fmt.Println()
	}
	command := func(what string, text ...string) {
		fmt.Printf("\n  %s\n  %s\n", t.paint("2", what), strings.Join(text, "\n  "))
	}
	authorized := "-H 'Authorization: Bearer " + t.memory.Key + "'"
	command("See your sites", "curl "+authorized+" "+base+"/api/v1/sites")
	if s.URL != "" {
		command("See the page", "curl --cacert "+root+" "+s.URL)
		command(
			"Change "+t.path("you/hello")+", commit, and deploy it",
			"curl -X POST "+authorized+" "+base+"/api/v1/sites/"+s.ID+"/deploy",
		)
	}
	command("Deploy a repository of yours on this machine: clone it to where the server finds it, and create a site of it",
		"git clone --bare PATH "+t.path("you/my-site"),
		"curl "+authorized+" "+base+`/api/v1/sites --json '{"name": "My site", "type": "static", "repository": "local/you/my-site"}'`)
	fmt.Printf("\n  All of it stays in %s. Ctrl-C ends it; %s starts it again.\n\n",
		t.data, t.paint("1", "make run"))
}
